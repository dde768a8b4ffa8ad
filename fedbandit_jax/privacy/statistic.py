"""One user's statistics as a vector whose Euclidean norm is the joint sensitivity, and the server's matrices again.

pack: (W | U), symmetric W (d, d) and U (d,), becomes the D = d(d+1)/2 + d entries (W_ii, sqrt 2 W_ij for i < j, U_i):
||pack||_2^2 = ||W||_F^2 + ||U||_2^2. Noise of standard deviation sigma on every packed entry is, unpacked, the
symmetric matrix sigma (G + G')/2 with G iid N(0, 1): variance sigma^2 on the diagonal, sigma^2/2 off it.
"""

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import Array


def packed_size(dim: int) -> int:
    """D = d(d+1)/2 + d."""
    return dim * (dim + 3) // 2


@functools.cache
def _layout(dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and scale of every packed entry of W, and where in the packed vector W_ij is, (d, d)."""
    row, column = np.triu_indices(dim)
    scale = np.where(row == column, 1, math.sqrt(2)).astype(np.float32)
    place = np.zeros((dim, dim), int)
    place[row, column] = place[column, row] = np.arange(len(row))
    return row, column, scale, place


def pack(statistics: Array) -> Array:
    """(..., d, d + 1) to (..., D)."""
    dim = statistics.shape[-2]
    row, column, scale, _ = _layout(dim)
    return jnp.concatenate([statistics[..., row, column] * scale, statistics[..., dim]], axis=-1)


def unpack(vector: Array, dim: int) -> Array:
    """(..., D) to (..., d, d + 1)."""
    _, _, scale, place = _layout(dim)
    matrix = (vector[..., : len(scale)] / scale)[..., place]
    return jnp.concatenate([matrix, vector[..., len(scale) :, None]], axis=-1)


def pack_users(x: Array, y: Array) -> Array:
    """The packed (x x' | x y) of every user: features x (..., d, M), rewards y (..., M) to (..., D, M)."""
    row, column, scale, _ = _layout(x.shape[-2])
    outer = x[..., row, :] * x[..., column, :] * scale[:, None]
    return jnp.concatenate([outer, x * y[..., None, :]], axis=-2)
