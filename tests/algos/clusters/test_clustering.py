"""LinUCB per user, CLUB, SCLUB and FCLUB equal their float64 oracles round by round; limits, invariants, errors."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from oracles.clustering import Width, club, estimate, fclub, lin_ucb, sclub
from scripted_users import Draws, canonical, draws, play, population, scan
from sklearn.metrics import adjusted_rand_score

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.engine import batching, setup
from fedbandit_jax.engine.clocks import ArrivalClock, make_clock

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
        width=Width(subgaussian=getattr(algo, "policy", algo).subgaussian),
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


def traced(algo, bound, given, size):
    """Of any algorithm."""
    return fclub_trace(algo, bound, given, size) if isinstance(algo, A.FCLUB) else quiet_trace(algo, given, size)


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
    trace = traced(algo, bound, given, SMALL)
    for module in ("control", "graph", "tables"):
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
            trace = traced(algo, bound, given, size)
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
        trace = traced(algo, bound, given, SMALL)
        same(play(bound, key, given, spec), trace, 1500)


# --- The clock ---

LITTLE = fb.privacy.Budget(3000.0, 0.1)  # little noise


@pytest.mark.parametrize(
    ("budget", "block", "chunks"), deep([(None, 256, 50), (LITTLE, 256, 50), (LITTLE, 64, 2)], keep={0})
)
def test_process(key, monkeypatch, same_noise, budget, block, chunks):
    """A run equals the helper, which knows no blocks, on the draws that the clock makes."""
    monkeypatch.setattr(setup, "make_clock", lambda *given: dataclasses.replace(make_clock(*given), block=block))
    monkeypatch.setattr("fedbandit_jax.engine.driver.CHUNKS", chunks)
    monkeypatch.setattr("fedbandit_jax.engine.driver.CHUNK_WORK", 0)
    batching._advance.cache_clear()
    env = fb.envs.clustered(8, 3, 2, dim=3, n_arms=4, arrivals=[1, 2, 3, 4, 1, 2, 3, 4])
    algo = A.FCLUB(budget, upload=1.3, download=1.2, trigger="count", alpha_1=0.6, alpha_2=0.4)
    algo = algo.replace(shift="once") if budget else algo
    bound = algo.bind(env.spec, T)
    clock = ArrivalClock(env=env, algo=bound, horizon=T, block=block)
    result = fb.simulate(env, algo, horizon=T, key=key, seeds=2)
    ends = [*range(block - 1, T, block), T - 1]  # counters and gauges are read when a block ends
    for i in range(2):
        own = jax.random.fold_in(key, i)
        world, offered, feedback, outside = _drawn(clock, own)
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
    assert clock.n_steps == -(-T // block)
    alone = fb.simulate(env, algo, horizon=T, key=key, seeds=1)
    np.testing.assert_array_equal(alone.regret[0], result.regret[0])
    np.testing.assert_array_equal(alone.counts["uploads"][0], result.counts["uploads"][0])
    batching._advance.cache_clear()


@jax.jit
def _drawn(clock, key):
    world = clock.env.init(random.stream(key, "world"))
    return world, *clock._draw(key, world, jnp.arange(T))


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


# --- Invariants ---


# --- Errors ---
