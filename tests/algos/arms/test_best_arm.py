"""Searches for the best arm: their evidence, when they stop, and what is read from results."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, HORIZON
from helpers import deep
from oracles import arms as oracles
from scipy import optimize, stats

import fedbandit_jax as fb
from fedbandit_jax.algos.arms.phased import divergence
from fedbandit_jax.algos.arms.top_two import ROUNDING

A = fb.algos
RECORD = {"recommended": fb.record.final(fb.record.recommended)}
T, SEEDS = 20_000, 16  # of tests with three arms, which share programs


SUMS = [A.DistDPSE(1.0), A.SE(), A.CDPSE(0.3), A.LDPSE(1.0), A.DistRDPSE(0.5), A.DistCDPSE(0.5), A.ShuffleDPSE(1.0)]


def search(algo, means, key, stride=T):
    env = fb.envs.arms(means=means, rewards="bernoulli")
    return fb.simulate(env, algo, horizon=T, key=key, seeds=SEEDS, stride=stride, record=RECORD, progress=False)


@pytest.mark.parametrize("sums", deep(SUMS, keep={0, 1, 6}))
def test_moments_are_those_of_the_noise(sums):
    """As the protocol draws it, by its probabilities; they add up over phases."""
    bound = A.TopTwo(sums).bind(ARMS.spec, HORIZON)
    table, protocol = np.asarray(bound.cumulants, float), bound.protocol
    assert not table[0].any()
    for k in (0, 3):
        if sums.title == "SE":
            assert not table.any()
            continue
        n, rates = int(protocol.users[k]), np.asarray(bound.rates, float) / protocol.steps[k]
        law = protocol.noise.law(k, n)
        x = np.arange(-(far := int(60 * math.sqrt(law.variance))), far + 1)
        each = [np.exp(law.log_pmf(x) + r * x).sum() for r in rates]
        fine = np.exp(law.log_pmf(far) + rates * far) < 1e-9  # rates whose moment is within the window
        assert fine.sum() > 10
        np.testing.assert_allclose((table[k + 1] - table[k])[fine], np.log(each)[fine], rtol=1e-3, atol=1e-5)
    assert (np.diff(table[: bound.times + 1], axis=0) >= 0).all()


def test_evidence_is_rounded_down():
    """In float32, by at most what is charged for it."""
    bound = A.TopTwo(A.CDPSE(0.5)).bind(ARMS.spec, 10**6)
    rng, j = np.random.default_rng(0), 20
    n = float(bound.users[:j].sum())
    share, q = rng.uniform(0.2, 0.8, 40), rng.uniform(0.0, 1.0, 40)
    of_arms = jax.jit(lambda s, q: bound.evidence(s, jnp.full(40, n), jnp.full(40, j), q))
    found = np.asarray(of_arms(jnp.float32(n * share), jnp.float32(q)))
    psi, rates = np.asarray(bound.cumulants[j], float), np.asarray(bound.rates, float)
    exact = [
        oracles.mean_evidence(float(np.float32(n * p)), n, psi, rates, float(np.float32(x))) for p, x in zip(share, q)
    ]
    assert (found <= np.array(exact) + 1e-5).all()
    assert (found >= np.array(exact) - 2 * ROUNDING * n * bound.rates[-1]).all()


@pytest.mark.parametrize("sums", deep([A.CDPSE(0.2), A.LDPSE(2.0), A.DistRDPSE(0.2)], keep={0}))
def test_evidence_is_an_e_process(key, sums):
    """For the true mean it ever reaches 10 with probability at most 1 / 10; without psi more often."""
    bound, seeds, j = A.TopTwo(sums).bind(ARMS.spec, 3_000), 2_000, 12

    def highest(bound, key):
        def phase(carry, i):
            total, n, top = carry
            rewards, noise = jax.random.split(jax.random.fold_in(key, i))
            users = jnp.asarray(bound.users)[i]
            x = jax.random.binomial(rewards, users.astype(jnp.float32), 0.5)
            z = bound.protocol.noise.total(noise, i, users, (1,))
            read = z.low.astype(jnp.int32) / jnp.asarray(bound.protocol.steps)[i]
            total, n = total + x + read, n + users
            e = bound.evidence(total, n.astype(jnp.float32)[None], i[None] + 1, jnp.array([0.5]))
            return (total, n, jnp.maximum(top, e)), None

        start = jnp.zeros(1), jnp.int32(0), jnp.zeros(1)
        return jax.lax.scan(phase, start, jnp.arange(j))[0][2][0]

    deaf = dataclasses.replace(bound, cumulants=0 * bound.cumulants)  # knows not that there is noise
    every = jax.jit(jax.vmap(highest, (None, 0)))
    tops = [np.asarray(every(one, jax.random.split(key, seeds))) for one in (bound, deaf)]
    wrong = [int((top >= math.log(10)).sum()) for top in tops]
    assert stats.binomtest(wrong[0], seeds, 0.1, "greater").pvalue > 1e-3
    assert stats.binomtest(wrong[1], seeds, 0.1, "greater").pvalue < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("sums", [A.SE(), A.CDPSE(0.2), A.DistCDPSE(0.2), A.ShuffleDPSE(0.5), A.LDPSE(1.0)])
def test_errors_are_rarer_than_failure(key, sums):
    """Of 300 seeds with two arms of nearly one mean, at failure 0.2. A rule that is deaf to noise errs more often."""
    env, failure = fb.envs.arms(means=[0.5, 0.502], rewards="bernoulli"), 0.2
    run = dict(horizon=2_000, key=key, seeds=300, stride=2_000, record=RECORD, progress=False)

    def interval(algo):
        found = fb.best_arm(fb.simulate(env, algo, **run))
        return stats.binomtest(int((found.stopped & ~found.right).sum()), 300).proportion_ci(0.999)

    algo = A.TopTwo(sums, failure=failure)
    assert interval(algo).high <= failure
    if sums.title != "SE":
        bound = algo.bind(env.spec, 2_000)
        assert interval(dataclasses.replace(bound, cumulants=0 * bound.cumulants)).low > failure


def test_threshold():
    """One of K - 1 wrong arms is recommended with probability at most delta, of which sums that wrap take a little."""
    for n_arms in (2, 4, 9):
        spec = fb.envs.arms(n_arms).spec
        assert A.TopTwo().bind(spec, HORIZON).threshold == pytest.approx(math.log((n_arms - 1) / 0.05))
        bound = A.TopTwo(A.CDPSE(1.0)).bind(spec, HORIZON)
        assert math.log((n_arms - 1) / 0.05) < bound.threshold < math.log((n_arms - 1) / 0.0485)
        shuffled = A.TopTwo(A.ShuffleDPSE(1.0)).bind(spec, HORIZON).threshold
        assert shuffled == pytest.approx(math.log((n_arms - 1) / (0.05 - n_arms * bound.times / HORIZON)), abs=0.01)


def test_it_stops_and_plays_the_best_arm(key):
    """Then regret and communication stand still. Sooner with less noise, and with a larger failure.

    Alike arms are never told apart by a short run, and nobody is said to have stopped.
    """
    found = {}
    for name, algo in {
        "none": A.TopTwo(),
        "weak": A.TopTwo(A.CDPSE(1.0)),
        "strong": A.TopTwo(A.CDPSE(0.1)),
        "sure": A.TopTwo(A.CDPSE(1.0, failure=1e-3), failure=1e-4),
    }.items():
        result = search(algo, [0.7, 0.3, 0.2], key, stride=100)
        one = found[name] = fb.best_arm(result)
        assert one.stopped.all()
        assert one.right.all()
        assert (one.arm == 0).all()
        after = result.rounds > one.rounds.max()
        for curve in (result.regret, result.communication["rounds"]):
            assert (np.ptp(curve[:, after], axis=1) == 0).all()
        np.testing.assert_array_equal(result.communication["rounds"][:, -1], one.communication)
    assert found["none"].rounds.mean() < found["weak"].rounds.mean() < found["strong"].rounds.mean()
    assert found["weak"].rounds.mean() < found["sure"].rounds.mean()
    alike = fb.best_arm(search(A.TopTwo(A.CDPSE(1.0)), [0.5, 0.505, 0.5], key, stride=100))
    assert not alike.stopped.any()
    assert (alike.rounds == T).all()


@pytest.mark.parametrize(("n_arms", "rounds"), deep([(3, 2), (9, 4)], keep={0}))
def test_halving_has_few_rounds(key, n_arms, rounds):
    """And finds an arm that is far better than the others."""
    found = fb.best_arm(search(A.SequentialHalving(budget=1_000), [0.9] + [0.2] * (n_arms - 1), key))
    assert (found.communication == rounds).all()
    assert found.right.all()
    assert found.stopped.all()
    assert (found.rounds <= 1_000).all()


def test_ties_are_broken_by_lot(key):
    """All rewards are 0, and each arm is recommended by some seed."""
    for algo in (A.SequentialHalving(budget=40), A.TopTwo()):
        found = fb.best_arm(search(algo, [0.0, 0.0, 0.0], key))
        assert set(found.arm.tolist()) == {0, 1, 2}
        assert found.right.all()


@pytest.mark.parametrize("epsilon", [0.05, 0.5, math.inf])
def test_characteristic_time(epsilon):
    """Equals a search over shares of three arms."""
    means = [0.3, 0.6, 0.45]

    def least(shares):
        w = np.append(shares, 1 - sum(shares))
        q = np.linspace(0.3, 0.6, 1501)
        best = w[1] * divergence(0.4, 1 - q, epsilon)
        return -min((best + w[a] * divergence(means[a], q, epsilon))[q >= means[a]].min() for a in (0, 2))

    grid = [x for x in itertools.product(np.arange(0.04, 0.96, 0.04), repeat=2) if sum(x) < 0.98]
    start = min(grid, key=least)
    found = optimize.minimize(least, start, method="Nelder-Mead", options=dict(xatol=1e-6, fatol=1e-12)).fun
    assert A.characteristic_time(means, epsilon) == pytest.approx(-1 / found, rel=2e-3)
