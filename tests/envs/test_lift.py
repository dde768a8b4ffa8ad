"""Random features of contexts: the kernel that they approximate, and that all else is the environment within."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

M, K, D = 3, 4, 4
SPHERE = fb.envs.sphere(M, K, D, rewards="logistic")


def offers(env, n, key=0):
    """Features and contexts of n seeds, float64, and the frequencies."""

    def one(key):
        offered, world = env.observe(key, env.init(key), jnp.int32(0))
        return offered.contexts, world.offered, world.frequencies

    found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(key), n))
    return [np.asarray(x, float) for x in found]


def test_features_are_cosines_and_sines_of_unit_norm():
    features, contexts, frequencies = offers(fb.envs.lift(SPHERE, 6), 5)
    angles = np.einsum("smkd,sdn->smkn", contexts, frequencies)
    wanted = np.concatenate([np.cos(angles), np.sin(angles)], -1) / 3**0.5
    np.testing.assert_allclose(features, wanted, atol=1e-5)
    np.testing.assert_allclose((features**2).sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("bandwidth", [0.5, 1.0])
def test_inner_products_are_the_gaussian_kernel_on_average(bandwidth):
    """Over 2000 draws of four frequencies, within five standard errors; a bandwidth that is 10 % off is seen."""
    n, env = 2000, fb.envs.lift(SPHERE, 8, bandwidth)
    features, contexts, _ = offers(env, n)
    flat, x = features.reshape(n, M * K, -1), contexts.reshape(n, M * K, -1)
    products = (flat[:, :1] * flat[:, 1:]).sum(-1)
    squared = ((x[:, :1] - x[:, 1:]) ** 2).sum(-1)

    def error(width):
        off = (products - np.exp(-squared / (2 * width**2))).mean(1)  # of a seed, whose pairs share frequencies
        return abs(off.mean()) / (off.std() / n**0.5)

    assert error(bandwidth) <= 5
    assert error(1.1 * bandwidth) > 5


def test_masks_and_fixed_contexts_come_through():
    replay = fb.envs.replay(np.eye(3), np.array([1, 2]), np.array([0.2, 0.5, 0.9]), n_agents=2)
    for within in (replay, fb.envs.sphere(M, K, D, contexts="fixed")):
        env = fb.envs.lift(within, 4)
        assert env.spec.fixed_contexts == within.spec.fixed_contexts
        world = env.init(jax.random.key(0))
        observe = jax.jit(lambda t, env=env, world=world: env.observe(jax.random.key(t), world, t)[0])
        one, two = observe(0), observe(1)
        np.testing.assert_array_equal(one.contexts, two.contexts)
        assert (one.mask is not None) == (within is replay)
