"""Numbers are rounded, and added up, as NumPy does it."""

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core.whole import LIMIT, add_up, nearest


def test_nearest(key):
    x = np.float32(LIMIT - 1) * np.asarray(jax.random.uniform(key, (10_000,), minval=-1))
    x = np.concatenate([x, [0, -0.0, 0.5, 1.5, -2.5, LIMIT - 1, 1 - LIMIT]]).astype(np.float32)
    np.testing.assert_array_equal(jax.jit(nearest)(x), np.round(x))


def test_add_up(key):
    x = np.asarray(jax.random.randint(key, (3, 5, 2, 4, 7), -(2**20), 2**20))
    np.testing.assert_array_equal(jax.jit(jax.vmap(add_up))(x), x.sum((1, -1)))


def test_products_that_are_fused(key):
    """With the addition, or not: they are within half a step of the product, and what float32 rounds."""
    x, y = np.asarray(jax.random.uniform(key, (2, 10_000), minval=-1))
    found = jax.jit(lambda x, y: nearest(x * jnp.float32(2**19) * y))(x, y)
    assert abs(found - 2.0**19 * x.astype(float) * y).max() <= 0.5 + 2.0**-5
