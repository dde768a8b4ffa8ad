"""What a schedule is, and the door it goes through if it is handed raw statistics."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

from jax import Array

from fedbandit_jax.certificate import Raw
from fedbandit_jax.core import struct
from fedbandit_jax.privacy.channel import Timing

READS = ("nothing", "log_det", "users")
LEAKS = Raw(
    claim="none",
    why="the schedule leaks: whether a silo asks for a synchronisation depends on its users' data without noise (Zhou "
    "& Chowdhury 2024, Example 3.1), so no epsilon holds",
    seen="when silos ask for synchronisations, and which of them",
)


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
