"""Exact sums of rounded numbers, independent of the order.

XLA:CPU adds integers as fast as it multiplies matrices, under two conditions. Numbers are rounded by adding a large
float, not by conversion. The last axis is summed last.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.core.backend import on_cpu

LIMIT = 2**22  # size of the numbers that `nearest` rounds
_LARGE = np.float32(3 * LIMIT)  # with a unit in the last place of 1


def nearest(x: Array) -> Array:
    """Rounds float32 numbers of size below `LIMIT` to the nearest int32.

    >>> nearest(jnp.array([0.4, -0.6, 2.5, 2.0**21])).tolist()
    [0, -1, 2, 2097152]
    """
    return lax.bitcast_convert_type(x + _LARGE, jnp.int32) - _LARGE.view(np.int32)


def add_up(x: Array) -> Array:
    """Sums integers over the first and the last axis."""
    part = x.sum(0)
    return (lax.optimization_barrier(part) if on_cpu() else part).sum(-1)
