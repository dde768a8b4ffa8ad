"""Gaussian noise for the statistics of linear bandits."""

import jax
import jax.numpy as jnp
from jax import Array


def symmetric_gaussian(key: Array, dim: int) -> Array:
    """Unit noise for (x x', x y), (d, d + 1): the first d columns are (G + G')/2, the last is g; G, g iid N(0, 1).

    The released matrix is symmetric, so adding (G + G')/2 is post-processing of adding G: the guarantee is that of
    noise with standard deviation 1 on each of the d^2 entries, while the diagonal has variance 1 and the rest 1/2.
    """
    draws = jax.random.normal(key, (dim, dim + 1))
    square = draws[:, :dim]
    return jnp.concatenate([(square + square.T) / 2, draws[:, dim:]], axis=1)
