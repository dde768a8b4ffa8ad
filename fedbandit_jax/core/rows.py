"""Tables with a row for every user, which are read and written row by row: what keeps XLA:CPU from copying them.

A table that a branch reads and writes is copied whenever the branch may be taken (jaxlib 0.10.2), which costs more than
all else where there are thousands of users. So a branch is given rows and returns rows, which are written whatever they
are; see `control.when_any` for the branch itself. Whoever does not exist has a row out of range: what is read for it
means nothing, and nothing is written.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core.backend import on_cpu

T = TypeVar("T")


def take(table: T, at: Array) -> T:
    """These rows of every array."""
    return jax.tree.map(lambda x: x[at], table)


def put(table: T, at: Array, row: T) -> T:
    """The table with a row of every array replaced, unless `at` is out of range.

    >>> put(jnp.arange(3), jnp.array(1), jnp.array(7)).tolist(), put(jnp.arange(3), jnp.array(3), jnp.array(7)).tolist()
    ([0, 7, 2], [0, 1, 2])
    """
    return jax.tree.map(lambda x, one: x.at[at].set(one, mode="drop"), table, row)


def each(which: Array, function: Callable[..., T], *arrays: Array) -> T:
    """Function of the rows (N, ...) for which `which` (N,) holds, zeros for the others.

    On a CPU one row after the other: most do not count, and two batched LAPACK calls of two runs would wait for each
    other's threads for ever (jaxlib 0.10.2). Elsewhere all at once.

    >>> each(jnp.array([True, False]), lambda x: x + 1, jnp.array([3, 5])).tolist()
    [4, 0]
    """

    def row(args: tuple[Array, ...]) -> T:
        wanted, *rest = args
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *rest))
        return lax.cond(wanted, function, lambda *_: zeros, *rest)

    return lax.map(row, (which, *arrays), batch_size=None if on_cpu() else len(which))
