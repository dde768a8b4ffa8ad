"""Linear models of users' released sums: their estimates, and the variance of what a model leaves of a user's sums.

Let U and W be the sums of x y and x x' that were released of some users, G that of x x' without noise, and z and Z the
noise. If mean rewards are <x, theta>, then U - W theta = sum x eta + z - Z theta, where eta is R-sub-Gaussian. Along a
unit vector p the variance of that is about R^2 p' G p + s_U^2 + s_W^2 (||theta||^2 + (p' theta)^2) / 2 for one user,
with the standard deviations s_U of z and s_W of the diagonal of Z, which is symmetric and has half the variance beside
its diagonal; the variance of the noise of m users is m times that.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.algos.loops.streams import UserReleases
from fedbandit_jax.core import lapack

LEAST = 1e-2  # the least that is divided by: with less data or noise, nothing is known


def variance(subgaussian: float, values: Array, noise: Array) -> Array:
    """Returns R^2 p' G p + noise, at least `LEAST`, from R, what was released of p' G p, and the noise's variance."""
    return jnp.maximum(subgaussian**2 * jnp.maximum(values, 0) + noise, LEAST)


def fit(released: UserReleases, label: Array, n_groups: int) -> Array:
    """Returns the ridge estimate of every group (C, d), from the sums of its users."""
    gram, bias, size = (
        jax.ops.segment_sum(x, label, n_groups) for x in (released.gram, released.bias, jnp.ones(len(label)))
    )
    return ridge(gram, bias, released.std, size)


def ridge(gram: Array, bias: Array, std: Array, size: Array) -> Array:
    """Returns (W + lambda I)^-1 U of every W (n, d, d) and U (n, d) that are sums over `size` users.

    lambda = 1 + 2 s sqrt(size d) is more than the norm of the noise on W, but for a tail; where it is not, theta = 0.
    """
    d = bias.shape[-1]

    def one(gram: Array, bias: Array, shift: Array) -> Array:
        factor = lapack.cholesky(gram + shift * jnp.eye(d))
        return lapack.solve_upper(factor, lapack.solve_lower(factor, bias[:, None]))[:, 0]

    theta = jax.vmap(one)(gram, bias, 1 + 2 * std * jnp.sqrt(size * d))
    return jnp.where(jnp.isfinite(theta).all(-1, keepdims=True), theta, 0)
