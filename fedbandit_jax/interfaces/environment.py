"""The interface of environments, which decide arrivals, offers and rewards."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, Protocol

from jax import Array
from jaxtyping import Bool, Float, Int, Key

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue

MAX_ARMS = 2**24  # most arms of a round, see `core.random.block_at`


@struct.sealed
@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """The static, hashable description of an environment: all that an algorithm may know before the first round.

    Args:
        n_agents: number M of silos.
        n_arms: K, the largest number of arms that a round offers.
        dim: length d of a feature vector.
        fixed_contexts: whether every round offers the same (M, K, d) contexts.
        max_norm: bound on the Euclidean norm of every feature vector.
        rewards_in_unit: whether all rewards are in [0, 1].
        n_users: n, returning and identified users; 0 if every user is new.
        n_servers: their servers: user u is at server u % n_servers.
        drops: whether silos may miss synchronisations, see `Round.away`.
        late: slots of delayed rewards of every silo, see `Round.arrives`; 0 without delay.
        constant: whether all feature vectors have the same constant entry, an intercept.
        silos: the most silos of one returning user.
        basis: the data behind a model of answers, for summaries and figures.
        rejects: whether the played arms decide which rows of a log count.
        of_rows: whether users are made of people's rows, in a table or a log.
    """

    n_agents: int
    n_arms: int
    dim: int
    fixed_contexts: bool = False
    max_norm: float = math.inf
    rewards_in_unit: bool = False
    n_users: int = 0
    n_servers: int = 1
    drops: bool = False
    late: int = 0
    constant: bool = False
    silos: int = struct.later(1)
    basis: str = struct.later("")
    rejects: bool = struct.later(False)
    of_rows: bool = struct.later(False)

    def __post_init__(self):
        validate.integer("n_arms", self.n_arms, at_least=1, at_most=MAX_ARMS)
        for name in ("n_agents", "n_arms", "dim", "n_servers", "silos", "n_users", "late"):
            least = 0 if name in ("n_users", "late") else 1
            object.__setattr__(self, name, validate.integer(name, getattr(self, name), at_least=least))  # a plain int
        for name in ("fixed_contexts", "rewards_in_unit", "constant", "drops", "rejects", "of_rows"):
            validate.boolean(name, getattr(self, name))
        validate.within("max_norm", self.max_norm, 0, math.inf)
        validate.instance("basis", self.basis, str, "a string, which may be empty")
        if self.rejects and not self.of_rows:
            raise BadValue("of_rows", "must be True where rows are rejected", False, others=("rejects",))

    def visits(self, horizon: int) -> int:
        """Returns the number of visits of users in T = `horizon` rounds: M T, also if n users return."""
        return self.n_agents * horizon

    def need_users(self, name: str) -> None:
        """Raises a ValueError, naming the algorithm, unless users are identified."""
        if self.n_users < 1:
            raise BadValue(
                "env", f"must have identified users for {name}, as fb.envs.clustered(...) has", self.n_users, got=""
            )


class Round(NamedTuple):
    """One round as the agents see it: the offered arms, and the users.

    Attributes:
        contexts: feature vectors of the arms.
        mask: which arms exist; None if all do.
        user: returning users; different people at different silos unless `Spec.silos` > 1.
        arrives: slot of the delayed reward that arrives; this round's reward replaces it.
        away: which silos miss the synchronisation after this round, if `Spec.drops`.
    """

    contexts: Float[Array, "M K d"]
    mask: Bool[Array, "M K"] | None = None
    user: Int[Array, " M"] | None = None
    arrives: Int[Array, " M"] | None = None
    away: Bool[Array, " M"] | None = None


class Feedback(NamedTuple):
    """Rewards and gaps of the arms played; an algorithm gets `reward` only.

    The regret of a run is the sum of all gaps, over agents and rounds.

    Attributes:
        reward: rewards that were observed.
        gap: largest mean reward offered, minus the played arm's.
    """

    reward: Float[Array, " M"]
    gap: Float[Array, " M"]


class Environment(Protocol):
    """A pytree that decides arrivals, offers and rewards; see `fb.envs`.

    Optional methods make runs faster, and do the same as `observe` and `pull`, which are made of them:

    - `features_at`, `mean_at`, `reward_at`: single arms and rewards, see `fb.envs.Sphere`.
    - `listed`, `rows_at`, `mean_at`, `reward_at`, and the field `ragged`: rows of a table, see `fb.envs.Replay`.

    `accepts` decides by data which rounds count, as in `fb.envs.Rejection`. Then set `rejects` and `of_rows` in the
    spec, so that certificates exclude the people behind the rows.
    """

    @property
    def spec(self) -> Spec:
        """Returns the static description of the environment."""
        ...

    def init(self, key: Key[Array, ""]) -> Any:
        """Draws the world of one seed, i.e. all constants of a run (theta*, fixed contexts, ...)."""
        ...

    def observe(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Round, Any]:
        """Returns the offer of round t = 0, 1, ..., and the world, which may drift."""
        ...

    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Returns the rewards and gaps of the arms played, int32."""
        ...
