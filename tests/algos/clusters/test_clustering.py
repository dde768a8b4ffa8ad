"""LinUCB per user, CLUB, SCLUB and FCLUB equal their float64 oracles round by round; limits, invariants, errors."""

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
from oracles.clustering import Width, club, estimate, fclub, lin_ucb, sclub, servers_of
from scripted_users import Draws, canonical, draws, play, population, scan
from sklearn.metrics import adjusted_rand_score

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.phases import Held
from fedbandit_jax.core import graph, metrics, random
from fedbandit_jax.engine import layout
from fedbandit_jax.engine.process import ArrivalProcess, arrivals

A = fb.algos
T, INF, STARTS = 300, math.inf, [2**s - 2 for s in range(1, 9)]
SMALL, LARGE = (9, 2), (8, 3)  # users, servers
ORACLES = {"LinUCB": lin_ucb, "CLUB": club, "SCLUB": sclub}


def same(played, trace, n=T):
    """Everything in the first n rounds, which the oracle must have no doubts about."""
    assert trace.safe(1e-5) >= n
    for name in ("arms", "uploads", "downloads"):
        np.testing.assert_array_equal(getattr(played, name)[:n], getattr(trace, name)[:n], err_msg=name)
    rows = slice(n + 1 if n == len(trace.arms) else n)
    np.testing.assert_array_equal(played.labels[rows], trace.labels[rows])
    np.testing.assert_array_equal(canonical(played.groups)[rows], trace.groups[rows])


def quiet_trace(algo, given, size):
    """Of an algorithm without messages."""
    own = {name: getattr(algo, name) for name in ("alpha_edge", "alpha_theta", "alpha_p") if hasattr(algo, name)}
    servers = {} if algo.name == "LinUCB" else dict(n_servers=size[1])
    return ORACLES[algo.name](
        *given,
        n_users=size[0],
        width=Width(subgaussian=getattr(algo, "exploration", algo).subgaussian),
        **servers,
        **own,
    )


def close(found, expected, tol=1e-4):
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol * max(1, np.abs(expected).max()))


def changes(labels):
    """How often there are more clusters, and how often fewer."""
    step = np.diff([len(set(row)) for row in labels.tolist()])
    return (step > 0).sum(), (step < 0).sum()


@pytest.mark.parametrize(
    ("algo", "size", "seed", "events"),
    [
        (A.LinUCB(), SMALL, 0, (0, 0)),
        (A.LinUCB().replace(subgaussian=0.1), SMALL, 1, (0, 0)),
        (A.CLUB(alpha_edge=0.5), SMALL, 0, (4, 0)),
        (A.CLUB(alpha_edge=0.8), SMALL, 1, (0, 0)),
        (A.SCLUB(alpha_theta=0.3, alpha_p=0.3), SMALL, 0, (8, 4)),
        (A.SCLUB(alpha_theta=0.5, alpha_p=0.3), SMALL, 0, (8, 4)),
        (A.SCLUB(alpha_theta=0.3, alpha_p=INF), SMALL, 10, (8, 4)),
        pytest.param(A.CLUB(alpha_edge=0.5), LARGE, 1, (3, 0), marks=pytest.mark.slow),
        pytest.param(A.SCLUB(alpha_theta=0.3, alpha_p=0.3), LARGE, 5, (5, 2), marks=pytest.mark.slow),
        pytest.param(A.LinUCB(), LARGE, 2, (0, 0), marks=pytest.mark.slow),
    ],
)
def test_algorithms_without_messages(key, algo, size, seed, events):
    spec, given = population(*size), draws(seed, size[0])
    trace, bound = quiet_trace(algo, given, size), algo.bind(spec, T)
    played = play(bound, key, given, spec)
    same(played, trace)
    assert all(found >= least for found, least in zip(changes(trace.labels), events))
    assert played.status.max() == 0
    state = played.state
    users = state if algo.name == "LinUCB" else state.users
    seats = bound.seats.users
    close(users.sums[seats], trace.final["users"])
    np.testing.assert_array_equal(users.counts[seats], trace.final["counts"])
    close(users.theta[seats], [estimate(sums, 1.0) for sums in trace.final["users"]])
    if algo.name == "SCLUB":
        sets, last = state.sets, trace.labels[-1]
        for head in set(last.tolist()):
            server, place = bound.seats.find(head)
            close(sets.theta[server, place], estimate(trace.final["users"][last == head].sum(0), 1.0))
            assert sets.count[server, place] == trace.final["counts"][last == head].sum()


FCLUB = [  # algorithm, size, seed, splits at least, global clusters of several local ones?
    (A.FCLUB(upload=1, download=1, alpha_1=0.6, alpha_2=0.6), SMALL, 0, 2, True),
    (A.FCLUB(alpha_1=0.6, alpha_2=0.6), SMALL, 0, 2, True),
    (A.FCLUB(upload=1.3, download=1.3, alpha_1=0.6, alpha_2=0.6), SMALL, 0, 2, True),
    (A.FCLUB(upload=1.3, download=2, alpha_1=0.6, alpha_2=INF), SMALL, 1, 1, False),
    (A.FCLUB(upload=1.01, download=1, alpha_1=INF, alpha_2=0.5, max_uploads=40), SMALL, 2, 0, False),
    (A.homo_dc(upload=1.3), SMALL, 3, 0, False),
    (A.FCLUB(upload=1, download=1.3, trigger="count", alpha_1=0.6, alpha_2=0.6), LARGE, 2, 2, True),
    (A.FCLUB(upload=1.3, download=1.01, trigger="count", alpha_1=0.6, alpha_2=0.6), LARGE, 2, 2, True),
    (A.FCLUB(upload=1.3, download=1, trigger="count", alpha_1=0.6, alpha_2=0.6, max_uploads=3), LARGE, 2, 2, True),
]


def fclub_trace(algo, bound, given, size, **private):
    names = "alpha_1", "alpha_2", "upload", "download", "trigger", "shift", "max_uploads"
    own = {name: getattr(algo, name) for name in names}
    return fclub(*given, n_users=size[0], n_servers=size[1], width=Width(), **own, **private)


def same_clusters(bound, state, trace, data_in_buffer=None):
    """What local and global clusters hold at the end."""
    seats, ridge, rho = bound.seats, float(bound.regularization), float(bound.rho)
    eye = np.eye(3, 4)
    for (_, users), local in trace.final["local"].items():
        slot = seats.seat(min(users))
        shift = rho * local.synced.shift * eye
        close(state.local.sums[slot] + shift, local.synced.sums)
        close(state.local.theta[slot], estimate(local.synced.sums, ridge))
        assert state.local.count[slot] == local.synced.count
        assert state.uploads[slot] == local.k
        if bound.noise is not None:
            assert state.local.shift[slot] == local.synced.shift
            assert state.tree == local.tree
        if local.k < bound.max_uploads:
            close(state.buffer.sums[slot] + rho * local.up.shift * eye, local.up.sums)
        assert state.buffer.count[slot] == local.up.count
        group = state.clusters.group[slot]
        shared = next(shared for union, shared in trace.final["global"].items() if users <= union)
        close(state.shared.sums[group] + rho * shared.shift * eye, shared.sums)
        close(state.shared.theta[group], estimate(shared.sums, ridge))
        assert state.shared.count[group] == shared.count
        union = next(union for union in trace.final["global"] if users <= union)
        assert state.clusters.sharing[group] == sum(key[1] <= union for key in trace.final["local"])
    close(state.sums[seats.users], trace.final["users"])
    np.testing.assert_array_equal(state.count[seats.users], trace.final["counts"])


def eventful(trace, splits, sharing):
    """So many splits, renewed phases and others, and global clusters that are no mere local one, nor all of them."""
    if splits or sharing:
        assert len(trace.renewed) >= 2
        assert set(STARTS) - set(trace.renewed)
    assert changes(trace.labels)[0] >= min(splits, 1)
    assert len(set(trace.labels[-1])) - len(set(trace.labels[0])) >= splits
    n_local, n_shared = (np.array([len(set(row)) for row in rows.tolist()]) for rows in (trace.labels, trace.groups))
    assert ((n_shared > 1) & (n_shared < n_local)).any() == sharing


@pytest.mark.parametrize(("algo", "size", "seed", "splits", "sharing"), deep(FCLUB, keep=range(7)))
def test_fclub(key, algo, size, seed, splits, sharing):
    spec, given = population(*size), draws(seed, size[0])
    bound = algo.bind(spec, T)
    trace = fclub_trace(algo, bound, given, size)
    eventful(trace, splits, sharing)
    played = play(bound, key, given, spec)
    same(played, trace)
    same_clusters(bound, played.state, trace)
    assert played.status.max() == 0
    assert trace.uploads.sum() > 10
    assert trace.downloads.sum() > 10
    assert algo.max_uploads in (None, played.state.uploads.max())
    if algo.upload == 1:
        n_local = [len(set(trace.labels[t].tolist())) if t in STARTS else 0 for t in range(T)]
        np.testing.assert_array_equal(played.uploads - n_local, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "seed"),
    [(A.CLUB(alpha_edge=0.5), 0), (A.SCLUB(alpha_theta=0.3, alpha_p=0.3), 0), (FCLUB[1][0], FCLUB[1][2])],
)
def test_what_a_gpu_runs(key, algo, seed, monkeypatch):
    """The program for a GPU, compiled here for a CPU, with its kernel in Pallas' interpreter."""
    spec, given = population(*SMALL), draws(seed, SMALL[0])
    bound = algo.bind(spec, T)
    trace = fclub_trace(algo, bound, given, SMALL) if "FCLUB" in algo.name else quiet_trace(algo, given, SMALL)
    for module in ("control", "graph", "rows"):
        monkeypatch.setattr(f"fedbandit_jax.core.{module}.on_cpu", lambda: False)
    monkeypatch.setattr("fedbandit_jax.core.ridge.on_gpu", lambda: True)
    scan.clear_cache()
    played = play(bound, key, given, spec)
    scan.clear_cache()
    same(played, trace)
    assert played.status.max() == 0


@pytest.mark.slow
def test_many_runs(key):
    """Random parameters, draws and sizes, up to where a comparison was too close to call."""
    rng, safe = np.random.default_rng(0), []
    for _ in range(50):
        size, seed = (SMALL, LARGE)[rng.integers(2)], int(rng.integers(10**6))
        spec, given = population(*size), draws(seed, size[0], noise=rng.choice([0.05, 0.3]))
        for algo in (
            A.LinUCB(),
            A.CLUB(alpha_edge=rng.uniform(0.3, 1.2)),
            A.SCLUB(alpha_theta=rng.uniform(0.3, 1.5), alpha_p=rng.choice([0.3, 0.7, 1, INF])),
            A.FCLUB(
                upload=rng.choice([1, 1.01, 1.3, 2]),
                download=rng.choice([1, 1.01, 1.3, 2]),
                alpha_1=rng.choice([0.4, 0.6, 0.8, INF]),
                alpha_2=rng.choice([0.1, 0.4, 0.6, INF]),
                trigger=str(rng.choice(["count", "determinant"])),
                max_uploads=[None, 3, 10][rng.integers(3)],
            ),
        ):
            bound = algo.bind(spec, T)
            trace = fclub_trace(algo, bound, given, size) if "FCLUB" in algo.name else quiet_trace(algo, given, size)
            safe.append(trace.safe(1e-5))
            same(play(bound, key, given, spec), trace, safe[-1])
    assert np.mean(np.array(safe) == T) > 0.9


@pytest.mark.slow
def test_a_long_run(key):
    """Inverses are refreshed on the way."""
    spec, given = population(*SMALL), draws(1, SMALL[0], horizon=1500, noise=0.3)
    for algo in (
        A.LinUCB(),
        A.CLUB(alpha_edge=0.6),
        A.SCLUB(alpha_theta=0.4, alpha_p=0.5),
        A.FCLUB(alpha_1=0.7, alpha_2=0.7, upload=1.1, download=1.1),
    ):
        bound = algo.bind(spec, 1500)
        trace = fclub_trace(algo, bound, given, SMALL) if "FCLUB" in algo.name else quiet_trace(algo, given, SMALL)
        same(play(bound, key, given, spec), trace, 1500)


# --- The process ---

LITTLE = fb.privacy.Budget(3000.0, 0.1)  # little noise


@pytest.mark.parametrize(
    ("budget", "block", "chunks"), deep([(None, 256, 50), (LITTLE, 256, 50), (LITTLE, 64, 2)], keep={0})
)
def test_process(key, monkeypatch, same_noise, budget, block, chunks):
    """A run equals the helper, which knows no blocks, on the draws that the process makes."""
    monkeypatch.setattr(arrivals, "BLOCK", (block, block))
    monkeypatch.setattr("fedbandit_jax.engine.driver.CHUNKS", chunks)
    monkeypatch.setattr("fedbandit_jax.engine.driver.CHUNK_WORK", 0)
    layout._advance.cache_clear()
    env = fb.envs.clustered(8, 3, 2, dim=3, n_arms=4, arrivals=[1, 2, 3, 4, 1, 2, 3, 4])
    algo = A.FCLUB(budget, upload=1.3, download=1.2, trigger="count", alpha_1=0.6, alpha_2=0.4)
    algo = algo.replace(shift="once") if budget else algo
    bound = algo.bind(env.spec, T)
    process = ArrivalProcess(env=env, algo=bound, horizon=T)
    result = fb.simulate(env, algo, horizon=T, key=key, seeds=2)
    ends = [*range(block - 1, T, block), T - 1]  # counters and gauges are read when a block ends
    for i in range(2):
        own = jax.random.fold_in(key, i)
        world, offered, feedback, outside = _drawn(process, own)
        assert not outside.any()
        given = Draws(offered.user[:, 0], offered.contexts[:, 0], feedback.reward)
        played = play(bound, random.stream(own, "syncs"), given, population(*LARGE))
        expected = np.cumsum(np.asarray(feedback.gap)[np.arange(T), played.arms])
        np.testing.assert_allclose(result.regret[i], expected, rtol=1e-5)
        for name in ("uploads", "downloads"):
            np.testing.assert_array_equal(result.counts[name][i, ends], np.cumsum(getattr(played, name))[ends])
        messages = result.counts["uploads"][i, ends] + result.counts["downloads"][i, ends]
        np.testing.assert_array_equal(result.communication["rounds"][i, ends], messages)
        np.testing.assert_array_equal(result.communication["floats"][i, ends], messages * (3 * 6 / 2 + 1))
        truth = np.asarray(env.clusters(world))
        of_servers = [adjusted_rand_score(truth[j::3], played.labels[-1][j::3]) for j in range(3)]
        whole = adjusted_rand_score(truth, played.groups[-1])
        for name, expected in (("", whole), (" on servers", np.mean(of_servers))):
            np.testing.assert_allclose(result.gauges[f"adjusted Rand index{name}"][i, -1], expected, atol=1e-5)
        assert result.gauges["clusters"][i, -1] == len(set(played.groups[-1].tolist()))
    assert played.uploads.sum() > 20
    assert len(set(np.asarray(offered.user).ravel().tolist())) == 8
    assert process.n_steps == -(-T // block)
    alone = fb.simulate(env, algo, horizon=T, key=key, seeds=1)
    np.testing.assert_array_equal(alone.regret[0], result.regret[0])
    np.testing.assert_array_equal(alone.counts["uploads"][0], result.counts["uploads"][0])
    layout._advance.cache_clear()


@jax.jit
def _drawn(process, key):
    world = process.env.init(random.stream(key, "world"))
    return world, *process._draw(key, world, jnp.arange(T))


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo",
    [
        A.LinUCB(),
        A.CLUB(alpha_edge=0.5),
        A.SCLUB(alpha_theta=0.3, alpha_p=0.3),
        A.FCLUB(alpha_1=0.6, alpha_2=0.6),
        A.FCLUB(fb.privacy.Budget(3000.0, 0.1), trigger="count", upload=1.3, download=1.2, alpha_1=0.6, alpha_2=0.4),
    ],
)
def test_side_by_side(key, algo):
    """Runs that share a program, as on an accelerator, equal each alone, and so the oracle."""
    spec = population(*SMALL)
    bound, several = algo.bind(spec, T), [draws(seed, SMALL[0]) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *several)
    keys = jax.random.split(key, 3)
    together = jax.vmap(lambda key, given: _arms_and_state(bound, key, given, spec))(keys, stacked)
    for i, given in enumerate(several):
        alone = play(bound, keys[i], given, spec)
        np.testing.assert_array_equal(together[0][i], alone.arms)
        np.testing.assert_array_equal(together[1].local[i], alone.labels[-1])
        np.testing.assert_array_equal(together[1].shared[i], alone.groups[-1])


def _arms_and_state(bound, key, given, spec):
    arms, *_, (_, found) = scan(bound, key, *given, spec=spec)
    return arms, found


# --- Limits ---


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
    np.testing.assert_array_equal([metrics.adjusted_rand(row, one, 1) for row in homo.groups[:2]], 1)


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
            [float(metrics.adjusted_rand(labels, truth, m)) for labels in (rows[0], rows[-1])]
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


# --- Invariants ---


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
    algo = A.LinUCB(exploration=A.UCB(alpha=0.01, subgaussian=0.5, theta_norm=2.0, exploration_scale=0.1))
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


# --- Errors ---


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
        (lambda: A.FCLUB(alpha=0), "alpha must be .*got 0"),
        (lambda: A.FCLUB(regularization=0), "regularization must be .*got 0"),
        (lambda: A.homo_dc(upload=0.5), r"upload must be >= 1, got 0\.5"),
        (lambda: A.homo(download=0.5), r"download must be >= 1, got 0\.5"),
        (lambda: A.CLUB(alpha_edge=0), "alpha_edge must be .*got 0"),
        (lambda: A.CLUB(alpha=1), "alpha must be .*got 1"),
        (lambda: A.CLUB().replace(alpha_theta=1.0), "CLUB has no parameter alpha_theta"),
        (lambda: A.SCLUB(alpha_theta=-0.5), r"alpha_theta must be .*got -0\.5"),
        (lambda: A.SCLUB(alpha_p=0), "alpha_p must be .*got 0"),
        (lambda: A.SCLUB(subgaussian=-1), "subgaussian must be .*got -1"),
        (
            lambda: A.LinUCB().replace(confidence="released").bind(population(4, 2), 10),
            "confidence must be .*got 'released'",
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
