"""Closed forms against divergences summed from the pmfs themselves."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from divergences import discrete_gaussian, pmf, renyi
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.privacy.accounting.conversions import rdp_epsilon
from fedbandit_jax.privacy.accounting.discrete import (
    discrete_gaussian_sum_zcdp,
    discrete_laplace_rdp,
    skellam_rdp,
    wrapped_discrete_laplace_epsilon,
)
from fedbandit_jax.privacy.accounting.events import PureDP
from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon
from fedbandit_jax.privacy.accounting.lattice import Skellam

ORDERS = (1.001, 1.5, 2, 2.5, 3, 7, 20)
SCALES = st.floats(-3, 9).map(lambda x: 10**x)
SHIFTS = st.floats(0, 9).map(lambda x: int(10**x))


@settings(max_examples=60, deadline=None)
@given(SHIFTS, SCALES, st.floats(-9, 20))
def test_discrete_laplace_in_many_digits(shift, scale, log_order):
    """The three geometric series: x <= 0, 0 < x < D and x >= D; randomised response at a shift of 1."""
    alpha, epsilon = 1 + 10**log_order, shift / scale
    curve, one = discrete_laplace_rdp(shift, scale), discrete_laplace_rdp(1, scale)
    with mp.workdps(120):
        b, a = 1 / mp.mpf(scale), mp.mpf(alpha)
        q = mp.exp((1 - 2 * a) * b)
        ends = (mp.exp((a - 1) * shift * b) + mp.exp(-a * shift * b)) / (1 - mp.exp(-b))
        middle = mp.exp((a - 1) * shift * b) * q * (1 - q ** (shift - 1)) / (1 - q)
        exact = mp.log((ends + middle) * mp.tanh(b / 2)) / (a - 1)
    assert 1 - 1e-15 < curve(alpha) / float(exact) < 1 + 1e-14 * (1 + 1 / max(epsilon, 1e-7))
    assert curve(alpha) <= curve(1 + 2 * 10**log_order) * (1 + 1e-7)
    assert curve(1e20) == pytest.approx(epsilon, rel=1e-9, abs=0) or epsilon <= 1e-9
    assert curve(1e20) <= epsilon * (1 + 1e-12)
    assert curve(alpha) <= PureDP(min(epsilon, 1e6)).rdp(alpha) * (1 + 1e-7) or epsilon > 1e6
    assert one(alpha) == pytest.approx(PureDP(1 / scale).rdp(alpha), rel=1e-6, abs=0)


def folded(scale, modulus):
    """Pmf of discrete Laplace noise modulo m, up to a constant."""
    reach = math.ceil(50 * scale / modulus) + 1
    lattice = np.arange(modulus)[:, None] + modulus * np.arange(-reach, reach + 1)
    return np.exp(-np.abs(lattice) / scale).sum(1)


def test_wrapped_discrete_laplace_by_enumeration():
    """Of all shifts; half the modulus is the worst."""
    sizes = [*itertools.product((0.1, 1.0, 6.0), range(1, 13)), (20.0, 301), (50.0, 1000), (300.0, 1001)]
    for scale, modulus in sizes:
        log_p, worst = (
            np.log(folded(scale, modulus)),
            wrapped_discrete_laplace_epsilon(modulus // 2 or 1, scale, modulus),
        )
        for shift in range(1, 2 * modulus + 1, 1 + modulus // 20):
            epsilon = wrapped_discrete_laplace_epsilon(shift, scale, modulus)
            assert epsilon == pytest.approx(np.abs(log_p - np.roll(log_p, shift)).max(), rel=1e-9, abs=1e-13)
            assert epsilon < shift / scale or modulus > 30 * scale
            assert epsilon <= worst
    assert wrapped_discrete_laplace_epsilon(5, 1e9, 17) == pytest.approx(30e-18, rel=1e-8, abs=0)


@settings(max_examples=60, deadline=None)
@given(SHIFTS, SCALES, st.integers(1, 2**61))
def test_wrapping_only_helps(shift, scale, modulus):
    epsilon = wrapped_discrete_laplace_epsilon(shift, scale, modulus)
    assert 0 <= epsilon <= shift / scale * (1 + 1e-12)
    assert wrapped_discrete_laplace_epsilon(shift, 1e9, 2**61) == pytest.approx(shift / 1e9, rel=1e-12, abs=0)


@pytest.mark.parametrize("variance", [0.05, 1.0, 100.0])
def test_skellam_is_never_optimistic(variance):
    """The lemma at integers, its chords between them."""
    p = pmf(Skellam(variance), 700)
    for shift, alpha in itertools.product((1, 2, 5, 12), ORDERS):
        if alpha * shift < 15 * math.sqrt(variance) or alpha <= 3:
            assert renyi(p, shift, alpha) <= skellam_rdp(shift, variance)(alpha) * (1 + 1e-9)


def test_skellam_is_close_to_its_bound_when_wide():
    p = pmf(Skellam(1e4), 2500)
    for shift, alpha in itertools.product((2, 20, 100), (2, 3, 7)):
        assert 1 < skellam_rdp(shift, 1e4)(alpha) / renyi(p, shift, alpha) < 1.0012
    assert skellam_rdp(20, 1e4)(2.5) < skellam_rdp(20, 1e4)(3)  # better than rounding the order up
    curve = skellam_rdp(3, 40.0)
    values = [curve(1 + 10**x) for x in np.linspace(-9, 20, 300)]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(values))
    assert curve(1 + 1e-9) == curve(2)
    assert curve(1e20) == pytest.approx(1e20 * 9 / 80, rel=1e-9)
    assert rdp_epsilon(curve, 1e-5) > gaussian_epsilon(3 / math.sqrt(40), 1e-5)


@pytest.mark.parametrize("n", [1, 64])
def test_skellam_as_printed_for_bandits(n):
    """Theorem 2 at g = s epsilon sqrt(n): its second branch is too small, 3 D / 2v being 3 epsilon / (2 s sqrt(n))."""
    epsilon, s = 0.1, 10
    g = s * epsilon * math.sqrt(n)

    def printed(alpha):
        first = (2 * alpha - 1) * epsilon**2 / (4 * s**2 * n) + 3 * epsilon / (2 * s**3 * n**1.5)
        return alpha * epsilon**2 / 2 + min(first, 3 * epsilon**2 / (2 * s * math.sqrt(n)))

    curve = skellam_rdp(round(g), g**2 / epsilon**2)
    assert curve(2) == pytest.approx(printed(2))
    assert curve(1e4) > printed(1e4) + 0.8 * (1 - epsilon) * 3 * epsilon / (2 * s * math.sqrt(n))


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
def test_sums_of_discrete_gaussians(sigma):
    """A control: without xi, three of sigma = 1/2 are not 2/3-zCDP."""
    for n, shift in itertools.product((1, 2, 3, 8), (1, 2, 3)):
        p, privacy = (
            discrete_gaussian(sigma * math.sqrt(n), n, reach=18 * n),
            discrete_gaussian_sum_zcdp(shift, sigma, n),
        )
        assert (privacy.xi == 0) == (n == 1)
        for alpha in (1.01, 1.5, 2, 3):
            assert renyi(p, shift, alpha) <= alpha * privacy.rho * (1 + 1e-9)
    three = discrete_gaussian(0.5 * math.sqrt(3), 3, reach=36)
    assert renyi(three, 1, 1.01) > 1.1 * 1.01 * (2 / 3)
