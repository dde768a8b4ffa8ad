"""Clustering: limits of one user and one cluster, clusters that are found and bounds of noise."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scripted_users import draws, noise_of, play, population
from test_clustering import ALIKE, FCLUB, INF, LARGE, OURS, STARTS, A, T

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.fclub_loop import Held


@pytest.mark.slow
def test_one_user_and_one_cluster(key):
    """FCLUB of one user, always up to date, is LinUCB; and so are, on one server, all whose users are one cluster."""
    spec, given = population(1, 1), draws(0, 1)
    played = play(A.FCLUB(upload=1, download=1).bind(spec, T), key, given, spec)
    alone = play(A.LinUCB().bind(spec, T), key, given, spec)
    np.testing.assert_array_equal(played.arms, alone.arms)
    np.testing.assert_array_equal(played.uploads, 1 + np.isin(np.arange(T), STARTS))
    assert len(set(played.arms)) > 1
    many, given = population(9, 1), draws(0, 9)
    lin = A.LinUCB().bind(spec, T).replace(width=A.homo().bind(many, T).width)
    arms = play(lin, key, given._replace(users=np.zeros(T, np.int32)), spec).arms
    one_cluster = A.CLUB(alpha_edge=INF), A.SCLUB(alpha_theta=INF, alpha_p=INF)
    for limit in (A.homo(), A.FCLUB(upload=1, download=1, alpha_1=INF), *one_cluster):
        found = play(limit.bind(many, T), key, given, many)
        np.testing.assert_array_equal(found.arms, arms)
        np.testing.assert_array_equal(found.labels, 0)


FINDERS = (
    A.FCLUB(upload=1, download=1, alpha_1=0.8, alpha_2=0.8),
    A.FCLUB(alpha_1=0.8, alpha_2=0.8),
    A.CLUB(alpha_edge=0.8),
    A.SCLUB(alpha_theta=0.8, alpha_p=2.0),
)


@pytest.mark.slow
@pytest.mark.parametrize("algo", FINDERS)
def test_clusters_are_found(key, algo):
    """Users who differ a lot, rewards of little noise: by FCLUB over all servers, by others on each."""
    env = fb.envs.clustered(9, 2, 3, dim=4, n_arms=4, gap=0.8, rewards="gaussian", noise_std=0.05)
    result = fb.simulate(env, algo, horizon=1000, key=key, seeds=4, stride=250)
    np.testing.assert_array_equal(result.gauges["adjusted Rand index on servers"][:, -1], 1)
    shared = result.gauges["adjusted Rand index"][:, -1]
    if "FCLUB" in algo.name:
        np.testing.assert_array_equal(shared, 1)
        np.testing.assert_array_equal(result.gauges["clusters"][:, -1], 3)
    else:
        assert (shared < 1).all()  # no cluster is larger than a server's part


def test_width_by_hand():
    """n = 40 users, d = 3, R = 1/2, S = 2, after 7 rounds, eigenvalues from 4 to 5 and noise of 1/4; all is scaled."""
    algo = A.LinUCB(policy=A.UCB(failure=0.01, subgaussian=0.5, theta_norm=2.0, exploration_scale=0.1))
    width = algo.bind(fb.envs.clustered(40, dim=3).spec, T).width
    log = 2 * math.log(40 / 0.01) + 3 * math.log(5 / 4 + 7 / (3 * 4))
    right = 0.1 * (0.5 * math.sqrt(log) + 2 * math.sqrt(5.0) + 0.25)
    np.testing.assert_allclose(width(jnp.float32(7), 4.0, 5.0, 0.25), right, rtol=1e-5)


def test_rho_and_vector_bound_the_noise(key):
    """||N|| <= rho and ||h|| <= v for every prefix of a tree, as S must stay positive definite; each has its own."""
    bound = FCLUB(1.0, **OURS, **ALIKE).bind(population(*LARGE), T)
    noise = noise_of(bound, key, 3)
    prefixes = np.stack([noise(s, user, k) for s in (1, 4) for user in range(3) for k in range(0, 60, 6)])
    norms = np.abs(np.linalg.eigvalsh(prefixes[..., :3])).max(-1)
    assert bound.rho / 10 < norms.max() < bound.rho
    vectors = np.linalg.norm(prefixes[..., 3], axis=-1)
    assert bound.vector / 10 < vectors.max() < bound.vector
    assert len(np.unique(prefixes[:, 0, 0])) == len(prefixes)


def held(theta, live):
    """Estimates (N, 3) of local clusters, from 10^5 rounds each."""
    n, theta = len(live), np.where(live[:, None], theta, 0).astype(np.float32)
    none, sums, square = (np.zeros((n, *shape), np.float32) for shape in ((), (3, 4), (3, 3)))
    return Held(sums, np.where(live, 1e5, 0).astype(np.float32), none, square, theta, none), live


def test_clusters_of_one_server_meet_in_one_of_another():
    """Never compared, and far apart: connected components join them. Without the third they stay apart."""
    join = jax.jit(A.FCLUB(alpha_2=0.7).bind(population(4, 2), 1000)._join)  # seats 0 and 1 are of one server
    theta = np.outer([0.0, 0.025, 0.0125, 0.0], [1, 0, 0])  # within 0.7 (F + F) = 0.0157 of the third
    assert join(*held(theta, np.array([True, True, True, False]))).tolist() == [0, 0, 0, 3]
    assert join(*held(theta, np.array([True, True, False, True]))).tolist() == [0, 1, 2, 0]


def test_merging_is_the_same_side_by_side():
    """Under vmap a run with few local clusters goes through as many turns as one with many: seats of none join none."""
    join = A.FCLUB(alpha_2=0.7).bind(population(16, 4), 1000)._join
    few, theta = np.isin(np.arange(16), [0, 4, 8, 12]), np.zeros((16, 3))
    theta[[0, 4, 8, 12]] = [[0.715, 0, 0], [0, 0.1, 0], [0.702, 0, 0], [0, 0, 0.95]]
    many = np.random.default_rng(0).normal(size=(16, 3)) * 0.3
    runs, alone = [held(theta, few), held(many, np.ones(16, bool))], jax.jit(join)
    together = np.asarray(jax.jit(jax.vmap(join))(*jax.tree.map(lambda *x: np.stack(x), *runs)))
    for run, found in zip(runs, together):
        np.testing.assert_array_equal(alone(*run), found)
    assert together[0][[0, 4, 8, 12]].tolist() == [0, 4, 0, 12]
