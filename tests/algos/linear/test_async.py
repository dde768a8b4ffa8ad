"""Asynchronous FedLinUCB equals Algorithm 1 of He et al. (2022), with the same noise if private, and has its limits."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from oracles.asynchronous import async_fed_lin_ucb, by_determinant, by_rounds
from oracles.linear import Tree
from scipy import stats
from scripted_users import Draws, draws, population, scan

import fedbandit_jax as fb
from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.core import random
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.samplers import discrete_laplace

A, S = fb.algos, fb.schedules
M, D, T = 5, 3, 300


@pytest.fixture(autouse=True)
def seven(monkeypatch):
    """Inverses are computed anew once in so many rounds of an agent, in all programs of this file."""
    monkeypatch.setattr(own_rows, "REFRESH", 7)


SPEC = population(M, 1)
BUDGET, SOME, LITTLE = (fb.privacy.Budget(epsilon, 0.1) for epsilon in (1.0, 20.0, 300.0))
ENV = fb.envs.clustered(6, 1, 1, n_arms=5, dim=4)
SHIFT, PROJECT = A.UCB(), A.UCB(regularizer="project")


def noisy(budget=BUDGET, release="tree", **options):
    return fb.privacy.Mechanism(budget, release, unit="visit", **options)


def algo(schedule, privacy=None, policy=SHIFT):
    return A.AsyncFederated(policy=policy, schedule=schedule, privacy=privacy)


def told(state, report):
    return report.rounds, state.server.high, state.users, state.variance


def play(bound, key, *given, spec=SPEC):
    """The last state; arms, uploads, the server's sum, rounds in it and the variance of its noise, every round."""
    arms, _, found, _, (state, _) = scan(bound, key, *given, spec=spec, told=told)
    return state, (arms, *found)


def compare(played, trace, *, uploads):
    """As long as no decision was close; `uploads` is how many there must be at least."""
    close = np.flatnonzero((trace.margins < 1e-4) | (trace.gaps < 1e-4))
    end = int(close[0]) if len(close) else len(trace.arms)
    arms, sent, server, counts, _ = (np.asarray(x)[:end] for x in played)
    assert end >= 0.6 * len(trace.arms)
    np.testing.assert_array_equal(arms, trace.arms[:end])
    np.testing.assert_array_equal(sent, trace.uploads[:end])
    assert uploads <= sent.sum() < end
    np.testing.assert_allclose(server, trace.server[:end], rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(counts, trace.counts[:end])


def width(bound):
    one = bound.policy.width
    return lambda t: float(one.offset) + float(one.slope) * np.sqrt(one.log_term + D * np.log1p(float(one.growth) * t))


def noise_of(bound, key):
    """The noise of a tree at every agent, from the draws of the library."""
    trees = {}
    draw = jax.jit(lambda key: bound.mechanism.statistic.unpack(bound.mechanism.trust.noise(key, packed_size(D))))

    def noise(m, k, t):
        drawn = draw(random.stream(random.fold_in(key, jnp.int32(t)), "release"))
        return trees.setdefault(m, Tree()).release(k, 0.0, np.asarray(drawn, float))

    return noise


def by_test(bound, key):
    """AboveThreshold of every agent on sums that are rounded up, from the draws of the library."""
    scale, d = bound.schedule._scale(), float(bound.schedule.threshold)
    draw = jax.jit(lambda key: discrete_laplace(key, scale, (1,))[0])
    of = lambda t, name: draw(random.stream(random.fold_in(key, jnp.int32(t)), name))  # noqa: E731
    shift = {m: int(draw(one)) for m, one in enumerate(jax.random.split(key, M))}
    sums = dict.fromkeys(range(M), 0)

    def trigger(t, m, own, since, v, buffer, leverage):
        inverse = np.linalg.inv(v)
        cap = np.log1p(1.001 * min(abs(inverse).sum(0).max(), np.linalg.norm(inverse)))
        share = 64 * np.log1p(leverage) / cap
        sums[m] += math.ceil(share)
        level = 64 * d / cap
        asks = sums[m] + int(of(t, "requests")) >= math.ceil(level) + shift[m]
        if asks:
            shift[m], sums[m] = int(of(t, "epoch")), 0
        return asks, min(abs(share - round(share)), abs(level - round(level)))

    return trigger


FIXED, TESTED = S.Geometric(1.4, first=4), S.PrivateLogDet(0.1, share=0.05, trigger="he22")
ROUNDS = by_rounds(set(FIXED.rounds(T).tolist()))
PRINTED = A.async_fed_lin_ucb()
PLAYED = [  # an algorithm, its trigger (None: by tests), and the least number of uploads
    (PRINTED, by_determinant(2.0), 20),
    (A.async_fed_lin_ucb(1.1), by_determinant(1.1), 20),
    (algo(FIXED, noisy(LITTLE), PROJECT), ROUNDS, 5),
    (algo(TESTED, noisy(SOME), PROJECT), None, 5),
    (algo(S.LogDet(0.3, "he22"), noisy(LITTLE), PROJECT), by_determinant(math.exp(0.3)), 5),
    (algo(FIXED, noisy(LITTLE)), ROUNDS, 5),
    (algo(S.LogDet(0.3, "he22"), noisy(LITTLE)), by_determinant(math.exp(0.3)), 5),
]


@pytest.mark.parametrize(("one", "trigger", "uploads"), deep(PLAYED, keep={0, 2, 3}))
def test_algorithm_1(key, one, trigger, uploads):
    """Every agent of a private one has a tree, tests and counts of its own."""
    given, bound = draws(5 if one.privacy else 3, M), one.bind(SPEC, T)
    _, played = play(bound, key, *given)
    trace = async_fed_lin_ucb(
        given, M, beta=width(bound), ridge=float(bound.policy.regularization), trigger=trigger or by_test(bound, key),
        noise=noise_of(bound, key) if one.privacy else None, project=one.policy is PROJECT,
    )  # fmt: skip
    compare(played, trace, uploads=uploads)


def test_nobody_uploads_after_one_round_that_doubles_the_determinant(key):
    """Of unit vectors det(I + x x') = 2, up to rounding, and line 8 asks for more than (1 + alpha) det V."""
    bound, users = PRINTED.bind(SPEC, T), np.zeros(T, np.int32)
    users[: 2 * M] = np.repeat(np.arange(M), 2)
    for seed in range(12):
        given = draws(seed, M)._replace(users=users)
        units = given.contexts / np.linalg.norm(given.contexts, axis=-1, keepdims=True)
        sent = play(bound, key, *given._replace(contexts=units))[1][1]
        np.testing.assert_array_equal(np.reshape(sent[: 2 * M], (M, 2)), [[0, 1]] * M)


@pytest.mark.slow
def test_one_agent_is_lin_ucb(key):
    """If every round is an upload."""
    env, algo = fb.envs.clustered(1, 1, 1, n_arms=5, dim=4), A.async_fed_lin_ucb(1.0 + 1e-6)
    spec, given = population(1, 1), draws(3, 1)
    arms = play(algo.bind(spec, T), key, *given, spec=spec)[1][0]
    np.testing.assert_array_equal(arms, scan(A.LinUCB().bind(spec, T), key, *given, spec=spec)[0])
    one = fb.simulate(env, algo, horizon=200, key=key, seeds=2)
    assert (one.communication["rounds"][:, -1] == 200).all()
    assert (one.communication["bits"][:, -1] == 200 * 32 * 2 * packed_size(4)).all()  # up and down
    assert (one.gauges["clusters"][:, -1] == 1).all()


@fb.pytree
class Keeps(fb.Policy):
    """Believes what it was given."""

    def update(self, k, belief, released):
        return released

    def index(self, key, t, belief, contexts):
        return contexts[:, 0]


def test_the_noise_of_what_agents_download_is_what_they_are_told(key):
    """Chi-square of sums of nothing, over many keys, alpha = 1e-4; 4 % more or less noise is rejected.

    Agents 0 and 1 take turns, so that the sums have the noise of one release, of one of each, and of later ones.
    """
    users = np.arange(12, dtype=np.int32) % 2
    bound = algo(S.Every(2), noisy(release="blt"), Keeps()).bind(SPEC, 12)
    given = Draws(users, np.zeros((12, 4, D), np.float32), np.zeros((12, 4), np.float32))
    n = 2000
    state, played = jax.vmap(lambda key: play(bound, key, *given))(jax.random.split(key, n))
    assert (np.asarray(played[1])[0] == [0, 0, 1, 1] * 3).all()
    own = np.asarray(bound.stds, float)
    for t, k in ((2, (0,)), (3, (0, 0)), (6, (1, 0)), (11, (2, 2))):
        variance = sum(own[i] ** 2 for i in k)
        np.testing.assert_allclose(np.asarray(played[4])[:, t], variance, rtol=1e-5)
        server = np.asarray(played[2])[:, t].astype(float)
        x = (np.concatenate([server[:, range(D), range(D)], server[:, :, D]], 1) ** 2).sum() / variance
        for scale, fits in ((1.0, True), (0.96**2, False), (1.04**2, False)):
            assert bool(1e-4 < stats.chi2(n * 2 * D).cdf(x / scale) < 1 - 1e-4) is fits
    told = np.asarray(state.agents.belief.std)[0, :2]  # agent 0 before agent 1's last upload
    np.testing.assert_allclose(told, np.sqrt([own[2] ** 2 + own[1] ** 2, 2 * own[2] ** 2]), rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(state.agents.belief.count)[0, :2], [10, 12])
    assert (np.asarray(state.agents.belief.count)[:, 2:] == 0).all()


def test_users_who_do_not_exist_and_uploads_that_are_too_many(key):
    given = draws(3, M)
    bound = algo(S.LogDet(1e-6, "he22", max_syncs=3), noisy()).bind(SPEC, T)
    state, played = play(bound, key, *given)
    assert np.asarray(state.agents.synced).tolist() == [3] * M
    assert np.asarray(played[1]).sum() == 3 * M
    nobody = given._replace(users=np.full(T, M, np.int32))
    state, played = play(bound, key, *nobody)
    assert not np.asarray(played[1]).any()
    assert not np.asarray(state.agents.rounds).any()
    assert not np.asarray(state.server.high).any()


@pytest.mark.slow
def test_agents_who_upload_more_often_have_less_regret(key):
    """He et al. (2022), Theorem 5.1: and all of them have less than agents alone. Paired over 16 seeds, 99 %."""
    env = fb.envs.clustered(10, 1, 1, n_arms=10, dim=6)
    algos = {str(growth): A.async_fed_lin_ucb(growth) for growth in (1.01, 2.0, 16.0)} | {"alone": A.LinUCB()}
    result = fb.sweep(env, algos, horizon=4000, key=key, seeds=16)
    less = [result[name].regret[:, -1] for name in algos]
    for one, two in itertools.pairwise(less):
        assert stats.ttest_rel(one, two, alternative="less").pvalue < 0.01
    sent = [result[name].communication["rounds"][:, -1].mean() for name in algos]
    assert sorted(sent, reverse=True) == sent


CERTIFIED = {
    "growing": algo(S.Geometric(1.5, first=5), noisy()),
    "every 7": algo(S.Every(7), noisy(release="blt", trust="silo_local_matrix")),
    "tested": algo(S.PrivateLogDet(1.0, trigger="he22"), noisy(), PROJECT),
    "users": algo(S.PrivateLogDet(1.0), noisy()).replace(unit=fb.privacy.Users(3)),
}
LEAKS = [algo(S.LogDet(0.7, "he22"), noisy()), algo(S.LogDet(0.7), noisy())]


@pytest.mark.parametrize("name", CERTIFIED)
def test_claims(name):
    one = CERTIFIED[name]
    bound, certificate = one.bind(ENV.spec, 200), one.certificate(ENV.spec, 200)
    assert certificate.claim == "certified"
    assert 0.99 <= certificate.epsilon_exact <= 1.0
    whose = "one user: all their contributions, up to 3 times" if name == "users" else "one interaction"
    assert whose in certificate.unit
    assert certificate.server_noise_std == pytest.approx(math.sqrt(6) * float(bound.stds.max()), rel=1e-5)
    assert certificate.releases == one.schedule.n_syncs(200)
    assert bound.raw == ()


@pytest.mark.parametrize("one", LEAKS)
def test_the_door_of_raw_determinants(one):
    leaks = one.bind(ENV.spec, 200)
    assert leaks.raw == (S.LEAKS,)
    certificate = certify(leaks)
    assert (certificate.claim, certificate.epsilon_exact) == ("none", math.inf)


def test_tests_are_charged():
    """Of the budget, tests and releases have shares; tests with less noise than they are charged for void the claim."""
    bound = CERTIFIED["tested"].bind(ENV.spec, 200)
    loud = bound.replace(schedule=dataclasses.replace(bound.schedule, epsilon=np.float32(0.9)))
    assert certify(loud).claim == "none"
    assert certify(loud).epsilon_exact > 1.2
