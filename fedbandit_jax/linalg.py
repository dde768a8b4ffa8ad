"""Linear algebra that policies on released statistics want: projections, and Gaussian beliefs from precisions."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import ridge


def project(gram: Array) -> Array:
    """The nearest positive semidefinite matrix to a symmetric one, (d, d): negative eigenvalues become 0.

    >>> project(jnp.array([[1.0, 0.0], [0.0, -2.0]])).round(3).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = jnp.linalg.eigh(gram)
    return ridge.with_spectrum(jnp.maximum(values, 0), vectors)


class GaussianBelief(NamedTuple):
    """N(mean, P^-1), held as the mean and the Cholesky factor L of the precision P = L L'."""

    mean: Array  # (d,)
    factor: Array  # (d, d) lower triangular

    @classmethod
    def solve(cls, precision: Array, bias: Array) -> GaussianBelief:
        """Mean P^-1 b; not finite where P (d, d) is not positive definite.

        >>> GaussianBelief.solve(4 * jnp.eye(2), jnp.ones(2)).mean.tolist()
        [0.25, 0.25]
        """
        factor = jnp.linalg.cholesky(precision)
        half = lax.linalg.triangular_solve(factor, bias[:, None], left_side=True, lower=True)
        mean = lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
        return cls(mean[:, 0], factor)

    def sample(self, key: Array, scale: Array | float = 1.0) -> Array:
        """One draw (d,) from N(mean, scale^2 P^-1)."""
        z = jax.random.normal(key, self.mean.shape)
        step = lax.linalg.triangular_solve(self.factor, z[:, None], left_side=True, lower=True, transpose_a=True)
        return self.mean + scale * step[:, 0]

    def std(self, contexts: Array) -> Array:
        """Standard deviation of <x, theta> for features (K, d), (K,)."""
        half = lax.linalg.triangular_solve(self.factor, contexts.T, left_side=True, lower=True)
        return jnp.sqrt((half * half).sum(0))
