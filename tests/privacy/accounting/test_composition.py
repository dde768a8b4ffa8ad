"""Proofs for one and for several visits: losses in 40 digits, other accountants, and bounds by each other."""

import itertools
import math

import dp_accounting
import mpmath as mp
import pytest
from divergences import enumerated
from dp_accounting import pld, rdp
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.privacy import gaussian_epsilon
from fedbandit_jax.privacy.accounting.conversions import advanced_composition, rdp_epsilon, zcdp_epsilon
from fedbandit_jax.privacy.accounting.discrete import discrete_gaussian_sum_zcdp, discrete_laplace_rdp, skellam_rdp
from fedbandit_jax.privacy.accounting.lattice import Skellam, shift_epsilon
from fedbandit_jax.privacy.accounting.nearly_gaussian import binomial, discrete_gaussian
from fedbandit_jax.privacy.accounting.shuffling import relaxed_secagg, shuffled_epsilon, shuffled_sigma
from fedbandit_jax.privacy.accounting.visits import PureDP, Renyi, returning

LEVELS = 0.3, 1e-2, 1e-5, 1e-10


@pytest.mark.parametrize(("epsilon", "n"), [(0.1, 7), (0.01, 2000), (1.0, 3), (30.0, 2)])
def test_epsilon_of_one_mechanism_several_times_is_exact(epsilon, n):
    for delta in LEVELS:
        found = PureDP(epsilon).at(delta, n)
        assert enumerated(found, pure=[(epsilon, n)]) <= delta
        if found > 0:
            assert enumerated(found * (1 - 1e-8), pure=[(epsilon, n)]) > delta
        assert found <= min(n * epsilon, Renyi(PureDP(epsilon).rdp).at(delta, n) * (1 + 1e-9))


# A mechanism of every kind, by its strength, near mu or epsilon: what is known of it, and epsilon at delta.
PROOFS = {
    "pure": PureDP,
    "Renyi": lambda s: Renyi(lambda alpha: alpha * s**2 / 2),
    "Skellam": lambda s: Renyi(skellam_rdp(100, (100 / s) ** 2)),
    "few Skellam": lambda s: Renyi(skellam_rdp(3, (3 / s) ** 2)),
    "zCDP": lambda s: Renyi(lambda alpha: discrete_gaussian_sum_zcdp(100, 100 / (20 * s), 400).rho * alpha),
    "Laplace": lambda s: Renyi(discrete_laplace_rdp(10, 10 / s)),
}
EPSILONS = {
    "Gaussian": lambda s: lambda delta: gaussian_epsilon(s, delta),
    "Gaussian, pure": lambda s: lambda delta: gaussian_epsilon(s, delta, s / 2),
    "discrete Gaussian": lambda s: discrete_gaussian(sensitivity=100, sigma=100 / s, n_agents=4, n_entries=9).epsilon,
    "binomial": lambda s: binomial(sensitivity=200.0, n_trials=int((400 / s) ** 2), n_entries=9, delta=1e-12).epsilon,
    **{name: lambda s, proof=proof: proof(s).at for name, proof in PROOFS.items()},
}
DELTAS = st.floats(-18, -1).map(math.exp)


@settings(max_examples=4, deadline=None)
@given(st.floats(0.05, 1.2), DELTAS, st.integers(2, 40))
@pytest.mark.parametrize("name", EPSILONS)
def test_bounds_are_in_order(name, strength, delta, visits):
    """More is more: strength, less delta, visits. What is told apart gives no smaller."""
    at = EPSILONS[name](strength)
    one = at(delta)
    below = one * (1 - 4e-9)  # each is right to 2e-9
    assert 0 <= one < math.inf
    assert EPSILONS[name](1.1 * strength)(delta) >= below
    assert at(delta / 2) >= below
    if name in PROOFS:
        proof, each = PROOFS[name](strength), [at(delta / (2 * visits))] * visits
        assert returning(proof, delta, 1) == pytest.approx((one, one), rel=1e-9, abs=1e-12)
        again, advanced = returning(proof, delta, visits)
        slack = advanced_composition(each, [delta / (2 * visits)] * visits, delta / 2)[0]
        assert below <= again == proof.at(delta, visits) <= advanced <= slack


@settings(max_examples=40, deadline=None)
@given(st.floats(-6, 4).map(lambda x: 10**x), st.floats(-9, 15).map(lambda x: 1 + 10**x))
def test_renyi_of_pure_privacy(epsilon, alpha):
    """ln(p^alpha (1-p)^(1-alpha) + (1-p)^alpha p^(1-alpha)) / (alpha - 1) with p = e^eps / (1 + e^eps)."""
    with mp.workdps(80):
        e, a = mp.mpf(epsilon), mp.mpf(alpha)
        exact = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
    assert PureDP(epsilon).rdp(alpha) == pytest.approx(float(exact), rel=1e-9, abs=0)


def by_laws(event, n=1):
    return pld.PLDAccountant().compose(event, n).get_epsilon


def by_orders(event):
    """On orders that are finer than those of an accountant by a factor of ten."""
    return rdp.RdpAccountant([1 + 1.002**k / 100 for k in range(6000)]).compose(event).get_epsilon


def tenths(alpha):
    """Of Laplace noise of scale 1 shifted by 1 (Mironov 2017, Table II), which overflows beyond alpha = 710."""
    both = alpha * math.exp(alpha - 1) + (alpha - 1) * math.exp(-alpha)
    return math.log(both / (2 * alpha - 1)) / (alpha - 1)


CURVE, GAUSSIAN, FEW = Renyi(lambda alpha: alpha / 50), dp_accounting.GaussianDpEvent, [0.1, 0.2, 0.05]  # of mu = 0.2
SUM = 20 * sum(e * math.tanh(e / 2) for e in FEW) + math.sqrt(40 * (0.01 + 0.04 + 0.0025) * math.log(1e6))


def test_known_numbers():
    """What is found, another number, and how near they are."""
    known = {
        **{f"mu = {mu}": (zcdp_epsilon(mu**2 / 2, d), by_orders(GAUSSIAN(1 / mu))(d), 1e-5)
           for mu, d in ((0.01, 1e-17), (0.1, 1e-5), (1.0, 0.1), (5.0, 1e-9), (20.0, 1e-3))},
        "two Gaussians": (gaussian_epsilon(math.hypot(0.4, 0.4), 1e-6), by_laws(GAUSSIAN(2.5), 2)(1e-6), 0.01),
        "zCDP": (CURVE.at(1e-5), by_orders(dp_accounting.ZCDpEvent(0.02, 0.0))(1e-5), 0.01),
        "curves": (CURVE.at(1e-5, 5), zcdp_epsilon(0.1, 1e-5), 1e-9),
        "one curve": (CURVE.at(1e-5), rdp_epsilon(CURVE.curve, 1e-5), 1e-12),
        "advanced": (advanced_composition(FEW * 20, [1e-8] * 60, slack=1e-6)[0], SUM, 1e-9),
        "its delta": (advanced_composition(FEW * 20, [1e-8] * 60, slack=1e-6)[1], 1e-6 + 60e-8, 1e-12),
        "plain sum": (advanced_composition([1.0, 2.0], [1e-8, 0.0], slack=1e-6)[0], 3.0, 1e-11),
        "pure, advanced": (returning(PureDP(0.1), 1e-5, 100)[1],
                           advanced_composition([0.1] * 100, [0.0] * 100, 1e-5)[0], 1e-9),
    }  # fmt: skip
    assert {name: row for name, row in known.items() if row[0] != pytest.approx(row[1], rel=row[2], abs=0)} == {}


def test_bounds_by_another_accountant():
    """Laplace noise ten times."""
    for delta in (1e-2, 1e-9):
        found = rdp_epsilon(lambda alpha: 10 * tenths(alpha), delta)
        assert by_laws(dp_accounting.LaplaceDpEvent(1.0), 10)(delta) <= found < 10.01


SIZES = dict(sensitivity=1.0, n_entries=3)
APART = {  # argument -> calls with arguments that do not go together, or curves that are none
    "visits": [lambda: returning(CURVE, 1e-5, 10**6)],
    "epsilons": [lambda: advanced_composition([1.0], [], 0.1)],
    "deltas": [lambda: advanced_composition([1.0, 1.0], [0.5, 0.6], 0.1)],
    "rdp": [lambda at=at: rdp_epsilon(lambda alpha: at * alpha, 0.1) for at in (math.nan, -1.0, math.inf)],
    "failure / n": [lambda: relaxed_secagg(1.0, 1e-100, 4, 5)],
    "sigma / sqrt(n_agents)": [lambda: discrete_gaussian(**SIZES, sigma=0.6, n_agents=2)],
    "sigma": [lambda: discrete_gaussian_sum_zcdp(1, 0.49, 8)],  # where no bound of the paper holds
    "shift": [lambda: shift_epsilon(Skellam(1.0), 10**13, 0.1)],
}  # fmt: skip


@pytest.mark.parametrize("argument", APART)
def test_what_does_not_go_together(argument):
    for call in APART[argument]:
        with refused(argument):
            call()


@pytest.mark.parametrize("delta", [1e-300, 0.5, 1 - 1e-12])
def test_extremes_are_finite(delta):
    for mu, pure in itertools.product((0.0, 1e4), (0.0, 1e-300, 1e6)):
        assert 0 <= gaussian_epsilon(mu, delta, pure) < 1e9
        assert 0 <= PureDP(pure).at(delta, 2) < 1e9
    for rho in (0.0, 1e-300, 1e-9, 1e7):
        assert 0 <= zcdp_epsilon(rho, delta) < 1e10
    for sensitivity in (1.0, 1e-300):
        size = {"sensitivity": sensitivity, "n_entries": 3}
        assert 0 <= discrete_gaussian(**size, sigma=10.0, n_agents=2).epsilon(delta) < 1e3
        assert 0 <= binomial(**size, delta=delta, n_trials=10**6).epsilon(delta) < 1e3
    for m, points in ((10**5, [1]), (10**9, [10**6 * 2**level for level in range(29)])):
        tree = {"n_agents": m, "points": points, "delta": max(delta, 1e-280)}
        for epsilon in (1e-9, 1e6):
            assert 0 < shuffled_sigma(epsilon=epsilon, sensitivity=1e-50, **tree) < math.inf
        assert shuffled_epsilon(sigma=1e300, sensitivity=1.0, **tree) <= 1e-8
    assert zcdp_epsilon(0.0, delta) < 1e-12
    for few in ({"n_trials": 10}, {"n_entries": 10**15}):  # too few prove nothing
        assert binomial(**{**SIZES, "n_trials": 1000, "delta": 0.1, **few}).epsilon(0.1) == math.inf
