"""Composition against privacy losses that are enumerated in 40 digits."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom

from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.accounting.events import ApproximateDP, Gaussian, PureDP, Renyi, compose


def together(mu=(), pure=(), approximate=()):
    """Events of these mu, of pairs (epsilon, count) and of triples (epsilon, delta, count)."""
    counted = [(PureDP(e), n) for e, n in pure] + [(ApproximateDP(e, d), n) for e, d, n in approximate]
    return [*map(Gaussian, mu), *(event for event, n in counted for _ in range(n))]


def enumerated(epsilon, mu=(), pure=(), approximate=()):
    """delta(epsilon) with 40 digits: all outcomes of the worst discrete mechanisms, with the formula of a Gaussian."""
    mu = math.hypot(*mu)
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


MIXTURES = [
    *(dict(mu=[0.5], pure=[(0.3, 1)]), dict(pure=[(0.1, 7), (0.033, 9)]), dict(mu=[1e-3], pure=[(1.0, 2)])),
    *(dict(mu=[0.1, 0.2, 0.2], pure=[(0.1, 10), (0.25, 3)]), dict(mu=[5.0], pure=[(1e-3, 3)])),
    *(dict(pure=[(5.0, 1)], approximate=[(1.0, 1e-12, 3)]), dict(approximate=[(0.01, 1e-13, 200)])),
    *(dict(mu=[20.0], pure=[(3.0, 2)], approximate=[(0.1, 1e-12, 1)]), dict(pure=[(30.0, 2), (0.01, 5)])),
]
LEVELS = 0.3, 1e-2, 1e-5, 1e-10


@pytest.mark.parametrize("mixture", MIXTURES, ids=str)
def test_epsilon_is_never_below(mixture):
    """The exact delta at the epsilon found is delta or less; at 0.7 or 0.9 of it more, and of a pair at any less."""
    for delta in LEVELS:
        epsilon = compose(together(**mixture), delta)
        if "approximate" not in mixture:
            assert epsilon <= compose([Renyi(event.rdp) for event in together(**mixture)], delta) * (1 + 1e-9)
        assert enumerated(epsilon, **mixture) <= delta
        share = 1 - 1e-8 if mixture == MIXTURES[0] else 0.9 if delta <= 1e-5 else 0.7
        if epsilon > 0 and delta < 0.3:
            assert enumerated(epsilon * share, **mixture) > delta


@pytest.mark.parametrize(("epsilon", "n"), [(0.1, 7), (0.01, 200), (1.0, 3), (30.0, 2)])
def test_epsilon_of_one_mechanism_several_times_is_exact(epsilon, n):
    for delta in LEVELS:
        found = PureDP(epsilon).at(delta, n)
        assert enumerated(found, pure=[(epsilon, n)]) <= delta
        if found > 0:
            assert enumerated(found * (1 - 1e-8), pure=[(epsilon, n)]) > delta
        assert found <= min(n * epsilon, compose([PureDP(epsilon)] * n, delta) * (1 + 1e-9))


def test_order_and_grouping_do_not_matter():
    events = [Gaussian(0.2), PureDP(0.3), ApproximateDP(0.1, 1e-8), PureDP(0.05), Gaussian(0.4, 0.3)]
    expected = compose(events, 1e-5)
    for order in itertools.islice(itertools.permutations(events), 0, 120, 17):
        assert compose(order, 1e-5) == pytest.approx(expected, rel=1e-9)
    apart = [*events[:-1], Gaussian(0.4), PureDP(0.3)]
    assert compose(apart, 1e-5) == pytest.approx(expected, rel=1e-9)


def test_tiny_deltas_and_many_visits_keep_their_precision():
    """A Gaussian and one pure mechanism have a closed form. 10,000 times 0.01 by the binomial law."""
    for delta in (1e-30, 1e-100, 1e-300):
        found = compose([Gaussian(0.5), PureDP(0.3)], delta)
        assert found == pytest.approx(gaussian_epsilon(0.5, delta, pure=0.3), rel=1e-9)
    n, e = 10_000, 0.01
    p, k = 1 / (1 + math.exp(-e)), np.arange(n + 1)
    gaps = PureDP(e).at(1e-6, n) - (n - 2 * k) * e
    assert (binom.pmf(k, n, 1 - p) * -np.expm1(np.minimum(gaps, 0))).sum() == pytest.approx(1e-6, rel=1e-7)
