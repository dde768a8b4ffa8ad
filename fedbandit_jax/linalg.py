"""Linear algebra for policies on released statistics: projections, and Gaussian beliefs from precision matrices."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import ridge


def project(gram: Array) -> Array:
    """Returns the nearest positive semidefinite matrix to a symmetric one, (d, d): negative eigenvalues become 0.

    Example:
        >>> project(jnp.array([[1.0, 0.0], [0.0, -2.0]])).round(3).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = jnp.linalg.eigh(gram)
    return ridge.with_spectrum(jnp.maximum(values, 0), vectors)


class GaussianBelief(NamedTuple):
    """The Gaussian belief N(mean, P^-1) about a parameter, held as its mean and the Cholesky factor of P = L L'."""

    mean: Array  # (d,) P^-1 b
    factor: Array  # (d, d) L, lower triangular

    @classmethod
    def solve(cls, precision: Array, bias: Array) -> GaussianBelief:
        """Returns the belief of precision P (d, d) and mean P^-1 b (d,); not finite if P is not positive definite.

        Example:
            >>> GaussianBelief.solve(4 * jnp.eye(2), jnp.ones(2)).mean.tolist()
            [0.25, 0.25]
        """
        factor = jnp.linalg.cholesky(precision)
        half = lax.linalg.triangular_solve(factor, bias[:, None], left_side=True, lower=True)
        mean = lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
        return cls(mean[:, 0], factor)

    def sample(self, key: Array, scale: Array | float = 1.0) -> Array:
        """Draws one parameter (d,) from N(mean, scale^2 P^-1)."""
        z = jax.random.normal(key, self.mean.shape)
        step = lax.linalg.triangular_solve(self.factor, z[:, None], left_side=True, lower=True, transpose_a=True)
        return self.mean + scale * step[:, 0]

    def std(self, contexts: Array) -> Array:
        """Returns the standard deviation sqrt(x' P^-1 x) of <x, theta> for features x (K, d), as (K,)."""
        half = lax.linalg.triangular_solve(self.factor, contexts.T, left_side=True, lower=True)
        return jnp.sqrt((half * half).sum(0))
