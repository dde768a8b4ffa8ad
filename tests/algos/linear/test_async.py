"""Asynchronous FedLinUCB equals Algorithm 1 of He et al. (2022), with the same noise if private, and has its limits."""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from oracles.asynchronous import async_fed_lin_ucb, by_determinant, by_rounds
from oracles.linear import TreeSilo
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
SPEC = population(M, 1)
BUDGET, SOME, LITTLE = (fb.privacy.Budget(epsilon, 0.1) for epsilon in (1.0, 20.0, 300.0))
ENV = fb.envs.clustered(6, 1, 1, n_arms=5, dim=4)
SHIFT, PROJECT = A.UCB(), A.UCB(regularizer="project")


def noisy(budget=BUDGET, release="tree", **options):
    return fb.privacy.Mechanism(budget, release, unit="visit", **options)


def algo(schedule, privacy=None, policy=SHIFT):
    return A.AsyncFederated(policy=policy, schedule=schedule, privacy=privacy)


@functools.partial(jax.jit, static_argnames="spec")
def play(bound, key, users, contexts, rewards, *, spec=SPEC):
    """Arms, uploads, the server's sum, rounds in it, the variance of its noise, and status, after every round."""

    def one(state, row):
        t, user, x, y = row
        arm = jnp.argmax(bound.index(key, t, state, user, x))
        state, report = bound.serve(key, t, state, user, x[arm], y[arm])
        return state, (arm, report.rounds, state.server.high, state.users, state.variance, report.status)

    rows = jnp.arange(len(users), dtype=jnp.int32), users, contexts, rewards
    state, results = jax.lax.scan(one, bound.init(key, spec), rows)
    return state, results


def compare(played, trace, *, uploads):
    """As long as no decision was close; `uploads` is how many there must be at least."""
    close = np.flatnonzero((trace.margins < 1e-4) | (trace.gaps < 1e-4))
    end = int(close[0]) if len(close) else len(trace.arms)
    arms, sent, server, counts, *_ = (np.asarray(x)[:end] for x in played)
    assert end >= 0.6 * len(trace.arms)
    np.testing.assert_array_equal(arms, trace.arms[:end])
    np.testing.assert_array_equal(sent, trace.uploads[:end])
    assert uploads <= sent.sum() < end
    np.testing.assert_allclose(server, trace.server[:end], rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(counts, trace.counts[:end])


def width(bound):
    one = bound.policy.width
    return lambda t: float(one.offset) + float(one.slope) * np.sqrt(one.log_term + D * np.log1p(float(one.growth) * t))


@pytest.mark.parametrize("growth", [2.0, 1.1])
def test_algorithm_1(key, growth):
    bound, given = A.async_fed_lin_ucb(growth).bind(SPEC, T), draws(3, M)
    _, played = play(bound, key, *given)
    trace = async_fed_lin_ucb(given, M, beta=width(bound), ridge=1.0, trigger=by_determinant(growth))
    compare(played, trace, uploads=20)


def noise_of(bound, key):
    """The noise of a tree at every agent, from the draws of the library."""
    trees = {}
    draw = jax.jit(lambda key: bound.mechanism.statistic.unpack(bound.mechanism.trust.noise(key, packed_size(D))))

    def noise(m, k, t):
        drawn = draw(random.stream(random.fold_in(key, jnp.int32(t)), "release"))
        return trees.setdefault(m, TreeSilo(prefix=True)).randomize(k, 0.0, np.asarray(drawn, float))

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


PRIVATE = {
    "fixed": S.Geometric(1.4, first=4),
    "leaks": S.LogDet(0.3, "he22"),
    "tested": S.PrivateLogDet(0.1, share=0.05, trigger="he22"),
}


@pytest.mark.parametrize(
    ("name", "policy", "budget"),
    deep(
        [
            *(("fixed", PROJECT, LITTLE), ("leaks", PROJECT, LITTLE), ("tested", PROJECT, SOME)),
            *(("fixed", SHIFT, LITTLE), ("leaks", SHIFT, LITTLE)),
        ],
        keep={0, 2},
    ),
)
def test_private(key, name, policy, budget):
    """Every agent has a tree, tests and counts of its own."""
    given = draws(5, M)
    bound = algo(PRIVATE[name], noisy(budget), policy).bind(SPEC, T)
    _, played = play(bound, key, *given)
    triggers = {
        "fixed": by_rounds(set(S.Geometric(1.4, first=4).rounds(T).tolist())),
        "leaks": by_determinant(math.exp(0.3)),
        "tested": None if name != "tested" else by_test(bound, key),
    }
    trace = async_fed_lin_ucb(
        given,
        M,
        beta=width(bound),
        ridge=float(bound.policy.regularization),
        trigger=triggers[name],
        noise=noise_of(bound, key),
        project=policy is PROJECT,
    )
    compare(played, trace, uploads=5)


def test_nobody_uploads_after_one_round_that_doubles_the_determinant(key):
    """Items of `clustered` are unit vectors, det(I + x x') = 2, and line 8 asks for more than (1 + alpha) det V."""
    env = fb.envs.clustered(1, 1, 1, n_arms=5, dim=4)
    sent = fb.simulate(env, A.async_fed_lin_ucb(), horizon=2, key=key, seeds=64).communication["rounds"]
    np.testing.assert_array_equal(sent, [[0, 1]] * 64)


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


def silent(bound):
    trust = bound.mechanism.trust
    mute = dataclasses.replace(bound.mechanism, trust=dataclasses.replace(trust, std=np.zeros_like(trust.std)))
    return bound.replace(mechanism=mute, stds=np.zeros_like(bound.stds))


@pytest.mark.slow
def test_without_noise_it_is_not_private(key):
    """The same arms, uploads and sums, if rewards are in [0, 1]."""
    given = draws(7, M)
    given = given._replace(rewards=np.clip(given.rewards, 0, 1))
    plain, private = (algo(S.Geometric(1.5, first=3), one, A.Thompson()) for one in (None, noisy()))
    bound = silent(private.bind(SPEC, T))
    (_, one), (_, two) = (play(x, key, *given) for x in (plain.bind(SPEC, T), bound))
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert certify(bound).claim == "none"


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


def test_rounding_errors_do_not_pile_up(key, monkeypatch):
    """Computing inverses anew more often changes nothing but rounding."""
    given = draws(3, M)
    bound = algo(S.LogDet(4.0, "he22")).bind(SPEC, T)
    _, one = play(bound, key, *given)
    monkeypatch.setattr(own_rows, "REFRESH", 3)
    jax.clear_caches()
    (last, two) = play(bound, key, *given)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    seen = np.asarray(last.agents.pending)[..., :D].astype(float)
    v = np.asarray(last.agents.belief.gram, float)
    grown = np.linalg.slogdet(v + seen)[1] - np.linalg.slogdet(v)[1]
    np.testing.assert_allclose(np.asarray(last.agents.own.gained)[:, 0], grown, atol=1e-4)
    jax.clear_caches()


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


CLAIMS = [
    (algo(S.LogDet(0.7, "he22")), "none"),
    (algo(S.Geometric(1.5)), "none"),
    (algo(S.Geometric(1.5, first=5), noisy()), "certified"),
    (algo(S.Every(7), noisy(release="blt", trust="silo_local_matrix")), "certified"),
    (algo(S.PrivateLogDet(1.0, trigger="he22"), noisy(), PROJECT), "certified"),
    (algo(S.PrivateLogDet(1.0), noisy()).replace(unit=fb.privacy.Users(3)), "certified"),
    (algo(S.LogDet(0.7, "he22"), noisy()), "none"),
    (algo(S.LogDet(0.7), noisy()), "none"),
]


@pytest.mark.parametrize(("one", "claim"), CLAIMS)
def test_claims(one, claim):
    certificate = one.certificate(ENV.spec, 200)
    assert certificate.claim == claim
    if claim == "certified":
        assert 0.99 <= certificate.epsilon_exact <= 1.0
        assert (
            "one interaction" in certificate.unit
            or "one user: all that she contributes, up to 3 times" in certificate.unit
        )
        bound = one.bind(ENV.spec, 200)
        assert certificate.server_noise_std == pytest.approx(math.sqrt(6) * float(bound.stds.max()), rel=1e-5)
        assert certificate.releases == one.schedule.n_syncs(200)
        weak = dataclasses.replace(bound.mechanism.trust, std=bound.mechanism.trust.std / np.float32(2))
        less = certify(bound.replace(mechanism=dataclasses.replace(bound.mechanism, trust=weak)))
        assert less.claim == "none"
        assert less.epsilon_exact > 1.3


def test_the_door_of_raw_determinants():
    leaks = CLAIMS[6][0].bind(ENV.spec, 200)
    assert leaks.raw == (S.LEAKS,)
    certificate = certify(leaks)
    assert certificate.epsilon_exact == math.inf
    assert "depends on its users' data without noise" in certificate.reason
    assert CLAIMS[4][0].bind(ENV.spec, 200).raw == ()


def test_tests_are_charged():
    """Of the budget, tests and releases have shares; tests with less noise than they are charged for void the claim."""
    bound = CLAIMS[4][0].bind(ENV.spec, 200)
    assert "epsilon = 0.1" in certify(bound).schedule
    loud = bound.replace(schedule=dataclasses.replace(bound.schedule, epsilon=np.float32(0.9)))
    assert certify(loud).claim == "none"
    assert certify(loud).epsilon_exact > 1.2


def test_noise_of_another_number_of_agents_proves_nothing():
    """It is the mechanism of one agent that runs for each of them."""
    bound = CLAIMS[2][0].bind(ENV.spec, 200)
    several = certify(bound.replace(mechanism=dataclasses.replace(bound.mechanism, n_agents=6)))
    assert several.claim == "none"
    assert "bound for 6 silos, there are 1" in several.reason


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: algo(S.LogDet(1.0, "dp20")), ValueError, "schedule must not have trigger 'dp20', as agents have no"),
        (lambda: algo(S.PrivateLogDet()), ValueError, "schedule must spend no budget without privacy, got Private"),
        (lambda: algo(3, noisy(trust="secagg")), ValueError, "trust must be 'silo_local' or 'silo_local_matrix', as"),
        (lambda: algo(3, noisy(trust="central")), ValueError, "trust must be 'silo_local' .*, got 'central'"),
        (lambda: algo(3, [BUDGET, BUDGET]), ValueError, "budget must be one for all, as agents upload .*, got 2"),
        (lambda: algo(3, policy=3), TypeError, "policy must be an fb.Policy, got 3"),
        (lambda: algo(0), ValueError, "schedule must be >= 1, got 0"),
        (lambda: A.async_fed_lin_ucb(1.0), ValueError, "growth must be > 1, got 1.0"),
        (lambda: A.async_fed_lin_ucb(policy=None), TypeError, "policy must be an fb.Policy, got None"),
        (lambda: algo(3).bind(fb.envs.sphere(3, 4, 5).spec, 10), ValueError, "is for users who are told apart"),
        (lambda: algo(3, BUDGET).bind(SPEC, 10), ValueError, r"unit must .* got None: fb.privacy.Mech"),
        (lambda: algo(S.LogDet(), policy=A.Thompson()).bind(SPEC, 10), ValueError, "policy must keep a matrix, as"),
        (
            lambda: algo(3, noisy()).bind(dataclasses.replace(SPEC, max_norm=2.0), 10),
            ValueError,
            "Async-UCB needs feature vectors of norm <= 1, the environment's largest has norm 2",
        ),
    ],
)
def test_bad_input(make, error, words):
    with pytest.raises(error, match=words):
        make()
