"""User-defined schedules: checks before they run, and claims about their runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.certificate import Raw
from fedbandit_jax.core import struct
from fedbandit_jax.core.programs import refusal
from fedbandit_jax.core.returned import is_array, need, returned
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.bound import Timing
from fedbandit_jax.schedules.schedule import BoundSchedule

READS = ("nothing", "log_det", "users")  # values of `BoundSchedule.reads`
LEAKS = Raw(
    claim="none",
    why="the schedule leaks: whether a silo asks for a synchronisation depends on its users' data without noise (Zhou "
    "& Chowdhury 2024, Example 3.1), so no epsilon holds",
    seen="when silos ask for synchronisations, and which of them",
)


def doors(bound: BoundSchedule) -> tuple[Raw, ...]:
    """Returns the accesses to raw data of a bound schedule.

    A sealed class has none. Neither has a class that reads nothing and does not call the host, as a trace shows.
    """
    if struct.is_sealed(bound):
        return ()
    kind = type(bound)
    return (LEAKS,) if kind.reads != "nothing" or kind.calls_host or _leak(bound, None) else ()


def timing(bound: BoundSchedule) -> Timing:
    """Returns the account of a bound schedule in a certificate; a user-defined one is credited with no epsilon."""
    return bound.timing() if struct.is_sealed(bound) else Timing(str(type(bound).sentence), fixed=False)


def check(bound: Any, n_agents: int) -> None:
    """Checks a user-defined bound schedule, for M agents, without compilation.

    Raises:
        ValueError, TypeError: if it is not a `BoundSchedule`, reads an unknown statistic, or a method returns a wrong
            result or calls the host without saying so.
    """
    if not isinstance(bound, BoundSchedule):
        raise BadType("a schedule's bind", "must return an fb.schedules.BoundSchedule", bound)
    name, reads = type(bound).__name__, type(bound).reads
    if type(reads) is not str or reads not in READS:
        raise BadValue(f"{name}.reads", f"must be one of {', '.join(map(repr, READS))}", reads)
    if struct.is_sealed(bound):
        return
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
    if not type(bound).calls_host and (found := _leak(bound, gained)):
        raise TypeError(found)


def _leak(bound: BoundSchedule, gained: Any) -> str:
    key, (floor, one) = jax.random.key(0), jax.device_put((np.float32(0), np.int32(1)))
    if found := refusal(bound, "start", lambda bound: bound.start(key, floor)):
        return found
    memory = jax.eval_shape(bound.start, key, floor)
    return refusal(bound, "requests", lambda bound, *given: bound.requests(*given), key, one, memory, gained, one)
