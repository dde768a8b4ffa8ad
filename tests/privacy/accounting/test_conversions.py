import math

import dp_accounting
import pytest
from dp_accounting import pld, rdp

from fedbandit_jax.privacy import gaussian_epsilon
from fedbandit_jax.privacy.accounting.conversions import advanced_composition, rdp_epsilon, zcdp_epsilon

# Finer than the orders of an accountant by a factor of ten.
ORDERS = [1 + 1.002**k / 100 for k in range(6000)]


@pytest.mark.parametrize(("mu", "delta"), [(0.01, 1e-17), (0.1, 1e-5), (1.0, 0.1), (5.0, 1e-9), (20.0, 1e-3)])
def test_zcdp_of_a_gaussian_is_the_infimum_over_orders(mu, delta):
    accountant = rdp.RdpAccountant(ORDERS).compose(dp_accounting.GaussianDpEvent(1 / mu))
    epsilon = zcdp_epsilon(mu**2 / 2, delta)
    assert epsilon == pytest.approx(accountant.get_epsilon(delta), rel=1e-5)
    assert epsilon >= gaussian_epsilon(mu, delta)


@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_renyi_of_laplace_noise(delta):
    """Of scale 1 shifted by 1 (Mironov 2017, Table II), ten times: a curve that overflows beyond alpha = 710."""

    def laplace(alpha):
        both = alpha * math.exp(alpha - 1) + (alpha - 1) * math.exp(-alpha)
        return math.log(both / (2 * alpha - 1)) / (alpha - 1)

    accountant = pld.PLDAccountant().compose(dp_accounting.LaplaceDpEvent(1.0), 10)
    epsilon = rdp_epsilon(lambda alpha: 10 * laplace(alpha), delta)
    assert accountant.get_epsilon(delta) <= epsilon < 10.01


def test_advanced_composition_in_closed_form():
    """The plain sum where that is smaller."""
    epsilon, delta = advanced_composition([0.1, 0.2, 0.05] * 20, [1e-8] * 60, slack=1e-6)
    squares, plain = 20 * (0.01 + 0.04 + 0.0025), 20 * 0.35
    expected = 20 * sum(e * (math.exp(e) - 1) / (math.exp(e) + 1) for e in (0.1, 0.2, 0.05))
    expected += math.sqrt(2 * squares * math.log(1e6))
    assert epsilon == pytest.approx(expected, rel=1e-9)
    assert epsilon < plain
    assert delta == pytest.approx(1e-6 + 60e-8, rel=1e-12, abs=0)
    assert advanced_composition([1.0, 2.0], [1e-8, 0.0], slack=1e-6) == (pytest.approx(3.0, rel=1e-11), 1e-8)
