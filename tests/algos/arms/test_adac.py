"""AdaC-UCB, KL-UCB and IMED in phases equal their pseudo-code user by user, and are certified."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from four_arms import ARMS, HORIZON, INIT, play
from helpers import deep, refused
from oracles import elimination as oracles
from scipy import stats
from test_best_arm import log_moments
from test_elimination import drawn, printed, syncs

import fedbandit_jax as fb
from fedbandit_jax.algos.arms.phased import divergence
from fedbandit_jax.core import random, wide
from fedbandit_jax.interfaces import certify

A = fb.algos
SECAGG = fb.algos.DistDPSE(1.0, radius="exact")


def adac(bound, asked, sums):
    return [s / 2**j + bound.radius[j - 1] if j else np.inf for j, s in zip(asked, sums)]


def optimal(bound, psi, asked, sums):
    """The indices of KL-UCB and IMED, arm by arm."""
    users, rates = [int(bound.users[:j].sum()) for j in asked], np.asarray(bound.rates, float)
    if bound.imed:
        best = min(max([0, *(s / n for s, n in zip(sums, users) if n)]), oracles.TOP)
        index = [
            -max(oracles.evidence(s, n, psi(j), rates, best), 0) - math.log(n or 1)
            for j, s, n in zip(asked, sums, users)
        ]
    else:
        index = [oracles.kl_index(s, n, psi(j), rates, sum(users)) for j, s, n in zip(asked, sums, users)]
    return [one if n else np.inf for one, n in zip(index, users)]


def sampled(bound, names, asked, sums):
    """The samples of Thompson sampling. Of arms without users, the one with the least draw is next."""
    if not sum(asked):
        return [np.inf] * len(asked)
    users, noise = np.cumsum(bound.users), np.cumsum(bound.protocol.stds()[: len(bound.users)] ** 2)
    z = np.asarray(jax.random.normal(random.stream(names[sum(asked) - 1], "samples"), (len(asked),)))
    index = []
    for j, s, one in zip(asked, sums, z):
        n = users[j - 1] + 1
        index.append(s / n + math.sqrt(n / 4 + noise[j - 1]) / n * one if j else 1e9 - 1e6 * one)
    return index


RUNS = [A.AdaCUCB(SECAGG), A.PhasedKLUCB(A.DistDPSE(1.0)), A.AdaCUCB(), A.PhasedIMED(A.DistDPSE(1.0)), A.PhasedIMED()]
RUNS.append(A.PhasedThompson(A.DistDPSE(1.0), first=20))


@pytest.mark.parametrize("algo", deep(RUNS, keep={0, 1, 5}))
def test_user_by_user(key, algo):
    """One arm at a time, in growing batches. AdaC-UCB forgets the batches before, and the others do not."""
    runner, found, counters, states = play(algo, key)
    rewards, uniforms = drawn(runner, key)
    bound, names = runner.algo, syncs(runner, key)
    k, forgets, private = runner.env.spec.n_arms, isinstance(algo, A.AdaCUCB), algo.sums.title != "SE"
    assert runner.n_steps == bound.times * k
    thompson = isinstance(algo, A.PhasedThompson)
    law = [printed("Dist-DP-SE", int(n), 1.0, k * bound.times) for n in bound.users[: bound.times]] if private else []
    noise = jax.jit(lambda sync, scale: law[0].sampler(jax.random.split(sync, 3)[0], scale, (k,)))

    def add_up(b, arm, j, x):
        if not private:
            return sum(oracles.randomize(y, u, 2**24) for y, u in zip(x, uniforms[b - 1, arm])) / 2**24
        one = law[j - 1]
        draw = noise(names[b - 1], np.float32(one.parameters[0]))
        total = sum(oracles.randomize(y, u, one.g) for y, u in zip(x, uniforms[b - 1, arm]))
        return oracles.analyze(total + int(draw[arm]), len(x), one.g, one.tau)[0]

    regret, batches = oracles.one_arm_at_a_time(
        jax.jit(runner.env.means)(runner.env.fixed).tolist(),
        HORIZON,
        lambda j: int(bound.users[j - 1]),
        functools.partial(sampled, bound, names)
        if thompson
        else functools.partial(adac, bound)
        if forgets
        else functools.partial(optimal, bound, log_moments(bound)),
        lambda b, a, i: rewards[b - 1, a, i],
        add_up,
        np.asarray(INIT(runner, key)[1][1].lot),
        forgets=forgets,
    )
    np.testing.assert_allclose(found, np.cumsum(regret), atol=1e-3)
    totals = np.zeros(k)
    for state, (arm, total) in zip(states, batches):
        assert np.flatnonzero(state.pulled).tolist() == [arm]
        totals[arm] = total if forgets else totals[arm] + total
        np.testing.assert_allclose(state.sums[arm], totals[arm], rtol=1e-5)
    assert len({arm for arm, _ in batches}) == k
    assert counters["rounds"][-1] == counters["decodings"][-1] == len(batches)
    certificate = certify(bound)
    assert certificate.claim == ("certified" if private else "none")
    if private:
        assert certificate.epsilon_exact == pytest.approx(1.0, abs=0.01)
        noise = dataclasses.replace(bound.protocol.noise, size=np.asarray(bound.protocol.noise.size) / 2)
        half = dataclasses.replace(bound, protocol=dataclasses.replace(bound.protocol, noise=noise))
        assert certify(half).claim == "none"


def test_radii_are_those_of_elimination():
    """All intervals of K arms together hold with probability 1 - 3 p, as the exact ones of elimination with K arms."""
    bound = fb.algos.AdaCUCB(SECAGG).bind(ARMS.spec, HORIZON)
    other = SECAGG.bind(ARMS.spec, HORIZON)
    np.testing.assert_allclose(bound.radius, other.radius[:, -1])
    np.testing.assert_array_equal(bound.users, other.users[:, -1])


GAPS = [(0.5, 0.6, 0.1), (0.3, 0.7, 0.5), (0.1, 0.9, 5.0), (0.2, 0.25, np.inf)]


@pytest.mark.parametrize(("p", "q", "epsilon"), GAPS)
def test_divergence(p, q, epsilon):
    """Equals a search, and its dual over rates up to epsilon. It is at most kl, or epsilon times the gap."""
    found = divergence(p, q, epsilon)
    assert found == pytest.approx(oracles.divergence(p, q, epsilon), rel=1e-6)
    assert found <= min(divergence(p, q, np.inf), epsilon * (q - p)) * (1 + 1e-12)
    assert divergence(q, p, epsilon) == 0
    rates = np.linspace(0, min(epsilon, 20), 100_001)
    assert found == pytest.approx((rates * (1 - p) - np.log1p((1 - q) * np.expm1(rates))).max(), rel=1e-6)


def indices(bound, j, sums):
    """The index of an arm with sums (R,) of j phases, if all users are its own."""

    def one(total):
        state = bound.init(jax.random.key(0), ARMS.spec)
        return bound.index(state._replace(asked=state.asked.at[0].set(j), sums=state.sums.at[0].set(total)))[0]

    return np.asarray(jax.jit(jax.vmap(one))(np.float32(sums)))


@pytest.mark.parametrize("sums", deep([A.CDPSE(0.1), A.LDPSE(1.0), A.DistRDPSE(0.1), A.DistCDPSE(0.1)], keep={0}))
def test_bounds_hold_with_the_noise_of_all_phases(key, sums):
    """A bound is below the mean with probability 1 / t at most. It fails more often if it counts the noise of one."""
    bound, j, q, seeds = A.PhasedKLUCB(sums).bind(ARMS.spec, 10**4), 8, 0.5, 200_000
    n, noise = bound.users[:j], bound.protocol.noise
    keys = jax.random.split(key, j)
    drawn = [jax.jit(noise.total, static_argnums=3)(keys[k], k, n[k], (seeds,)) for k in range(j)]
    total = sum(np.asarray(wide.to_float(one)) / bound.protocol.steps[k] for k, one in enumerate(drawn))
    total = total + np.random.default_rng(0).binomial(int(n.sum()), q, seeds)
    psi = np.asarray(bound.cumulants)
    one = dataclasses.replace(bound, cumulants=np.where(np.arange(len(psi))[:, None] > 0, psi[1], 0))
    below = [int((indices(rule, j, total) < q).sum()) for rule in (bound, one)]
    assert stats.binomtest(below[0], seeds, 1 / int(n.sum()), "greater").pvalue > 1e-3
    assert stats.binomtest(below[1], seeds, 1 / int(n.sum()), "greater").pvalue < 1e-6


def test_as_phases_grow_the_bound_is_that_of_d():
    """The moments of a fixed number of phases fade: N users of one phase have the bound of N d(p, q) <= log t."""
    bound = A.PhasedKLUCB(A.CDPSE(0.5)).bind(ARMS.spec, 10**6)
    n, p = 200_000, 0.3
    big = dataclasses.replace(bound, users=np.where(np.arange(len(bound.users)) == 0, n, bound.users).astype(np.int32))
    q = indices(big, 1, [n * p])[0]
    assert n * divergence(p, q, 0.5) == pytest.approx(math.log(n), rel=0.05)


def test_lower_bound():
    """Lai & Robbins without privacy. It grows as epsilon falls, in the end like 1 / epsilon."""
    means = [0.5, 0.6, 0.3]
    bounds = [A.regret_lower_bound(means, epsilon, 1000) for epsilon in (np.inf, 1.0, 0.1, 0.01, 0.001)]
    kl = [p * math.log(p / 0.6) + (1 - p) * math.log((1 - p) / 0.4) for p in (0.5, 0.3)]
    assert bounds[0] == pytest.approx((0.1 / kl[0] + 0.3 / kl[1]) * math.log(1000))
    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(2 * math.log(1000) / 0.001, rel=0.01)
    for wrong in ([0.5, 1.0], [0.5], [0.5, 1 - 1e-7], [1e-8, 2e-8]):
        with refused("means"):
            A.regret_lower_bound(wrong, 1.0, 10)
    with refused("epsilon", 0):
        A.regret_lower_bound(means, 0, 10)


def test_refusals():
    """DP-SE has epochs of its own."""
    for algo in (A.AdaCUCB, A.PhasedKLUCB, A.PhasedIMED):
        with refused("sums", A.DPSE(1.0)):
            algo(A.DPSE(1.0))
    with refused("horizon", 3):
        fb.algos.AdaCUCB(SECAGG).bind(ARMS.spec, 3)
