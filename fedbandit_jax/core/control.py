"""Control flow that stays control flow under vmap."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core.backend import on_cpu

T = TypeVar("T")


@jax.custom_batching.custom_vmap
def largest(x: Array) -> Array:
    """x itself; under vmap the largest of all lanes, the same for each, so that loops may use it as a bound.

    A `while_loop` whose condition differs between lanes computes everything for all of them and selects; one bounded by
    the largest runs as often, but what does not depend on the lane is computed once.
    """
    return x


@largest.def_vmap
def _(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
    del axis_size
    return largest(x.max(0) if in_batched[0] else x), False


@jax.custom_batching.custom_vmap
def in_any_lane(x: Array) -> Array:
    """x itself; under vmap whether it holds in any lane, the same for each."""
    return x


@in_any_lane.def_vmap
def _(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
    del axis_size
    return in_any_lane(x.any(0) if in_batched[0] else x), False


def cond_any(predicate: Array, update: Callable[[T], T], state: T) -> T:
    """`update(state)` where the predicate holds, `state` elsewhere.

    Under vmap the update is computed, for all lanes, only if the predicate holds in one of them; a `lax.cond` with a
    predicate that differs between lanes would compute it always.

    >>> import jax, jax.numpy as jnp
    >>> jax.vmap(lambda p, x: cond_any(p, lambda x: 2 * x, x))(jnp.array([True, False]), jnp.array([3, 5])).tolist()
    [6, 5]
    """

    def chosen(state: T) -> T:
        return jax.tree.map(lambda new, old: jnp.where(predicate, new, old), update(state), state)

    return lax.cond(in_any_lane(predicate), chosen, lambda state: state, state)


def when_any(predicate: Array, update: Callable[[T], T], state: T) -> T:
    """`update(state)` if the predicate holds, under vmap in any lane: `update` must change nothing where it does not.

    As `cond_any`, for large states that are written here and there, which a `where` over all of them would copy.
    """
    return lax.cond(in_any_lane(predicate), update, lambda state: state, state)


def once(draw: Callable[[], Sequence[Array]], k: Array) -> tuple[Array, Array]:
    """`draw()`, two float32 arrays of one shape, computed in one pass and stored; k is any integer, traced.

    XLA:CPU copies draws into every expression that reads them, so that all lanes of a vmap draw the same again. A loop
    of one turn, which XLA cannot know from k, keeps them apart; one complex array keeps them together.
    """
    if not on_cpu():
        first, second = draw()
        return first, second
    start = k, jnp.zeros(jax.eval_shape(draw)[0].shape, jnp.complex64)
    _, both = lax.while_loop(lambda carry: carry[0] == k, lambda carry: (carry[0] + 1, lax.complex(*draw())), start)
    return both.real, both.imag
