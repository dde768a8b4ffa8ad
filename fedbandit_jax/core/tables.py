"""Tables with one row for each user, read and written row by row so that XLA:CPU does not copy them.

A table is a pytree of arrays that share their leading axis. If a branch may be taken, XLA:CPU (jaxlib 0.10.2) copies a
table that it reads and writes. So a branch takes and returns rows, which are always written back. The row of an invalid
user is out of range. Reads are then meaningless, and writes are dropped.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import control
from fedbandit_jax.core.backend import on_cpu

T = TypeVar("T")

SMALL, FEW = 2**15, 8  # numbers of a table, or rows, up to which other devices rewrite it to change one row


def take(table: T, at: Array) -> T:
    """Returns the rows `at` (an index, or an array of them) of every array of the table."""
    return jax.tree.map(lambda x: x[at], table)


def put(table: T, at: Array, row: T) -> T:
    """Replaces row `at` of every array; leaves the table unchanged if `at` is out of range.

    >>> put(jnp.arange(3), jnp.array(1), jnp.array(7)).tolist(), put(jnp.arange(3), jnp.array(3), jnp.array(7)).tolist()
    ([0, 7, 2], [0, 1, 2])
    """

    def written(x: Array, one: Array) -> Array:
        if on_cpu() or (x.size > SMALL and len(x) > FEW):
            return x.at[at].set(one, mode="drop")
        own = jnp.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1)) == at  # a selection needs no kernel of its own
        return jnp.where(own, one, x)

    return jax.tree.map(written, table, row)


def add(table: T, at: Array, row: T) -> T:
    """Adds a row to row `at`, as `put` writes it.

    >>> add(jnp.arange(3), jnp.array(1), jnp.array(7)).tolist()
    [0, 8, 2]
    """
    if on_cpu():
        return jax.tree.map(lambda x, one: x.at[at].add(one, mode="drop"), table, row)
    return put(table, at, jax.tree.map(jnp.add, take(table, at), row))


def numbers(which: Array) -> tuple[Array, Array]:
    """Returns the indices (N,) of rows with `which` (N,), padded by N, and their count.

    >>> [x.tolist() for x in numbers(jnp.array([True, False, True]))]
    [[0, 2, 3], 2]
    """
    n = len(which)
    return jnp.sort(jnp.where(which, jnp.arange(n, dtype=jnp.int32), n)), which.sum()


def each(which: Array, function: Callable[..., T], *arrays: Array) -> T:
    """Applies a function to the rows of arrays (N, ...) with `which` (N,); other rows of the result are 0.

    A CPU processes them one by one, since few are selected (and see `core.lapack`).

    >>> each(jnp.array([True, False]), lambda x: x + 1, jnp.array([3, 5])).tolist()
    [4, 0]
    """
    if not on_cpu():
        made = jax.vmap(function)(*arrays)
        return jax.tree.map(lambda x: jnp.where(which.reshape(-1, *(1,) * (x.ndim - 1)), x, 0), made)
    order, count = numbers(which)
    shapes = jax.eval_shape(function, *take(arrays, order[0]))
    nothing = jax.tree.map(lambda x: jnp.zeros((len(which), *x.shape), x.dtype), shapes)

    def handle(i: Array, made: T) -> T:
        return put(made, order[i], function(*take(arrays, order[i])))

    return lax.fori_loop(0, control.max_over_lanes(count), handle, nothing)


def segment_sum(which: Array, to: Array, table: T) -> T:
    """Adds row i of a table (N, ...) to row `to[i]` of zeros, for rows with `which` (N,).

    A CPU adds them one by one, since few are selected.

    >>> segment_sum(jnp.array([True, False, True]), jnp.array([1, 1, 1]), jnp.array([3, 5, 7])).tolist()
    [0, 10, 0]
    """
    if not on_cpu():
        return jax.tree.map(lambda x: jnp.zeros_like(x).at[jnp.where(which, to, len(to))].add(x, mode="drop"), table)
    order, count = numbers(which)

    def add(i: Array, total: T) -> T:
        at = to.at[order[i]].get(mode="fill", fill_value=len(to))
        return jax.tree.map(lambda sums, x: sums.at[at].add(x[order[i]], mode="drop"), total, table)

    return lax.fori_loop(0, control.max_over_lanes(count), add, jax.tree.map(jnp.zeros_like, table))
