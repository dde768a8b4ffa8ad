"""Uniform play: arms on offer equally often, regret that is known beforehand, and a guarantee without noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

import fedbandit_jax as fb
from fedbandit_jax.engine.runners.batched_arms import MAX_USERS


def test_every_arm_on_offer_has_the_same_chance(key):
    mask = jnp.asarray([[True, False, True, True], [True, True, False, False]])
    offered = fb.Round(jnp.ones((2, 4, 3)), mask)
    arms = jax.vmap(lambda key: fb.algos.Uniform().act(key, 0, (), offered))(jax.random.split(key, 6000))
    counts = np.stack([np.bincount(arms[:, i], minlength=4) for i in range(2)])
    assert (counts[~np.asarray(mask)] == 0).all()
    for row, there in zip(counts, np.asarray(mask)):
        assert chisquare(row[there]).pvalue > 1e-4


@pytest.mark.parametrize("algo", [fb.algos.Uniform(), fb.algos.UniformArms()], ids=lambda algo: type(algo).__name__)
def test_regret_is_the_mean_gap_of_all_arms(algo, key):
    env = fb.envs.arms(means=[0.2, 0.5, 0.6], rewards="bernoulli")
    regret = fb.simulate(env, algo, horizon=3000, key=key, seeds=8).regret[:, -1]
    spread = 0 if isinstance(algo, fb.algos.UniformArms) else np.std([0.4, 0.1, 0]) * (3000 / 8) ** 0.5
    assert regret.mean() == pytest.approx(500, rel=1e-5, abs=4 * spread)
    assert (regret.std() > 0) == (spread > 0)


def test_arms_are_pulled_to_the_last_user(key):
    env = fb.envs.arms(means=[0.25, 0.5], rewards="bernoulli")
    result = fb.simulate(env, fb.algos.UniformArms(), horizon=MAX_USERS, key=key, seeds=1, stride=MAX_USERS)
    assert result.regret[0, -1] == pytest.approx(MAX_USERS / 8, rel=1e-6)


def test_it_is_private_only_as_it_is():
    spec = fb.envs.sphere(3, 4, 5).spec
    for algo in (fb.algos.Uniform(), fb.algos.UniformArms()):
        found = algo.certificate(spec, horizon=10)
        assert (found.claim, found.epsilon_exact, found.delta) == ("certified", 0, 0)

    @fb.pytree
    class Curious(fb.algos.Uniform):
        def learn(self, t, local, offered, arms, rewards):
            return (), rewards

    assert Curious().certificate(spec, horizon=10).claim == "none"
