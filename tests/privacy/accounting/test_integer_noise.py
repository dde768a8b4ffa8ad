"""Integer noise: laws and epsilon against sums of positive terms, quadrature in 30 digits, and exact divergences."""

import functools
import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from divergences import binomial, discrete_gaussian, never_optimistic, pmf, renyi
from helpers import deep
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedbandit_jax.privacy import gaussian_epsilon
from fedbandit_jax.privacy.accounting import nearly_gaussian
from fedbandit_jax.privacy.accounting.conversions import rdp_epsilon
from fedbandit_jax.privacy.accounting.discrete import (
    discrete_gaussian_sum_zcdp,
    discrete_laplace_rdp,
    skellam_rdp,
    wrapped_discrete_laplace_epsilon,
)
from fedbandit_jax.privacy.accounting.lattice import DiscreteGaussian, DiscreteLaplace, Skellam, shift_epsilon
from fedbandit_jax.privacy.accounting.nearly_gaussian import NearlyGaussian, discrete_gaussian_xi

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


TINY = tuple(10.0 ** -np.arange(5, 60, 5.4))


@pytest.mark.parametrize("law", [law for law in SMALL if 0.2 < law.variance < 2e3], ids=repr)
def test_epsilon_against_sums(law):
    """Of all shifts up to the one asked for; of discrete Gaussians, whose tails are known as far, at tiny delta too."""
    std = math.sqrt(law.variance)
    p, exact = pmf(law, math.ceil(36 * std) + 40), {"slack": 2e-8, "above": 1e-11}
    for shift in {1, math.ceil(0.3 * std), math.ceil(2 * std)}:
        for smaller in {1, shift // 2 + 1, shift}:
            epsilon_at = functools.partial(shift_epsilon, law, shift)
            never_optimistic(epsilon_at, p, [smaller], **(exact if smaller == shift else {}))
        if isinstance(law, DiscreteGaussian):
            never_optimistic(epsilon_at, p, [shift], **exact, deltas=TINY)


LAWS = st.one_of(
    st.builds(lambda u: Skellam(10**u), st.floats(-3, 16)),
    st.builds(lambda u: DiscreteGaussian(10**u), st.floats(-0.3, 8)),
    st.builds(lambda u, n: DiscreteLaplace(10**u, n), st.floats(-2, 9), st.sampled_from([1, 2, 64, 65, 10**4, 2**31])),
)


@settings(max_examples=40, deadline=None)
@given(LAWS, st.floats(-3, 2), st.floats(-300, -0.01))
def test_epsilon_rises_to_its_limits(law, log_mu, log_delta):
    """With the shift, and as delta falls: from that of a Gaussian, of wide noise, to pure privacy, of Laplace noise."""
    std, delta = math.sqrt(law.variance), 10**log_delta
    shift = max(1, round(10**log_mu * std))
    assume(shift <= 1e11)
    epsilon = shift_epsilon(law, shift, delta)
    least = epsilon * (1 - 4e-9)  # each is right to 2e-9 (the test above), so two may be out of order by twice that
    assert 0 <= epsilon < math.inf
    assert shift_epsilon(law, shift + math.ceil(shift / 10), delta) >= least
    assert shift_epsilon(law, shift, delta / 2) >= least
    if isinstance(law, DiscreteLaplace):
        assert epsilon <= shift / law.scale * (1 + 4e-9)
    if std > 1e6 and log_delta > -10 and getattr(law, "n", 2**31) == 2**31:
        assert epsilon == pytest.approx(gaussian_epsilon(shift / std, delta), rel=3e-5, abs=1e-6)


# Proofs that hold for several entries, and together with others.

ENTRIES = st.lists(st.integers(1, 25), min_size=1, max_size=2)  # how far they are shifted


def gaussian_at(sigma, n_agents, shifts):
    """Epsilon at a delta, and the law, of a sum of discrete Gaussians."""
    size = dict(sensitivity=math.hypot(*shifts), sigma=sigma, n_agents=n_agents, n_entries=len(shifts))
    return nearly_gaussian.discrete_gaussian(**size).epsilon, discrete_gaussian(sigma, n_agents)


def binomial_epsilon(delta, **size):
    return nearly_gaussian.binomial(**size, delta=delta).epsilon(delta)


def binomial_at(n, shifts):
    size = dict(sensitivity=math.hypot(*shifts), n_trials=n, n_entries=len(shifts))
    return functools.partial(binomial_epsilon, **size), binomial(n)


@settings(max_examples=30, deadline=None)
@given(st.floats(3, 10), st.integers(1, 20), st.integers(200, 5000), ENTRIES)
def test_proofs_are_never_optimistic(sigma, n_agents, n, shifts):
    for found in (gaussian_at(sigma, n_agents, shifts), binomial_at(n, shifts)):
        never_optimistic(*found, shifts)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_large_noise_costs_nearly_what_it_must(mu):
    for shift, make, sizes in (
        (mu, lambda s, by: gaussian_at(s, 1, by), (100, 1000)),
        (mu, binomial_at, (10**5, 10**6)),
    ):
        for size in sizes:
            moved = [round(shift * (size if size < 10**4 else math.sqrt(size) / 2))]
            never_optimistic(*make(size, moved), moved, slack=0.1, above=0.1)


def test_a_shift_spread_over_many_entries():
    """64 entries moved by 3 each: the privacy losses of one entry, rounded up to a grid, convolved 64 times."""
    n, entries, step = 2_500, 64, 1e-4
    law = binomial(n)
    with np.errstate(divide="ignore"):
        loss = np.log(law[:-3]) - np.log(law[3:])
    losses = np.bincount(np.ceil(loss / step).astype(int) - math.floor(loss.min() / step), weights=law[:-3])
    size = 1 << math.ceil(math.log2(entries * len(losses)))
    total = np.fft.irfft(np.fft.rfft(losses, size) ** entries, size)[: entries * len(losses)]
    values = (np.arange(len(total)) + entries * math.floor(loss.min() / step)) * step
    for delta in (0.1, 1e-3, 1e-6):
        epsilon = binomial_epsilon(sensitivity=3 * 8.0, n_trials=n, n_entries=entries, delta=delta)
        assert (total * np.clip(-np.expm1(epsilon - values), 0, 1)).sum() <= delta
        assert epsilon > gaussian_epsilon(24 / 25, delta)


@pytest.mark.parametrize(("n", "entries", "shift", "delta"), [(10**4, 50, 60.0, 0.1), (10**6, 400, 900.0, 1e-6)])
def test_the_bound_of_a_binomial_by_hand(n, entries, shift, delta):
    """*Binomial* and *Smoothing* of the module, where entries above t std are given a ten-thousandth of delta."""
    std, rare = math.sqrt(n) / 2, 1e-4 * delta
    t = math.sqrt(2 * math.log(entries / rare))
    u = (t * std + shift) / (n / 2)
    cubic = math.sqrt(entries) * shift * 2 / 3 * u**3 / (1 - u**2)
    tau = math.sqrt(math.log(2 * entries / 1e-4) / 2) / math.pi
    q = math.exp(-2 * math.pi**2 / (1 / std**2 + 1 / tau**2))
    log_c = math.log1p(2 * q / (1 - q**3)) + 1 / (4 * n)
    mu = shift / std

    def at(r):
        left = (delta - rare) * norm.cdf(r) * math.exp(-entries * log_c)
        return r * tau * mu / std + gaussian_epsilon(mu * math.sqrt(1 + (tau / std) ** 2), left)

    found = binomial_epsilon(sensitivity=shift, n_trials=n, n_entries=entries, delta=delta)
    assert found == pytest.approx(cubic + min(at(k / 2) for k in range(1, 13)), rel=1e-8)


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
def test_sums_of_discrete_gaussians(sigma):
    """Within e^(+-xi) of one of the summed parameter. Without xi, three of sigma = 1/2 are not 2/3-zCDP: a control."""
    for n in (1, 2, 3, 8):
        total = sigma * math.sqrt(n)
        p, one = (discrete_gaussian(total, m, reach=18 * n) for m in (n, 1))
        assert np.abs(np.log(p[one > 1e-9] / one[one > 1e-9])).max() <= discrete_gaussian_xi(sigma, n) + 1e-6
        for shift in (1, 2, 3):
            privacy = discrete_gaussian_sum_zcdp(shift, sigma, n)
            assert (privacy.xi == 0) == (n == 1)
            for alpha in (1.01, 1.5, 2, 3):
                assert renyi(p, shift, alpha) <= alpha * privacy.rho * (1 + 1e-9)
    k = np.arange(1, 5000)
    assert discrete_gaussian_xi(sigma, 5000) >= 10 * np.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)).sum()
    assert renyi(discrete_gaussian(0.5 * math.sqrt(3), 3, reach=36), 1, 1.01) > 1.1 * 1.01 * (2 / 3)


@pytest.mark.parametrize(
    ("agent", "n_agents", "entries", "delta"), [(0.8, 2, 5, 1e-5), (0.7, 10, 20, 1e-2), (1.0, 50, 200, 1e-3)]
)
def test_a_sum_costs_twice_its_distance_in_every_entry(agent, n_agents, entries, delta):
    """Both neighbours may be e^xi off: by 2 D xi more than for one agent's noise of the same size, and a little."""
    size = dict(sensitivity=1.0, sigma=agent * math.sqrt(n_agents), n_entries=entries)
    one, many = (nearly_gaussian.discrete_gaussian(**size, n_agents=m).epsilon(delta) for m in (1, n_agents))
    k = np.arange(1, n_agents)
    xi = 10 * np.exp(-2 * (math.pi * agent) ** 2 * k / (k + 1)).sum()
    assert 2 * entries * xi <= many - one <= 2.3 * entries * xi


def test_epsilon_makes_the_bound_of_delta_equal_to_delta():
    """For each of twelve r, by hand."""
    near = NearlyGaussian(0.5, 0.1, 0.5, 0.3, 3e-4)
    levels = {r: (1e-2 - 3e-4) * math.exp(-0.5) * norm.cdf(r) for r in np.arange(1, 13) / 2}
    by_hand = min(0.3 + 0.1 * r + gaussian_epsilon(0.5, level) for r, level in levels.items())
    assert near.epsilon(1e-2) == pytest.approx(by_hand, rel=1e-9)
    assert near.epsilon(1e-4) == math.inf


# Renyi curves, and noise modulo m.

ORDERS = (1.001, 1.5, 2, 2.5, 3, 7, 20)


SCALES = st.floats(-3, 9).map(lambda x: 10**x)


SHIFTS = st.floats(0, 9).map(lambda x: int(10**x))


@settings(max_examples=60, deadline=None)
@given(SHIFTS, SCALES, st.floats(-9, 20))
def test_discrete_laplace_in_many_digits(shift, scale, log_order):
    """The three geometric series: x <= 0, 0 < x < D and x >= D; orders up to those of pure privacy."""
    alpha, epsilon = 1 + 10**log_order, shift / scale
    curve = discrete_laplace_rdp(shift, scale)
    with mp.workdps(120):
        b, a = 1 / mp.mpf(scale), mp.mpf(alpha)
        q = mp.exp((1 - 2 * a) * b)
        ends = (mp.exp((a - 1) * shift * b) + mp.exp(-a * shift * b)) / (1 - mp.exp(-b))
        middle = mp.exp((a - 1) * shift * b) * q * (1 - q ** (shift - 1)) / (1 - q)
        exact = mp.log((ends + middle) * mp.tanh(b / 2)) / (a - 1)
    assert 1 - 1e-15 < curve(alpha) / float(exact) < 1 + 1e-14 * (1 + 1 / max(epsilon, 1e-7))


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
