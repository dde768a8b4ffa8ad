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
from test_elimination import drawn, printed, syncs

import fedbandit_jax as fb
from fedbandit_jax.algos.arms.phased import divergence, phases
from fedbandit_jax.core import random
from fedbandit_jax.interfaces import certify

A = fb.algos
SECAGG = fb.algos.DistDPSE(1.0, radius="exact")


def adac(bound, asked, sums):
    return [s / 2**j + bound.radius[j - 1] if j else np.inf for j, s in zip(asked, sums)]


def optimal(bound, asked, sums):
    """The indices of KL-UCB and IMED, arm by arm."""
    users = [int(bound.users[:j].sum()) for j in asked]
    means = [min(max(s / n, 0), oracles.TOP) if n else 0 for s, n in zip(sums, users)]
    if bound.imed:
        index = [-n * oracles.divergence(p, max(means), bound.level) - math.log(n or 1) for p, n in zip(means, users)]
    else:
        index = [n and oracles.kl_index(p, n, sum(users), bound.level) for p, n in zip(means, users)]
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
        else functools.partial(adac if forgets else optimal, bound),
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
    """Equals a search, and is at most kl, or epsilon times the gap."""
    found = divergence(p, q, epsilon, np)
    assert found == pytest.approx(oracles.divergence(p, q, epsilon), rel=1e-6)
    assert found == pytest.approx(float(divergence(p, q, epsilon)), rel=1e-4)
    assert found <= min(divergence(p, q, np.inf, np), epsilon * (q - p)) * (1 + 1e-12)
    assert divergence(q, p, epsilon, np) == 0


@pytest.mark.parametrize("sums", [A.SE(), A.CDPSE(0.7), A.DistDPSE(0.7), A.ShuffleDPSE(0.7)])
@pytest.mark.parametrize("horizon", [4, 33, 1000])
def test_level_is_that_of_the_noise(sums, horizon):
    """Bits that are shuffled spend half of epsilon, and the noise of a sum the other. A phase has two users."""
    bound = A.PhasedKLUCB(sums).bind(ARMS.spec, horizon)
    steps, width = bound.protocol.steps[0], bound.protocol.noise.width(0)
    assert bound.level == pytest.approx(steps / width if width else np.inf)
    users = bound.users[: bound.times]
    assert min(users) >= 2
    assert horizon - 1 <= sum(users) <= horizon


def test_d_counts_one_noise():
    """After 15 phases at epsilon = 0.1 the bound is below the mean in 4 % of draws, as the docstring says."""
    rng, q, epsilon, users = np.random.default_rng(0), 0.5, 0.1, int(phases(1.5, 10**4)[:15].sum())
    noise = rng.laplace(scale=1 / epsilon, size=(15, 100_000)).sum(0)
    p = np.clip((rng.binomial(users, q, noise.shape) + noise) / users, 0, q)
    below = (users * divergence(p, q, epsilon, np) > math.log(10**4)).mean()
    assert users == 822
    assert below == pytest.approx(0.036, abs=0.004)


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
    """DP-SE has epochs of its own, and d is made for one discrete Laplace variable a sum."""
    for wrong in (A.DPSE(1.0), A.LDPSE(1.0), A.DistCDPSE(1.0)):
        with refused("sums", wrong):
            A.PhasedKLUCB(wrong)
    with refused("sums", A.DPSE(1.0)):
        A.AdaCUCB(A.DPSE(1.0))
    with refused("horizon", 3):
        fb.algos.AdaCUCB(SECAGG).bind(ARMS.spec, 3)
