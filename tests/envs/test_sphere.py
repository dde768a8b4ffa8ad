"""Contexts of random directions: their laws, their means, and rewards about them."""

import itertools

import jax
import numpy as np
import pytest
from helpers import deep
from scipy import stats

import fedbandit_jax as fb

ALPHA = 1e-4  # chance that a correct environment fails a law test, over keys; the key is fixed


@jax.jit
def drawn(env, key, t):
    world = env.init(key)
    return env.observe(jax.random.fold_in(key, t), world, t)[0].contexts, world.theta


def offered(env, key, t=0):
    """Contexts (M, K, d), theta* (d,) and means (M, K) of one round, float64."""
    contexts, theta = (np.asarray(x, float) for x in drawn(env, key, t))
    return contexts, theta, contexts @ theta


def test_direction_is_uniform(key):
    """u_1 of a uniform direction in R^9: (u_1 + 1)/2 is Beta(4, 4), and not Beta(3.5, 3.5) as in R^8."""
    contexts, theta, _ = offered(fb.envs.sphere(n_agents=100, n_arms=500, dim=10), key)
    np.testing.assert_allclose([*np.linalg.norm(contexts, axis=-1).ravel(), np.linalg.norm(theta)], 1, atol=1e-5)
    u = contexts[..., :-1].reshape(-1, 9) * np.sqrt(2)
    for axis in (0, 8):
        assert stats.kstest((u[:, axis] + 1) / 2, stats.beta(4, 4).cdf).pvalue > ALPHA
        assert stats.kstest((u[:, axis] + 1) / 2, stats.beta(3.5, 3.5).cdf).pvalue < ALPHA
    assert np.abs(9 * np.cov(u.T) - np.eye(9)).max() < 6 * np.sqrt(2 / len(u))


def test_fresh_and_fixed(key):
    fresh = fb.envs.sphere(2, 3, 4)
    assert not np.array_equal(offered(fresh, key, 0)[0], offered(fresh, key, 1)[0])
    fixed = fb.envs.sphere(2, 3, 4, contexts="fixed")
    np.testing.assert_array_equal(offered(fixed, key, 0)[0], offered(fixed, key, 1)[0])
    assert not np.array_equal(offered(fixed, key)[0], offered(fixed, jax.random.key(1))[0])


@pytest.mark.parametrize(("dim", "gap"), deep([(2, 0.3), (10, 0.1), (50, 0.01)], keep={1}))
def test_means_have_a_gap(key, dim, gap):
    contexts, theta, means = offered(fb.envs.gap(500, 4, dim, gap=gap), key)
    assert contexts.shape == (500, 4, dim)
    assert 0.7 + gap - 1e-6 <= np.linalg.norm(theta) <= 1 + 1e-6
    assert np.linalg.norm(contexts, axis=-1).max() <= 1 + 1e-6
    means.sort(axis=1)
    assert 0.5 - 1e-6 <= means[:, :-1].min() <= means[:, :-1].max() <= 0.6 + 1e-6
    assert 0.6 + gap - 1e-6 <= means[:, -1].min() <= means[:, -1].max() <= 0.7 + gap + 1e-6


@pytest.mark.slow
def test_means_and_position_and_world_are_uniform(key):
    """Means of the best arm and of others, its place, and the norm and direction of theta* in R^3."""
    _, _, means = offered(fb.envs.gap(20_000, 5, 4, gap=0.2), key)
    best = means.argmax(1)
    assert stats.chisquare(np.bincount(best, minlength=5)).pvalue > ALPHA
    others = means[np.arange(5) != best[:, None]]
    assert abs(np.corrcoef(best, means.max(1))[0, 1]) < 5 / np.sqrt(20_000)
    theta = np.asarray(jax.vmap(fb.envs.gap(1, 2, 3).init)(jax.random.split(key, 20_000)).theta, float)
    norm = np.linalg.norm(theta, axis=1)
    parts = [(theta[:, axis] / norm + 1) / 2 for axis in range(3)]
    for uniform in ((means.max(1) - 0.8) / 0.1, (others - 0.5) / 0.1, (norm - 0.8) / 0.2, *parts):
        assert stats.kstest(uniform, "uniform").pvalue > ALPHA


@pytest.mark.parametrize(("seed", "dim"), deep(itertools.product([0, 1], [2, 3, 10]), keep={1}))  # theta* down, and up
def test_orthogonal_part_is_uniform_in_its_ball(dim, seed):
    contexts, theta, means = offered(fb.envs.gap(10_000, 4, dim), jax.random.key(seed))
    norm = np.linalg.norm(theta)
    across = contexts - means[..., None] * theta / norm**2
    within = np.linalg.norm(across, axis=-1) / np.sqrt(1 - (means / norm) ** 2)
    assert stats.kstest(within.ravel() ** (dim - 1), "uniform").pvalue > ALPHA
    assert stats.kstest(within.ravel() ** (1.04 * (dim - 1)), "uniform").pvalue < ALPHA  # sees 4 % in the power
    others = means < 0.65  # the radius does not depend on the mean
    assert abs(np.corrcoef(within[others], means[others])[0, 1]) < 5 / np.sqrt(others.sum())
    frame = np.linalg.svd(theta[None])[2][1:]  # orthonormal, orthogonal to theta*
    directions = (across @ frame.T / np.linalg.norm(across, axis=-1, keepdims=True)).reshape(-1, dim - 1)
    if dim == 2:
        assert stats.binomtest(int((directions > 0).sum()), len(directions)).pvalue > ALPHA
    else:  # a coordinate of a uniform direction in R^n: its square is Beta(1/2, (n - 1)/2)
        for u in directions.T:
            assert stats.kstest(u**2, stats.beta(0.5, (dim - 2) / 2).cdf).pvalue > ALPHA
        assert np.abs((dim - 1) * np.cov(directions.T) - np.eye(dim - 1)).max() < 6 * np.sqrt(2 / len(directions))
