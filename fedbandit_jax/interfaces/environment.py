"""The interface of environments, which decide arrivals, offers and rewards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from jax import Array
from jaxtyping import Bool, Float, Int, Key

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue

MAX_ARMS = 2**24  # most arms of a round, see `core.random.block_at`


@struct.sealed
@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """The static, hashable description of an environment: all that an algorithm may know before the first round."""

    n_agents: int  # M
    n_arms: int  # K, the largest number of arms that a round offers
    dim: int  # d
    fixed_contexts: bool = False  # whether every round offers the same (M, K, d) contexts
    max_norm: float = math.inf  # bound on the Euclidean norm of every feature vector
    rewards_in_unit: bool = False  # whether all rewards are in [0, 1]
    n_users: int = 0  # n, returning and identified users; 0 if every user is new
    n_servers: int = 1  # their servers: user u is at server u % n_servers
    drops: bool = False  # whether silos may miss synchronisations, see `Round.away`
    late: int = 0  # slots of delayed rewards of every silo, see `Round.arrives`; 0 without delay
    constant: bool = False  # whether all feature vectors have the same constant entry, an intercept
    silos: int = struct.later(1)  # the most silos of one returning user
    basis: str = struct.later("")  # the data behind a model of answers, for summaries and figures
    rejects: bool = struct.later(False)  # whether the played arms decide which rows of a log count, see `Rejecting`
    of_rows: bool = struct.later(False)  # whether users are made of people's rows, in a table or a log

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
    """One round as the agents see it: the offered arms, and the users."""

    contexts: Float[Array, "M K d"]  # feature vectors
    mask: Bool[Array, "M K"] | None = None  # which arms exist; None if all do
    user: Int[Array, " M"] | None = None  # returning users; different people at different silos unless `Spec.silos` > 1
    arrives: Int[Array, " M"] | None = None  # slot of the delayed reward that arrives; this round's reward replaces it
    away: Bool[Array, " M"] | None = None  # which silos miss the synchronisation after this round, if `Spec.drops`


class Feedback(NamedTuple):
    """Rewards and gaps of the arms played; an algorithm gets `reward` only.

    The regret of a run is the sum of all gaps, over agents and rounds.
    """

    reward: Float[Array, " M"]  # rewards that were observed
    gap: Float[Array, " M"]  # largest mean reward offered, minus the played arm's


class Environment(Protocol):
    """A pytree that decides arrivals, offers and rewards; see `fb.envs`."""

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


class Answering(Environment, Protocol):
    """An environment with rewards that are functions of features and agent, elementwise; `pull` is made of them."""

    def mean_at(self, world: Any, x: Sequence[Array] | Array) -> Array:
        """Returns the mean reward of vectors with these d features, on the leading axis."""
        ...

    def reward_at(self, key: Array, mean: Array, agent: Array) -> Array:
        """Draws the rewards of agents for arms of these means."""
        ...


class Drawn(Answering, Protocol):
    """An environment with draws that are functions of (key, arm, agent), each possible without the others.

    `features_at` is elementwise in uint32 numbers `arm` and `agent`, which broadcast, and `observe` is made of it. The
    key is the round's, or a tuple of its two words. On a GPU one kernel does all. It gets the arrays of environment and
    world row by row. An array of shape (n,) is a tuple of n scalars. There are no larger ones, see `core.choose`.
    """

    def features_at(
        self, key: Array | tuple[Array, Array], world: Any, t: Array, arm: Array, agent: Array
    ) -> Sequence[Array] | Array:
        """Returns the d features of the arms of agents in round t."""
        ...


class Listed(Answering, Protocol):
    """An environment that offers each agent consecutive rows of a table, a varying number every round.

    `observe` offers the same, with padded contexts; see `core.choose.choose_rows`.
    """

    @property
    def ragged(self) -> bool:
        """Whether padded contexts would be more work than a loop over the offered rows."""
        ...

    def listed(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Int[Array, " M"], Int[Array, " M"]]:
        """Returns the first offered row of each agent in a round, and the number of its rows."""
        ...

    def rows_at(self, first: Int[Array, ""], size: int) -> Float[Array, "d {size}"]:
        """Returns the features of `size` <= K rows from the first one on, arbitrary past the end of a query."""
        ...


class Rejecting(Environment, Protocol):
    """An environment with answers for some arms only, which lets agents play again until it accepts their arms.

    Set `rejects` and `of_rows` in its spec: certificates then exclude the people behind the rows. `observe` offers
    another user to refused agents, and the same offer to the others.
    """

    def accepts(self, key: Key[Array, ""], world: Any, arms: Int[Array, " M"]) -> tuple[Bool[Array, " M"], Any]:
        """Returns the mask of agents with accepted arms, int32, and the world, the input of `observe`."""
        ...
