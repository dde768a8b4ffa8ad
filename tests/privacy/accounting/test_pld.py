"""Privacy loss distributions against exact formulas, enumeration, quadrature and dp-accounting: close, never below."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from divergences import hockey_stick
from dp_accounting import pld as oracle
from scipy.stats import binom

from fedbandit_jax.privacy.accounting import gaussian_epsilon, pld
from fedbandit_jax.privacy.accounting.events import ApproximateDP, Gaussian, PureDP, compose
from fedbandit_jax.privacy.accounting.lattice import DiscreteGaussian, DiscreteLaplace, Skellam, shift_epsilon
from fedbandit_jax.privacy.accounting.pld import PLD


def together(mu=0.0, pure=(), approximate=()):
    """A PLD from pairs (epsilon, count) and triples (epsilon, delta, count)."""
    total = PLD.from_gaussian(mu)
    for epsilon, n in pure:
        total = total.compose(PLD.from_pure(epsilon).times(n))
    for epsilon, delta, n in approximate:
        total = total.compose(PLD.from_approximate(epsilon, delta).times(n))
    return total


def enumerated(epsilon, mu, pure, approximate):
    """delta(epsilon) with 40 digits: all outcomes of the worst discrete mechanisms, with the formula of a Gaussian."""
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
    *(dict(mu=0.5, pure=[(0.3, 1)]), dict(pure=[(0.1, 50)]), dict(pure=[(0.1, 7), (0.033, 9)])),
    *(dict(mu=0.3, pure=[(0.1, 10), (0.25, 3)]), dict(mu=1.0, pure=[(2.0, 1)], approximate=[(0.5, 1e-12, 2)])),
    *(dict(pure=[(5.0, 1)], approximate=[(1.0, 1e-12, 3)]), dict(mu=1e-3, pure=[(1.0, 2)])),
    *(dict(mu=5.0, pure=[(1e-3, 3)]), dict(mu=0.05, pure=[(1e-3, 5), (0.7, 1)])),
    *(dict(mu=20.0, pure=[(3.0, 2)], approximate=[(0.1, 1e-12, 1)]), dict(pure=[(30.0, 2), (0.01, 5)])),
    dict(approximate=[(0.01, 1e-13, 200)]),
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


@pytest.mark.parametrize(("epsilon", "k"), [(0.1, 50), (0.01, 300), (1.0, 12), (3.0, 5)])
def test_pure_mechanisms_by_the_optimal_theorem(epsilon, k):
    """Kairouz, Oh & Viswanath (2015), Theorem 3.3: k of them are ((k - 2 i) epsilon, delta_i)-DP and no better."""
    for i in range(1, k // 2, max(1, k // 8)):
        terms = [mp.binomial(k, j) * (mp.exp((k - j) * epsilon) - mp.exp((k - 2 * i + j) * epsilon)) for j in range(i)]
        delta = float(mp.fsum(terms) / (1 + mp.exp(epsilon)) ** k)
        found = compose([PureDP(epsilon)] * k, delta)
        assert found.accountant == "privacy loss distribution"
        assert (k - 2 * i) * epsilon * (1 - 1e-12) <= found.epsilon <= (k - 2 * i) * epsilon * (1 + 1e-5)


RNG = np.random.default_rng(7)
RANDOM = [
    (
        *(Gaussian(float(mu)) for mu in 10 ** RNG.uniform(-1.5, 0.5, RNG.integers(0, 3))),
        *(PureDP(float(e)) for e in 10 ** RNG.uniform(-2, 0.3, RNG.integers(0, 8))),
        *(ApproximateDP(float(e), 1e-9) for e in 10 ** RNG.uniform(-1, 0.3, RNG.integers(1, 4))),
    )
    for _ in range(8)
]


@pytest.mark.parametrize("events", RANDOM, ids=len)
def test_mixtures_against_dp_accounting(events):
    """Within 1 % of its upper bounds; and not below by more than its grid of step 1e-3 may put on top."""
    step, laws = 1e-3, oracle.privacy_loss_distribution
    total = laws.identity(value_discretization_interval=step)
    for event in events:
        if isinstance(event, Gaussian):
            one = laws.from_gaussian_mechanism(1 / event.mu, value_discretization_interval=step)
        else:
            known = oracle.common.DifferentialPrivacyParameters(event.epsilon, getattr(event, "delta", 0.0))
            one = laws.from_privacy_parameters(known, value_discretization_interval=step)
        total = total.compose(one)
    for delta in (1e-2, 1e-6):
        theirs = total.get_epsilon_for_delta(delta)
        assert theirs - step * len(events) <= compose(events, delta).epsilon <= 1.01 * theirs


def test_order_and_grouping_do_not_matter():
    events = [Gaussian(0.2), PureDP(0.3), ApproximateDP(0.1, 1e-8), PureDP(0.05), Gaussian(0.4), PureDP(0.3)]
    expected = compose(events, 1e-5).epsilon
    for order in itertools.islice(itertools.permutations(events), 0, 720, 97):
        assert compose(order, 1e-5).epsilon == pytest.approx(expected, rel=1e-7)
    twice = PLD.from_pure(0.3).compose(PLD.from_gaussian(0.2)).times(2)
    apart = together(0.2 * math.sqrt(2), [(0.3, 1), (0.3, 1)])
    assert twice.epsilon(1e-5) == pytest.approx(apart.epsilon(1e-5), rel=1e-7)
    sixfold = together(0.2 * math.sqrt(6), [(0.3, 6)])
    assert twice.times(3).epsilon(1e-5) == pytest.approx(sixfold.epsilon(1e-5), rel=1e-7)


@pytest.mark.parametrize("mixture", [MIXTURES[i] for i in (0, 3, 4, 10)], ids=str)
def test_monotone_and_inverse(mixture):
    law = together(**mixture)
    found = [law.epsilon(delta) for delta in np.geomspace(1e-9, 0.9, 9)]
    assert all(a >= b for a, b in itertools.pairwise(found))
    deltas = [law.delta(epsilon) for epsilon in np.linspace(0, 1.2 * found[0], 9)]
    assert all(a >= b for a, b in itertools.pairwise(deltas))
    assert law.delta(found[3]) <= np.geomspace(1e-9, 0.9, 9)[3] * (1 + 1e-6)
    assert law.epsilon(law.delta(found[3])) == pytest.approx(found[3], rel=1e-6)
    assert law.compose(PLD.from_pure(0.1)).epsilon(1e-6) > law.epsilon(1e-6)


def test_limits():
    """delta(epsilon) is 0 from the sum of pure epsilons on, and never below the deltas of the events."""
    assert together(pure=[(0.5, 3)]).delta(1.5) == 0
    assert together(pure=[(0.5, 3)]).delta(1.5 - 1e-6) > 0
    assert together(approximate=[(0.5, 0.01, 3)]).delta(99.0) == pytest.approx(1 - 0.99**3)
    assert together(approximate=[(0.5, 0.01, 3)]).epsilon(0.02) == math.inf
    assert PLD.from_approximate(0.5, 1.0).delta(3.0) == 1
    assert PLD().epsilon(1e-9) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize(("name", "value"), [("_POINTS", 2**6), ("_POINTS", 2**9), ("_TAIL", 1.0), ("_LEFT", 1.0)])
@pytest.mark.slow
def test_a_coarse_grid_is_never_optimistic(name, value, monkeypatch):
    """With few points or a short window it shows that whatever is cut or rounded is so to the other side."""
    monkeypatch.setattr(pld, name, value)
    excess = []
    for mixture, delta in itertools.product(MIXTURES[:10], (1e-2, 1e-6)):
        epsilon = together(**mixture).epsilon(delta)
        exact = enumerated(epsilon, **(EMPTY | mixture))
        assert exact <= delta
        excess.append(float(delta / exact) if exact > 0 else 1.0)
    assert max(excess) > 1.001


def test_tiny_deltas_keep_their_precision():
    """Without tilting the transform would lose anything below 1e-16."""
    for delta in (1e-30, 1e-100, 1e-300):
        found = compose([Gaussian(0.5), PureDP(0.3)], delta).epsilon
        exact = gaussian_epsilon(0.5, delta, pure=0.3)
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-6)


LATTICE = [(DiscreteGaussian(6.0), 4, 100), (DiscreteLaplace(5.0), 3, 400), (Skellam(30.0), 2, 90)]


def of_pair(log_p, log_q, rest=0.0):
    """PLD of laws with these ln of probabilities; `rest` is the probability under P of outcomes that are left out."""
    seen = np.isfinite(log_p) & np.isfinite(log_q)
    infinite = min(rest + float(np.exp(log_p[~np.isfinite(log_q)]).sum()), 1.0)
    p, q = log_p[seen], log_q[seen]
    return PLD(parts=(pld._Atoms(p - q, p - np.log(np.exp(p).sum()), 1),), log_finite=math.log1p(-infinite))


def shifted(law, shift, reach):
    """The pair (law, law moved by `shift`) on 2 reach + 1 integers."""
    x = np.arange(-reach, reach + 1)
    return of_pair(law.log_pmf(x), law.log_pmf(x + shift), rest=2 * float(law.tail(reach)))


@pytest.mark.parametrize(("law", "shift", "reach"), LATTICE, ids=repr)
def test_integer_noise(law, shift, reach):
    """One law of integer noise is exact; two are as good as the law of their sum of losses, enumerated."""
    one, other = shifted(law, shift, reach), together(0.3, [(0.2, 1)])
    x = np.arange(-reach, reach + 1)
    pairs = [np.outer(p, p) for p in (np.exp(law.log_pmf(x)), np.exp(law.log_pmf(x + shift)))]
    for delta in (0.05, 1e-6):
        assert one.epsilon(delta) == pytest.approx(shift_epsilon(law, shift, delta), rel=1e-7, abs=1e-9)
        epsilon = one.times(2).epsilon(delta)
        assert hockey_stick(*pairs, epsilon) <= delta * (1 + 1e-9)
        assert hockey_stick(*pairs, epsilon * (1 - 1e-5)) > delta
        assert epsilon < one.times(2).compose(other).epsilon(delta) < epsilon + other.epsilon(delta) + 1


def test_outcomes_that_only_one_data_set_has():
    """P(x) > 0 = Q(x) is an infinite loss; (0.1, 0.9) against (0, 1) is (0, 0.1)-DP."""
    with np.errstate(divide="ignore"):
        law = of_pair(np.log([0.1, 0.9]), np.log([0.0, 1.0]))
    assert law.epsilon(0.1) == 0
    assert law.epsilon(0.0999) == math.inf
    assert law.delta(0.0) == pytest.approx(0.1)
    assert law.times(2).delta(5.0) == pytest.approx(1 - 0.9**2)


def test_ten_thousand_visits_stay_exact():
    """10,000 times epsilon = 0.01: delta(epsilon) as an exact sum over the binomial law."""
    n, e = 10_000, 0.01
    found = compose([PureDP(e)] * n, 1e-6).epsilon
    p, k = 1 / (1 + math.exp(-e)), np.arange(n + 1)
    gaps = found - (n - 2 * k) * e
    assert (binom.pmf(k, n, 1 - p) * -np.expm1(np.minimum(gaps, 0))).sum() == pytest.approx(1e-6, rel=1e-4)
