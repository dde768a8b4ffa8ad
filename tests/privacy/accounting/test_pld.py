"""Privacy loss distributions against enumeration in 40 digits: close, never below."""

import functools
import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom

from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.accounting.events import ApproximateDP, Gaussian, PureDP, compose
from fedbandit_jax.privacy.accounting.pld import PLD


def together(mu=0.0, pure=(), approximate=()):
    """A PLD of one mu or several, of pairs (epsilon, count) and of triples (epsilon, delta, count)."""
    total = functools.reduce(PLD.compose, map(PLD.from_gaussian, np.atleast_1d(mu)))
    for epsilon, n in pure:
        total = total.compose(PLD.from_pure(epsilon).times(n))
    for epsilon, delta, n in approximate:
        total = total.compose(PLD.from_approximate(epsilon, delta).times(n))
    return total


def enumerated(epsilon, mu, pure, approximate):
    """delta(epsilon) with 40 digits: all outcomes of the worst discrete mechanisms, with the formula of a Gaussian."""
    mu = math.hypot(*np.atleast_1d(mu))
    with mp.workdps(40):
        finite, atoms = mp.mpf(1), {mp.mpf(0): mp.mpf(1)}
        for e, d, n in [*((e, 0.0, n) for e, n in pure), *approximate]:
            finite *= (1 - mp.mpf(d)) ** n
            p, moved = 1 / (1 + mp.exp(-mp.mpf(e))), {}
            for (x, mass), k in itertools.product(atoms.items(), range(n + 1)):
                y = x + (n - 2 * k) * mp.mpf(e)
                moved[y] = moved.get(y, 0) + mass * mp.binomial(n, k) * p ** (n - k) * (1 - p) ** k
            atoms = moved

        def one(gap):
            if mu == 0:
                return max(mp.mpf(0), 1 - mp.exp(gap))
            return mp.ncdf(mu / 2 - gap / mu) - mp.exp(gap) * mp.ncdf(-mu / 2 - gap / mu)

        return 1 - finite + finite * sum(mass * one(mp.mpf(epsilon) - x) for x, mass in atoms.items())


EMPTY = dict(mu=0.0, pure=(), approximate=())
MIXTURES = [
    *(dict(mu=0.5, pure=[(0.3, 1)]), dict(pure=[(0.1, 7), (0.033, 9)]), dict(mu=1e-3, pure=[(1.0, 2)])),
    *(dict(mu=(0.1, 0.2, 0.2), pure=[(0.1, 10), (0.25, 3)]), dict(mu=5.0, pure=[(1e-3, 3)])),
    *(dict(pure=[(5.0, 1)], approximate=[(1.0, 1e-12, 3)]), dict(approximate=[(0.01, 1e-13, 200)])),
    *(dict(mu=20.0, pure=[(3.0, 2)], approximate=[(0.1, 1e-12, 1)]), dict(pure=[(30.0, 2), (0.01, 5)])),
]


@pytest.mark.parametrize("mixture", MIXTURES, ids=str)
def test_close_to_enumeration_and_never_below(mixture):
    """The exact delta at the epsilon found is delta or less, and at an epsilon less by a part in 10^6 it is more."""
    full, law = EMPTY | mixture, together(**mixture)
    for delta in (0.3, 1e-2, 1e-5, 1e-10):
        epsilon = law.epsilon(delta)
        exact = enumerated(epsilon, **full)
        assert exact <= delta
        if epsilon > 0:
            assert enumerated(epsilon * (1 - 1e-6), **full) > delta
            assert exact * (1 - 1e-12) <= law.delta(epsilon) <= exact * (1 + 1e-5)


def test_order_and_grouping_do_not_matter():
    events = [Gaussian(0.2), PureDP(0.3), ApproximateDP(0.1, 1e-8), PureDP(0.05), Gaussian(0.4), PureDP(0.3)]
    expected = compose(events, 1e-5).epsilon
    for order in itertools.islice(itertools.permutations(events), 0, 720, 97):
        assert compose(order, 1e-5).epsilon == pytest.approx(expected, rel=1e-7)
    twice = PLD.from_pure(0.3).compose(PLD.from_gaussian(0.2)).times(2)
    for n, law in ((2, twice), (6, twice.times(3))):
        apart = together(0.2 * math.sqrt(n), [(0.3, 1)] * n)
        assert law.epsilon(1e-5) == pytest.approx(apart.epsilon(1e-5), rel=1e-7)


def test_limits():
    """delta(epsilon) is 0 from the sum of pure epsilons on, and never below the deltas of the events."""
    assert together(pure=[(0.5, 3)]).delta(1.5) == 0
    assert together(pure=[(0.5, 3)]).delta(1.5 - 1e-6) > 0
    assert together(approximate=[(0.5, 0.01, 3)]).delta(99.0) == pytest.approx(1 - 0.99**3)
    assert together(approximate=[(0.5, 0.01, 3)]).epsilon(0.02) == math.inf
    assert PLD.from_approximate(0.5, 1.0).delta(3.0) == 1
    assert PLD().epsilon(1e-9) == pytest.approx(0, abs=1e-10)


def test_tiny_deltas_and_many_visits_keep_their_precision():
    """Without tilting the transform would lose anything below 1e-16. 10,000 times 0.01 by the binomial law."""
    for delta in (1e-30, 1e-100, 1e-300):
        found = compose([Gaussian(0.5), PureDP(0.3)], delta).epsilon
        exact = gaussian_epsilon(0.5, delta, pure=0.3)
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-6)
    n, e = 10_000, 0.01
    p, k = 1 / (1 + math.exp(-e)), np.arange(n + 1)
    gaps = compose([PureDP(e)] * n, 1e-6).epsilon - (n - 2 * k) * e
    assert (binom.pmf(k, n, 1 - p) * -np.expm1(np.minimum(gaps, 0))).sum() == pytest.approx(1e-6, rel=1e-4)
