"""Users in clusters, made up or of a table: who comes, what they like, where they sit."""

import jax
import numpy as np
from scipy import stats

import fedbandit_jax as fb

ALPHA = 1e-4  # chance that a correct environment fails a law test, over keys; the key is fixed
WEIGHTS = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])


def rounds(env, world, key, n):
    return jax.jit(jax.vmap(lambda k: env.observe(k, world, 0)[0]))(jax.random.split(key, n))


def test_who_comes(key):
    for arrivals, weights in (("uniform", np.ones(8)), (WEIGHTS, WEIGHTS)):
        env = fb.envs.clustered(8, 3, 2, n_arms=1, dim=3, arrivals=arrivals)
        users = np.asarray(rounds(env, jax.jit(env.init)(key), key, 20_000).user[:, 0])
        for law, right in ((weights, True), (np.roll(WEIGHTS + 1, 1) ** 1.2, False)):
            expected = len(users) * law / law.sum()
            assert (stats.chisquare(np.bincount(users, minlength=8), expected).pvalue > ALPHA) == right


def test_geometry(key):
    env = fb.envs.clustered(11, 3, 4, dim=6, gap=0.6)
    worlds = jax.jit(jax.vmap(env.init))(jax.random.split(key, 30))
    for thetas, cluster in zip(np.asarray(worlds.thetas), np.asarray(worlds.cluster)):
        assert sorted(np.bincount(cluster)) == [2, 3, 3, 3]
        centres = np.array([thetas[cluster == j][0] for j in range(4)])
        np.testing.assert_array_equal(thetas, centres[cluster])
        apart = np.linalg.norm(centres[:, None] - centres[None], axis=-1)[~np.eye(4, dtype=bool)]
        assert apart.min() >= 0.6
    np.testing.assert_allclose(np.linalg.norm(worlds.thetas, axis=-1), 1, rtol=1e-6)
    assert (worlds.cluster != worlds.cluster[0]).any()
    contexts = np.asarray(rounds(env, jax.tree.map(lambda x: np.asarray(x)[0], worlds), key, 3000).contexts[:, 0])
    np.testing.assert_allclose(np.linalg.norm(contexts, axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(contexts[..., -1], np.sqrt(0.5), rtol=1e-6)
    # a coordinate of a uniform direction in R^5 is 2 B - 1 with B ~ Beta(2, 2)
    assert stats.kstest(contexts[:, 0, 0] * np.sqrt(2), stats.beta(2, 2, loc=-1, scale=2).cdf).pvalue > ALPHA
    assert stats.kstest(contexts[:, 0, 0] * np.sqrt(2), stats.beta(2.5, 2.5, loc=-1, scale=2).cdf).pvalue < ALPHA


def test_consecutive_seats(key):
    """The authors' 40 users on 5 servers in 4 clusters: 8 a server and 10 a cluster, one after the other."""
    env = fb.envs.clustered(40, 5, 4, seating="consecutive")
    cluster = np.asarray(jax.jit(env.init)(key).cluster)
    by_server = [cluster[server::5].tolist() for server in range(5)]
    assert by_server == [[0] * 8, [0] * 2 + [1] * 6, [1] * 4 + [2] * 4, [2] * 6 + [3] * 2, [3] * 8]


def test_a_community_is_dealt_out(key):
    rng = np.random.default_rng(0)
    thetas = rng.random((7, 3)) / 3
    env = fb.envs.community(rng.random((9, 3)), thetas, np.arange(7) % 3, n_servers=3, arrivals=WEIGHTS[:7])
    worlds = jax.jit(jax.vmap(env.init))(jax.random.split(key, 5))
    for found, cluster in zip(np.asarray(worlds.thetas), np.asarray(worlds.cluster)):
        order = [int(np.abs(thetas - row).sum(1).argmin()) for row in found]
        assert sorted(order) == list(range(7))
        np.testing.assert_array_equal(cluster, np.array(order) % 3)
    offered = rounds(env, jax.tree.map(lambda x: np.asarray(x)[0], worlds), key, 500)
    which = np.abs(np.asarray(offered.contexts)[:, 0, :, None] - env.items).sum(-1).argmin(-1)
    assert stats.chisquare(np.bincount(which.ravel(), minlength=9)).pvalue > ALPHA
