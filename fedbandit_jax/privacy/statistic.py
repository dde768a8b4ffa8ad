"""The linear statistic (x x', x y): what one user adds to a message, how far she can move it, and how that is enforced.

Packed, the statistic of a user is a vector whose Euclidean norm is the joint sensitivity. pack: (W | U), symmetric W
(d, d) and U (d,), becomes the D = d(d+1)/2 + d entries (W_ii, sqrt 2 W_ij for i < j, U_i): ||pack||_2^2 = ||W||_F^2 +
||U||_2^2. Noise of standard deviation sigma on every packed entry is, unpacked, the symmetric matrix sigma (G + G')/2
with G iid N(0, 1): variance sigma^2 on the diagonal, sigma^2/2 off it.
"""

import dataclasses
import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.budget import MAX_NORM

TOLERANCE = 1e-4  # of a norm: float32 adds up the squares of a hundred features to within this


@struct.sealed
@dataclasses.dataclass(frozen=True)  # not a NamedTuple: one of another class would equal it, and share its program
class LinearStatistic:
    """What the environment promises of x and y, and what is enforced where they enter. Hashable."""

    dim: int  # d
    unit_rewards: bool = True  # does the environment promise rewards in [0, 1]?
    clips: bool = True  # are they clipped to [0, 1] in any case?
    fixed_contexts: bool = False  # are the features fixed and public?
    n_users: int = 0  # users who return and are told apart; 0: every user is new

    @property
    def bounded(self) -> bool:
        """Can one user move a sum by no more than the sensitivity?"""
        return self.clips or self.unit_rewards

    def admit(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """Features (d, M) scaled to norm <= 1 and rewards (M,) clipped to [0, 1], and which users broke a promise.

        A user whose features are not finite adds nothing.
        """
        square = (x * x).sum(0)
        finite = jnp.isfinite(square)
        x = jnp.where(finite, x * jnp.where(square > MAX_NORM**2, 1 / jnp.sqrt(square), 1), 0)
        broken = ~(square <= (1 + TOLERANCE) ** 2)
        if not self.bounded:
            return x, y, broken
        if self.unit_rewards:
            broken |= ~((y >= 0) & (y <= 1))
        return x, jnp.clip(jnp.nan_to_num(y), 0, 1), broken


def packed_size(dim: int) -> int:
    """D = d(d+1)/2 + d."""
    return dim * (dim + 3) // 2


def matrix_weights(size: int) -> np.ndarray:
    """sqrt 2 on the d (d + 1) / 2 packed entries of the covariance, 1 on the d of the bias, (D,)."""
    dim = (math.isqrt(8 * size + 9) - 3) // 2
    return np.where(np.arange(size) < size - dim, np.float32(math.sqrt(2)), np.float32(1))


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
