"""Tables with one row per user, which are read and written row by row so that XLA:CPU does not copy them.

A table is a pytree of arrays that share their leading axis. XLA:CPU (jaxlib 0.10.2) copies a table that a branch reads
and writes whenever the branch may be taken, which costs more than everything else where there are thousands of users.
So a branch is given rows and returns rows, which are always written back; see `control.when_any` for the branch itself.
A user who does not exist has a row number out of range: what is read for it is meaningless, and nothing is written.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core.backend import on_cpu

T = TypeVar("T")


def take(table: T, at: Array) -> T:
    """Returns the rows `at` (a row number, or an array of them) of every array of the table."""
    return jax.tree.map(lambda x: x[at], table)


def put(table: T, at: Array, row: T) -> T:
    """Returns the table with row `at` of every array replaced by that of `row`, or unchanged if `at` is out of range.

    >>> put(jnp.arange(3), jnp.array(1), jnp.array(7)).tolist(), put(jnp.arange(3), jnp.array(3), jnp.array(7)).tolist()
    ([0, 7, 2], [0, 1, 2])
    """
    return jax.tree.map(lambda x, one: x.at[at].set(one, mode="drop"), table, row)


def each(which: Array, function: Callable[..., T], *arrays: Array) -> T:
    """Applies a function to the rows of arrays (N, ...) for which `which` (N,) holds; other rows of the result are 0.

    On a CPU rows are handled one after the other, because few of them count, and because two batched LAPACK calls of
    two runs would wait for each other's threads for ever (jaxlib 0.10.2). Elsewhere all are handled at once.

    >>> each(jnp.array([True, False]), lambda x: x + 1, jnp.array([3, 5])).tolist()
    [4, 0]
    """

    def row(args: tuple[Array, ...]) -> T:
        wanted, *rest = args
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *rest))
        return lax.cond(wanted, function, lambda *_: zeros, *rest)

    return lax.map(row, (which, *arrays), batch_size=None if on_cpu() else len(which))
