"""AdaC-UCB, KL-UCB and IMED in phases: their radii, divergence and bounds; test_user_by_user.py plays them."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from four_arms import ARMS, HORIZON
from helpers import deep
from oracles import arms as oracles
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.algos.arms.phased import divergence
from fedbandit_jax.core import wide

A = fb.algos


def test_radii_are_those_of_elimination():
    """All intervals of K arms together hold with probability 1 - 3 p, as the exact ones of elimination with K arms."""
    bound = fb.algos.AdaCUCB(A.DistDPSE(1.0, radius="exact")).bind(ARMS.spec, HORIZON)
    other = A.DistDPSE(1.0, radius="exact").bind(ARMS.spec, HORIZON)
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


def test_lower_bound():
    """Lai & Robbins without privacy. It grows as epsilon falls, in the end like 1 / epsilon."""
    means = [0.5, 0.6, 0.3]
    bounds = [A.regret_lower_bound(means, epsilon, 1000) for epsilon in (np.inf, 1.0, 0.1, 0.01, 0.001)]
    kl = [p * math.log(p / 0.6) + (1 - p) * math.log((1 - p) / 0.4) for p in (0.5, 0.3)]
    assert bounds[0] == pytest.approx((0.1 / kl[0] + 0.3 / kl[1]) * math.log(1000))
    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(2 * math.log(1000) / 0.001, rel=0.01)
