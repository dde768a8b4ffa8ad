"""The interface of a schedule, schedules that are fixed in advance, and the door to raw data of those that leak."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key, Num
from typing_extensions import override

from fedbandit_jax.certificate import Raw
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.programs import noted, refusal
from fedbandit_jax.privacy.bound import Timing

READS = ("nothing", "log_det", "users")  # what a schedule may ask to be handed, see `BoundSchedule.reads`
LEAKS = Raw(
    claim="none",
    why="the schedule leaks: whether a silo asks for a synchronisation depends on its users' data without noise (Zhou "
    "& Chowdhury 2024, Example 3.1), so no epsilon holds",
    seen="when silos ask for synchronisations, and which of them",
)
Since = Int[Array, ""] | Int[Array, " M"]
Asked = Bool[Array, ""] | Bool[Array, " M"]


class Setting(NamedTuple):
    """What a schedule is bound to: the sizes of a run, bounds on its regulariser, and its privacy budget."""

    n_agents: int  # M
    dim: int  # d
    horizon: int  # T
    rho_min: float  # regulariser of one agent before the first release: V starts at M rho_min I
    rho_max: float  # upper bound on the eigenvalues of one agent's regulariser with privacy noise
    epsilon: float | Float[np.ndarray, " M"] | None = None  # of one visit, all silos' or each's; None without privacy


@struct.pytree
class BoundSchedule:
    """A bound schedule, which decides in every round. Subclass it, decorate with `@fb.pytree`, define `requests`.

    An epoch is the time from one synchronisation to the next; `start` begins it, and `requests` may end it. Letters are
    those of the package `fb.schedules`: V, g_i, D and Dt.
    """

    calls_host: ClassVar[bool] = False
    """Whether `start` or `requests` may call the host. Nothing is claimed then; if False they are traced, and refused
    if they do more than compute their results. `jax.debug.print` is no call."""

    reads: ClassVar[str] = "nothing"
    """Which statistic of every agent's users in this epoch `requests` is handed: "nothing"; "log_det", the raw g_i; or
    "users", the sum of what `count` returned for them."""
    sentence: ClassVar[str] = "of the caller's own"
    """The words by which a certificate describes the schedule."""

    def start(self, key: Key[Array, ""], floor: Float[Array, ""]) -> Any:
        """The schedule's memory during an epoch, a pytree; by default nothing.

        Args:
            key: for noise that is drawn once per epoch.
            floor: lower bound on the smallest eigenvalue of V, or 0 if the schedule reads nothing.
        """
        return ()

    def count(self, memory: Any, leverage: Float[Array, " M"]) -> Int[Array, " M"]:
        """The int32 summand of each agent's user of a round, of leverage x' V^-1 x, if `reads` is "users"."""
        raise NotImplementedError(f"{type(self).__name__}.count")

    def requests(
        self, key: Key[Array, ""], t: Int[Array, ""], memory: Any, gained: Num[Array, " M"] | None, since: Since
    ) -> Asked:
        """Requests for a synchronisation after round t = 0, 1, ...: either one bool for all agents, or each's.

        Args:
            key: for fresh noise in every round.
            t: the round that was just played.
            memory: what `start` returned.
            gained: what the schedule `reads` of every agent; None if it reads nothing.
            since: Dt >= 1, rounds since the last synchronisation; on a network, of every agent.
        """
        raise NotImplementedError(f"{type(self).__name__}.requests")

    def timing(self) -> Timing:
        """The account of the schedule in a certificate, and the epsilon that it spends."""
        return Timing(self.sentence, fixed=False)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A schedule that is not yet bound. Subclass it, define `n_syncs`, and `bind`, which returns a `BoundSchedule`.

    Example:
        >>> @struct.pytree
        ... class BoundOffice(BoundSchedule):  # never at night; handed nothing, so that nothing leaks
        ...     def requests(self, key, t, memory, gained, since):
        ...         return (t % 24 > 7) & (t % 24 < 18)
        >>> @dataclasses.dataclass(frozen=True)
        ... class Office(Schedule):
        ...     def n_syncs(self, horizon):
        ...         return sum(7 < t % 24 < 18 for t in range(horizon))
        ...     def bind(self, setting):
        ...         return BoundOffice()
        >>> Office().n_syncs(48), doors(Office().bind(None))
        (20, ())
    """

    def n_syncs(self, horizon: int) -> int:
        """S, the most synchronisations in T rounds: noise is calibrated for S releases; no more are made."""
        raise NotImplementedError(f"{type(self).__name__}.n_syncs")

    def pure(self, epsilon: float | Float[np.ndarray, " M"]) -> float | Float[np.ndarray, " M"]:
        """The part of the budget's epsilon that the schedule spends: of all silos, or of each."""
        return 0.0 * epsilon

    def longest(self, horizon: int) -> int | None:
        """The most rounds of a batch that ends within T rounds; None unless a `Fixed` schedule or `Every`."""
        return None

    def shift(self, setting: Setting) -> float:
        """c >= 0: a schedule that reads "log_det" is handed log det (V_i + c I) - log det V."""
        return 0.0

    def bind(self, setting: Setting) -> BoundSchedule:
        """The bound schedule, which decides during a run."""
        raise NotImplementedError(f"{type(self).__name__}.bind")


@struct.sealed
@struct.pytree
class BoundEvery(BoundSchedule):
    """A bound `Every`: asks for a synchronisation at the end of every batch."""

    sentence = "fixed in advance, so it tells nothing about users"

    batch: struct.Number  # B

    @override
    def requests(self, key: Key[Array, ""], t: Int[Array, ""], memory: Any, gained: Any, since: Since) -> Asked:
        return (t + 1) % self.batch == 0

    @override
    def timing(self) -> Timing:
        return Timing(self.sentence, fixed=False, longest=_longest(np.abs(self.batch).reshape(1)))


@dataclasses.dataclass(frozen=True)
class Every(Schedule):
    """Synchronises every B rounds; `Every(1)` is the O(M T) communication of Dubey & Pentland (2020), Remark 1.

    Args:
        batch: B >= 1, rounds between two synchronisations. If B does not divide the horizon T, the last T mod B rounds
            are never synchronised.

    Raises:
        ValueError, TypeError: if B is not an integer >= 1; the message names it and its value.

    Example:
        >>> Every(25).n_syncs(1_000)
        40
    """

    batch: int = 25

    def __post_init__(self):
        object.__setattr__(self, "batch", validate.integer("batch", self.batch, at_least=1))

    @override
    def n_syncs(self, horizon: int) -> int:
        return horizon // self.batch

    @override
    def longest(self, horizon: int) -> int:
        return min(self.batch, horizon)

    @override
    def bind(self, setting: Setting) -> BoundEvery:
        return BoundEvery(batch=np.int32(self.batch))


@struct.sealed
@struct.pytree
class BoundFixed(BoundSchedule):
    """A bound `Fixed`: asks for a synchronisation after the listed rounds."""

    sentence = "fixed in advance, so it tells nothing about users"

    rounds: Int[Array | np.ndarray, " S"]  # numbers of rounds played after which to synchronise

    @override
    def requests(self, key: Key[Array, ""], t: Int[Array, ""], memory: Any, gained: Any, since: Since) -> Asked:
        return (jnp.asarray(self.rounds) == t + 1).any()

    @override
    def timing(self) -> Timing:
        total = int(np.max(self.rounds, initial=0))
        return Timing(self.sentence, fixed=False, longest=_longest(self.rounds), total=total)


class Fixed(Schedule):
    """A schedule whose rounds are listed in advance: subclass it and define `rounds`.

    It also goes with trust models whose proof needs the size of the largest batch, as that of "secagg" does.

    Example:
        >>> class Squares(Fixed):
        ...     def rounds(self, horizon):
        ...         return np.arange(1, math.isqrt(horizon) + 1) ** 2
        >>> Squares().n_syncs(100), Squares().longest(100)
        (10, 19)
    """

    def rounds(self, horizon: int) -> Int[np.ndarray, " S"]:
        """Numbers of rounds played after which silos synchronise in T = `horizon` rounds, rising and at most T."""
        raise NotImplementedError(f"{type(self).__name__}.rounds")

    @override
    def n_syncs(self, horizon: int) -> int:
        return len(self._rounds(horizon))

    @override
    def longest(self, horizon: int) -> int:
        return _longest(self._rounds(horizon)) or 0

    @override
    def bind(self, setting: Setting) -> BoundFixed:
        return BoundFixed(rounds=padded(self._rounds(setting.horizon).astype(np.int32), 64))

    def _rounds(self, horizon: int) -> Int[np.ndarray, " S"]:
        name, given = f"{type(self).__name__}.rounds", self.rounds(horizon)
        none = given.size == 0 if hasattr(given, "size") else given in ([], ())  # an empty list is one of floats
        rounds = validate.integer_array(name, np.zeros(0, int) if none else given)
        if (np.diff(rounds, prepend=0, append=horizon + 1) <= 0).any():
            raise ValueError(
                f"{name} must rise from 1 or more to horizon = {horizon} or less, got {validate.shown(rounds)}"
            )
        return rounds


@dataclasses.dataclass(frozen=True)
class Geometric(Fixed):
    """Synchronises after `first` rounds and then whenever the number of rounds has grown by a factor.

    These are O(log T) synchronisations, fixed in advance: at most 1 + ln(T / first) / ln(growth). At any time the last
    release covers about 1 / growth of the rounds played, or more, and a tree over so few releases has few levels.

    Args:
        growth: factor by which the number of rounds grows, in [1.001, 10^6].
        first: rounds before the first synchronisation, >= 1.

    Raises:
        ValueError, TypeError: if an argument is out of its range; the message names it and its value.

    Example:
        >>> Geometric(1.5, first=10).rounds(100).tolist()
        [10, 15, 23, 35, 53, 80]
    """

    growth: float = 2.0
    first: int = 1

    def __post_init__(self):
        if not validate.positive("growth", self.growth) > 1:
            raise ValueError(f"growth must be > 1, got {self.growth!r}")
        validate.within("growth", self.growth, 1.001, 1e6)
        object.__setattr__(self, "first", validate.integer("first", self.first, at_least=1))

    @override
    def rounds(self, horizon: int) -> Int[np.ndarray, " S"]:
        rounds, t = [], self.first
        while t <= horizon:
            rounds.append(t)
            t = max(t + 1, math.ceil(t * float(self.growth)))
        return np.array(rounds, np.int32)


def _longest(rounds: Int[Array | np.ndarray, " S"]) -> int | None:
    """The most rounds of a batch that ends after one of these, 0 if there is none; None if they are no integers."""
    ends = np.unique(np.asarray(rounds))
    if not np.issubdtype(ends.dtype, np.integer):
        return None
    return int(np.diff(ends[ends > 0], prepend=0).max(initial=0))


def as_schedule(schedule: Schedule | int) -> Schedule:
    """A schedule as it is, and a number B of rounds as `Every(B)`."""
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, (int, np.integer)) and not isinstance(schedule, bool):
        return Every(validate.integer("schedule", schedule, at_least=1))
    raise TypeError(f"schedule must be one of fb.schedules or a number of rounds, got {validate.shown(schedule)}")


def doors(bound: BoundSchedule) -> tuple[Raw, ...]:
    """The doors to raw data that a bound schedule goes through, whatever its own code says of them.

    There is none for a sealed class, nor for one that reads nothing and does not call the host, as a trace shows.
    """
    if struct.is_sealed(bound):
        return ()
    kind = type(bound)
    return (LEAKS,) if kind.reads != "nothing" or kind.calls_host or _leak(bound, None) else ()


def timing(bound: BoundSchedule) -> Timing:
    """The account of a bound schedule in a certificate; one of the caller's own is credited with no epsilon."""
    return bound.timing() if struct.is_sealed(bound) else Timing(str(type(bound).sentence), fixed=False)


def check(bound: Any, n_agents: int) -> None:
    """Checks what a schedule of one's own was bound as, for M agents, compiling nothing.

    Raises:
        ValueError, TypeError: if it is not a `BoundSchedule`, reads what there is not, a method returns something else
            than it must, or calls the host and the class does not say so.
    """
    if not isinstance(bound, BoundSchedule):
        raise TypeError(f"a schedule's bind must return an fb.schedules.BoundSchedule, got {bound!r}")
    name, reads = type(bound).__name__, type(bound).reads
    if type(reads) is not str or reads not in READS:
        raise ValueError(f"{name}.reads must be one of {', '.join(map(repr, READS))}, got {reads!r}")
    if struct.is_sealed(bound):
        return
    key, number, agents = jax.random.key(0), jnp.int32(1), jnp.zeros(n_agents)
    memory = _returned(bound, "start", key, jnp.float32(0))
    numbers = all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(memory))
    _need(f"{name}.start", numbers, "a pytree of numbers", memory)
    gained = None if reads == "nothing" else agents
    if reads == "users":
        gained = _returned(bound, "count", memory, agents)
        _need(f"{name}.count", _is(gained, "int32", (n_agents,)), f"int32 of shape ({n_agents},)", gained)
    asked = _returned(bound, "requests", key, number, memory, gained, number)
    fine = _is(asked, "bool", (), (n_agents,))
    _need(f"{name}.requests", fine, f"a bool, or one for each of {n_agents} agents", asked)
    if not type(bound).calls_host and (found := _leak(bound, gained)):
        raise TypeError(found)


def _returned(bound: BoundSchedule, method: str, *arguments: Any) -> Any:
    """What a method returns when it is traced, with the shapes and dtypes of numbers in their place."""
    found = []
    with noted(bound, method, *arguments):
        jax.eval_shape(lambda *given: found.append(getattr(bound, method)(*given)), *arguments)

    def form(x: Any) -> Any:
        number = isinstance(x, (bool, int, float, complex, Array, np.ndarray, np.generic))
        return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) if number else x

    return jax.tree.map(form, found[0])


def _is(value: Any, dtype: str, *shapes: tuple[int, ...]) -> bool:
    return hasattr(value, "dtype") and value.dtype == dtype and value.shape in shapes


def _need(method: str, condition: bool, what: str, value: Any) -> None:
    if not condition:
        got = f"{value.dtype} of shape {value.shape}" if hasattr(value, "dtype") else validate.shown(value)
        raise TypeError(f"{method} must return {what}, got {got}")


def _leak(bound: BoundSchedule, gained: Any) -> str:
    """The method that does more than compute its result, and where, see `core.programs`."""
    key, one = jax.random.key(0), jnp.int32(1)
    if found := refusal(bound, "start", lambda bound: bound.start(key, jnp.float32(0))):
        return found
    memory = jax.eval_shape(bound.start, key, jnp.float32(0))
    return refusal(bound, "requests", lambda bound, *given: bound.requests(*given), key, one, memory, gained, one)
