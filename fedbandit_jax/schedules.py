"""When to synchronise: every B rounds, ever more rarely, or when some agent has learned enough.

A schedule is a recipe (hashable, on the host) that is bound to an environment and a horizon; what it binds to decides
in every round. Letters: M agents, V the regularised Gram matrix that all agents share since the last synchronisation,
V_i = V + U_i with U_i what agent i alone has seen since, g_i = log det V_i - log det V, D the threshold, Dt >= 1 the
rounds since the last synchronisation.

Privacy. `Every` and `Geometric` are fixed in advance and tell nothing. `LogDet` reads raw statistics: that agent i asks
for a synchronisation in round t is a function of its users' data without noise, and no noise on what is then released
can take that back (Zhou & Chowdhury 2024, Example 3.1). `PrivateLogDet` asks the same question by the sparse vector
technique and pays for it. A bound schedule is handed no more than it says it `reads`: one of your own that reads
nothing is certified, and one that reads anything goes through the door `LEAKS`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.certificate import Raw
from fedbandit_jax.core import struct, validate
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.channel import Timing
from fedbandit_jax.privacy.noise import discrete_laplace

TRIGGERS = ("zc24", "dp20")
THRESHOLDS = ("M log T", "M^1.5")
READS = ("nothing", "log_det", "users")
LEAKS = Raw(
    claim="none",
    why="the schedule leaks: whether a silo asks for a synchronisation depends on its users' data without noise (Zhou "
    "& Chowdhury 2024, Example 3.1), so no epsilon holds",
    seen="when silos ask for synchronisations, and which of them",
)
UNITS = 64  # of a private test: the most that one user adds
LEAST = 1e-5  # epsilon of a private test


class Setting(NamedTuple):
    """What a schedule is bound to."""

    n_agents: int
    dim: int
    horizon: int
    rho_min: float  # regulariser of one agent: V starts at M rho_min I
    rho_max: float  # bound on what privacy noise makes of it
    epsilon: Any = None  # of the budget, or (M,) of the silos' budgets; None without privacy


@struct.pytree
class BoundSchedule:
    """A bound schedule. Subclass it, decorate with `@fb.pytree`, define `requests`."""

    reads: ClassVar[str] = "nothing"
    """What it is handed of what agents have seen since the last synchronisation: "nothing"; "log_det", g_i; "users",
    sums of `count`."""
    sentence: ClassVar[str] = "of the user's own"
    """What a certificate says of it."""

    def start(self, key: Array, floor: Array) -> Any:
        """What it remembers of an epoch, at its begin; `floor` is at most the smallest eigenvalue of V."""
        del key, floor
        return ()

    def count(self, memory: Any, leverage: Array) -> Array:
        """What the users of a round add to their agent's sum, int32 (M,), from x' V^-1 x (M,)."""
        raise NotImplementedError(f"{type(self).__name__}.count")

    def requests(self, key: Array, t: Array, memory: Any, gained: Array, since: Array) -> Array:
        """Who asks for a synchronisation after round t = 0, 1, ...: bool, for all or (M,), from what it reads (M,) and
        Dt."""
        raise NotImplementedError(f"{type(self).__name__}.requests")

    @property
    def raw(self) -> tuple[Raw, ...]:
        """The door it goes through."""
        return doors(self)

    def timing(self) -> Timing:
        """What a certificate says of it."""
        return Timing(self.sentence, fixed=False)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A schedule. Subclass it, define `n_syncs`, and `bind`, which returns a `BoundSchedule`.

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
        >>> Office().n_syncs(48), Office().bind(None).raw
        (20, ())
    """

    def n_syncs(self, horizon: int) -> int:
        """S, most synchronisations in T rounds: what noise is calibrated for, and no more are made."""
        raise NotImplementedError(f"{type(self).__name__}.n_syncs")

    def pure(self, epsilon: Any) -> Any:
        """Part of the budget's epsilon that the schedule spends."""
        return 0.0 * epsilon

    def shift(self, setting: Setting) -> float:
        """c: an adaptive schedule reads log det (V_i + c I) - log det V."""
        del setting
        return 0.0

    def bind(self, setting: Setting) -> BoundSchedule:
        """The schedule of a run."""
        raise NotImplementedError(f"{type(self).__name__}.bind")


@struct.pytree
class BoundEvery(BoundSchedule):
    """See `Every`."""

    sentence = "fixed in advance, not private"

    batch: struct.Number

    def requests(self, key: Array, t: Array, memory: Any, gained: Array, since: Array) -> Array:
        """At the end of every batch."""
        del key, memory, gained, since
        return (t + 1) % self.batch == 0


@dataclasses.dataclass(frozen=True)
class Every(Schedule):
    """Every B rounds; `Every(1)` is the O(M T) communication of Dubey & Pentland (2020), Remark 1.

    Args:
        batch: B >= 1, rounds. If B does not divide the horizon, the last T mod B rounds are never synchronised.

    >>> Every(25).n_syncs(1_000)
    40
    """

    batch: int = 25

    def __post_init__(self):
        validate.integer("schedule", self.batch, at_least=1)

    def n_syncs(self, horizon: int) -> int:
        """floor(T / B)."""
        return horizon // self.batch

    def bind(self, setting: Setting) -> BoundEvery:
        """Any setting."""
        del setting
        return BoundEvery(batch=np.int32(min(self.batch, 2**31 - 1)))


@struct.pytree
class BoundGeometric(BoundSchedule):
    """See `Geometric`."""

    sentence = "fixed in advance, not private"

    rounds: Any  # (S,) rounds 1, 2, ... after which to synchronise

    def requests(self, key: Array, t: Array, memory: Any, gained: Array, since: Array) -> Array:
        """In these rounds."""
        del key, memory, gained, since
        return (jnp.asarray(self.rounds) == t + 1).any()


@dataclasses.dataclass(frozen=True)
class Geometric(Schedule):
    """After `first` rounds, then whenever the number of rounds has grown by a factor: O(log T) rounds, fixed in
    advance.

    The information of T rounds is there after ln(T) / ln(growth) synchronisations, each 1 / growth or more of it fresh
    at the next, and a tree over so few has few levels.

    Args:
        growth: factor, in [1.001, 10^6].
        first: rounds before the first synchronisation, >= 1.

    >>> Geometric(1.5, first=10).rounds(100).tolist()
    [10, 15, 23, 35, 53, 80]
    """

    growth: float = 2.0
    first: int = 1

    def __post_init__(self):
        if not validate.positive("growth", self.growth) > 1:
            raise ValueError(f"growth must be > 1, got {self.growth!r}")
        validate.within("growth", self.growth, 1.001, 1e6)
        validate.integer("first", self.first, at_least=1)

    def rounds(self, horizon: int) -> np.ndarray:
        """After which to synchronise, rising, none after T."""
        rounds, t = [], self.first
        while t <= horizon:
            rounds.append(t)
            t = max(t + 1, math.ceil(t * self.growth))
        return np.array(rounds, np.int32)

    def n_syncs(self, horizon: int) -> int:
        """About first / (growth - 1) + ln(T / first) / ln(growth)."""
        return len(self.rounds(horizon))

    def bind(self, setting: Setting) -> BoundGeometric:
        """Any setting."""
        return BoundGeometric(rounds=self.rounds(setting.horizon))


@struct.pytree
class BoundLogDet(BoundSchedule):
    """See `LogDet`."""

    sentence = "adaptive: reads raw statistics, and shows who asked when"
    reads = "log_det"

    threshold: struct.Number

    def requests(self, key: Array, t: Array, memory: Any, gained: Array, since: Array) -> Array:
        """g_i >= D / Dt."""
        del key, t, memory
        return gained >= self.threshold / since


@dataclasses.dataclass(frozen=True)
class LogDet(Schedule):
    """When some agent has g_i >= D / Dt: Algorithm 1 of Dubey & Pentland (2020), line 12. It leaks.

    Args:
        threshold: D > 0, or what communication it is meant to give: "M log T", D = 2 T d / (ln(rho_max/rho_min + T / (d
            rho_min)) + 1) (Theorem 1), or "M^1.5", D = T ln(MT) / (d M) (Remark 1).
        trigger: "zc24", as Zhou & Chowdhury (2024) restate it; "dp20", as printed: log det (V_i + M (rho_max - rho_min)
            I) - log det V for g_i, the same without privacy noise.
        max_syncs: no more synchronisations than these, so that less noise is needed; default: one per round.

    Raises:
        ValueError, TypeError: naming the argument and its value.
    """

    threshold: float | str = "M log T"
    trigger: str = "zc24"
    max_syncs: int | None = None

    def __post_init__(self):
        _check(self.threshold, self.max_syncs)
        validate.one_of("trigger", self.trigger, TRIGGERS)

    def n_syncs(self, horizon: int) -> int:
        """`max_syncs`, or one in every round."""
        return horizon if self.max_syncs is None else min(self.max_syncs, horizon)

    def shift(self, setting: Setting) -> float:
        """M (rho_max - rho_min) as printed."""
        return setting.n_agents * (setting.rho_max - setting.rho_min) if self.trigger == "dp20" else 0.0

    def bind(self, setting: Setting) -> BoundLogDet:
        """D as a number."""
        return BoundLogDet(threshold=np.float32(_threshold(self.threshold, setting)))


class Sparse(NamedTuple):
    """Of an epoch: one AboveThreshold for every agent."""

    cap: Array  # most that one user adds, ln(1 + 1 / lambda_min(V))
    shift: Array  # (M,) int32 noise of the threshold, in units of cap / UNITS


@struct.sealed
@struct.pytree
class BoundPrivateLogDet(BoundSchedule):
    """See `PrivateLogDet`."""

    sentence = "adaptive: a sparse vector test at every silo, whose epsilon is part of the budget"
    reads = "users"

    threshold: struct.Number
    epsilon: struct.Number  # of one AboveThreshold, () or (M,)
    n_agents: int = struct.static()

    def start(self, key: Array, floor: Array) -> Sparse:
        """Fresh noise on the thresholds."""
        threshold, _ = self._scales()
        return Sparse(jnp.log1p(MAX_NORM**2 / floor), discrete_laplace(key, threshold, (self.n_agents,)))

    def count(self, memory: Sparse, leverage: Array) -> Array:
        """What users of x' V^-1 x = leverage (M,) add, int32 in [0, UNITS]: no more, whatever they and float32 do."""
        share = jnp.log1p(leverage) / memory.cap
        return jnp.clip(jnp.ceil(UNITS * jnp.nan_to_num(share, nan=1.0)), 0, UNITS).astype(jnp.int32)

    def requests(self, key: Array, t: Array, memory: Sparse, gained: Array, since: Array) -> Array:
        """Their sum + noise >= D / Dt + noise, all integers."""
        del t
        _, answers = self._scales()
        threshold = jnp.ceil(jnp.minimum(UNITS * self.threshold / since / memory.cap, 2.0**29)).astype(jnp.int32)
        return gained + discrete_laplace(key, answers, (self.n_agents,)) >= threshold + memory.shift

    def timing(self) -> Timing:
        """Its epsilon is that of the noise it draws."""
        spent = np.asarray(self.epsilon, float)
        spent = np.where(spent >= LEAST * (1 - 1e-6), spent, math.inf)  # the sampler is for no less
        return Timing(self.sentence, pure=spent, fixed=False, n_agents=self.n_agents)

    def _scales(self) -> tuple[Array, Array]:
        """Of both discrete Laplace noises, sensitivity / epsilon_1 and 2 sensitivity / epsilon_2, least variance."""
        share = 1 / (1 + 2.0 ** (2 / 3))
        epsilon = jnp.broadcast_to(jnp.asarray(self.epsilon, jnp.float32), (self.n_agents,))
        return UNITS / (share * epsilon) * (1 + 1e-6), 2 * UNITS / ((1 - share) * epsilon) * (1 + 1e-6)


@dataclasses.dataclass(frozen=True)
class PrivateLogDet(Schedule):
    """`LogDet` by the sparse vector technique. Ours; certified where agents act on released statistics only.

    In place of g_i it reads its upper bound sum ln(1 + x' V^-1 x) over agent i's users since the last synchronisation,
    V being the same for all of them: to first order the same, and a plain sum, of which one user is one term of at most
    ln(1 + 1 / lambda_min(V)). In every epoch each silo runs one AboveThreshold on it (Dwork & Roth 2014, Section 3.6,
    noise of Lyu, Su & Li 2017): noise on its threshold, fresh noise in every round, stop at the first that is above.
    Terms are rounded up to 64ths of the most that one may be, and added to discrete Laplace noise: all are integers.

    Why it is private, if agents act on released statistics only. A user is a term of the sums of one silo, from her
    round to the end of her epoch; the release that ends it takes her into the statistics, whose noise is calibrated for
    her, and V is one of those. So all that her silo asks depends on her through one AboveThreshold, share *
    epsilon-DP, and all else through the continual release. The two compose (`pure` of `fb.privacy.calibrate`). What
    other silos ask does not depend on her before the epoch ends. Which silo asks is public.

    Args:
        threshold: D, as in `LogDet`.
        share: of the budget's epsilon that the tests spend, in (0, 1); the releases have the rest.
        max_syncs: no more synchronisations than these, so that the tree has fewer levels; default: one per round.

    Raises:
        ValueError, TypeError: naming the argument and its value.

    >>> PrivateLogDet(share=1.0)
    Traceback (most recent call last):
    ValueError: share must be in (0, 1), so that the shares of tests and releases add up to 1, got 1.0
    """

    threshold: float | str = "M log T"
    share: float = 0.1
    max_syncs: int | None = None

    def __post_init__(self):
        _check(self.threshold, self.max_syncs)
        if not 0 < validate.non_negative("share", self.share) < 1:
            raise ValueError(
                f"share must be in (0, 1), so that the shares of tests and releases add up to 1, got {self.share}"
            )

    def n_syncs(self, horizon: int) -> int:
        """`max_syncs`; no further synchronisation is asked for."""
        return horizon if self.max_syncs is None else min(self.max_syncs, horizon)

    def pure(self, epsilon: Any) -> Any:
        """share * epsilon."""
        return self.share * epsilon

    def bind(self, setting: Setting) -> BoundPrivateLogDet:
        """D and the epsilon of the tests as numbers."""
        if setting.epsilon is None:
            raise ValueError("PrivateLogDet spends a share of a budget, and there is none: use fb.schedules.LogDet")
        spent = np.min(self.pure(setting.epsilon))
        if spent < LEAST:
            raise ValueError(f"share * epsilon must be at least {LEAST:g} for integers of 32 bits, got {spent:g}")
        return BoundPrivateLogDet(
            threshold=np.float32(_threshold(self.threshold, setting)),
            epsilon=np.nextafter(np.asarray(self.pure(setting.epsilon), np.float32), np.float32(0)),
            n_agents=setting.n_agents,
        )


def doors(bound: BoundSchedule) -> tuple[Raw, ...]:
    """Those of a bound schedule, whatever its own code says of them."""
    own = type(bound)
    return () if struct.is_sealed(bound) or own.reads == "nothing" else (LEAKS,)


def timing(bound: BoundSchedule) -> Timing:
    """What a bound schedule spends; one of your own spends nothing, for it goes through the door where it reads."""
    return bound.timing() if struct.is_sealed(bound) else Timing(str(type(bound).sentence), fixed=False)


def check(bound: Any) -> None:
    """Does a schedule say what it wants to be handed? Raises a ValueError or TypeError that names it."""
    if not isinstance(bound, BoundSchedule):
        raise TypeError(f"a schedule's bind must return an fb.schedules.BoundSchedule, got {bound!r}")
    if type(bound).reads not in READS:
        choices = ", ".join(map(repr, READS))
        raise ValueError(f"{type(bound).__name__}.reads must be one of {choices}, got {type(bound).reads!r}")


def as_schedule(schedule: Schedule | int) -> Schedule:
    """A number of rounds is `Every` so many."""
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, (int, np.integer)) and not isinstance(schedule, bool):
        return Every(int(schedule))
    raise TypeError(f"schedule must be one of fb.schedules or a number of rounds, got {schedule!r}")


def _check(threshold: float | str, max_syncs: int | None) -> None:
    if isinstance(threshold, str):
        if threshold not in THRESHOLDS:
            choices = " or ".join(map(repr, THRESHOLDS))
            raise ValueError(f"threshold must be a number > 0, {choices}, got {threshold!r}")
    else:
        validate.positive("threshold", threshold)
    if max_syncs is not None:
        validate.integer("max_syncs", max_syncs, at_least=1)


def _threshold(threshold: float | str, setting: Setting) -> float:
    """D of Theorem 1 and Remark 1 of Dubey & Pentland (2020), L = 1."""
    m, d, t, low, high, _ = setting
    if threshold == "M log T":
        return 2 * t * d / (math.log(high / low + t / (d * low)) + 1)
    if threshold == "M^1.5":
        return t * math.log(m * t) / (d * m)
    return float(threshold)
