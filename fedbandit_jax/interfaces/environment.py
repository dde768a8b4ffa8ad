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

MAX_ARMS = 2**24  # most arms of a round, by whose numbers draws are told apart, see `core.random.block_at`


@struct.sealed
@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """A static and hashable description of an environment: all that an algorithm may know before the first round."""

    n_agents: int  # M
    n_arms: int  # K, the largest number of arms that a round offers
    dim: int  # d
    fixed_contexts: bool = False  # whether every round offers the same (M, K, d) contexts
    max_norm: float = math.inf  # bound on the Euclidean norm of every feature vector
    rewards_in_unit: bool = False  # whether all rewards are in [0, 1]
    n_users: int = 0  # n, users who return and are told apart; 0 if every user is new
    n_servers: int = 1  # servers that hold these users: user u is at server u % n_servers
    drops: bool = False  # whether silos may miss synchronisations, of which `Round.away` tells
    late: int = 0  # rewards that every silo waits for, of which `Round.arrives` names one; 0 if they come at once
    constant: bool = False  # whether all feature vectors have the same constant entry, so that means have an intercept
    silos: int = struct.later(1)  # the most silos that one user who returns comes to
    basis: str = struct.later("")  # what the answers are a model of, in words that summaries and figures show
    rejects: bool = struct.later(False)  # whether rows of a log are left out by what was played, see `Rejecting`
    of_rows: bool = struct.later(False)  # whether users are made of people's rows, in a table or a log

    def __post_init__(self):
        for name in ("n_agents", "dim", "n_servers", "silos"):
            validate.integer(name, getattr(self, name), at_least=1)
        validate.integer("n_arms", self.n_arms, at_least=1, at_most=MAX_ARMS)
        for name in ("n_users", "late"):
            validate.integer(name, getattr(self, name), at_least=0)
        for name in ("fixed_contexts", "rewards_in_unit", "constant", "drops", "rejects", "of_rows"):
            validate.boolean(name, getattr(self, name))
        validate.within("max_norm", self.max_norm, 0, math.inf)
        validate.instance("basis", self.basis, str, "a string, which may be empty")
        if self.rejects and not self.of_rows:
            raise BadValue("of_rows", "must be True where rows are rejected", False, others=("rejects",))

    def visits(self, horizon: int) -> int:
        """The number of visits of users in T = `horizon` rounds: M T, also if n users return."""
        return self.n_agents * horizon

    def need_users(self, name: str) -> None:
        """Raises a ValueError, naming the algorithm, unless users are told apart."""
        if self.n_users < 1:
            raise BadValue(
                "env", f"must have identified users for {name}, as fb.envs.clustered(...) has", self.n_users, got=""
            )


class Round(NamedTuple):
    """One round as the agents see it: the arms on offer, and the users who came."""

    contexts: Float[Array, "M K d"]  # feature vectors
    mask: Bool[Array, "M K"] | None = None  # which arms exist; None if all do
    user: Int[Array, " M"] | None = None  # who came, if users return; two people at two silos unless `Spec.silos` > 1
    arrives: Int[Array, " M"] | None = None  # which of the `Spec.late` rewards arrives; this round's takes its place
    away: Bool[Array, " M"] | None = None  # which silos miss the synchronisation after this round, if `Spec.drops`


class Feedback(NamedTuple):
    """Rewards and gaps of the arms played; an algorithm is given `reward` only, and `gap` is for the record.

    The regret of a run is the sum of all gaps, over agents and over the rounds so far.
    """

    reward: Float[Array, " M"]  # rewards that were observed
    gap: Float[Array, " M"]  # largest mean reward offered, less that of the arm played


class Environment(Protocol):
    """A pytree that decides arrivals, offers and rewards; see `fb.envs`."""

    @property
    def spec(self) -> Spec:
        """The static description of the environment."""
        ...

    def init(self, key: Key[Array, ""]) -> Any:
        """Draws the world of one seed, i.e. all that stays the same for a run (theta*, fixed contexts, ...)."""
        ...

    def observe(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Round, Any]:
        """The offer of round t = 0, 1, ..., and the world, which may have moved on."""
        ...

    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """The rewards and gaps of the arms played, int32."""
        ...


class Drawn(Environment, Protocol):
    """An environment whose draws are functions of (key, arm, agent), so that each can be drawn without the others.

    `features_at` is elementwise in uint32 numbers `arm` and `agent`, which broadcast, and `mean_at` in the d features
    that it returns; so is `reward_at`. `observe` and `pull` are made of them. The key is that of the round, as in
    these, or a tuple of its two words. On a GPU all is done in one kernel, which is given the arrays of environment and
    world row by row: one of shape (n,) is a tuple of n scalars, and there are no larger ones; see
    `core.choose`.
    """

    def features_at(
        self, key: Array | tuple[Array, Array], world: Any, t: Array, arm: Array, agent: Array
    ) -> Sequence[Array] | Array:
        """The d features of the arms of agents in round t."""
        ...

    def mean_at(self, world: Any, x: Sequence[Array] | Array) -> Array:
        """The mean reward of vectors with these d features."""
        ...

    def reward_at(self, key: Array, mean: Array, agent: Array) -> Array:
        """Draws the rewards of agents who played arms of these means."""
        ...


class Listed(Environment, Protocol):
    """An environment that offers each agent consecutive rows of a table, of which it has another number every round.

    `observe` and `pull` offer and answer the same, with contexts that are padded; see `core.choose.choose_rows`.
    """

    @property
    def ragged(self) -> bool:
        """Whether padded contexts would be more work than a loop over the rows that are offered."""
        ...

    def listed(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Int[Array, " M"], Int[Array, " M"]]:
        """The first row that each agent is offered in a round, and the number of its rows."""
        ...

    def rows_at(self, first: Int[Array, ""], size: int) -> Float[Array, "d {size}"]:
        """The features of `size` <= K rows from the first one on; past the end of a query they may be any."""
        ...

    def mean_at(self, world: Any, x: Sequence[Array] | Array) -> Array:
        """The mean reward of vectors with these d features, on the leading axis."""
        ...

    def reward_at(self, key: Array, mean: Array, agent: Array) -> Array:
        """Draws the rewards of agents who played rows of these means."""
        ...


class Rejecting(Environment, Protocol):
    """An environment that knows the answers to some arms only, and has agents play again until it accepts theirs.

    Set `rejects` and `of_rows` in its spec: certificates then exclude the people behind the rows.
    `observe` offers another user to agents who were refused in a round, and to others what they were offered before.
    """

    def accepts(self, key: Key[Array, ""], world: Any, arms: Int[Array, " M"]) -> tuple[Bool[Array, " M"], Any]:
        """The mask of agents whose arms, int32, are accepted in this round, and the world, the input of `observe`."""
        ...
