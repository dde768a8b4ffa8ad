"""Closed forms against divergences summed from the pmfs themselves."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ive, logsumexp

from fedbandit_jax.privacy.accounting.conversions import advanced_composition, rdp_epsilon, zcdp_epsilon
from fedbandit_jax.privacy.accounting.discrete import (
    discrete_gaussian_sum_zcdp,
    discrete_laplace_rdp,
    skellam_rdp,
    wrapped_discrete_laplace_epsilon,
)
from fedbandit_jax.privacy.accounting.events import (
    ApproximateDP,
    Gaussian,
    PureDP,
    Renyi,
    compose,
    returning,
)
from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon

ORDERS = (1.001, 1.5, 2, 2.5, 3, 7, 20)
SCALES = st.floats(-3, 9).map(lambda x: 10**x)
SHIFTS = st.floats(0, 9).map(lambda x: int(10**x))


def renyi(pmf, shift, alpha):
    """Divergence of order alpha of a pmf and its translate; what is cut off at the ends is below 1e-12 of the rest."""
    pmf = pmf[pmf > 1e-300]
    log_p, log_q = np.log(pmf[shift:]), np.log(pmf[: len(pmf) - shift])
    terms = alpha * log_p + (1 - alpha) * log_q
    assert max(terms[0], terms[-1]) < terms.max() - 35
    return logsumexp(terms) / (alpha - 1)


@pytest.mark.parametrize("scale", [0.5, 2.0, 7.5])
@pytest.mark.parametrize("shift", [1, 2, 5, 13])
def test_discrete_laplace_against_its_sum(scale, shift):
    x = np.arange(-400, 401)
    pmf = np.exp(-np.abs(x) / scale) * math.tanh(1 / (2 * scale))
    for alpha in ORDERS:
        assert discrete_laplace_rdp(shift, scale)(alpha) == pytest.approx(renyi(pmf, shift, alpha), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(SHIFTS, SCALES, st.floats(-9, 20))
def test_discrete_laplace_in_many_digits(shift, scale, log_order):
    """The three geometric series: x <= 0, 0 < x < D and x >= D."""
    mp = pytest.importorskip("mpmath")
    alpha = 1 + 10**log_order
    with mp.workdps(120):
        b, a = 1 / mp.mpf(scale), mp.mpf(alpha)
        q = mp.exp((1 - 2 * a) * b)
        middle = q * (1 - q ** (shift - 1)) / (1 - q)
        series = mp.exp((a - 1) * shift * b) * (1 / (1 - mp.exp(-b)) + middle) + mp.exp(-a * shift * b) / (
            1 - mp.exp(-b)
        )
        exact = mp.log(series * mp.tanh(b / 2)) / (a - 1)
    assert discrete_laplace_rdp(shift, scale)(alpha) == pytest.approx(float(exact), rel=1e-11)


@settings(max_examples=100, deadline=None)
@given(SHIFTS, SCALES, st.floats(-9, 20))
def test_discrete_laplace_limits(shift, scale, log_order):
    """Randomised response at a shift of 1, which no other shift of this epsilon reaches; epsilon in the end."""
    curve, alpha, epsilon = discrete_laplace_rdp(shift, scale), 1 + 10**log_order, shift / scale
    assert 0 < curve(alpha) <= PureDP(min(epsilon, 1e6)).rdp(alpha) * (1 + 1e-9) or epsilon > 1e6
    assert curve(alpha) <= curve(1 + 2 * 10**log_order) * (1 + 1e-12)
    assert curve(1e20) <= epsilon * (1 + 1e-12)
    if epsilon > 1e-9:
        assert curve(1e20) == pytest.approx(epsilon, rel=1e-9)
    one = discrete_laplace_rdp(1, scale)
    assert one(alpha) == pytest.approx(PureDP(1 / scale).rdp(alpha), rel=1e-6)
    assert one(alpha) <= min(1 / scale, alpha / (2 * scale**2)) * (1 + 1e-12)


def test_discrete_laplace_at_small_orders():
    """alpha h^2 / 2, though h^2 / 2 is lost beside 1."""
    assert discrete_laplace_rdp(1, 1e9)(2.0) == pytest.approx(1e-18, rel=1e-8)
    assert discrete_laplace_rdp(5, 1e9)(1 + 1e-9) == pytest.approx(12.5e-18, rel=1e-8)


def folded(scale, modulus):
    """Pmf of discrete Laplace noise modulo m, up to a constant."""
    reach = math.ceil(50 * scale / modulus) + 1
    lattice = np.arange(modulus)[:, None] + modulus * np.arange(-reach, reach + 1)
    return np.exp(-np.abs(lattice) / scale).sum(1)


@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0])
def test_wrapped_discrete_laplace_by_enumeration(scale):
    for modulus in range(1, 13):
        log_p = np.log(folded(scale, modulus))
        for shift in range(1, 2 * modulus + 1):
            exact = np.abs(log_p - np.roll(log_p, shift)).max()
            epsilon = wrapped_discrete_laplace_epsilon(shift, scale, modulus)
            assert epsilon == pytest.approx(exact, rel=1e-9, abs=1e-13)
            assert epsilon < shift / scale or modulus > 30 * scale
            assert epsilon <= wrapped_discrete_laplace_epsilon(max(modulus // 2, 1), scale, modulus)


@pytest.mark.parametrize(("shift", "scale", "modulus"), [(10, 20.0, 301), (97, 50.0, 1000), (400, 300.0, 1001)])
def test_wrapped_discrete_laplace_at_moderate_sizes(shift, scale, modulus):
    log_p = np.log(folded(scale, modulus))
    exact = np.abs(log_p - np.roll(log_p, shift)).max()
    assert wrapped_discrete_laplace_epsilon(shift, scale, modulus) == pytest.approx(exact, rel=1e-10)


@settings(max_examples=100, deadline=None)
@given(SHIFTS, SCALES, st.integers(1, 2**61))
def test_wrapping_only_helps(shift, scale, modulus):
    epsilon = wrapped_discrete_laplace_epsilon(shift, scale, modulus)
    assert 0 <= epsilon <= shift / scale * (1 + 1e-12)


def test_wrapped_discrete_laplace_limits():
    assert wrapped_discrete_laplace_epsilon(10**8, 1e9, 2**61) == pytest.approx(0.1, rel=1e-12)
    assert wrapped_discrete_laplace_epsilon(5, 1e9, 17) == pytest.approx(5 * 12 / 2 * 1e-18, rel=1e-8)
    assert wrapped_discrete_laplace_epsilon(17, 3.0, 17) == 0


@pytest.mark.parametrize("variance", [0.05, 0.3, 1.0, 5.0, 25.0, 100.0])
@pytest.mark.parametrize("shift", [1, 2, 5, 12])
def test_skellam_is_never_optimistic(variance, shift):
    """The lemma at integers, its chords between them."""
    curve = skellam_rdp(shift, variance)
    pmf = ive(np.abs(np.arange(-700, 701)), variance)
    for alpha in (a for a in ORDERS if a * shift < 15 * math.sqrt(variance) or a <= 3):
        assert renyi(pmf, shift, alpha) <= curve(alpha) * (1 + 1e-9)


def test_skellam_is_close_to_its_bound_when_wide():
    pmf = ive(np.abs(np.arange(-2500, 2501)), 1e4)
    for shift in (2, 20, 100):
        for alpha in (2, 3, 7):
            assert 1 < skellam_rdp(shift, 1e4)(alpha) / renyi(pmf, shift, alpha) < 1.0012
    assert skellam_rdp(20, 1e4)(2.5) < skellam_rdp(20, 1e4)(3)  # better than rounding the order up


def test_skellam_is_a_curve():
    curve = skellam_rdp(3, 40.0)
    values = [curve(1 + 10**x) for x in np.linspace(-9, 20, 300)]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(values))
    assert curve(1 + 1e-9) == curve(2)
    assert curve(1e20) == pytest.approx(1e20 * 9 / 80, rel=1e-9)
    assert rdp_epsilon(curve, 1e-5) > gaussian_epsilon(3 / math.sqrt(40), 1e-5)


@pytest.mark.parametrize("n", [1, 16, 64])
def test_skellam_as_printed_for_bandits(n):
    """Theorem 2 at g = s epsilon sqrt(n): the first branch is the lemma's with n left out, the second is not above it.

    3 D / 2v = 3 epsilon^2 / 2g = 3 epsilon / (2 s sqrt(n)), not 3 epsilon^2 / (2 s sqrt(n)).
    """
    epsilon, s = 0.1, 10
    g = round(s * epsilon * math.sqrt(n))
    v = g**2 / epsilon**2
    assert 6 * g / (4 * v**2) == pytest.approx(3 * epsilon**4 / (2 * g**3))
    assert 6 * g / (4 * v**2) == pytest.approx(3 * epsilon / (2 * s**3 * n**1.5))
    assert 3 * g / (2 * v) == pytest.approx(3 * epsilon / (2 * s * math.sqrt(n)))

    def printed(alpha):
        first = (2 * alpha - 1) * epsilon**2 / (4 * s**2 * n) + 3 * epsilon / (2 * s**3 * n**1.5)
        return alpha * epsilon**2 / 2 + min(first, 3 * epsilon**2 / (2 * s * math.sqrt(n)))

    curve = skellam_rdp(g, v)
    assert curve(2) == pytest.approx(printed(2))
    assert curve(1e4) > printed(1e4) + 0.8 * (1 - epsilon) * 3 * epsilon / (2 * s * math.sqrt(n))


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_sums_of_discrete_gaussians(sigma, n):
    x = np.arange(-18, 19)
    one = np.exp(-(x**2) / (2 * sigma**2))
    one = one / one.sum()
    pmf = one
    for _ in range(n - 1):
        pmf = np.convolve(pmf, one)
    for shift in (1, 2, 3):
        privacy = discrete_gaussian_sum_zcdp(shift, sigma, n)
        assert privacy.rho == privacy.epsilon**2 / 2
        assert (privacy.xi == 0) == (n == 1)
        for alpha in (1.01, 1.5, 2, 3):
            assert renyi(pmf, shift, alpha) <= alpha * privacy.rho * (1 + 1e-9)


def test_a_discrete_gaussian_alone_is_optimistic():
    """A control: without xi, three of sigma = 1/2 are not 2/3-zCDP."""
    one = np.exp(-2.0 * np.arange(-12, 13) ** 2)
    pmf = np.convolve(np.convolve(one, one), one)
    assert renyi(pmf / pmf.sum(), 1, 1.01) > 1.1 * 1.01 * (2 / 3)


def test_discrete_gaussian_sum_in_figures():
    privacy = discrete_gaussian_sum_zcdp(100, sigma=10.0, n=10**6)
    assert privacy == pytest.approx((0.5e-4, 0.0, 1e-2))
    privacy = discrete_gaussian_sum_zcdp(10, sigma=0.5, n=10**6)  # which branch is the smaller
    assert privacy.epsilon == math.sqrt(4e-4 + privacy.xi / 2) < 0.02 + privacy.xi


EVENTS = {
    "Skellam": Renyi(skellam_rdp(100, 1e6)),
    "few Skellam": Renyi(skellam_rdp(3, 100.0)),
    "discrete Gaussian": Renyi(lambda alpha: discrete_gaussian_sum_zcdp(10, 1.0, 400).rho * alpha),
    "discrete Laplace": Renyi(discrete_laplace_rdp(10, 100.0)),
    "pure": PureDP(0.1),
    "Gaussian": Gaussian(0.2),
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("delta", [0.1, 1e-6])
def test_returning_users(name, delta):
    event = EVENTS[name]
    once, twice = returning(event, delta, 1), compose([event, event], delta).epsilon
    assert once == pytest.approx((compose([event], delta).epsilon,) * 2, rel=1e-9, abs=1e-12)
    assert returning(event, delta, 2)[0] == pytest.approx(twice, rel=1e-9, abs=1e-12)
    for visits in (10, 100):
        renyi_epsilon, advanced = returning(event, delta, visits)
        assert once[0] <= renyi_epsilon <= advanced
        each = compose([event], delta / (2 * visits)).epsilon
        assert advanced <= advanced_composition([each] * visits, [delta / (2 * visits)] * visits, delta / 2)[0]


def test_returning_users_of_a_pure_mechanism():
    assert returning(PureDP(0.1), 0.0, 30) == (pytest.approx(3.0), pytest.approx(3.0))
    assert returning(PureDP(0.1), 1e-5, 100)[1] == pytest.approx(
        advanced_composition([0.1] * 100, [0.0] * 100, 1e-5)[0], rel=1e-9
    )
    assert returning(Renyi(lambda alpha: 0.005 * alpha), 1e-5, 100)[0] == pytest.approx(
        zcdp_epsilon(0.5, 1e-5), rel=1e-9
    )


BAD = [math.nan, math.inf, -math.inf, -1.0, 1e300]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("shift", lambda v: discrete_laplace_rdp(v, 1.0)),
        ("scale", lambda v: discrete_laplace_rdp(1, v)),
        ("shift", lambda v: wrapped_discrete_laplace_epsilon(v, 1.0, 8)),
        ("scale", lambda v: wrapped_discrete_laplace_epsilon(1, v, 8)),
        ("modulus", lambda v: wrapped_discrete_laplace_epsilon(1, 1.0, v)),
        ("shift", lambda v: skellam_rdp(v, 1.0)),
        ("variance", lambda v: skellam_rdp(1, v)),
        ("shift", lambda v: discrete_gaussian_sum_zcdp(v, 1.0, 8)),
        ("sigma", lambda v: discrete_gaussian_sum_zcdp(1, v, 8)),
        ("n", lambda v: discrete_gaussian_sum_zcdp(1, 1.0, v)),
        ("delta", lambda v: returning(PureDP(0.1), v, 3)),
        ("visits", lambda v: returning(PureDP(0.1), 0.1, v)),
    ],
)
def test_bad_numbers_end_in_a_sentence(name, function, value):
    with pytest.raises((ValueError, TypeError), match=f"^{name} must .* got "):
        function(value)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: discrete_gaussian_sum_zcdp(1, 0.49, 2), r"sigma must be in \[0.5, 1e\+100\], got 0.49"),
        (lambda: discrete_laplace_rdp(0, 1.0), "shift must be >= 1, got 0"),
        (lambda: discrete_laplace_rdp(2**62, 1.0), "shift must be in"),
        (lambda: wrapped_discrete_laplace_epsilon(1, 1.0, 0), "modulus must be >= 1, got 0"),
        (lambda: returning(PureDP(0.1), 0.1, 0), "visits must be >= 1, got 0"),
        (lambda: returning(Gaussian(0.1), 0.0, 2), r"delta must be in \(0, 1\), got 0"),
        (lambda: returning(ApproximateDP(0.1, 0.0), 0.1, 2), "event must have a Renyi curve, got ApproximateDP"),
        (lambda: returning(None, 0.1, 2), "event must have a Renyi curve, got None"),  # pyright: ignore
    ],
)
def test_bad_arguments(function, words):
    with pytest.raises((ValueError, TypeError), match=words):
        function()
