"""LinUCB per user, CLUB, SCLUB and FCLUB, private or not, equal their float64 oracles round by round; their limits."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, in_chunks
from oracles.clustering import club, estimate, fclub, sclub
from scripted_users import Draws, canonical, draws, noise_of, play, population, scan
from sklearn.metrics import adjusted_rand_score

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.detection import Detection
from fedbandit_jax.algos.clusters.exchange import Held
from fedbandit_jax.algos.clusters.seats import Seats
from fedbandit_jax.core import random
from fedbandit_jax.engine import batching, prepare
from fedbandit_jax.engine.runners import Sequential, make_runner

A = fb.algos
T, INF, STARTS = 300, math.inf, [2**s - 2 for s in range(1, 9)]
SMALL, LARGE = (9, 2), (8, 3)  # users, servers


def traced(algo, bound, given, size, key=None, **private):
    """What the oracle does with the draws; with a key, in the noise of the bound algorithm."""
    size = dict(n_users=size[0], n_servers=size[0] if algo.name == "LinUCB" else size[1])
    if not isinstance(algo, A.FCLUB):
        own = {name: getattr(algo, name) for name in ("alpha_edge", "alpha_theta", "alpha_p") if hasattr(algo, name)}
        subgaussian = getattr(algo, "policy", algo).subgaussian
        return (sclub if algo.name == "SCLUB" else club)(*given, **size, subgaussian=subgaussian, **own)
    names = "alpha_1", "alpha_2", "upload", "download", "trigger", "shift", "max_uploads"
    own = {name: getattr(algo, name) for name in names}
    if key is not None and bound.exchange.noise is not None:
        numbers = dict(rho=float(bound.exchange.rho), vector=float(bound.vector))
        private = dict(private=True, noise=noise_of(bound, key, 3), **numbers)
    return fclub(*given, **size, **own, **private)


def both(key, algo, size, seed, *, horizon=T, noise=0.1, **changes):
    """The bound algorithm, what it plays and what the oracle plays."""
    spec, given = population(*size), draws(seed, size[0], horizon=horizon, noise=noise)
    bound = algo.bind(spec, horizon).replace(**changes)
    return bound, play(bound, key, given, spec), traced(algo, bound, given, size, key)


def same(played, trace, n=None):
    """Everything in the first n rounds, which the oracle must have no doubts about."""
    n = len(trace.arms) if n is None else n
    assert trace.safe(1e-5) >= n
    for name in ("arms", "uploads", "downloads"):
        np.testing.assert_array_equal(getattr(played, name)[:n], getattr(trace, name)[:n], err_msg=name)
    rows = slice(n + 1 if n == len(trace.arms) else n)
    np.testing.assert_array_equal(played.labels[rows], trace.labels[rows])
    np.testing.assert_array_equal(canonical(played.groups)[rows], trace.groups[rows])


def close(found, expected, tol=1e-4):
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol * max(1, np.abs(expected).max()))


def FCLUB(epsilon=None, **options):
    return A.FCLUB(None if epsilon is None else fb.privacy.Budget(epsilon, 0.1), **options)


SPLIT, ALIKE = dict(alpha_1=0.6, alpha_2=0.4), dict(alpha_1=INF, alpha_2=INF)
OURS = dict(trigger="count", shift="once", upload=1.3, download=1.2)


def messages(pick, **fixed):
    """FCLUB with random parameters, and perhaps a budget."""
    return FCLUB(
        **dict(upload=pick(1, 1.01, 1.3, 2), download=pick(1, 1.01, 1.3, 2), max_uploads=pick(None, None, 3, 20)),
        **dict(alpha_1=pick(0.5, 0.6, 0.7, INF), alpha_2=pick(0.4, 0.6, 0.6, INF)),
        **fixed,
    )


def private(pick, **fixed):
    noise = dict(calibration=pick("tight", "tight", "theorem"), spectral=pick("quantile", "quantile", "theory"))
    return messages(pick, epsilon=pick(1.0, 300.0, 3000.0, 1e4), **noise, **fixed)


ANY = {"splits", "renewals", "phases that change nothing", "several clusters of several", "all uploads", "messages"}
DRAWN = {  # an algorithm with parameters that `pick` picks, and what must happen in some of its runs
    "LinUCB": (lambda pick: A.LinUCB().replace(subgaussian=pick(0.1, 0.5)), set()),
    "CLUB": (lambda pick: A.CLUB(alpha_edge=pick(0.3, 0.5, 0.8, 1.2)), {"splits"}),
    "SCLUB": (
        lambda pick: A.SCLUB(alpha_theta=pick(0.3, 0.8, 1.5), alpha_p=pick(0.3, 0.7, INF)),
        {"splits", "mergers"},
    ),
    "FCLUB": (functools.partial(messages, trigger="determinant"), ANY),
    "FCLUB by counts": (functools.partial(messages, trigger="count"), ANY),
    "private": (functools.partial(private, trigger="determinant", shift="every"), {*ANY, "clipped rewards"}),
    "private by counts": (functools.partial(private, trigger="count", shift="once"), {*ANY, "clipped rewards"}),
}


def happened(algo, played, trace, rewards):
    """What of all that may happen in a run did."""
    local, shared = (np.array([len(set(row)) for row in rows.tolist()]) for rows in (trace.labels, trace.groups))
    found = {"splits": (np.diff(local) > 0).any(), "mergers": (np.diff(local) < 0).any()}
    if isinstance(algo, A.FCLUB):
        found |= {
            "renewals": len(trace.renewed) > 1,
            "phases that change nothing": {*STARTS} - {*trace.renewed},
            "several clusters of several": ((shared > 1) & (shared < local)).any(),
            "all uploads": algo.max_uploads and played.state.clusters.exchanged.uploads.max() == algo.max_uploads,
            "messages": trace.uploads.sum() > 10 and trace.downloads.sum() > 10,
            "clipped rewards": algo.budget and ((rewards < 0) | (rewards > 1)).any(),
        }
    return {name for name, did in found.items() if did}


def same_clusters(bound, state, trace):
    """What local and global clusters hold at the end."""
    seats, rho, eye = bound.seats, float(bound.exchange.rho), np.eye(3, 4)
    held = state.clusters.exchanged
    for (_, users), local in trace.final["local"].items():
        slot = seats.seat(min(users))
        close(held.local.sums[slot] + rho * local.synced.shift * eye, local.synced.sums)
        close(held.local.theta[slot], estimate(local.synced.sums))
        assert held.local.count[slot] == local.synced.count
        assert held.uploads[slot] == local.k
        if bound.exchange.noise is not None:
            assert held.local.shift[slot] == local.synced.shift
            assert held.tree == local.tree
        if local.k < bound.exchange.max_uploads:
            close(held.buffer.sums[slot] + rho * local.up.shift * eye, local.up.sums)
        assert held.buffer.count[slot] == local.up.count
        group = state.clusters.group[slot]
        union, shared = next(one for one in trace.final["global"].items() if users <= one[0])
        close(held.shared.sums[group] + rho * shared.shift * eye, shared.sums)
        close(held.shared.theta[group], estimate(shared.sums))
        assert held.shared.count[group] == shared.count
        assert state.clusters.sharing[group] == sum(key[1] <= union for key in trace.final["local"])
    close(state.users.sums[seats.users], trace.final["users"])
    np.testing.assert_array_equal(state.users.count[seats.users], trace.final["counts"])


def same_users(algo, bound, state, trace):
    """What is known of every user at the end, and of every cluster of SCLUB."""
    users, seats, sums = state if algo.name == "LinUCB" else state.users, bound.seats.users, trace.final["users"]
    close(users.sums[seats], sums)
    np.testing.assert_array_equal(users.counts[seats], trace.final["counts"])
    close(users.theta[seats], [estimate(one) for one in sums])
    last = trace.labels[-1] if algo.name == "SCLUB" else np.zeros(0, int)
    for head in set(last.tolist()):
        place = bound.seats.find(head)
        close(state.sets.theta[place], estimate(sums[last == head].sum(0)))
        assert state.sets.count[place] == trace.final["counts"][last == head].sum()


@pytest.mark.parametrize("runs", [8, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", deep(DRAWN, keep={0, 1, 2, 3, 5, 6}))
def test_algorithms_are_their_oracles(key, name, runs):
    """Random parameters, draws and sizes, up to where a comparison was too close to call; all that can happen does."""
    rng, (make, events), safe, seen = np.random.default_rng(0), DRAWN[name], [], set()
    for i in range(runs):
        algo = make(lambda *values: values[rng.integers(len(values))])
        size, seed, noise = SMALL if i < 8 or i % 2 else LARGE, int(rng.integers(10**6)), rng.choice([0.05, 0.3])
        horizon = 1500 if i == 8 else T  # inverses are refreshed on the way
        bound, played, trace = both(key, algo, size, seed, noise=noise, horizon=horizon)
        safe.append(trace.safe(1e-5) == horizon)
        same(played, trace, trace.safe(1e-5))
        if safe[-1]:
            assert played.status.max() == 0
            (same_clusters if isinstance(algo, A.FCLUB) else functools.partial(same_users, algo))(
                bound, played.state, trace
            )
            rewards = draws(seed, size[0], horizon=horizon, noise=noise).rewards
            seen |= happened(algo, played, trace, rewards[np.arange(horizon), played.arms])
    assert np.mean(safe) > 0.9 or runs == 8
    assert seen >= events, events - seen


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo", [A.CLUB(alpha_edge=0.5), A.SCLUB(alpha_theta=0.3, alpha_p=0.3), FCLUB(alpha_1=0.6, alpha_2=0.6)]
)
def test_what_a_gpu_runs(key, algo, monkeypatch):
    """The program for a GPU, compiled here for a CPU, with its kernel in Pallas' interpreter."""
    for module in ("control", "graph", "tables"):
        monkeypatch.setattr(f"fedbandit_jax.core.{module}.on_cpu", lambda: False)
    monkeypatch.setattr("fedbandit_jax.core.ridge.on_gpu", lambda: True)
    scan.clear_cache()
    _, played, trace = both(key, algo, SMALL, 0)
    scan.clear_cache()
    same(played, trace)
    assert played.status.max() == 0


@pytest.mark.slow
def test_an_upload_that_fails():
    """Noise that a twentieth of rho cannot bear: nothing more of this tree is uploaded, and it is told."""
    algo = FCLUB(300.0, **OURS, **SPLIT)
    rho = np.float32(0.05) * algo.bind(population(*LARGE), T).exchange.rho
    _, played, trace = both(jax.random.key(31), algo, LARGE, 31, rho=rho)
    assert trace.failures
    same(played, trace)
    bad = played.status & fb.Status.NO_ESTIMATE != 0
    np.testing.assert_array_equal(np.flatnonzero(bad), np.arange(trace.failures[0], T))


@pytest.mark.parametrize(("budget", "block"), deep([(None, 256), (3000.0, 64)], keep={0}))
def test_process(key, monkeypatch, same_noise, budget, block):
    """A run equals the helper, which knows no blocks, on the draws that the runner makes."""
    monkeypatch.setattr(prepare, "make_runner", lambda *given: dataclasses.replace(make_runner(*given), block=block))
    in_chunks(monkeypatch, 2)
    batching._advance.cache_clear()
    env = fb.envs.clustered(8, 3, 2, dim=3, n_arms=4, arrivals=[1, 2, 3, 4, 1, 2, 3, 4])
    algo = FCLUB(budget, **OURS | SPLIT | dict(shift="once" if budget else "every"))
    bound = algo.bind(env.spec, T)
    runner = Sequential(env=env, algo=bound, horizon=T, block=block)
    result = fb.simulate(env, algo, horizon=T, key=key, seeds=2)
    ends = [*range(block - 1, T, block), T - 1]  # counters and gauges are read when a block ends
    for i in range(2):
        own = jax.random.fold_in(key, i)
        world, offered, feedback, outside = _drawn(runner, own)
        assert not outside.any()
        given = Draws(offered.user[:, 0], offered.contexts[:, 0], feedback.reward)
        choices = random.stream(own, "choices")
        played = play(bound, random.stream(own, "syncs"), given, population(*LARGE), choices)
        expected = np.cumsum(np.asarray(feedback.gap)[np.arange(T), played.arms])
        np.testing.assert_allclose(result.regret[i], expected, rtol=1e-5)
        sent = {name: np.cumsum(getattr(played, name))[ends] for name in ("uploads", "downloads")}
        for name, count in sent.items():
            np.testing.assert_array_equal(result.counts[name][i, ends], count)
        messages = sent["uploads"] + sent["downloads"]
        np.testing.assert_array_equal(result.communication["rounds"][i, ends], messages)
        np.testing.assert_array_equal(result.communication["floats"][i, ends], messages * (3 * 6 / 2 + 1))
        expected = adjusted_rand_score(env.clusters(world), played.groups[-1])
        np.testing.assert_allclose(result.gauges["adjusted Rand index"][i, -1], expected, atol=1e-5)
        assert result.gauges["clusters"][i, -1] == len(set(played.groups[-1].tolist()))
    assert played.uploads.sum() > 20
    assert len(set(np.asarray(offered.user).ravel().tolist())) == 8
    assert runner.n_steps == -(-T // block)
    batching._advance.cache_clear()


@jax.jit
def _drawn(runner, key):
    world = runner.env.init(random.stream(key, "world"))
    return world, *runner._draw(key, world, jnp.arange(T))


# Widths, bounds of noise, and mergers.


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
    assert bound.exchange.rho / 10 < norms.max() < bound.exchange.rho
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
    joined = jax.jit(Detection(Seats(4, 2), INF, jnp.float32(0.7), None).join)  # seats 0 and 1 are of one server
    theta = np.outer([0.0, 0.025, 0.0125, 0.0], [1, 0, 0])  # within 0.7 (F + F) = 0.0157 of the third
    assert joined(*held(theta, np.array([True, True, True, False]))).tolist() == [0, 0, 0, 3]
    assert joined(*held(theta, np.array([True, True, False, True]))).tolist() == [0, 1, 2, 0]


def test_merging_is_the_same_side_by_side():
    """Under vmap a run with few local clusters goes through as many turns as one with many: seats of none join none."""
    joined = Detection(Seats(16, 4), INF, jnp.float32(0.7), None).join
    few, theta = np.isin(np.arange(16), [0, 4, 8, 12]), np.zeros((16, 3))
    theta[[0, 4, 8, 12]] = [[0.715, 0, 0], [0, 0.1, 0], [0.702, 0, 0], [0, 0, 0.95]]
    many = np.random.default_rng(0).normal(size=(16, 3)) * 0.3
    runs, alone = [held(theta, few), held(many, np.ones(16, bool))], jax.jit(joined)
    together = np.asarray(jax.jit(jax.vmap(joined))(*jax.tree.map(lambda *x: np.stack(x), *runs)))
    for run, found in zip(runs, together):
        np.testing.assert_array_equal(alone(*run), found)
    assert together[0][[0, 4, 8, 12]].tolist() == [0, 4, 0, 12]
