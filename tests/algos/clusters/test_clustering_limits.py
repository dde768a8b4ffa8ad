"""Clustering: limits of one user or cluster, links that are never or always cut, invariants, what is found, errors."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st
from oracles.clustering import servers_of
from scripted_users import canonical, draws, play, population
from test_clustering import INF, LARGE, SMALL, STARTS, A, T, close

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.fclub_phases import Held
from fedbandit_jax.core import graph


@pytest.mark.slow
def test_one_user_is_lin_ucb(key):
    """FCLUB, always up to date, with one user on one server."""
    spec, given = population(1, 1), draws(0, 1)
    played = play(A.FCLUB(upload=1, download=1).bind(spec, T), key, given, spec)
    alone = play(A.LinUCB().bind(spec, T), key, given, spec)
    np.testing.assert_array_equal(played.arms, alone.arms)
    np.testing.assert_array_equal(played.uploads, 1 + np.isin(np.arange(T), STARTS))
    assert len(set(played.arms)) > 1


@pytest.mark.slow
def test_pooled_lin_ucb(key):
    """On one server, whose users are all one cluster: CLUB, SCLUB and Homo learn as LinUCB of one user does."""
    spec, given = population(9, 1), draws(0, 9)
    pooled = given._replace(users=np.zeros(T, np.int32))
    algo = A.homo().bind(spec, T)
    lin = A.LinUCB().bind(population(1, 1), T).replace(width=algo.width)
    arms = play(lin, key, pooled, population(1, 1)).arms
    limits = (
        A.homo(),
        A.FCLUB(upload=1, download=1, alpha_1=INF),
        A.CLUB(alpha_edge=INF),
        A.SCLUB(alpha_theta=INF, alpha_p=INF),
    )
    for limit in limits:
        np.testing.assert_array_equal(play(limit.bind(spec, T), key, given, spec).arms, arms)


def test_homo():
    assert (A.homo().upload, A.homo().download, A.homo().name) == (1, 1, "Homo")
    assert A.homo(name=None) == A.FCLUB(upload=1, download=1, alpha_1=INF, alpha_2=INF)
    assert A.homo_dc(upload=2.0, name=None) == A.FCLUB(upload=2.0, alpha_1=INF, alpha_2=INF)
    assert (A.FCLUB(upload=1, download=1).name, A.FCLUB().name, A.homo_dc().name) == ("FCLUB", "FCLUB-DC", "Homo-DC")


@pytest.mark.slow
def test_thresholds_that_never_cut_or_always_merge(key):
    spec, given = population(*SMALL), draws(0, SMALL[0])
    servers = np.arange(9) % 2
    played = play(A.FCLUB(alpha_1=INF, alpha_2=0.3).bind(spec, T), key, given, spec)
    np.testing.assert_array_equal(played.labels, np.broadcast_to(servers, (T + 1, 9)))
    assert len(set(played.groups[-1])) == 2
    for algo in (A.CLUB(alpha_edge=INF), A.SCLUB(alpha_theta=INF, alpha_p=INF)):
        played = play(algo.bind(spec, T), key, given, spec)
        np.testing.assert_array_equal(played.labels, np.broadcast_to(servers, (T + 1, 9)))
    homo = play(A.homo_dc().bind(spec, T), key, given, spec)  # with one true cluster its Rand index is always 1
    np.testing.assert_array_equal(homo.groups, 0)
    one = np.zeros(9, int)
    np.testing.assert_array_equal([graph.adjusted_rand(row, one, 1) for row in homo.groups[:2]], 1)


FINDERS = (
    A.FCLUB(upload=1, download=1, alpha_1=0.8, alpha_2=0.8),
    A.FCLUB(alpha_1=0.8, alpha_2=0.8),
    A.CLUB(alpha_edge=0.8),
    A.SCLUB(alpha_theta=0.8, alpha_p=2.0),
)


@pytest.mark.parametrize("algo", deep(FINDERS, keep=()))
def test_clusters_are_found(key, algo):
    """Users who differ a lot, rewards of little noise: by FCLUB over all servers, by others on each."""
    spec, users = population(*SMALL), np.arange(9)
    cluster = users // 2 % 2
    for seed in range(4):
        given = draws(seed, SMALL[0])
        theta = np.outer(1 - 2 * cluster, np.full(3, 3**-0.5))
        noise = 0.05 * np.random.default_rng(seed).standard_normal((T, 4))
        means = np.einsum("tkd,td->tk", given.contexts, theta[given.users])
        played = play(algo.bind(spec, T), key, given._replace(rewards=(means + noise).astype(np.float32)), spec)
        local, shared = (
            [float(graph.adjusted_rand(labels, truth, m)) for labels in (rows[0], rows[-1])]
            for rows, truth, m in ((played.labels, 2 * cluster + users % 2, 4), (played.groups, cluster, 2))
        )
        assert local[0] < local[1] == 1
        assert shared[0] < 0.2 < shared[1]
        assert (shared[1] == 1) == ("FCLUB" in algo.name)  # no cluster of the others is larger than a server's part


@pytest.mark.slow
@pytest.mark.parametrize("algo", FINDERS)
def test_clusters_of_an_environment_are_found(key, algo):
    env = fb.envs.clustered(9, 2, 3, dim=4, n_arms=4, gap=0.8, rewards="gaussian", noise_std=0.05)
    result = fb.simulate(env, algo, horizon=1000, key=key, seeds=4, stride=250)
    np.testing.assert_array_equal(result.gauges["adjusted Rand index on servers"][:, -1], 1)
    shared = result.gauges["adjusted Rand index"][:, -1]
    if "FCLUB" in algo.name:
        np.testing.assert_array_equal(shared, 1)
        np.testing.assert_array_equal(result.gauges["clusters"][:, -1], 3)
    else:
        assert (shared < 1).all()


def is_partition(labels, n_servers):
    """Of users on their servers: every label is the smallest user who has it."""
    np.testing.assert_array_equal(canonical(labels), labels)
    for one, two in itertools.combinations(servers_of(labels.shape[1], n_servers), 2):
        assert (labels[:, one, None] != labels[:, None, two]).all()


def refines(labels):
    """Whoever is together was together before."""
    together = labels[:, :, None] == labels[:, None, :]
    assert (together[:-1] | ~together[1:]).all()


@settings(max_examples=8, deadline=None)
@over(st.integers(0, 10**6), st.floats(0.2, 1.2))
def test_invariants_of_club_and_sclub(seed, alpha):
    spec, given = population(*SMALL), draws(seed, SMALL[0])
    club_, sclub_ = A.CLUB(alpha_edge=alpha).bind(spec, T), A.SCLUB(alpha_theta=alpha, alpha_p=2 * alpha).bind(spec, T)
    played = play(club_, jax.random.key(0), given, spec)
    is_partition(played.labels, 2)
    refines(played.labels)
    linked = np.asarray(graph.unpack(played.state.linked, club_.seats.per_server))
    np.testing.assert_array_equal(linked, linked.transpose(0, 2, 1))
    assert not linked[~club_.seats.taken].any()
    played = play(sclub_, jax.random.key(0), given, spec)
    is_partition(played.labels, 2)
    sets, users = played.state.sets, played.state.users
    assert users.counts.sum() == sets.served.sum() == T
    for server in range(2):
        heads = np.unique(sets.label[server][sclub_.seats.taken[server]])
        assert sets.count[server, heads].sum() == sets.served[server]


@settings(max_examples=8, deadline=None)
@over(
    st.integers(0, 10**6), st.floats(0.4, 1.2), st.floats(0.2, 1.2), st.floats(1, 2), st.floats(1, 2)
)  # fmt: skip
def test_invariants_of_fclub(seed, alpha_1, alpha_2, upload, download):
    spec, given = population(*SMALL), draws(seed, SMALL[0])
    bound = A.FCLUB(upload=upload, download=download, alpha_1=alpha_1, alpha_2=alpha_2).bind(spec, T)
    played = play(bound, jax.random.key(0), given, spec)
    is_partition(played.labels, 2)
    refines(played.labels)
    local, group = (canonical(labels) for labels in (played.labels, played.groups))
    assert (np.take_along_axis(group, local, 1) == group).all()  # a local cluster is in one global one
    steady = ~np.isin(np.arange(1, T), STARTS)
    assert (group[:-1] == group[1:])[:-1][steady].all()
    state, taken = played.state, bound.seats.taken.reshape(-1)
    linked = np.asarray(graph.unpack(state.linked, bound.seats.per_server))
    np.testing.assert_array_equal(linked, linked.transpose(0, 2, 1))
    slots = np.unique(state.clusters.local[taken])
    heads = np.unique(state.clusters.group[slots])
    close(state.shared.sums[heads].sum(0) + state.buffer.sums[slots].sum(0), state.sums.sum(0))
    assert state.shared.count[heads].sum() + state.buffer.count[slots].sum() == T
    assert state.clusters.sharing[heads].sum() == len(slots)
    assert (state.local.count <= state.shared.count[state.clusters.group])[slots].all()
    assert played.status.max() == 0


def test_width_by_hand():
    """n = 40 users, d = 3, R = 1/2, S = 2, after 7 rounds, eigenvalues from 4 to 5 and noise of 1/4; all is scaled."""
    algo = A.LinUCB(policy=A.UCB(failure=0.01, subgaussian=0.5, theta_norm=2.0, exploration_scale=0.1))
    width = algo.bind(fb.envs.clustered(40, dim=3).spec, T).width
    log = 2 * math.log(40 / 0.01) + 3 * math.log(5 / 4 + 7 / (3 * 4))
    right = 0.1 * (0.5 * math.sqrt(log) + 2 * math.sqrt(5.0) + 0.25)
    np.testing.assert_allclose(width(jnp.float32(7), 4.0, 5.0, 0.25), right, rtol=1e-5)


def test_seats():
    seats = A.CLUB().bind(population(*LARGE), T).seats
    assert seats.n_seats == 9
    np.testing.assert_array_equal(seats.taken.reshape(-1)[seats.users], True)
    assert seats.taken.sum() == len(set(seats.users.tolist())) == 8
    np.testing.assert_array_equal(seats.of_users(jnp.arange(9)), np.arange(8))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: A.FCLUB(upload=0.5), r"upload must be >= 1, got 0\.5"),
        (lambda: A.FCLUB(upload=0), "upload must be .*got 0"),
        (lambda: A.FCLUB(upload=INF), "upload must be .*got inf"),
        (lambda: A.FCLUB(download=0.99), r"download must be >= 1, got 0\.99"),
        (lambda: A.FCLUB(download=math.nan), "download must be .*got nan"),
        (lambda: A.FCLUB(trigger="rounds"), "trigger must be .*got 'rounds'"),
        (lambda: A.FCLUB(shift="never"), "shift must be .*got 'never'"),
        (lambda: A.FCLUB(alpha_1=0), "alpha_1 must be .*got 0"),
        (lambda: A.FCLUB(alpha_1=-1.0), r"alpha_1 must be .*got -1"),
        (lambda: A.FCLUB(alpha_2=math.nan), "alpha_2 must be .*got nan"),
        (lambda: A.FCLUB(max_uploads=0), "max_uploads must be .*got 0"),
        (lambda: A.FCLUB(max_uploads=1.5), r"max_uploads must be .*got 1\.5"),
        (lambda: A.FCLUB(visits=0), "visits must be .*got 0"),
        (lambda: A.FCLUB(calibration="loose"), "calibration must be .*got 'loose'"),
        (lambda: A.FCLUB(spectral="norm"), "spectral must be .*got 'norm'"),
        (lambda: A.FCLUB(1.0), r"budget must be an fb\.privacy\.Budget or None, got 1\.0"),
        (lambda: A.FCLUB().replace(edge=2.0), "FCLUB-DC has no parameter edge"),
        (lambda: A.FCLUB(failure=0), "failure must be .*got 0"),
        (lambda: A.FCLUB(regularization=0), "regularization must be .*got 0"),
        (lambda: A.homo_dc(upload=0.5), r"upload must be >= 1, got 0\.5"),
        (lambda: A.homo(download=0.5), r"download must be >= 1, got 0\.5"),
        (lambda: A.CLUB(alpha_edge=0), "alpha_edge must be .*got 0"),
        (lambda: A.CLUB(failure=1), "failure must be .*got 1"),
        (lambda: A.CLUB().replace(alpha_theta=1.0), "CLUB has no parameter alpha_theta"),
        (lambda: A.SCLUB(alpha_theta=-0.5), r"alpha_theta must be .*got -0\.5"),
        (lambda: A.SCLUB(alpha_p=0), "alpha_p must be .*got 0"),
        (lambda: A.SCLUB(subgaussian=-1), "subgaussian must be .*got -1"),
        (
            lambda: A.LinUCB().replace(confidence="authors").bind(population(4, 2), 10),
            "confidence must be .*got 'authors'",
        ),
        (lambda: fb.envs.clustered(4, 2, 5), "n_clusters must be at most the 4 users, got 5"),
        (lambda: fb.envs.clustered(4, 5, 2), "n_servers must be at most the 4 users, got 5"),
        (lambda: fb.envs.clustered(0, 1, 1), "n_users must be .*got 0"),
        (lambda: fb.envs.clustered(4, 2, 2, gap=0), "gap must be .*got 0"),
        (lambda: fb.envs.clustered(40, 2, 20, dim=3, gap=0.9), r"gap must be at most .*got 0\.9"),
        (lambda: fb.envs.clustered(4, 2, 2, dim=1), "dim must be .*got 1"),
        (lambda: fb.envs.clustered(4, 2, 2, n_arms=0), "n_arms must be .*got 0"),
        (lambda: fb.envs.clustered(4, 2, 2, rewards="coin"), "rewards must be .*got 'coin'"),
        (lambda: fb.envs.clustered(4, 2, 2, noise_std=-1), "noise_std must be .*got -1"),
        (lambda: fb.envs.clustered(4, 2, 2, arrivals=[1, 1]), "arrivals must be .*got 2 weights"),
        (lambda: fb.envs.clustered(4, 2, 2, arrivals=[1, 1, 1, 0]), "arrivals must be .*the least 0"),
        (lambda: fb.envs.clustered(4, 2, 2, arrivals="often"), "arrivals must be .*got 'often'"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises((ValueError, TypeError), match=words) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [A.FCLUB, A.homo_dc, A.CLUB, A.SCLUB])
def test_users_who_are_not_told_apart(key, make):
    words = r"is for users who are told apart, and the environment has none: fb\.envs\.clustered"
    with pytest.raises((ValueError, TypeError), match=words):
        fb.simulate(fb.envs.sphere(2, 3, 3), make(), horizon=10, key=key, seeds=1)


def held(theta, live):
    """Estimates (N, 3) of local clusters, from 10^5 rounds each."""
    n, theta = len(live), np.where(live[:, None], theta, 0).astype(np.float32)
    none, sums, square = (np.zeros((n, *shape), np.float32) for shape in ((), (3, 4), (3, 3)))
    return Held(sums, np.where(live, 1e5, 0).astype(np.float32), none, square, theta, none), live


def test_clusters_of_one_server_meet_in_one_of_another():
    """Never compared, and far apart: connected components join them. Without the third they stay apart."""
    bound = A.FCLUB(alpha_2=0.7).bind(population(4, 2), 1000)  # seats 0 and 1 are of one server
    theta = np.outer([0.0, 0.025, 0.0125, 0.0], [1, 0, 0])  # within 0.7 (F + F) = 0.0157 of the third
    assert jax.jit(bound._join)(*held(theta, np.array([True, True, True, False]))).tolist() == [0, 0, 0, 3]
    assert jax.jit(bound._join)(*held(theta, np.array([True, True, False, True]))).tolist() == [0, 1, 2, 0]


def test_merging_is_the_same_side_by_side():
    """Under vmap a run with few local clusters goes through as many turns as one with many: seats of none join none."""
    bound = A.FCLUB(alpha_2=0.7).bind(population(16, 4), 1000)
    few, theta = np.isin(np.arange(16), [0, 4, 8, 12]), np.zeros((16, 3))
    theta[[0, 4, 8, 12]] = [[0.715, 0, 0], [0, 0.1, 0], [0.702, 0, 0], [0, 0, 0.95]]
    many = np.random.default_rng(0).normal(size=(16, 3)) * 0.3
    runs = [held(theta, few), held(many, np.ones(16, bool))]
    together = np.asarray(jax.jit(jax.vmap(bound._join))(*jax.tree.map(lambda *x: np.stack(x), *runs)))
    for run, found in zip(runs, together):
        np.testing.assert_array_equal(jax.jit(bound._join)(*run), found)
    assert together[0][[0, 4, 8, 12]].tolist() == [0, 4, 0, 12]
