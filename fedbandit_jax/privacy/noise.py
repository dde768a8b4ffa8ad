"""Samplers of privacy noise that JAX does not have."""

import jax
import jax.numpy as jnp
from jax import Array, lax

NORMAL_LIMIT = 1e6  # variance above which a binomial is drawn as a rounded Gaussian


def discrete_gaussian(key: Array, sigma: Array | float, shape: tuple[int, ...]) -> Array:
    """Integers with P(x) proportional to exp(-x^2 / (2 sigma^2)), int32, for 1/2 <= sigma <= 2^20.

    Rejection: z = sigma N(0, 1) is proposed, x = round(z), and kept with probability exp((z^2 - x^2) / (2 sigma^2) -
    c); given x, the offset z - x of what is kept is uniform, so x has the law stated, up to float32 and to the 5.4
    sigma that float32 normal draws reach.

    Reference: Canonne, Kamath & Steinke (2020) define the law.
    """
    sigma = jnp.asarray(sigma, jnp.float32)
    ceiling = 4 / sigma + 1 / (8 * sigma**2)  # of (z^2 - x^2) / (2 sigma^2) at |x| <= 7 sigma

    def attempt(carry):
        key, kept, done = carry
        key, normals, coins = jax.random.split(key, 3)
        z = sigma * jax.random.normal(normals, shape)
        x = jnp.round(z)
        log_ratio = (z - x) * (z + x) / (2 * sigma**2) - ceiling
        accept = jnp.log(jax.random.uniform(coins, shape, minval=jnp.finfo(jnp.float32).tiny)) < log_ratio
        return key, jnp.where(done, kept, x.astype(jnp.int32)), done | accept

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
