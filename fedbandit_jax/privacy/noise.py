"""Samplers of privacy noise that JAX does not have."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import ndtr

NORMAL_LIMIT = 1e6  # variance above which a binomial is drawn as a rounded Gaussian


def discrete_gaussian(key: Array, sigma: Array | float, shape: tuple[int, ...]) -> Array:
    """Integers with P(x) proportional to exp(-x^2 / (2 sigma^2)), int32, for 1/2 <= sigma <= 2^24.

    Rejection from x = round(sigma N(0, 1)): what is proposed too rarely is the centre, P(x) / Q(x) <= P(0) / Q(0), so x
    is kept with probability P(x) Q(0) / (Q(x) P(0)) >= 1/2. Exact up to float32, and to the 5.4 sigma that float32
    normal draws reach. Beyond 2^17 these do not reach every integer: a uniform one below sigma / 2^17 is added.

    Reference: Canonne, Kamath & Steinke (2020) define the law.
    """
    sigma = jnp.asarray(sigma, jnp.float32)

    def log_ratio(x: Array) -> Array:
        """ln P(x) / Q(x) up to a constant."""
        inner, outer = ndtr((0.5 - jnp.abs(x)) / sigma), ndtr((-0.5 - jnp.abs(x)) / sigma)
        cell = jnp.log(jnp.maximum(inner - outer, jnp.finfo(jnp.float32).tiny))
        wide = -((x / sigma) ** 2) / (24 * sigma**2)  # float32 loses the difference, but it is nearly the density's
        return jnp.where(sigma < 8, -((x / sigma) ** 2) / 2 - cell, wide)

    def attempt(carry):
        key, kept, done = carry
        key, normals, coins, fill = jax.random.split(key, 4)
        x = jnp.round(sigma * jax.random.normal(normals, shape))
        gap = jnp.maximum(sigma / 2**17, 1).astype(jnp.int32)
        x_filled = x.astype(jnp.int32) + jax.random.randint(fill, shape, 0, gap) - gap // 2
        coin = jax.random.uniform(coins, shape, minval=jnp.finfo(jnp.float32).tiny)
        accept = jnp.log(coin) < log_ratio(x) - log_ratio(jnp.zeros(()))
        return key, jnp.where(done, kept, x_filled), done | accept

    start = (key, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool))
    return lax.while_loop(lambda carry: ~carry[2].all(), attempt, start)[1]


def centred_binomial(key: Array, n: Array, shape: tuple[int, ...], *, exact: bool) -> Array:
    """Bin(n, 1/2) - n/2, float32; a rounded Gaussian where its variance n/4 is at least `NORMAL_LIMIT`.

    `exact=False` promises that it is everywhere, and saves the exact sampler (float32, wrong for n >= 10^7).
    """
    normals, binomials = jax.random.split(key)
    limit = jnp.round(jnp.sqrt(n) / 2 * jax.random.normal(normals, shape))
    if not exact:
        return limit
    few = jnp.minimum(n, 4 * NORMAL_LIMIT)
    return jnp.where(n < 4 * NORMAL_LIMIT, jax.random.binomial(binomials, few, 0.5, shape) - few / 2, limit)
