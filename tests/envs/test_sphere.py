import jax
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.core import random


@jax.jit
def offered(env, key, t=0):
    world = jax.jit(env.init)(key)
    return env.observe(jax.random.fold_in(key, t), world, t)[0].contexts, world


def test_direction_is_uniform(key):
    """u_1 of a uniform direction in R^9: (u_1 + 1)/2 is Beta(4, 4), and not Beta(3.5, 3.5) as in R^8."""
    contexts, world = offered(fb.envs.sphere(n_agents=100, n_arms=500, dim=10), key)
    np.testing.assert_allclose([*np.linalg.norm(contexts, axis=-1).ravel(), np.linalg.norm(world.theta)], 1, atol=1e-5)
    u = np.asarray(contexts, float)[..., :-1].reshape(-1, 9) * np.sqrt(2)
    for axis in (0, 8):
        assert stats.kstest((u[:, axis] + 1) / 2, stats.beta(4, 4).cdf).pvalue > 1e-4
        assert stats.kstest((u[:, axis] + 1) / 2, stats.beta(3.5, 3.5).cdf).pvalue < 1e-4
    assert np.abs(9 * np.cov(u.T) - np.eye(9)).max() < 6 * np.sqrt(2 / len(u))


def test_fresh_and_fixed(key):
    fresh = fb.envs.sphere(2, 3, 4)
    assert not np.array_equal(offered(fresh, key, 0)[0], offered(fresh, key, 1)[0])
    fixed = fb.envs.sphere(2, 3, 4, contexts="fixed")
    np.testing.assert_array_equal(offered(fixed, key, 0)[0], offered(fixed, key, 1)[0])
    assert not np.array_equal(offered(fixed, key)[0], offered(fixed, jax.random.key(1))[0])


@pytest.mark.parametrize("law", ["gaussian", "bernoulli", "clipped_gaussian"])
def test_rewards(key, law):
    """Noise has its law about the mean; of Bernoulli rewards the mean is right in every bin of means."""
    env = fb.envs.sphere(20_000, 2, 4, rewards=law, noise_std=0.5)
    contexts, world = offered(env, key)
    feedback = jax.jit(env.pull)(key, world, fb.Round(contexts), np.zeros(20_000, np.int32))
    means, reward = np.asarray(contexts @ world.theta), np.asarray(feedback.reward)
    np.testing.assert_allclose(feedback.gap, means.max(1) - means[:, 0], atol=1e-6)
    assert env.spec.rewards_in_unit == (law != "gaussian")
    mean = means[:, 0]
    noise = np.asarray(reward - mean, float)
    if law == "bernoulli":
        assert set(np.unique(reward)) == {0, 1}
        for low in np.arange(0, 1, 0.1):
            bin_ = (mean >= low) & (mean < low + 0.1)
            assert abs(noise[bin_].sum()) < 5 * np.sqrt((mean[bin_] * (1 - mean[bin_])).sum())
    if law == "clipped_gaussian":
        normal = random.normal_at(key, np.uint32(0), np.arange(20_000, dtype=np.uint32))
        np.testing.assert_allclose(reward, np.clip(mean + 0.5 * normal, 0, 1), atol=1e-6)
