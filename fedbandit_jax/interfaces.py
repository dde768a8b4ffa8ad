"""The interfaces that all layers share: what an environment, an algorithm, a policy and a round are.

Axis letters of this module (other modules say where theirs differ): M agents, K arms, d features, T rounds, B rounds in
a batch, S synchronisations, L tree levels. In the multi-armed family a round is one user, and N is the number of users
who are handled together; n is the number of users who return. Rounds t and batches or synchronisations k are int32
scalars that count from 0, and keys are `jax.random.key`s.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key, Num

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.programs import call
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.status import Status as Status


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

    def __post_init__(self):
        for name in ("n_agents", "n_arms", "dim", "n_servers"):
            validate.integer(name, getattr(self, name), at_least=1)
        validate.integer("n_users", self.n_users, at_least=0)
        for name in ("fixed_contexts", "rewards_in_unit"):
            validate.boolean(name, getattr(self, name))
        validate.within("max_norm", self.max_norm, 0, math.inf)

    def users(self, horizon: int) -> int:
        """Returns how many users can come in T = `horizon` rounds: M T, or n of them if they return."""
        arrivals = self.n_agents * horizon
        return min(self.n_users, arrivals) if self.n_users else arrivals


class Round(NamedTuple):
    """One round as the agents see it: which arms they may play, and who came."""

    contexts: Float[Array, "M K d"]  # feature vectors
    mask: Bool[Array, "M K"] | None = None  # which arms exist; None if all do
    user: Int[Array, " M"] | None = None  # who came, if `Spec.n_users` > 0


class Feedback(NamedTuple):
    """What playing the arms returns; an algorithm is given `reward` only, and `gap` is for the record.

    The regret of a run is the sum of all gaps, over agents and over the rounds so far.
    """

    reward: Float[Array, " M"]  # rewards that were observed
    gap: Float[Array, " M"]  # largest mean reward offered, less that of the arm played


class Report(NamedTuple):
    """What a synchronisation cost in communication, and the status bits of the learner after it."""

    rounds: Int[Array, ""] | int = 0  # rounds of communication
    floats: Num[Array, ""] | Num[Array, " 2"] | int = 0  # numbers that all agents send and receive, or the two apart
    float_bits: Num[Array, ""] | Num[Array, " 2"] | int = 32  # bits of each of these numbers, shaped like `floats`
    status: Int[Array, ""] | int = 0  # `Status` bits of the seed
    counts: Mapping[str, Num[Array, ""] | int] = {}  # further counters by name, for `Result.counts`


class Metrics(NamedTuple):
    """What one step of a process adds to the record of a run."""

    gap: Float[Array, " P"]  # sum over agents of the gaps: of P rounds each, or of any one round in each of P stretches
    report: Report
    rounds: Int[Array, " P"] | None = None  # how many rounds each stretch has; None if `gap` is of single rounds
    gauges: Mapping[str, Num[Array, ""]] = {}  # values after the step by name, for `Result.gauges`


class Environment(Protocol):
    """A pytree that decides who arrives, what is offered and what would be answered; see `fb.envs`."""

    @property
    def spec(self) -> Spec:
        """Returns the static description of the environment."""
        ...

    def init(self, key: Key[Array, ""]) -> Any:
        """Draws the world of one seed, i.e. all that stays the same for a run (theta*, fixed contexts, ...)."""
        ...

    def observe(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Round, Any]:
        """Returns what is offered in round t = 0, 1, ..., and the world, which may have moved on."""
        ...

    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Returns the rewards and gaps of the arms played, int32."""
        ...


class Arms(Environment, Protocol):
    """An environment whose users are alike: a reward depends on the arm only, so that many users are asked at once."""

    def means(self, world: Any) -> Float[Array, " K"]:
        """Returns the mean reward of every arm."""
        ...

    def answers(
        self, key: Key[Array, ""], world: Any, arm: Int[Array, ""], size: int
    ) -> tuple[Float[Array, " {size}//2"], Float[Array, " {size}//2"]]:
        """Draws the rewards of `size` (static, even) users who pull one arm, as two halves."""
        ...


class Users(Environment, Protocol):
    """An environment with one agent, whose users return, one a round, and are alike within clusters.

    `observe` must return the world unchanged, because many rounds are drawn at once.
    """

    def clusters(self, world: Any) -> Int[Array, " n"]:
        """Returns the true cluster of every user, int32 in 0 ... n_clusters - 1, which algorithms never see."""
        ...

    @property
    def n_clusters(self) -> int:
        """Returns the number of true clusters."""
        ...


class Algorithm:
    """A federated bandit algorithm. Subclass it, decorate with `@fb.pytree`, and define `init`, `act` and `learn`.

    A run is a sequence of batches of B = `batch` rounds. In each of them the agents start from `download`, `act` and
    `learn` locally, and `sync` ends the batch with all that the server and the agents exchange. The defaults suit an
    algorithm that never communicates. Numbers are pytree leaves, so changing them does not compile again.

    An algorithm of your own is given raw rewards, so nothing is claimed about its privacy. To get a certificate, write
    a `Policy`, which is given released statistics only, and run it with `fb.algos.Federated`.
    """

    name: str = "algorithm"
    batch: int = 1

    def parameters(self) -> tuple[str, ...]:
        """Returns the names that `replace` takes, those of nested parts included."""
        return tuple(_paths(self)) if dataclasses.is_dataclass(self) else ()

    def takes(self, name: str) -> bool:
        """Returns whether `replace` takes a parameter of this name.

        Raises:
            TypeError: if several parts have one, so that it is not clear which is meant.
        """
        if name in self.parameters():
            return True
        owners = _owners(self, name) if dataclasses.is_dataclass(self) else []
        if len(owners) > 1:
            raise TypeError(f"{name} is a parameter of {' and of '.join(owners)} in {self.name}: rename one of them")
        return False

    def replace(self, **changes: Any) -> Any:
        """Returns the same algorithm with other parameters, wherever among its parts they are; a recipe checks them.

        Raises:
            TypeError: if no part has a parameter of that name, or several parts have one.
        """
        paths = _paths(self)
        unknown = sorted(set(changes) - set(paths))
        for name in unknown:
            if len(owners := _owners(self, name)) > 1:
                raise TypeError(
                    f"{name} is a parameter of {' and of '.join(owners)} in {self.name}: rename one of them"
                )
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(unknown)}; it has {', '.join(paths)}")
        changed: Any = self
        for name in sorted(changes, key=lambda name: len(paths[name])):  # replaces a part before its own parameters
            changed = _replaced(changed, paths[name], changes[name])
        return changed

    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        """Returns the algorithm for this environment and horizon T: calibrates noise and checks norms, on the host."""
        del spec, horizon
        return self

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """Returns what a run proves about privacy, read from what `bind` makes, which is what runs."""
        validate.instance("spec", spec, Spec, "an fb.Spec, as env.spec is")
        validate.integer("horizon", horizon, at_least=1)
        return certify(self.bind(spec, horizon)).among(spec.users(horizon))

    def init(self, key: Key[Array, ""], spec: Spec) -> Any:
        """Returns the state before round 0."""
        raise NotImplementedError(f"{type(self).__name__}.init")

    def download(self, state: Any, offered: Round) -> Any:
        """Returns the local state of all agents at the start of a batch, whose first round is `offered`."""
        del offered
        return state

    def act(self, key: Key[Array, ""], t: Int[Array, ""], local: Any, offered: Round) -> Int[Array, " M"]:
        """Returns the arms to play in round t, int32."""
        raise NotImplementedError(f"{type(self).__name__}.act")

    def learn(
        self, t: Int[Array, ""], local: Any, offered: Round, arms: Int[Array, " M"], rewards: Float[Array, " M"]
    ) -> tuple[Any, Any]:
        """Returns the new local state and a record of the round, from int32 arms and float32 rewards.

        `sync` is given the records of a batch, stacked along a new leading axis B.
        """
        raise NotImplementedError(f"{type(self).__name__}.learn")

    def sync(self, key: Key[Array, ""], k: Int[Array, ""], state: Any, local: Any, records: Any) -> tuple[Any, Report]:
        """Ends batch k with its records (B, ...): returns the state that the next batch downloads, and the cost."""
        del key, k, state, records
        return local, Report()

    def view(self, state: Any) -> Any:
        """Returns all that the last synchronisation showed to those whom the trust model does not trust, for audits."""
        raise NotImplementedError(f"{type(self).__name__}.view")

    def guarantee(self) -> Certificate:
        """Returns what this bound algorithm proves, read from its own parts; `certify` asks sealed classes only."""
        return no_privacy("the algorithm adds no noise")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Algorithm):
    """An algorithm that is not yet bound: a frozen dataclass of parameters, which it validates itself.

    Parts may be recipes too, and `replace` reaches into them. A subclass validates in `__post_init__` and defines
    `bind`, which returns a bound algorithm, a pytree. No privacy is computed here: `certificate` reads it from what
    `bind` returns.
    """


def certify(bound: Algorithm) -> Certificate:
    """Returns what a bound algorithm proves; only the package's own sealed loops can prove anything.

    It is read from the leaves and static fields of the pytree, which are all that a compiled program is given.
    """
    if struct.is_sealed(bound):
        wrong = struct.counterfeit(bound)
        return no_privacy(f"nothing is proved: {wrong}") if wrong else jax.tree.map(np.asarray, bound).guarantee()
    return no_privacy(
        f"{type(bound).__name__} is an algorithm of its own, which is given raw rewards: write an fb.Policy, which is "
        "given released statistics only, to have it certified"
    )


def _paths(value: Any, prefix: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Returns the path to every parameter through nested dataclasses by name, without names that two parts have."""
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


def _owners(value: Any, name: str) -> list[str]:
    """Returns the classes of the parts, at any depth, that have a parameter of this name."""
    owners = []
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if field.name == name:
            owners.append(type(value).__name__)
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):
            owners += _owners(part, name)
    return owners


def _replaced(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """Returns a copy of `value` in which the parameter at the end of `path` is `new`."""
    first, *rest = path
    return dataclasses.replace(value, **{first: _replaced(getattr(value, first), tuple(rest), new) if rest else new})


class Released(NamedTuple):
    """What a policy is given at a synchronisation; anybody may see it, so using it is post-processing."""

    gram: Float[Array, "d d"]  # sum of x x' over all users of all agents so far, plus noise
    bias: Float[Array, " d"]  # sum of x y over the same users, plus noise
    count: Float[Array, ""]  # how many users are in these sums  # pyright: ignore[reportIncompatibleMethodOverride]
    std: Float[Array, ""]  # standard deviation of the noise on the diagonal of `gram`; that on `bias` has no larger one

    @property
    def dim(self) -> int:
        """Returns the number d of features."""
        return self.bias.shape[-1]


class Law(NamedTuple):
    """The law of the noise in what a policy will be given; it is known on the host before the first round."""

    n_agents: int  # M
    dim: int  # d
    stds: Float[np.ndarray, " S"]  # `Released.std` of every release to come
    mechanism: Any = None  # the bound mechanism, all of whose numbers are public


class Policy:
    """A rule for acting on released statistics. Subclass it, decorate with `@fb.pytree`, define `update` and `index`.

    A policy is given what was released and what the present user is offered, and nothing else: by post-processing it is
    as private as the mechanism, whatever it does. `fb.algos.Federated` runs it under any schedule, release and trust
    model; `fb.algos.Thompson` is an example.
    """

    pure: ClassVar[bool] = True
    """Whether `start`, `update` and `index` are pure functions of JAX arrays, which is enforced. If False they may call
    the host, for instance to print, and nothing is claimed."""

    keeps_matrix: bool = False
    """Whether a belief has `gram`, `posterior` and `log_det`, and the bound policy `rho`, as adaptive schedules and
    learning inside a batch need."""

    def bind(self, law: Law) -> Policy:
        """Returns the policy that runs, set up on the host once the law of the noise is known."""
        del law
        return self

    def start(self, dim: int) -> Any:
        """Returns what to believe before the first synchronisation; by default what `update` makes of no data."""
        nothing = Released(jnp.zeros((dim, dim)), jnp.zeros(dim), jnp.float32(0), jnp.float32(0))
        return self.update(jnp.int32(0), nothing)

    def update(self, k: Int[Array, ""], released: Released) -> Any:
        """Returns what to believe after synchronisation k, a pytree whose shapes never change.

        If any of its numbers is not finite, the agents keep their last belief and the seed gets a status bit.
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: Any, contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        """Returns the worth of every arm to the user who came, from the arms' features; the first best is played."""
        raise NotImplementedError(f"{type(self).__name__}.index")

    def prepare(self, belief: Any, offered: Round, fixed_contexts: bool) -> Any:
        """Returns what `indices` needs in the batch that begins; contexts that are fixed can be scored here, once."""
        del offered, fixed_contexts
        return belief

    def indices(self, key: Key[Array, ""], t: Int[Array, ""], prepared: Any, offered: Round) -> Float[Array, "K M"]:
        """Returns `index` for all agents; raises a TypeError if `index` does not return (K,)."""
        keys = jax.random.split(key, len(offered.contexts))

        def index(key: Array, contexts: Array) -> Array:
            return call(self, "index", key, t, prepared, contexts)

        values = jax.vmap(index)(keys, offered.contexts)
        if jnp.shape(values) != offered.contexts.shape[:2]:
            name, k = type(self).__name__, offered.contexts.shape[1]
            raise TypeError(f"{name}.index must return the worth of every arm, {(k,)}, got shape {values.shape[1:]}")
        return values.T

    def prepare_raw(self, belief: Any, offered: Round, fixed_contexts: bool) -> Any:
        """Does what `prepare` does, for agents that `learn` inside the batch, each from its own users."""
        raise NotImplementedError(f"{type(self).__name__} acts on released statistics: learns_in_batch must be False")

    def learn(self, prepared: Any, offered: Round, x: Float[Array, "d M"], y: Float[Array, " M"]) -> Any:
        """Returns what agents know after their users' features x and rewards y, if `learns_in_batch`."""
        raise NotImplementedError(f"{type(self).__name__} acts on released statistics: learns_in_batch must be False")


class Plan(NamedTuple):
    """Whom a multi-armed algorithm asks in a batch."""

    active: Bool[Array, " K"]  # which arms are pulled
    users: Int[Array, ""]  # how many users pull each of these arms
    asked: Bool[Array, ""]  # whether rewards are collected and the batch concluded; if not, users are only served


class ArmAlgorithm(Algorithm):
    """A multi-armed algorithm that pulls all active arms equally often in a batch, and learns from sums of rewards.

    Subclass it, decorate with `@fb.pytree`, define `n_batches`, `init`, `plan`, `collect` and `conclude`. A batch that
    would reach past the horizon is played as far as it goes, and nothing is learned from it.
    """

    n_batches: int = 0  # S; must suffice to reach the horizon even with a single active arm
    round_robin: bool = False  # whether arms get one user each in turn, or all their users one arm after another

    def plan(self, state: Any, k: Int[Array, ""]) -> Plan:
        """Returns whom to ask in batch k."""
        raise NotImplementedError(f"{type(self).__name__}.plan")

    def collect(
        self,
        rounding: Key[Array, ""],
        own: Key[Array, ""],
        k: Int[Array, ""],
        rewards: tuple[Float[Array, " half"], Float[Array, " half"]],
        inside: tuple[Bool[Array, " half"], Bool[Array, " half"]],
    ) -> Wide:
        """Returns the sum, a 64-bit integer, of a block of N users' messages about one arm.

        Rewards come in two halves, and so do the flags `inside`, which say who belongs to the batch. `rounding` is the
        same for all algorithms of a sweep, so that users round alike; `own` is this one's alone, for privacy noise.
        """
        raise NotImplementedError(f"{type(self).__name__}.collect")

    def conclude(self, key: Key[Array, ""], k: Int[Array, ""], state: Any, sums: Wide) -> tuple[Any, Report]:
        """Ends batch k with the sums (K,) of what was collected from every arm; returns the new state and the cost."""
        raise NotImplementedError(f"{type(self).__name__}.conclude")


class Partition(NamedTuple):
    """Which users an algorithm takes to be alike: those with equal labels in 0 ... n - 1."""

    local: Int[Array, " n"]  # labels found at each server, which are not compared between servers
    shared: Int[Array, " n"]  # labels found over all servers


class ClusteringAlgorithm(Algorithm):
    """An algorithm for users who come one at a time, return, and may be alike.

    Subclass it, decorate with `@fb.pytree`, define `init`, `index`, `serve` and `partition`. All rounds are given the
    same key: fold t into it. On a CPU every seed runs on its own, so a `lax.cond` on data costs nothing while it is
    false. Rounds t and users are int32 scalars, users in 0 ... n - 1, and rewards y are float32 scalars.
    """

    def begin(self, key: Key[Array, ""], t: Int[Array, ""], state: Any) -> tuple[Any, Report]:
        """Returns the state before anybody comes in round t, and what reaching it cost."""
        del key, t
        return state, Report()

    def index(
        self,
        key: Key[Array, ""],
        t: Int[Array, ""],
        state: Any,
        user: Int[Array, ""],
        contexts: Float[Array, "K d"],
    ) -> Float[Array, " K"]:
        """Returns the worth of every arm to this user, from the arms' features; the first largest is played."""
        raise NotImplementedError(f"{type(self).__name__}.index")

    def serve(
        self,
        key: Key[Array, ""],
        t: Int[Array, ""],
        state: Any,
        user: Int[Array, ""],
        x: Float[Array, " d"],
        y: Float[Array, ""],
    ) -> tuple[Any, Report]:
        """Learns from the reward y of the features x; returns the new state and the cost."""
        raise NotImplementedError(f"{type(self).__name__}.serve")

    def partition(self, state: Any) -> Partition:
        """Returns the clusters found so far."""
        raise NotImplementedError(f"{type(self).__name__}.partition")
