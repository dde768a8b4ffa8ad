"""Sums of rounded numbers, which are exact, and so the same in any order.

XLA:CPU adds up integers as fast as it multiplies matrices, if numbers are rounded by the addition of a large float and
not converted one by one, and if the last axis stays as it is until all others are summed.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.core.backend import on_cpu

LIMIT = 2**22  # size of the numbers that `nearest` rounds
_LARGE = np.float32(3 * LIMIT)  # so that what is added to it has a unit in the last place of 1


def nearest(x: Array) -> Array:
    """The int32 numbers that are nearest to float32 numbers of size below `LIMIT`.

    >>> nearest(jnp.array([0.4, -0.6, 2.5, 2.0**21])).tolist()
    [0, -1, 2, 2097152]
    """
    return lax.bitcast_convert_type(x + _LARGE, jnp.int32) - _LARGE.view(np.int32)


def add_up(x: Array) -> Array:
    """The sum of integers over the first and the last axis."""
    part = x.sum(0)
    return (lax.optimization_barrier(part) if on_cpu() else part).sum(-1)
