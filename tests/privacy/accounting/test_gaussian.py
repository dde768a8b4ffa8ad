"""Epsilon and mu of Gaussian noise: the papers' table, and exactness in 60 digits."""

import math

import dp_accounting
import pytest
from divergences import enumerated
from helpers import AUTHORS, refused
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fedbandit_jax.privacy import Budget, calibrate, gaussian_epsilon, gaussian_mu

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


@settings(max_examples=100, deadline=None, phases=[Phase.generate])  # shrinking takes minutes
@given(
    st.floats(-9, 2).map(lambda x: 10**x),
    st.one_of(st.floats(-70, -0.01), st.floats(-3, -1e-3)).map(math.exp),
    st.one_of(st.just(0.0), st.floats(1e-3, 0.999)),
    st.floats(-12, 1.5).map(lambda x: 10**x),
)
def test_mu_and_epsilon_are_exact(epsilon, delta, share, other):
    """Beside a pure mechanism or alone, in 60 digits: never optimistic, and no more than a part in 10^6 is given away.

    Noise is refused where the pure mechanism alone needs all of epsilon.
    """
    pure, found = share * epsilon, other
    if enumerated(epsilon, 1e-12, [(pure, 1)]) >= delta:
        with refused("pure", pure):
            gaussian_mu(epsilon, delta, pure)
    else:
        found = gaussian_mu(epsilon, delta, pure)
        assert enumerated(epsilon, found, [(pure, 1)]) <= delta
        assert found > 9999 or enumerated(epsilon, found * (1 + 1e-6), [(pure, 1)]) > delta
    for mu in (found, other):
        least = gaussian_epsilon(mu, delta, pure)
        less = least * (1 - 1e-6) - 1e-10
        assert enumerated(least, mu, [(pure, 1)]) <= delta
        assert less <= 0 or enumerated(less, mu, [(pure, 1)]) > delta
    assert epsilon > 1 or calibrate(Budget(epsilon, delta), n_syncs=8).sound
