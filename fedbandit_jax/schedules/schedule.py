"""The interface of a schedule, and the door to raw data that it goes through if it is handed raw statistics."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

from jax import Array

from fedbandit_jax.certificate import Raw
from fedbandit_jax.core import struct
from fedbandit_jax.privacy.channel import Timing

READS = ("nothing", "log_det", "users")  # what a schedule may ask to be handed, see `BoundSchedule.reads`
LEAKS = Raw(
    claim="none",
    why="the schedule leaks: whether a silo asks for a synchronisation depends on its users' data without noise (Zhou "
    "& Chowdhury 2024, Example 3.1), so no epsilon holds",
    seen="when silos ask for synchronisations, and which of them",
)


class Setting(NamedTuple):
    """What a schedule is bound to: the sizes of a run, bounds on its regulariser, and its privacy budget."""

    n_agents: int  # M
    dim: int  # d
    horizon: int  # T
    rho_min: float  # regulariser of one agent before the first release: V starts at M rho_min I
    rho_max: float  # upper bound on the eigenvalues of one agent's regulariser with privacy noise
    epsilon: Any = None  # epsilon of one visit: of the common budget, or (M,) of the silos'; None without privacy


@struct.pytree
class BoundSchedule:
    """A bound schedule, which decides in every round. Subclass it, decorate with `@fb.pytree`, define `requests`.

    An epoch is the time from one synchronisation to the next; `start` begins it, and `requests` may end it. Letters are
    those of the package `fb.schedules`: V, g_i, D and Dt.
    """

    reads: ClassVar[str] = "nothing"
    """Which statistic of every agent's users in this epoch `requests` is handed: "nothing"; "log_det", the raw g_i; or
    "users", the sum of what `count` returned for them."""
    sentence: ClassVar[str] = "of the user's own"
    """The words by which a certificate describes the schedule."""

    def start(self, key: Array, floor: Array) -> Any:
        """Returns what the schedule remembers during an epoch, a pytree; by default nothing.

        Args:
            key: for noise that is drawn once per epoch.
            floor: lower bound on the smallest eigenvalue of V, or 0 if the schedule reads nothing.
        """
        del key, floor
        return ()

    def count(self, memory: Any, leverage: Array) -> Array:
        """Returns what each agent's user of a round adds to its sum, (M,) int32, from leverages x' V^-1 x (M,).

        It is called only if `reads` is "users".
        """
        raise NotImplementedError(f"{type(self).__name__}.count")

    def requests(self, key: Array, t: Array, memory: Any, gained: Array, since: Array) -> Array:
        """Returns who asks for a synchronisation after round t = 0, 1, ...: bool, either one for all agents or (M,).

        Args:
            key: for fresh noise in every round.
            t: the round that was just played.
            memory: what `start` returned.
            gained: what the schedule `reads` of every agent, (M,); zeros if it reads nothing.
            since: Dt >= 1, rounds since the last synchronisation, int32: (), or (M,) on a network.
        """
        raise NotImplementedError(f"{type(self).__name__}.requests")

    @property
    def raw(self) -> tuple[Raw, ...]:
        """Returns the doors to raw data that the schedule goes through, see `doors`."""
        return doors(self)

    def timing(self) -> Timing:
        """Returns what a certificate says of the schedule, and the epsilon that the schedule spends."""
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
        >>> Office().n_syncs(48), Office().bind(None).raw
        (20, ())
    """

    def n_syncs(self, horizon: int) -> int:
        """Returns S, the most synchronisations in T rounds: noise is calibrated for S releases; no more are made."""
        raise NotImplementedError(f"{type(self).__name__}.n_syncs")

    def pure(self, epsilon: Any) -> Any:
        """Returns the part of the budget's epsilon that the schedule spends, () or (M,) as `epsilon` is."""
        return 0.0 * epsilon

    def shift(self, setting: Setting) -> float:
        """Returns c >= 0: a schedule that reads "log_det" is handed log det (V_i + c I) - log det V."""
        del setting
        return 0.0

    def bind(self, setting: Setting) -> BoundSchedule:
        """Returns the bound schedule, which decides during a run."""
        raise NotImplementedError(f"{type(self).__name__}.bind")


def doors(bound: BoundSchedule) -> tuple[Raw, ...]:
    """Returns the doors to raw data that a bound schedule goes through, whatever its own code says of them.

    There is none for a sealed class or for one that reads nothing, and `LEAKS` for every other.
    """
    own = type(bound)
    return () if struct.is_sealed(bound) or own.reads == "nothing" else (LEAKS,)


def timing(bound: BoundSchedule) -> Timing:
    """Returns what a certificate says of a bound schedule, and the epsilon that the schedule spends.

    A schedule that is not sealed is credited with no epsilon of its own: if it reads anything, it goes through a door.
    """
    return bound.timing() if struct.is_sealed(bound) else Timing(str(type(bound).sentence), fixed=False)


def check(bound: Any) -> None:
    """Raises a TypeError if `bound` is no `BoundSchedule`, and a ValueError if its `reads` is not one of `READS`."""
    if not isinstance(bound, BoundSchedule):
        raise TypeError(f"a schedule's bind must return an fb.schedules.BoundSchedule, got {bound!r}")
    if type(bound).reads not in READS:
        choices = ", ".join(map(repr, READS))
        raise ValueError(f"{type(bound).__name__}.reads must be one of {choices}, got {type(bound).reads!r}")
