import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb

N = 2**16
ALPHA = 1e-4
EDGES = [0.0, 0.02, 0.5, 0.93, 1.0]
INSIDE = [0.02, 0.3, 0.5, 0.93, 0.999]


@jax.jit
def drawn(env, key):
    """(K, N) rewards."""
    world = jax.jit(env.init)(key)
    arms = jnp.arange(env.spec.n_arms)
    return jax.lax.map(lambda a: jnp.concatenate(env.answers(jax.random.fold_in(key, a), world, a, N)), arms)


@pytest.mark.parametrize(
    "options",
    [
        dict(means=EDGES),
        dict(means=EDGES, noise_std=0.7),
        dict(means=EDGES, rewards="bernoulli"),
        pytest.param(dict(means=INSIDE[:2], rewards="beta"), marks=pytest.mark.slow),
        pytest.param(dict(means=INSIDE, rewards="beta", concentration=1.5), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_laws(key, options):
    """Means within 5 standard errors, and every reward has the stated law; not that of a neighbouring parameter."""
    env = fb.envs.arms(**options)
    rewards = np.asarray(drawn(env, key), float)
    assert 0 <= rewards.min() <= rewards.max() <= 1
    means = np.asarray(jax.jit(lambda key: env.means(env.init(key)))(key))
    grid = np.linspace(0.001, 0.999, 40)  # beside the atoms of clipping
    critical = stats.kstwobign.isf(ALPHA) / N**0.5
    for x, given, mean in zip(np.sort(rewards), options["means"], means):
        assert abs(x.mean() - mean) <= 5 * x.std() / N**0.5 + 1e-7
        if env.rewards == "bernoulli":
            assert set(np.unique(x)) <= {0, 1}
            assert mean == np.float32(given)
            continue
        laws = []
        for factor in (1, 1.1):
            size = float(env.spread) * factor
            laws.append(
                stats.beta(given * size, (1 - given) * size) if env.rewards == "beta" else stats.norm(given, size)
            )
        right, wrong = (np.abs(np.searchsorted(x, grid, side="right") / N - law.cdf(grid)).max() for law in laws)
        assert right < critical
        assert wrong > critical or not 0.1 < given < 0.95


def test_clipping_moves_the_mean():
    """The regret of a Gaussian arm next to the edge is that of the clipped variable."""
    env = fb.envs.arms(means=[0.0, 0.02, 1.0, 0.5])
    means = np.asarray(jax.jit(lambda key: env.means(env.init(key)))(jax.random.key(0)))
    half = 0.1 / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(means[[0, 2, 3]], [half, 1 - half, 0.5], rtol=1e-4)
    assert means[1] == pytest.approx(stats.norm.expect(lambda x: max(x, 0), loc=0.02, scale=0.1), rel=1e-4)


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
    rewards = np.asarray(drawn(fb.envs.arms(means=[0.5, 0.5]), key), float)
    np.testing.assert_array_equal(rewards, drawn(fb.envs.arms(means=[0.5, 0.5]), key))
    parts = [rewards[0][: N // 2], rewards[0][N // 2 :], rewards[1][: N // 2], np.roll(rewards[0][: N // 2], 1)]
    correlations = np.corrcoef(parts)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / (N / 2) ** 0.5


def test_one_user_at_a_time(key):
    """Rounds of one user for algorithms with features: e_a for arm a, and the rewards of `answers`."""
    env = fb.envs.arms(means=[0.2, 0.9, 0.5], rewards="bernoulli")
    world = jax.jit(env.init)(key)
    offered, _ = env.observe(key, world, 0)
    np.testing.assert_array_equal(offered.contexts, np.eye(3)[None])
    keys = jax.random.split(key, 20_000)
    pull = jax.jit(jax.vmap(lambda k, arm: env.pull(k, world, offered, arm), (0, None)))
    for arm, mean in enumerate([0.2, 0.9, 0.5]):
        feedback = pull(keys, jnp.array([arm]))
        assert feedback.reward.shape == (20_000, 1)
        assert abs(feedback.reward.mean() - mean) < 5 * (mean * (1 - mean) / 20_000) ** 0.5
        np.testing.assert_allclose(feedback.gap, 0.9 - mean, atol=1e-6)


@pytest.mark.slow
def test_lin_ucb_learns_the_best_arm(key):
    env = fb.envs.arms(means=[0.1, 0.9, 0.2])
    result = fb.simulate(env, fb.algos.LinUCB(), horizon=400, key=key, seeds=2)
    assert (result.regret[:, -1] - result.regret[:, 200] < 0.3 * result.regret[:, 200]).all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (dict(means=[0.2, 1.1]), ValueError, r"means must be in \[0, 1\], got 1.1 of arm 1"),
        (dict(means=[-0.2, 0.1]), ValueError, r"means must be in \[0, 1\], got -0.2 of arm 0"),
        (dict(means=[0.2, float("nan")]), ValueError, "means must be finite, got nan"),
        (dict(means=[[0.2, 0.3]]), ValueError, r"means must have 1 dimension, got shape \(1, 2\)"),
        (dict(means=[0.2]), ValueError, "means must be of at least two arms, got 1"),
        (dict(n_arms=1), ValueError, "n_arms must be >= 2, got 1"),
        (dict(n_arms=3, means=[0.1, 0.2]), ValueError, "n_arms must be the number of means 2 or None, got 3"),
        (dict(instance="medium"), ValueError, "instance must be one of 'easy', 'hard', got 'medium'"),
        (dict(rewards="cauchy"), ValueError, "rewards must be one of .*, got 'cauchy'"),
        (dict(noise_std=0), ValueError, "noise_std must be finite and > 0, got 0"),
        (dict(concentration=-1.0), ValueError, "concentration must be finite and > 0, got -1.0"),
        (
            dict(means=[0.0, 0.5], rewards="beta"),
            ValueError,
            r"means must be inside \(0, 1\) with rewards='beta', got 0 to 0.5",
        ),
    ],
)
def test_bad_input(options, error, words):
    with pytest.raises(error, match=words):
        fb.envs.arms(**options)


def test_concentration_of_beta_rewards(key, monkeypatch):
    """Of mean m it is a + b, with a = m (a + b)."""
    asked = []
    monkeypatch.setattr(jax.random, "beta", lambda key, a, b, shape: asked.append((float(a), float(b), shape)))
    env = fb.envs.arms(means=[0.25, 0.5], rewards="beta", concentration=4.0)
    env.answers(key, env.init(key), 0, 6)
    assert asked == [(1.0, 3.0, (3,))] * 2
