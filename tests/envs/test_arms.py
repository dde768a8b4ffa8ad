import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb

N = 2**16
ALPHA = 1e-4
EDGES = [0.0, 0.02, 0.5, 0.93, 1.0]
LAWS = [dict(), dict(noise_std=0.7), dict(rewards="bernoulli")]


@jax.jit
def drawn(env, key):
    """Means (K,), and rewards (K, N)."""
    world = jax.jit(env.init)(key)
    arms = jnp.arange(env.spec.n_arms)
    rewards = jax.lax.map(lambda a: jnp.concatenate(env.answers(jax.random.fold_in(key, a), world, a, N)), arms)
    return env.means(world), rewards


@pytest.mark.parametrize("options", LAWS, ids=str)
def test_laws(key, options):
    """Means within 5 standard errors, and every reward has the stated law; not that of a neighbouring parameter."""
    env = fb.envs.arms(means=EDGES, **options)
    means, rewards = (np.asarray(x, float) for x in drawn(env, key))
    assert 0 <= rewards.min() <= rewards.max() <= 1
    grid = np.linspace(0.001, 0.999, 40)  # beside the atoms of clipping
    critical = stats.kstwobign.isf(ALPHA) / N**0.5
    for x, given, mean in zip(np.sort(rewards), EDGES, means):
        assert abs(x.mean() - mean) <= 5 * x.std() / N**0.5 + 1e-7
        if env.rewards == "bernoulli":
            assert set(np.unique(x)) <= {0, 1}
            assert mean == np.float32(given)
            continue
        laws = [stats.norm(given, env.spread * factor) for factor in (1, 1.1)]
        right, wrong = (np.abs(np.searchsorted(x, grid, side="right") / N - law.cdf(grid)).max() for law in laws)
        assert right < critical
        assert wrong > critical or not 0.1 < given < 0.95
        expected = stats.norm.expect(lambda x: min(max(x, 0), 1), loc=given, scale=env.spread)
        assert mean == pytest.approx(float(expected), rel=1e-4)  # regret is that of the clipped variable


def test_pareto_rewards(key):
    """Every arm has its own tail. Another index, or another scale, is rejected."""
    means, shapes = [0.3, 1.0, 0.0], [1.5, 3.0, 8.0]
    env = fb.envs.arms(means=means, rewards="pareto", shape=shapes)
    found, rewards = drawn(env, key)
    np.testing.assert_array_equal(found, np.float32(means))
    assert not env.spec.rewards_in_unit
    for x, mean, shape in list(zip(np.asarray(rewards, float), means, shapes))[:2]:
        for index, scale, fits in ((shape, 1, True), (1.1 * shape, 1, False), (shape, 1.02, False)):
            law = stats.pareto(index, scale=scale * mean * (1 - 1 / shape))
            assert (stats.kstest(x, law.cdf).pvalue > ALPHA) == fits
    assert (rewards[2] == 0).all()


def test_corrupted_users(key):
    """As many as stated, also one user at a time; all others answer as within, and regret is about honest users."""
    within = fb.envs.arms(means=[0.2, 0.9, 0.5], rewards="bernoulli")
    env = fb.envs.contaminate(within, share=0.2, favoured=1)
    (means, rewards), (plain, honest) = drawn(env, key), drawn(within, key)
    np.testing.assert_array_equal(means, plain)
    for arm, sign in enumerate((-1, 1, -1)):
        lies = np.isinf(rewards[arm])
        assert (rewards[arm][lies] == sign * np.inf).all()
        np.testing.assert_array_equal(rewards[arm][~lies], honest[arm][~lies])
        assert abs(lies.mean() - 0.2) < 5 * (0.16 / N) ** 0.5
    offered, world = env.observe(key, env.init(key), 0)
    pull = jax.jit(jax.vmap(lambda k: env.pull(k, world, offered, jnp.array([1]))))
    one = pull(jax.random.split(key, 20_000))
    assert abs(np.isposinf(one.reward).mean() - 0.2) < 5 * (0.16 / 20_000) ** 0.5
    np.testing.assert_allclose(one.gap, 0, atol=1e-6)


@pytest.mark.parametrize(("instance", "low", "high"), [("easy", 0.25, 0.75), ("hard", 0.45, 0.55)])
def test_instances(key, instance, low, high):
    """Ten arms, uniform in the range, a new instance for every seed."""
    env = fb.envs.arms(instance=instance, rewards="bernoulli")
    worlds = np.asarray(jax.vmap(env.init)(jax.random.split(key, 1000)))
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


def test_one_user_at_a_time(key):
    """Rounds of one user for algorithms with features: e_a for arm a, and the rewards of `answers`."""
    env, means, n = fb.envs.arms(means=[0.2, 0.9, 0.5], rewards="bernoulli"), np.array([0.2, 0.9, 0.5]), 20_000
    world = env.init(key)
    offered, _ = env.observe(key, world, 0)
    np.testing.assert_array_equal(offered.contexts, np.eye(3)[None])
    pull = jax.vmap(lambda k, arm: env.pull(k, world, offered, arm[None]))
    arms = np.repeat(np.arange(3), n)
    feedback = jax.tree.map(np.asarray, jax.jit(pull)(jax.random.split(key, 3 * n), arms))
    assert feedback.reward.shape == (3 * n, 1)
    assert (abs(feedback.reward.reshape(3, n).mean(1) - means) < 5 * (means * (1 - means) / n) ** 0.5).all()
    np.testing.assert_allclose(feedback.gap[:, 0], 0.9 - means[arms], atol=1e-6)
