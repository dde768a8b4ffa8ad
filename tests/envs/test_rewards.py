"""Laws of rewards: each has its mean, its tail, and regret on that mean; wrong scales are seen."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.envs._rewards import reward_law
from fedbandit_jax.envs.logged import FittedLaw

N = 200_000
Z = 0.7
LAWS = {  # law -> noise_std, shape, its distribution at z = Z
    "gaussian": (0.3, None, stats.norm(Z, 0.3)),
    "student_t": (0.4, 3.5, stats.t(3.5, Z, 0.4)),
    "pareto": (0.5, 2.5, stats.pareto(2.5, scale=Z * 0.6)),
}


@pytest.mark.parametrize("law", LAWS)
def test_law(key, law):
    """At a level of 1e-4; a scale that is 2 % wrong is rejected."""
    noise_std, shape, wanted = LAWS[law]
    rewards = reward_law(law, noise_std, shape)
    z = jnp.full(N, jnp.float32(Z))
    drawn = np.asarray(jax.jit(rewards.draw)(key, rewards.mean(z), jnp.arange(N)), float)
    assert wanted.mean() == pytest.approx(Z)
    assert stats.kstest(drawn, wanted.cdf).pvalue > 1e-4
    assert stats.kstest(Z + 1.02 * (drawn - Z), wanted.cdf).pvalue < 1e-4
    assert not rewards.in_unit


def test_a_logistic_reward_is_a_click(key):
    rewards = reward_law("logistic", 0.5, 6.0)
    z = jnp.linspace(0, 1, N)
    mean = rewards.mean(z)
    np.testing.assert_allclose(mean, 1 / (1 + np.exp(-6 * (np.asarray(z) - 0.5))), rtol=1e-5)
    drawn = np.asarray(jax.jit(rewards.draw)(key, mean, jnp.arange(N)))
    assert set(np.unique(drawn)) == {0, 1}
    for part in np.array_split(np.arange(N), 10):
        expected = np.asarray(mean)[part].mean()
        assert abs(drawn[part].mean() - expected) < 5 * 0.5 / len(part) ** 0.5
    assert rewards.in_unit


@pytest.mark.parametrize(("law", "contexts"), [("logistic", "fresh"), ("pareto", "fixed")])
def test_regret_is_of_means(key, law, contexts):
    """The gaps of uniform play are those of the means of the law, by both ways in which a run asks an environment."""
    env = fb.envs.sphere(50, 4, 3, contexts=contexts, rewards=law)
    arms = jnp.zeros(50, jnp.int32)

    @jax.jit
    def asked(key):
        world = env.init(key)
        offered, world = env.observe(key, world, 0)
        means = env.mean_at(world, [offered.contexts[..., i] for i in range(3)])
        return offered.contexts @ world.theta, env.pull(key, world, offered, arms).gap, means

    z, gap, at = map(np.asarray, asked(key))
    means = 1 / (1 + np.exp(-8 * (z - 0.5))) if law == "logistic" else z
    np.testing.assert_allclose(gap, means.max(1) - means[:, 0], atol=1e-5)
    np.testing.assert_allclose(at, means, atol=1e-5)


def test_rewards_have_the_mean_and_the_deviation():
    """Of a model of a log, within 5 standard errors; no deviation is larger than the one of rewards 0 and 1."""
    n, means, stds = 20_000, *np.array([(0.5, 0.2), (0.9, 0.25), (0.03, 0.1), (0.3, 1.0), (0.0, 0.3), (1.0, 0.3)]).T

    def draw(mean, std):
        law = FittedLaw(noise_std=std, model="linear")
        return law.draw(jax.random.key(0), jnp.full(n, mean), jnp.arange(n))

    for mean, std, draws in zip(means, stds, np.asarray(jax.jit(jax.vmap(draw))(means, stds), float)):
        wanted = min(std, math.sqrt(mean * (1 - mean)))
        assert draws.min() >= 0
        assert draws.max() <= 1
        assert abs(draws.mean() - mean) <= 5 * wanted / math.sqrt(n) + 1e-6
        spread = np.abs(np.unique(draws) - mean)
        assert draws.std() == pytest.approx(wanted, abs=5 * wanted * (1 + spread.max()) / math.sqrt(n) + 1e-6)
        assert len(np.unique(draws)) == 1 + (wanted > 0)
