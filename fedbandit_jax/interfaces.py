"""What an environment and an algorithm are: the types every layer speaks.

Axis letters, everywhere: M agents, K arms, d dim, T rounds, B rounds in a batch, S synchronisations, L tree levels; in
the multi-armed family a round is one user, and N is the number of users who are handled together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.status import Status as Status


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
    """What playing returns. Algorithms are given `reward` only; `gap` is for the record.

    The regret of a run is the sum of all gaps: over agents, and over the rounds so far.
    """

    reward: Array  # (M,)
    gap: Array  # (M,) best mean offered - mean of the arm played


class Report(NamedTuple):
    """What a synchronisation cost, and the status bits of the learner after it."""

    rounds: Array | int = 0  # rounds of communication
    floats: Array | int = 0  # numbers sent by or to all agents; one sum, or (2,) for uplink and downlink
    float_bits: Array | int = 32  # bits of each, shaped like `floats`
    status: Array | int = 0  # `Status` bits
    counts: Mapping[str, Array | int] = {}  # what else is counted: `Result.counts`


class Metrics(NamedTuple):
    """What one step of a process adds to the record."""

    gap: Array  # (P,) sum over agents of the gaps of each round, or of each round of P stretches of rounds
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
        """Rewards and gaps of the arms played, (M,) int32."""
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

    An algorithm of one's own is given raw rewards, so that nothing is claimed of its privacy. Whoever wants a
    certificate writes a `Policy`, which is given released statistics only, and runs it with `fb.algos.Federated`.
    """

    name: str = "algorithm"
    batch: int = 1

    def parameters(self) -> tuple[str, ...]:
        """Names that `replace` takes, the names of nested parts included."""
        return tuple(_paths(self)) if dataclasses.is_dataclass(self) else ()

    def replace(self, **changes: Any) -> Any:
        """The same algorithm with other parameters, wherever among its parts they are. What is new is validated.

        Raises:
            TypeError: a name that no part has.
            ValueError: a name that several parts have.
        """
        paths = _paths(self)
        unknown = sorted(set(changes) - set(paths))
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(unknown)}; it has {', '.join(paths)}")
        changed: Any = self
        for name in sorted(changes, key=lambda name: len(paths[name])):  # the whole before its parts
            changed = _replaced(changed, paths[name], changes[name])
        return changed

    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        """Host-side set-up once the environment and T are known: calibrate noise, check norms."""
        del spec, horizon
        return self

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """What a run proves about privacy: read from what `bind` makes, which is what runs."""
        return certify(self.bind(spec, horizon))

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

    def guarantee(self) -> Certificate:
        """What this bound algorithm proves, read from its own parts; `certify` asks sealed classes only."""
        return no_privacy("the algorithm adds no noise")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Algorithm):
    """An algorithm that is not yet bound: a frozen dataclass of parameters, which it validates itself.

    Parts may be recipes too, and `replace` reaches into them. A subclass validates in `__post_init__` and defines
    `bind`, which returns a bound algorithm, a pytree. Nothing about privacy is computed here: `certificate` reads it
    from what `bind` returns.
    """


def certify(bound: Algorithm) -> Certificate:
    """What a bound algorithm proves. Only the package's own sealed loops can prove anything.

    It is read from the leaves and static fields of the pytree, which are all that a compiled program is given.
    """
    if struct.is_sealed(bound):
        return jax.tree.map(np.asarray, bound).guarantee()
    return no_privacy(
        f"{type(bound).__name__} is an algorithm of its own, which is given raw rewards: write an fb.Policy, which is "
        "given released statistics only, to have it certified"
    )


def _paths(value: Any, prefix: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Parameters by name, with the way to them through nested dataclasses; a name in two parts names neither."""
    found: dict[str, tuple[str, ...]] = {}
    twice: set[str] = set()
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        inner = {field.name: (*prefix, field.name)} if field.name != "name" or not prefix else {}
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            inner |= _paths(part, (*prefix, field.name))
        twice |= set(found) & set(inner)
        found |= inner
    return {name: path for name, path in found.items() if name not in twice}


def _replaced(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """A copy with one parameter changed."""
    first, *rest = path
    return dataclasses.replace(value, **{first: _replaced(getattr(value, first), tuple(rest), new) if rest else new})


class Released(NamedTuple):
    """What a policy learns at a synchronisation. Anybody may see it, so that whatever a policy does is certified."""

    gram: Array  # (d, d) sum of x x' over all users so far, and noise
    bias: Array  # (d,) sum of x y over all users so far, and noise
    count: Array  # float32: users in these sums
    std: Array  # float32: standard deviation of the noise on `bias` and on the diagonal of `gram`

    @property
    def dim(self) -> int:
        """d."""
        return self.bias.shape[-1]


class Law(NamedTuple):
    """What is known before the first round of the statistics that a policy will be given. On the host."""

    n_agents: int  # M
    dim: int  # d
    stds: np.ndarray  # (S,) standard deviation of the noise of every release, as in `Released`
    mechanism: Any = None  # the bound mechanism, whose numbers are public


class Policy:
    """How to act on released statistics. Subclass it, decorate with `@fb.pytree`, define `update` and `index`.

    A policy is given what was released and what the present user is offered, and nothing else: by post-processing it
    is as private as the mechanism, whatever it does. `fb.algos.Federated` runs it under any schedule, release and trust
    model; `fb.algos.Thompson` is an example.
    """

    keeps_matrix: bool = False
    """Does a belief have `gram`, `posterior` and `log_det`, which adaptive schedules and learning in a batch need?"""

    def bind(self, law: Law) -> Policy:
        """Host-side set-up once the law of the noise is known."""
        del law
        return self

    def start(self, dim: int) -> Any:
        """What to believe before the first synchronisation; by default what `update` makes of no data."""
        nothing = Released(jnp.zeros((dim, dim)), jnp.zeros(dim), jnp.float32(0), jnp.float32(0))
        return self.update(jnp.int32(0), nothing)

    def update(self, k: Array, released: Released) -> Any:
        """What to believe after synchronisation k = 0, 1, ...

        Where any number of it is not finite the agents keep their last belief, and the seed has a status bit.
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def index(self, key: Array, t: Array, belief: Any, contexts: Array) -> Array:
        """Worth of every arm to the user who came, (K,), from its features (K, d): the first largest is played."""
        raise NotImplementedError(f"{type(self).__name__}.index")

    def prepare(self, belief: Any, offered: Round, fixed_contexts: bool) -> Any:
        """What `indices` wants in a batch that begins; contexts that are fixed can be scored once."""
        del offered, fixed_contexts
        return belief

    def indices(self, key: Array, t: Array, prepared: Any, offered: Round) -> Array:
        """`index` of all agents, (K, M)."""
        keys = jax.random.split(key, len(offered.contexts))
        values = jax.vmap(lambda key, x: self.index(key, t, prepared, x))(keys, offered.contexts)
        if jnp.shape(values) != offered.contexts.shape[:2]:
            name, k = type(self).__name__, offered.contexts.shape[1]
            raise TypeError(f"{name}.index must return the worth of every arm, {(k,)}, got shape {values.shape[1:]}")
        return values.T

    def prepare_raw(self, belief: Any, offered: Round, fixed_contexts: bool) -> Any:
        """As `prepare`, for agents that `learn` inside the batch, each from its own users."""
        raise NotImplementedError(f"{type(self).__name__} acts on released statistics: learns_in_batch must be False")

    def learn(self, prepared: Any, offered: Round, x: Array, y: Array) -> Any:
        """What agents know after their users' features x (d, M) and rewards y (M,), with `learns_in_batch=True`."""
        raise NotImplementedError(f"{type(self).__name__} acts on released statistics: learns_in_batch must be False")


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
