"""Base classes of schedules, the setting that binds them, and checks of user-defined ones."""

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
from fedbandit_jax.core.programs import is_array, need, need_numbers, refusal, returned
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.bound import Timing
from fedbandit_jax.privacy.compatibility import Tags, tagged

Since = Int[Array, ""] | Int[Array, " M"]
Asked = Bool[Array, ""] | Bool[Array, " M"]
READS = ("nothing", "log_det", "users")  # values of `BoundSchedule.reads`
LEAKS = Raw(
    why="the schedule leaks: whether a silo asks for a synchronisation depends on its users' data without noise (Zhou "
    "& Chowdhury 2024, Example 3.1), so no epsilon holds",
    seen="when silos ask for synchronisations, and which of them",
)


class Setting(NamedTuple):
    """Sizes of a run, bounds on its regulariser, and its privacy budget, for binding a schedule."""

    n_agents: int  # M
    dim: int  # d
    horizon: int  # T
    rho_min: float  # regulariser of one agent before the first release: V starts at M rho_min I
    rho_max: float  # upper bound on the eigenvalues of one agent's regulariser with privacy noise
    epsilon: float | Float[np.ndarray, " M"] | None = None  # of one visit, all silos' or each's; None without privacy


@struct.pytree
class BoundSchedule:
    """A bound schedule, which decides in every round. Subclass it, decorate with `@fb.pytree`, define `requests`.

    An epoch is the time between two synchronisations. `start` begins it, and `requests` may end it. Letters are those
    of `fb.schedules`: V, g_i, D and Dt.
    """

    reads: ClassVar[str] = "nothing"
    """Which statistic of every agent's users in this epoch `requests` is handed: "nothing"; "log_det", the raw g_i; or
    "users", the sum of what `count` returned for them."""
    sentence: ClassVar[str] = "user-defined"
    """The words by which a certificate describes the schedule."""

    def start(self, key: Key[Array, ""], floor: Float[Array, ""]) -> Any:
        """Returns the schedule's memory during an epoch, a pytree; by default nothing.

        Args:
            key: for noise that is drawn once per epoch.
            floor: lower bound on the smallest eigenvalue of V, or 0 if the schedule reads nothing.
        """
        return ()

    def count(self, memory: Any, leverage: Float[Array, " M"]) -> Int[Array, " M"]:
        """Returns the int32 summand of each agent's user of a round, of leverage x' V^-1 x, if `reads` is "users"."""
        raise NotImplementedError(f"{type(self).__name__}.count")

    def requests(
        self, key: Key[Array, ""], t: Int[Array, ""], memory: Any, gained: Num[Array, " M"] | None, since: Since
    ) -> Asked:
        """Returns requests for a synchronisation after round t = 0, 1, ...: one bool for all agents, or each agent's.

        If any agent asks, all silos of `fb.algos.Federated` send.

        Args:
            key: for fresh noise in every round.
            t: the round.
            memory: the result of `start`.
            gained: the statistic of every agent that the schedule `reads`; None if it reads nothing.
            since: Dt >= 1, rounds since the last synchronisation; on a network, of every agent.
        """
        raise NotImplementedError(f"{type(self).__name__}.requests")

    def timing(self) -> Timing:
        """Returns the account of the schedule in a certificate, and the epsilon that it spends."""
        return Timing(self.sentence, fixed=False)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A schedule that is not yet bound. Subclass it, define `n_syncs`, and `bind`, which returns a `BoundSchedule`.

    See docs/extending.md for two examples.
    """

    def n_syncs(self, horizon: int) -> int:
        """Returns S, the most synchronisations in T rounds. Noise is calibrated for S releases."""
        raise NotImplementedError(f"{type(self).__name__}.n_syncs")

    def pure(self, epsilon: float | Float[np.ndarray, " M"]) -> float | Float[np.ndarray, " M"]:
        """Returns the part of the budget's epsilon that the schedule spends: of all silos, or of each."""
        return 0.0 * epsilon

    def longest(self, horizon: int) -> int | None:
        """Returns the most rounds of a batch within T rounds; None unless a `Fixed` schedule or `Every`."""
        return None

    def shift(self, setting: Setting) -> float:
        """Returns c >= 0: a schedule that reads "log_det" gets log det (V_i + c I) - log det V."""
        return 0.0

    @property
    def tags(self) -> Tags:
        """Returns its tags for `privacy.compatibility`."""
        said = {
            "unequal batches": True,
            "adaptive schedule": True,
            "schedule that spends budget": np.max(self.pure(1.0)) > 0,
        }
        return tagged("schedule", self, said)

    def bind(self, setting: Setting) -> BoundSchedule:
        """Returns the bound schedule, which decides during a run."""
        raise NotImplementedError(f"{type(self).__name__}.bind")


def leaks(bound: BoundSchedule) -> tuple[Raw, ...]:
    """Returns the accesses to raw data of a bound schedule.

    A sealed class has none. Neither has a class that reads nothing and does not call the host, as a trace shows.
    """
    if struct.is_sealed(bound):
        return ()
    kind = type(bound)
    return (LEAKS,) if kind.reads != "nothing" or _leak(bound, None) else ()


def timing(bound: BoundSchedule) -> Timing:
    """Returns the account of a bound schedule in a certificate. A user-defined one is credited with no epsilon."""
    return bound.timing() if struct.is_sealed(bound) else Timing(str(type(bound).sentence), fixed=False)


def check(bound: Any, n_agents: int) -> None:
    """Checks a user-defined bound schedule, for M agents, without compilation.

    Raises:
        ValueError, TypeError: if it is not a `BoundSchedule` and a pytree of numbers, reads an unknown statistic, or a
            method returns a wrong result or calls the host.
    """
    if not isinstance(bound, BoundSchedule):
        raise BadType("a schedule's bind", "must return an fb.schedules.BoundSchedule", bound)
    name, reads = type(bound).__name__, type(bound).reads
    if type(reads) is not str or reads not in READS:
        raise BadValue(f"{name}.reads", f"must be one of {', '.join(map(repr, READS))}", reads)
    if struct.is_sealed(bound):
        return
    need_numbers("schedule", bound)
    key, agents = jax.random.key(0), jax.device_put(np.zeros(n_agents, np.float32))
    floor, number = jax.device_put((np.float32(0), np.int32(1)))
    memory = returned(bound, "start", key, floor)
    numbers = all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(memory))
    need(f"{name}.start", numbers, "a pytree of numbers", memory)
    gained = None if reads == "nothing" else agents
    if reads == "users":
        gained = returned(bound, "count", memory, agents)
        need(f"{name}.count", is_array(gained, (n_agents,), jnp.int32), f"int32 of shape ({n_agents},)", gained)
    asked = returned(bound, "requests", key, number, memory, gained, number)
    fine = is_array(asked, (), jnp.bool_) or is_array(asked, (n_agents,), jnp.bool_)
    need(f"{name}.requests", fine, f"a bool, or one for each of {n_agents} agents", asked)
    if found := _leak(bound, gained):
        raise found


def _leak(bound: BoundSchedule, gained: Any) -> BadType | None:
    key, (floor, one) = jax.random.key(0), jax.device_put((np.float32(0), np.int32(1)))
    if found := refusal(bound, "start", lambda bound: bound.start(key, floor)):
        return found
    memory = jax.eval_shape(bound.start, key, floor)
    return refusal(bound, "requests", lambda bound, *given: bound.requests(*given), key, one, memory, gained, one)
