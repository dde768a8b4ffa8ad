"""The interface of a schedule, and the door to raw data that it goes through if it is handed raw statistics."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key, Num

from fedbandit_jax.certificate import Raw
from fedbandit_jax.core import struct
from fedbandit_jax.core.programs import cannot, leak
from fedbandit_jax.privacy.bound import Timing

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
        """Returns what the schedule remembers during an epoch, a pytree; by default nothing.

        Args:
            key: for noise that is drawn once per epoch.
            floor: lower bound on the smallest eigenvalue of V, or 0 if the schedule reads nothing.
        """
        del key, floor
        return ()

    def count(self, memory: Any, leverage: Float[Array, " M"]) -> Int[Array, " M"]:
        """Returns what each agent's user of a round adds to its sum, int32, from the leverages x' V^-1 x.

        It is called only if `reads` is "users".
        """
        raise NotImplementedError(f"{type(self).__name__}.count")

    def requests(
        self,
        key: Key[Array, ""],
        t: Int[Array, ""],
        memory: Any,
        gained: Num[Array, " M"] | None,
        since: Int[Array, ""] | Int[Array, " M"],
    ) -> Bool[Array, ""] | Bool[Array, " M"]:
        """Returns who asks for a synchronisation after round t = 0, 1, ...: either one bool for all agents, or each's.

        Args:
            key: for fresh noise in every round.
            t: the round that was just played.
            memory: what `start` returned.
            gained: what the schedule `reads` of every agent; None if it reads nothing.
            since: Dt >= 1, rounds since the last synchronisation; on a network, of every agent.
        """
        raise NotImplementedError(f"{type(self).__name__}.requests")

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
        >>> Office().n_syncs(48), doors(Office().bind(None))
        (20, ())
    """

    def n_syncs(self, horizon: int) -> int:
        """Returns S, the most synchronisations in T rounds: noise is calibrated for S releases; no more are made."""
        raise NotImplementedError(f"{type(self).__name__}.n_syncs")

    def pure(self, epsilon: float | Float[np.ndarray, " M"]) -> float | Float[np.ndarray, " M"]:
        """Returns the part of the budget's epsilon that the schedule spends: of all silos, or of each."""
        return 0.0 * epsilon

    def longest(self, horizon: int) -> int | None:
        """Returns the most rounds of a batch that ends within T rounds, or None if that is not fixed in advance."""
        del horizon
        return None

    def shift(self, setting: Setting) -> float:
        """Returns c >= 0: a schedule that reads "log_det" is handed log det (V_i + c I) - log det V."""
        del setting
        return 0.0

    def bind(self, setting: Setting) -> BoundSchedule:
        """Returns the bound schedule, which decides during a run."""
        raise NotImplementedError(f"{type(self).__name__}.bind")


def doors(bound: BoundSchedule) -> tuple[Raw, ...]:
    """Returns the doors to raw data that a bound schedule goes through, whatever its own code says of them.

    There is none for a sealed class, nor for one that reads nothing and does not call the host, as a trace shows.
    """
    if struct.is_sealed(bound):
        return ()
    kind = type(bound)
    return (LEAKS,) if kind.reads != "nothing" or kind.calls_host or _leak(bound, None) else ()


def _leak(bound: BoundSchedule, gained: Array | None) -> str:
    """Says which method does more than compute its result, and where, see `core.programs`."""
    key, one = jax.random.key(0), jnp.int32(1)
    if found := leak(lambda bound: bound.start(key, jnp.float32(0)), bound):
        return cannot(bound, "start", found)
    memory = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(bound.start, key, jnp.float32(0)))
    found = leak(lambda bound, *given: bound.requests(*given), bound, key, one, memory, gained, one)
    return found and cannot(bound, "requests", found)


def timing(bound: BoundSchedule) -> Timing:
    """Returns what a certificate says of a bound schedule, and the epsilon that the schedule spends.

    A schedule that is not sealed is credited with no epsilon of its own: if it reads anything, it goes through a door.
    """
    return bound.timing() if struct.is_sealed(bound) else Timing(str(type(bound).sentence), fixed=False)


def check(bound: Any, n_agents: int) -> None:
    """Checks what a schedule of one's own was bound as, for M agents.

    Raises:
        ValueError, TypeError: if it is not a `BoundSchedule`, reads what there is not, does not return who asks, or
            calls the host and its class does not say so.
    """
    if not isinstance(bound, BoundSchedule):
        raise TypeError(f"a schedule's bind must return an fb.schedules.BoundSchedule, got {bound!r}")
    name, reads = type(bound).__name__, type(bound).reads
    if type(reads) is not str or reads not in READS:
        raise ValueError(f"{name}.reads must be one of {', '.join(map(repr, READS))}, got {reads!r}")
    if struct.is_sealed(bound):
        return
    gained = {"nothing": None, "log_det": jnp.zeros(n_agents), "users": jnp.zeros(n_agents, jnp.int32)}[reads]
    if not type(bound).calls_host and (found := _leak(bound, gained)):
        raise TypeError(found)
    key, number = jax.random.key(0), jnp.int32(1)
    memory = jax.eval_shape(bound.start, key, jnp.float32(0))
    asked = jax.eval_shape(bound.requests, key, number, memory, gained, number)
    if asked is None or asked.dtype.kind != "b" or asked.shape not in ((), (n_agents,)):
        raise TypeError(f"{name}.requests must return a bool, or one for each of {n_agents} agents, got {asked}")
