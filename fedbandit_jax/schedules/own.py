"""What is made of a schedule of one's own: checks before it runs, and what is claimed of a run that it decides in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.certificate import Raw
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.programs import noted, refusal
from fedbandit_jax.privacy.bound import Timing
from fedbandit_jax.schedules.schedule import BoundSchedule

READS = ("nothing", "log_det", "users")  # what a schedule may ask to be handed, see `BoundSchedule.reads`
LEAKS = Raw(
    claim="none",
    why="the schedule leaks: whether a silo asks for a synchronisation depends on its users' data without noise (Zhou "
    "& Chowdhury 2024, Example 3.1), so no epsilon holds",
    seen="when silos ask for synchronisations, and which of them",
)


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
