"""Tails, probabilities and epsilon of integer noise against sums of positive terms and quadrature in 30 digits."""

import functools
import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from divergences import never_optimistic, pmf
from helpers import deep
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedbandit_jax.privacy import gaussian_epsilon
from fedbandit_jax.privacy.accounting.lattice import DiscreteGaussian, DiscreteLaplace, Skellam, shift_epsilon

SMALL = [
    *[Skellam(v) for v in (1e-3, 0.3, 7.0, 400.0)],
    *[DiscreteGaussian(s) for s in (0.5, 0.8, 4.0, 30.0)],
    *[DiscreteLaplace(s, n) for s in (0.05, 0.5, 8.0) for n in (1, 5, 64, 65, 200)],
]
LARGE = [
    *(Skellam(1e12), DiscreteGaussian(1e8), DiscreteLaplace(1e6, 70), DiscreteLaplace(30.0, 2**31)),
    *(Skellam(1e16), DiscreteLaplace(1e3, 10**6), DiscreteLaplace(1e9, 3)),
]


def far(law):
    """Where tails are below 1e-15."""
    return math.ceil(12 * math.sqrt(law.variance) + 10 + (25 * law.scale if isinstance(law, DiscreteLaplace) else 0))


def deviations(law):
    return np.array([0, 1, *(math.floor(z * math.sqrt(law.variance)) for z in (0.7, 3, 8)), far(law)])


@pytest.mark.parametrize("law", SMALL, ids=repr)
def test_against_sums(law):
    reach, k = 2 * far(law), deviations(law)
    p = pmf(law, reach)
    mass = np.cumsum(p[::-1])[::-1]
    np.testing.assert_allclose(law.variance, p @ np.arange(-reach, reach + 1.0) ** 2, rtol=1e-11)
    np.testing.assert_allclose(np.exp(law.log_pmf(k)), p[reach + k], rtol=1e-11)
    np.testing.assert_allclose(law.tail(k), mass[reach + k + 1], rtol=1e-11)
    assert 1e-300 < law.tail(k).min() < 1e-15


def quadrature(law, k, tail):
    """ln of the inversion integral in 30 digits, on another contour and by another rule."""
    saddle, curvature = (float(x) for x in law._saddle(np.float64(k)))
    limit = 1 / law.scale if isinstance(law, DiscreteLaplace) else math.inf
    with mp.workdps(30):
        shift = min(saddle + 0.5 / math.sqrt(curvature), (saddle + limit) / 2)

        def cumulant(s):
            if isinstance(law, Skellam):
                return law.variance * (mp.cosh(s) - 1)
            if isinstance(law, DiscreteGaussian):
                return (law.sigma * s) ** 2 / 2
            b = mp.exp(-1 / mp.mpf(law.scale))
            return law.n * (2 * mp.log(1 - b) - mp.log(1 - b * mp.exp(s)) - mp.log(1 - b * mp.exp(-s)))

        def integrand(t):
            s = mp.mpc(shift, t)
            return (mp.exp(cumulant(s) - cumulant(shift) - 1j * k * t) / ((1 - mp.exp(-s)) if tail else 1)).real

        grid = mp.linspace(0, 18 / math.sqrt(curvature), 7)
        return float(mp.log(mp.quad(integrand, grid) / mp.pi) + cumulant(shift) - k * mp.mpf(shift))


@pytest.mark.parametrize("law", deep(LARGE[:-1], keep={0, 1, 2}), ids=repr)
def test_against_quadrature(law):
    near, deep = (math.ceil(z * math.sqrt(law.variance)) for z in (0.3, 12))
    for k, tail, computed in ((near, True, law._log_tail), (deep, True, law._log_tail), (deep, False, law.log_pmf)):
        np.testing.assert_allclose(computed(k), quadrature(law, k, tail), rtol=1e-14, atol=1e-11)
    assert law.tail(deep) < 1e-25


@pytest.mark.parametrize("law", [law for law in SMALL if 0.2 < law.variance < 2e3], ids=repr)
def test_epsilon_against_sums(law):
    """Of all shifts up to the one asked for."""
    std = math.sqrt(law.variance)
    p, exact = pmf(law, math.ceil(25 * std) + 40), {"slack": 2e-8, "above": 1e-11}
    for shift in {1, math.ceil(0.3 * std), math.ceil(2 * std)}:
        for smaller in {1, shift // 2 + 1, shift}:
            epsilon_at = functools.partial(shift_epsilon, law, shift)
            never_optimistic(epsilon_at, p, [smaller], **(exact if smaller == shift else {}))


@pytest.mark.parametrize(
    "law", [Skellam(1e14), DiscreteGaussian(1e7), DiscreteLaplace(1e3, 2**31), DiscreteLaplace(7.0, 2**31)], ids=repr
)
def test_epsilon_of_wide_noise_is_gaussian(law):
    for mu, delta in itertools.product((1e-3, 0.1, 1.0, 8.0), (0.3, 1e-5, 1e-10)):
        shift = round(mu * math.sqrt(law.variance))
        gaussian = gaussian_epsilon(shift / math.sqrt(law.variance), delta)
        assert shift_epsilon(law, shift, delta) == pytest.approx(gaussian, rel=3e-5, abs=1e-6)


@pytest.mark.parametrize("n", [1, 7, 100])
def test_epsilon_of_laplace_noise_tends_to_that_of_pure_privacy(n):
    epsilon = [shift_epsilon(DiscreteLaplace(4.0, n), 8, delta) for delta in (1e-3, 1e-12, 1e-200, 1e-300)]
    assert (np.diff(epsilon) > -4e-9).all()
    assert epsilon[0] < epsilon[-1] <= 2 * (1 + 2e-9)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_epsilon_at_tiny_delta(sigma):
    """P(X >= x) and p(x) agree but for rounding."""
    p = pmf(DiscreteGaussian(sigma), math.ceil(36 * sigma))
    mass = np.cumsum(p[::-1])[::-1]
    for shift, delta in itertools.product((1, 3, 8), 10.0 ** -np.arange(5, 60, 2.7)):
        left = mass[:-shift] - delta
        exact = np.log(left[left > 0] / mass[shift:][left > 0]).max()
        assert shift_epsilon(DiscreteGaussian(sigma), shift, delta) == pytest.approx(exact, rel=2e-9)


LAWS = st.one_of(
    st.builds(lambda u: Skellam(10**u), st.floats(-3, 16)),
    st.builds(lambda u: DiscreteGaussian(10**u), st.floats(-0.3, 8)),
    st.builds(lambda u, n: DiscreteLaplace(10**u, n), st.floats(-2, 9), st.sampled_from([1, 2, 64, 65, 10**4, 2**31])),
)


@settings(max_examples=40, deadline=None)
@given(LAWS, st.floats(-3, 2), st.floats(-300, -0.01))
def test_more_shift_is_more_epsilon(law, log_mu, log_delta):
    shift, delta = max(1, round(10**log_mu * math.sqrt(law.variance))), 10**log_delta
    assume(shift <= 1e11)
    epsilon = shift_epsilon(law, shift, delta)
    least = epsilon * (1 - 4e-9)  # each is right to 2e-9 (the tests above), so two may be out of order by twice that
    assert 0 <= epsilon < math.inf
    assert shift_epsilon(law, shift + math.ceil(shift / 10), delta) >= least
    assert shift_epsilon(law, shift, delta / 2) >= least
