"""What an environment and an algorithm are: the types every layer speaks.

Axis letters, everywhere: M agents, K arms, d dim, T rounds, B rounds in a batch, S synchronisations, L tree levels; in
the multi-armed family a round is one user, and N is the number of users who are handled together.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from jax import Array

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import validate
from fedbandit_jax.core.wide import Wide


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """Static description of an environment: what an algorithm may know before the first round. Hashable."""

    n_agents: int  # M
    n_arms: int  # K, the largest number offered
    dim: int  # d
    fixed_contexts: bool = False  # the same (M, K, d) contexts every round
    max_norm: float = math.inf  # bound on the Euclidean norm of a feature vector
    rewards_in_unit: bool = False  # are rewards in [0, 1]?
    n_users: int = 0  # n, users who come again and are told apart; 0 = every user is new
    n_servers: int = 1  # L, servers that hold them: user u is at server u % L

    def __post_init__(self):
        for name in ("n_agents", "n_arms", "dim", "n_servers"):
            validate.integer(name, getattr(self, name), at_least=1)
        validate.integer("n_users", self.n_users, at_least=0)
        for name in ("fixed_contexts", "rewards_in_unit"):
            validate.boolean(name, getattr(self, name))
        validate.within("max_norm", self.max_norm, 0, math.inf)


class Round(NamedTuple):
    """What the agents are offered."""

    contexts: Array  # (M, K, d) feature vectors
    mask: Array | None = None  # (M, K) which arms exist; None = all
    user: Array | None = None  # (M,) int32: who came, if users are told apart


class Feedback(NamedTuple):
    """What playing returns. Algorithms are given `reward` only; `regret` is for the record."""

    reward: Array  # (M,)
    regret: Array  # (M,) pseudo-regret: best mean - mean of the arm played


class Status(enum.IntFlag):
    """Why a seed must not be trusted; bits are combined."""

    OK = 0
    NO_ESTIMATE = 1  # V was not positive definite, or the statistics not finite: agents kept the previous estimate
    NOT_FINITE = 2  # a regret was NaN or infinite


class Report(NamedTuple):
    """What a synchronisation cost, and the status bits of the learner after it."""

    rounds: Array | int = 0  # rounds of communication
    floats: Array | int = 0  # numbers sent by or to all agents; one sum, or (2,) for uplink and downlink
    float_bits: Array | int = 32  # bits of each, shaped like `floats`
    status: Array | int = 0  # `Status` bits
    counts: Mapping[str, Array | int] = {}  # what else is counted: `Result.counts`


class Metrics(NamedTuple):
    """What one step of a process adds to the record."""

    regret: Array  # (P,) group pseudo-regret of each round, or of each round of P stretches of rounds
    report: Report
    rounds: Array | None = None  # (P,) how many rounds each stretch has; None = these are rounds
    gauges: Mapping[str, Array] = {}  # what stands after the step: `Result.gauges`


class Environment(Protocol):
    """A world: who arrives, what is offered, what would be answered. A pytree; see `fb.envs`."""

    @property
    def spec(self) -> Spec:
        """Static description."""
        ...

    def init(self, key: Array) -> Any:
        """Draw the world of one seed (theta*, fixed contexts, ...)."""
        ...

    def observe(self, key: Array, world: Any, t: Array) -> tuple[Round, Any]:
        """What is offered in round t = 0, 1, ...; may move the world on."""
        ...

    def pull(self, key: Array, world: Any, offered: Round, arms: Array) -> Feedback:
        """Rewards and regrets of the arms played, (M,) int32."""
        ...


class Arms(Environment, Protocol):
    """An environment whose users are alike: a reward depends on the arm only. Many users can be asked at once."""

    def means(self, world: Any) -> Array:
        """Mean reward of every arm, (K,)."""
        ...

    def answers(self, key: Array, world: Any, arm: Array, size: int) -> tuple[Array, Array]:
        """Rewards of `size` (static, even) users who pull `arm`: two halves (size / 2,), as draws come in two words."""
        ...


class Users(Environment, Protocol):
    """An environment whose users come again, one a round, and are alike within clusters.

    `observe` must return the world as it is: many rounds are drawn at once.
    """

    def clusters(self, world: Any) -> Array:
        """The true cluster of every user, (n,) int32 in 0 ... m - 1. Algorithms never see it."""
        ...

    @property
    def n_clusters(self) -> int:
        """m."""
        ...


class Algorithm:
    """A federated bandit algorithm. Subclass it, decorate with `@fb.pytree`, define `init`, `act` and `learn`.

    A run is S batches of `batch` rounds. In each, agents start from `download`, `act` and `learn` locally, and
    `sync` ends the batch with all that the server and the agents exchange. The defaults suit an algorithm that
    never communicates. Numbers are pytree leaves, so changing them does not compile again.
    """

    name: str = "algorithm"
    batch: int = 1

    def parameters(self) -> tuple[str, ...]:
        """Names that `replace` takes."""
        return tuple(field.name for field in dataclasses.fields(self)) if dataclasses.is_dataclass(self) else ()

    def replace(self, **changes: Any) -> Algorithm:
        """The same algorithm with other parameters."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        """Host-side set-up once the environment and T are known: calibrate noise, check norms."""
        del spec, horizon
        return self

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """What the run proves about privacy. Computed on the host."""
        del spec, horizon
        return no_privacy("the algorithm adds no noise")

    def init(self, key: Array, spec: Spec) -> Any:
        """State before round 0."""
        raise NotImplementedError(f"{type(self).__name__}.init")

    def download(self, state: Any, offered: Round) -> Any:
        """Local state of all agents at the start of a batch; `offered` is the batch's first round."""
        del offered
        return state

    def act(self, key: Array, t: Array, local: Any, offered: Round) -> Array:
        """Arms to play in round t, (M,) int32."""
        raise NotImplementedError(f"{type(self).__name__}.act")

    def learn(self, t: Array, local: Any, offered: Round, arms: Array, rewards: Array) -> tuple[Any, Any]:
        """New local state, and a record of the round that `sync` receives stacked over the batch."""
        raise NotImplementedError(f"{type(self).__name__}.learn")

    def sync(self, key: Array, k: Array, state: Any, local: Any, records: Any) -> tuple[Any, Report]:
        """End batch k = 0, 1, ...: records have a leading axis B. Returns the state the next batch downloads."""
        del key, k, state, records
        return local, Report()

    def view(self, state: Any) -> Any:
        """All that the last synchronisation showed to those whom the trust model does not trust; audits look at it."""
        raise NotImplementedError(f"{type(self).__name__}.view")


class Plan(NamedTuple):
    """Whom a multi-armed algorithm asks in a batch."""

    active: Array  # (K,) bool: the arms pulled
    users: Array  # int32: how many users pull each of them
    asked: Array  # bool: are the users' rewards collected?


class ArmAlgorithm(Algorithm):
    """A multi-armed algorithm that pulls every active arm as often in a batch, and learns from sums of rewards.

    Subclass it, decorate with `@fb.pytree`, define `n_batches`, `init`, `plan`, `collect` and `conclude`. A batch that
    would reach past the horizon is played as far as it goes, and nothing is learned from it.
    """

    n_batches: int = 0  # so many that they reach the horizon with one arm
    round_robin: bool = False  # does each arm get one user in turn, or all its users before the next?

    def plan(self, state: Any, k: Array) -> Plan:
        """Batch k = 0, 1, ..."""
        raise NotImplementedError(f"{type(self).__name__}.plan")

    def collect(self, key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Wide:
        """What a block of users of one arm adds up to: rewards in two halves (N / 2,), and who belongs to the batch."""
        raise NotImplementedError(f"{type(self).__name__}.collect")

    def conclude(self, key: Array, k: Array, state: Any, sums: Wide) -> tuple[Any, Report]:
        """End batch k with the sums (K,) of what was collected from every arm."""
        raise NotImplementedError(f"{type(self).__name__}.conclude")


class Partition(NamedTuple):
    """Which users an algorithm takes to be alike: equal labels in 0 ... n - 1."""

    local: Array  # (n,) int32, on their servers: users of different servers are not compared
    shared: Array  # (n,) int32, over all servers


class ClusteringAlgorithm(Algorithm):
    """An algorithm for users who come one at a time, come again, and may be alike.

    Subclass it, decorate with `@fb.pytree`, define `init`, `index`, `serve` and `partition`. Keys are those of a whole
    stream: fold in t. On a CPU every seed runs on its own, so that a `lax.cond` on data costs nothing while false.
    Rounds t and users are int32 scalars, users in 0 ... n - 1, rewards y float32 scalars.
    """

    def begin(self, key: Array, t: Array, state: Any) -> tuple[Any, Report]:
        """Before anybody comes in round t."""
        del key, t
        return state, Report()

    def index(self, key: Array, t: Array, state: Any, user: Array, contexts: Array) -> Array:
        """Worth of every arm to this user, (K,), from its features (K, d): the first largest is played."""
        raise NotImplementedError(f"{type(self).__name__}.index")

    def serve(self, key: Array, t: Array, state: Any, user: Array, x: Array, y: Array) -> tuple[Any, Report]:
        """Learn from the reward y of the features x (d,)."""
        raise NotImplementedError(f"{type(self).__name__}.serve")

    def partition(self, state: Any) -> Partition:
        """The clusters found so far."""
        raise NotImplementedError(f"{type(self).__name__}.partition")
