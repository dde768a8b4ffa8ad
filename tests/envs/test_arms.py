import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb

N = 2**16
ALPHA = 1e-4
EDGES = [0.0, 0.02, 0.5, 0.93, 1.0]


@jax.jit
def drawn(env, key):
    """Means (K,), and rewards (K, N)."""
    world = jax.jit(env.init)(key)
    arms = jnp.arange(env.spec.n_arms)
    rewards = jax.lax.map(lambda a: jnp.concatenate(env.answers(jax.random.fold_in(key, a), world, a, N)), arms)
    return env.means(world), rewards


def test_corrupted_users(key):
    """As many as stated, also one user at a time; all others answer as within, and regret is about honest users."""
    within = fb.envs.arms(means=[0.2, 0.9, 0.5], rewards="bernoulli")
    env = fb.envs.contaminate(within, share=0.2, favoured=1)
    (means, rewards), (plain, honest) = jax.tree.map(np.asarray, (drawn(env, key), drawn(within, key)))
    np.testing.assert_array_equal(means, plain)
    for arm, sign in enumerate((-1, 1, -1)):
        lies = np.isinf(rewards[arm])
        assert (rewards[arm][lies] == sign * np.inf).all()
        np.testing.assert_array_equal(rewards[arm][~lies], honest[arm][~lies])
        assert abs(lies.mean() - 0.2) < 5 * (0.16 / N) ** 0.5

    @jax.jit
    def pulled():
        offered, world = env.observe(key, env.init(key), 0)
        return jax.vmap(lambda k: env.pull(k, world, offered, jnp.array([1])))(jax.random.split(key, 20_000))

    one = pulled()
    assert abs(np.isposinf(one.reward).mean() - 0.2) < 5 * (0.16 / 20_000) ** 0.5
    np.testing.assert_allclose(one.gap, 0, atol=1e-6)


@pytest.mark.parametrize(("instance", "low", "high"), [("easy", 0.25, 0.75), ("hard", 0.45, 0.55)])
def test_instances(key, instance, low, high):
    """Ten arms, uniform in the range, a new instance for every seed."""
    env = fb.envs.arms(instance=instance, rewards="bernoulli")
    worlds = np.asarray(jax.jit(jax.vmap(env.init))(jax.random.split(key, 1000)))
    assert worlds.shape == (1000, 10)
    assert stats.kstest(worlds.ravel(), stats.uniform(low, high - low).cdf).pvalue > ALPHA
    np.testing.assert_array_equal(env.means(worlds[0]), worlds[0])


def test_users_are_independent(key):
    """Of each other, of other arms, and of both halves of a block; and a function of the key."""
    env = fb.envs.arms(means=EDGES)
    rewards = np.asarray(drawn(env, key)[1], float)[2:4]
    np.testing.assert_array_equal(rewards, drawn(env, key)[1][2:4])
    parts = [rewards[0][: N // 2], rewards[0][N // 2 :], rewards[1][: N // 2], np.roll(rewards[0][: N // 2], 1)]
    correlations = np.corrcoef(parts)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / (N / 2) ** 0.5
