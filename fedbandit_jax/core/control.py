"""Branches and loops that stay branches and loops under `jax.vmap`, where JAX would compute everything and select.

A lane is one element of the axis over which a function is vmapped.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core.backend import on_cpu

T = TypeVar("T")


def _over_lanes(reduced: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The identity; under vmap, in every lane the reduction over all lanes."""

    @jax.custom_batching.custom_vmap
    def same(x: Array) -> Array:
        return x

    @same.def_vmap
    def _(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
        return same(reduced(x) if in_batched[0] else x), False

    return same


# A `while_loop` whose condition differs between lanes computes every turn for all lanes and selects. A loop that is
# bounded by the largest value runs as often, but what does not depend on the lane is computed once.
largest = _over_lanes(lambda x: x.max(0))
in_any_lane = _over_lanes(lambda x: x.any(0))


def by_lanes(make: Callable[[int], Callable[..., Any]], *arguments: Array) -> Any:
    """`make(n)(*arguments)`, where n is the number of lanes of all vmaps around it, 1 without any.

    >>> import jax, jax.numpy as jnp
    >>> counted = lambda x: by_lanes(lambda n: lambda x: n * x, x)
    >>> jax.vmap(jax.vmap(counted))(jnp.arange(6).reshape(2, 3)).tolist()
    [[0, 6, 12], [18, 24, 30]]
    """

    def called(n: int, within: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
        @jax.custom_batching.custom_vmap
        def call(*arguments: Array) -> Any:
            return within(make(n))(*arguments)

        @call.def_vmap
        def _(axis_size: int, in_batched: list[bool], *arguments: Array) -> tuple[Any, Any]:
            axes = tuple(0 if batched else None for batched in in_batched)
            result = called(n * axis_size, lambda one: jax.vmap(within(one), axes, axis_size=axis_size))(*arguments)
            return result, jax.tree.map(lambda _: True, result)

        return call

    return called(1, lambda one: one)(*arguments)


def cond_any(predicate: Array, update: Callable[[T], T], state: T, *, costly: bool = False) -> T:
    """`update(state)` where the predicate holds and `state` elsewhere.

    On a CPU, under vmap, the update is computed, for all lanes, only if the predicate holds in one of them, where
    `lax.cond` would always compute it. So do other devices here, unless it is so `costly` and seldom wanted that they
    branch as well: a GPU could run several kernels while it waits until the host has read the predicate.

    >>> import jax, jax.numpy as jnp
    >>> jax.vmap(lambda p, x: cond_any(p, lambda x: 2 * x, x))(jnp.array([True, False]), jnp.array([3, 5])).tolist()
    [6, 5]
    """

    def chosen(state: T) -> T:
        return jax.tree.map(lambda new, old: jnp.where(predicate, new, old), update(state), state)

    if not (costly or on_cpu()):
        return chosen(state)
    return _branch(in_any_lane(predicate), chosen, state)


def when_any(predicate: Array, update: Callable[[T], T], state: T) -> T:
    """`update(state)` if the predicate holds, under vmap in any lane, and `state` otherwise.

    `update` itself must change nothing in lanes where the predicate does not hold: it suits large states that are
    written in few places, which the `where` of `cond_any` would copy. It is a branch on every device.
    """
    return _branch(in_any_lane(predicate), update, state)


def seldom(predicate: Array, update: Callable[[T], T], state: T) -> T:
    """`update(state)` where the predicate holds and `state` elsewhere, as a loop of one turn or none.

    XLA:CPU copies a state that a branch reads and writes whenever the branch may be taken, but not one that a loop may
    change. It suits large tables that are changed as a whole, and seldom: with 10,000 users of 10 features a round took
    8.8 ms with a branch and 0.3 ms so.

    >>> import jax, jax.numpy as jnp
    >>> double = lambda p, x: seldom(p, lambda x: 2 * x, x)
    >>> jax.vmap(double)(jnp.array([True, False]), jnp.array([3, 5])).tolist()
    [6, 5]
    """

    def turn(carry: tuple[Array, T]) -> tuple[Array, T]:
        return jnp.zeros_like(carry[0]), update(carry[1])

    return lax.while_loop(lambda carry: carry[0], turn, (predicate, state))[1]


def _branch(taken: Array, update: Callable[[T], T], state: T) -> T:
    """XLA:GPU copies what a branch returns that is not taken, but not what a loop of no turns returns."""
    if on_cpu():
        return lax.cond(taken, update, lambda state: state, state)
    return seldom(taken, update, state)


def stored(make: Callable[[], Array], k: Array) -> Array:
    """The array `make()`; a CPU stores it, lest all that reads it makes it again, see `once`."""
    if not on_cpu():
        return make()
    shape = jax.eval_shape(make)
    start = k, jnp.zeros(shape.shape, shape.dtype)
    return lax.while_loop(lambda carry: carry[0] == k, lambda carry: (carry[0] + 1, make()), start)[1]


def put_row(rows: T, i: Array, new: T, k: Array) -> T:
    """Arrays with `new` in row i of each.

    On a GPU a kernel writes it, which can be part of a graph, where XLA would have the host copy what need not be
    computed. Hence it is selected by the sign of k, a traced integer >= 0 whose sign XLA does not know.
    """
    if not on_cpu():
        new = jax.tree.map(lambda x: jnp.where(k < 0, jnp.zeros_like(x), x), new)
    return jax.tree.map(lambda old, x: lax.dynamic_update_index_in_dim(old, x, i, 0), rows, new)


@jax.custom_batching.custom_vmap
def _several(readers: Any) -> Array:
    """False; under vmap, whether any leaf of the tree `readers` differs between lanes."""
    return jnp.bool_(False)


@_several.def_vmap
def _(axis_size: int, in_batched: list[Any], readers: Any) -> tuple[Array, bool]:
    return jnp.bool_(any(jax.tree.leaves(in_batched))), False


def once(draw: Callable[[], Sequence[Array]], k: Array, readers: Any = None) -> tuple[Array, Array]:
    """The two arrays `draw()`, computed in one pass and, on a CPU, stored.

    XLA:CPU copies draws into every expression that reads them, so that all lanes of a vmap draw the same numbers again.
    A loop of one turn, whose length XLA cannot know from k, keeps the draws apart from these expressions; one complex
    array keeps the two together.

    Args:
        draw: takes no arguments and returns two float32 arrays of one shape.
        k: any traced integer; its value does not matter.
        readers: a tree of numbers, if one expression reads the draws, and one more in every lane of a vmap in which
            these numbers differ. Without such lanes nothing is stored: a single reader may as well draw for itself.
    """
    if not on_cpu():
        first, second = draw()
        return first, second

    def apart() -> tuple[Array, Array]:
        both = stored(lambda: lax.complex(*draw()), k)
        return both.real, both.imag

    if readers is None:
        return apart()
    return lax.cond(_several(readers), apart, lambda: tuple(draw()))
