import math

import dp_accounting
import mpmath as mp
import pytest
from helpers import AUTHORS, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.privacy import Budget, calibrate, gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.accounting.gaussian import log_delta

DELTAS = st.floats(-40, -0.01).map(math.exp)

# privacy.md section 3: S = 400 (kappa = 9); mu*, then sigma^2 by theorem, released, tight zero_out, tight replace.
TABLE = {
    (0.2, 0.1): (0.43497, 5752.3, 563.1, 95.1, 214.1),
    (1.0, 0.1): (0.92091, 287.7, 29.7, 21.2, 47.8),
    (5.0, 0.1): (2.35271, 23.03, 2.63, 3.25, 7.32),
    (1.0, 1e-5): (0.26805, 950.8, 112.6, 250.5, 563.7),
}


@pytest.mark.parametrize(("epsilon", "delta"), TABLE)
def test_calibration_table(epsilon, delta):
    """Also in closed form, to all digits of noise, which is a float32 number, rounded up."""
    mu, theorem, released, zero_out, replace = TABLE[epsilon, delta]
    assert gaussian_mu(epsilon, delta) == pytest.approx(mu, abs=5e-6)

    def variance(std, adjacency="replace"):
        return calibrate(Budget(epsilon, delta, adjacency), n_syncs=400, std=std).sigma ** 2

    assert variance("theorem_5_1") == pytest.approx(theorem, rel=2e-4)
    assert variance("theorem_5_1") == pytest.approx(8 * 9 * (math.log(2 / delta) + epsilon) / epsilon**2, rel=1e-6)
    assert variance(AUTHORS["silo_local"]) == pytest.approx(released, rel=2e-3)
    for adjacency, joint, tight in (("zero_out", 2.0, zero_out), ("replace", 4.5, replace)):
        assert variance(None, adjacency) == pytest.approx(tight, rel=2e-3)
        exact = 9 * joint * dp_accounting.get_sigma_gaussian(epsilon, delta) ** 2
        assert variance(None, adjacency) == pytest.approx(exact, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 50), DELTAS, st.floats(0.01, 20))
def test_neither_mu_nor_epsilon_is_optimistic(epsilon, delta, other):
    """mu is rounded down: the exact delta at epsilon never exceeds the one asked for, and epsilon is recovered."""
    mu = gaussian_mu(epsilon, delta)
    assert log_delta(epsilon, mu) <= math.log(delta)
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-5, abs=1e-7)
    for any_mu in (mu, other):
        found = gaussian_epsilon(any_mu, delta)
        if found == 0:
            assert math.erf(any_mu / 2 / math.sqrt(2)) <= delta * (1 + 1e-9)
        else:
            assert log_delta(found, any_mu) <= math.log(delta) + 1e-12


def exact_delta(epsilon, mu):
    """In the digits of mpmath."""
    m, e = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(-e / m + m / 2) - mp.exp(e) * mp.ncdf(-e / m - m / 2)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-7, 1e-4])
@pytest.mark.parametrize("delta", [1e-30, 1e-5, 0.1, 0.999])
def test_small_budgets(epsilon, delta):
    """Noise for them is certified, and epsilon is never below what 50 digits give."""
    assert calibrate(Budget(epsilon, delta), n_syncs=8).sound
    with mp.workdps(50):
        m, e = mp.mpf(1.001 * gaussian_mu(epsilon, delta)), mp.mpf(epsilon)
        exact = exact_delta(e, m)
        rounded = exact - mp.mpf(float(exact))  # a step of Newton's method makes up for it
        low = float(e + rounded / (mp.exp(e) * mp.ncdf(-e / m - m / 2)))
    assert low <= gaussian_epsilon(float(m), float(exact)) <= low * (1 + 1e-5) + 1e-10


@settings(max_examples=60, deadline=None)
@given(st.floats(-6, 2.5).map(lambda x: 10**x), st.one_of(st.just(0.0), st.floats(-3, 2).map(lambda x: 10**x)))
def test_log_delta_against_high_precision(mu, epsilon):
    with mp.workdps(60):
        exact = exact_delta(epsilon, mu)
        if exact > mp.mpf(10) ** -45:
            assert log_delta(epsilon, mu) == pytest.approx(float(mp.log(exact)), rel=1e-9, abs=1e-9)


def test_beside_a_pure_mechanism():
    """A pure mechanism must leave some of epsilon for noise; where mu is near 0 it is all there is."""
    for pure, delta in ((0.1, 0.01), (0.5, 1e-3), (3.0, 0.01), (1.0, 1e-6)):
        odds = math.exp(pure) / (1 + math.exp(pure))
        alone = pure + math.log1p(-delta / odds)  # of randomised response
        for mu in (1e-12, 1e-10, 1e-9, 1e-7):
            assert 0 <= gaussian_epsilon(mu, delta, pure=pure) - alone < 1e-6
    for mu, pure, delta in ((0.8, 0.1, 0.1), (0.3, 0.5, 1e-6), (2.0, 1.5, 1e-3)):
        assert gaussian_mu(gaussian_epsilon(mu, delta, pure), delta, pure) == pytest.approx(mu, rel=1e-6)
    for pure, delta in ((1.0, 0.1), (1 - 1e-15, 1e-13)):
        with refused("pure", pure):
            gaussian_mu(1.0, delta, pure=pure)
