"""The packed form of statistics, and the summands of single users.

A sum of statistics is a symmetric matrix W (d, d) and a vector U (d,). The array [W | U] of shape (d, d + 1) holds
both. Its packed form is a vector of D = d(d+1)/2 + d entries. These are s W_ii and s sqrt 2 W_ij for i < j, row by row,
with a scale s, and U_i. Its squared Euclidean norm is s^2 ||W||_F^2 + ||U||_2^2. The joint sensitivity is measured in
that norm. Noise of standard deviation sigma on every packed entry unpacks to the symmetric matrix (sigma/s) (G + G') /
2. The entries of G are iid N(0, 1). Its variance is (sigma/s)^2 on the diagonal and half of that off the diagonal.
"""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float


def packed_size(dim: int) -> int:
    """Returns D = d(d+1)/2 + d, the length of a packed statistic for d = `dim` features."""
    return dim * (dim + 3) // 2


def matrix_weights(size: int) -> Float[np.ndarray, " {size}"]:
    """Returns the standard deviations of unit noise on the joint matrix of (x, y), in packed form, D = `size`.

    The d (d + 1) / 2 entries of the covariance have sqrt 2. The d entries of the bias have 1.
    """
    dim = (math.isqrt(8 * size + 9) - 3) // 2
    return np.where(np.arange(size) < size - dim, np.float32(math.sqrt(2)), np.float32(1))


@functools.cache
def _layout(dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    row, column = np.triu_indices(dim)
    scale = np.where(row == column, 1, math.sqrt(2)).astype(np.float32)
    place = np.zeros((dim, dim), int)
    place[row, column] = place[column, row] = np.arange(len(row))
    for table in (row, column, scale, place):
        table.flags.writeable = False
    return row, column, scale, place


def pack(statistics: Float[Array, "*n d d+1"]) -> Float[Array, "*n D"]:
    """Packs statistics [W | U] into vectors."""
    dim = statistics.shape[-2]
    row, column, scale, _ = _layout(dim)
    return jnp.concatenate([statistics[..., row, column] * scale, statistics[..., dim]], axis=-1)


def unpack(vector: Float[Array, "*n D"], dim: int) -> Float[Array, "*n {dim} {dim}+1"]:
    """Unpacks vectors into statistics [W | U] with d = `dim`; the inverse of `pack`."""
    _, _, scale, place = _layout(dim)
    matrix = (vector[..., : len(scale)] / scale)[..., place]
    return jnp.concatenate([matrix, vector[..., len(scale) :, None]], axis=-1)


def pack_users(x: Float[Array, "*n d M"], y: Float[Array, "*n M"]) -> Float[Array, "*n D M"]:
    """Packs every user's [x x' | x v] from features x and responses v."""
    row, column, scale, _ = _layout(x.shape[-2])
    outer = x[..., row, :] * x[..., column, :] * scale[:, None]
    return jnp.concatenate([outer, x * y[..., None, :]], axis=-2)


def rows(x: Float[Array, "*n d M"], v: Float[Array, "*n M"] | Float[Array, "*n 2 M"]) -> Float[Array, "*n d+1 M"]:
    """Returns the rows (w x', v) that multiply x, from features x and responses v, or v = weights and responses."""
    if v.ndim == x.ndim:
        return jnp.concatenate([v[..., :1, :] * x, v[..., 1:, :]], -2)
    return jnp.concatenate([x, v[..., None, :]], -2)


def added(x: Float[Array, "*n d M"], v: Array, step: float = 1.0) -> Float[Array, "*n d d+1 M"]:
    """Returns users' summands [w x x' | x v], see `rows`, in units of a power of two. The matrix is symmetric to the
    bit.
    """
    if v.ndim == x.ndim:  # x_i (w x_j) and x_j (w x_i) may be rounded to different steps
        outer = x[..., :, None, :] * x[..., None, :, :] * (v[..., None, :1, :] / step)
        return jnp.concatenate([outer, (x * (v[..., 1:, :] / step))[..., None, :]], -2)
    return (x / step)[..., :, None, :] * rows(x, v)[..., None, :, :]
