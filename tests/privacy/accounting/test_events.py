import functools
import math

import dp_accounting
import mpmath as mp
import pytest
from dp_accounting import pld, rdp
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit_jax as fb
from fedbandit_jax.privacy import gaussian_epsilon
from fedbandit_jax.privacy.accounting import discrete
from fedbandit_jax.privacy.accounting.conversions import advanced_composition, rdp_epsilon, zcdp_epsilon
from fedbandit_jax.privacy.accounting.discrete import discrete_gaussian_sum_zcdp, discrete_laplace_rdp, skellam_rdp
from fedbandit_jax.privacy.accounting.events import ApproximateDP, Gaussian, PureDP, Renyi, compose, returning
from fedbandit_jax.privacy.accounting.lattice import Skellam, shift_epsilon
from fedbandit_jax.privacy.accounting.nearly_gaussian import binomial, discrete_gaussian
from fedbandit_jax.privacy.accounting.shuffling import relaxed_secagg, shuffled_epsilon, shuffled_sigma

DELTAS = st.floats(-18, -1).map(math.exp)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.05, 1.5), min_size=1, max_size=5), DELTAS)
def test_less_knowledge_is_more_epsilon(mus, delta):
    """exact <= Renyi = zCDP, and exact <= what is left if each mechanism is known at one (epsilon, delta) only."""
    exact = compose([Gaussian(mu) for mu in mus], delta)
    assert exact == pytest.approx(gaussian_epsilon(math.hypot(*mus), delta), rel=1e-9)
    rho = [Renyi(Gaussian(mu).rdp) for mu in mus]
    renyi = compose(rho, delta)
    assert exact <= renyi
    mixed = compose([Gaussian(mus[0]), *rho[1:]], delta)
    assert mixed <= renyi * (1 + 1e-9)
    assert renyi == pytest.approx(zcdp_epsilon(sum(mu**2 for mu in mus) / 2, delta), rel=1e-9)
    share = delta / (2 * len(mus))
    each = [ApproximateDP(gaussian_epsilon(mu, share), share) for mu in mus]
    assert exact <= compose(each, delta) <= sum(e.epsilon for e in each)


@settings(max_examples=40, deadline=None)
@given(st.floats(-6, 4).map(lambda x: 10**x), st.floats(-9, 15).map(lambda x: 1 + 10**x))
def test_renyi_of_pure_privacy(epsilon, alpha):
    """ln(p^alpha (1-p)^(1-alpha) + (1-p)^alpha p^(1-alpha)) / (alpha - 1) with p = e^eps / (1 + e^eps)."""
    with mp.workdps(80):
        e, a = mp.mpf(epsilon), mp.mpf(alpha)
        exact = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
    assert PureDP(epsilon).rdp(alpha) == pytest.approx(float(exact), rel=1e-9, abs=0)
    assert PureDP(epsilon).rdp(alpha) <= min(epsilon, alpha * epsilon**2 / 2) * (1 + 1e-9)


def test_approximate_events():
    """No room beside their deltas: the plain sum. Room: they are pure, at the rest of delta."""
    assert compose([ApproximateDP(1.0, 1e-5)], 1e-5) == pytest.approx(1.0, rel=1e-9)
    assert compose([ApproximateDP(1.0, 0.1)] * 2, 0.2) == pytest.approx(2.0, rel=1e-6)
    assert compose([PureDP(0.5), PureDP(0.25)], 1e-9) <= 0.75 * (1 + 1e-9)
    curve = Renyi(lambda alpha: alpha / 50)  # that of Gaussian(0.2)
    many, pure = [ApproximateDP(0.01, 1e-9)] * 1000, [PureDP(0.01)] * 1000
    for others in ([], [Gaussian(0.2)], [curve]):
        assert compose([*many, *others], 1e-5) == pytest.approx(compose([*pure, *others], 9e-6), rel=1e-9)
    assert compose(many, 1e-5) < 0.85 * advanced_composition([0.01] * 1000, [1e-9] * 1000, 9e-6)[0]
    for other in (ApproximateDP(0.1, 1e-6), curve):  # a Gaussian with a pure part is both
        one, same = (compose([*own, other], 1e-4) for own in ([Gaussian(0.7, 0.4)], [Gaussian(0.7), PureDP(0.4)]))
        assert one == pytest.approx(same, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (4.0, 1e-5)])
def test_another_accountant_agrees(epsilon, delta):
    """Reviewers may account again, with a tool that they trust: it finds the same epsilon, within 1 %."""
    budget, spec = fb.privacy.Budget(epsilon, delta), fb.envs.sphere(4, 3, 2, rewards="bernoulli").spec
    certificate = fb.algos.private_fed_lin_ucb(budget).certificate(spec, 400)
    event = fb.privacy.calibrate(budget, n_syncs=16).event
    laws, theirs = pld.PLDAccountant, dp_accounting.GaussianDpEvent(1 / event.mu)
    zcdp = rdp.RdpAccountant().compose(dp_accounting.ZCDpEvent(0.05, 0.0))
    for accountant, expected in (
        (laws().compose(theirs), certificate.epsilon_exact),
        (laws().compose(theirs, 2), compose([event, event], delta)),
        (zcdp, compose([Renyi(lambda alpha: 0.05 * alpha)], delta)),
    ):
        assert accountant.get_epsilon(delta) == pytest.approx(expected, rel=0.01)


def test_what_does_not_go_together():
    """Deltas of events that use up the whole, and more noise-free Gaussians than float64 accounts for."""
    for own, others in ((0.2, []), (1.0, []), (0.1, [Gaussian(1.0)]), (0.1, [Renyi(lambda alpha: alpha)])):
        with refused("delta", 0.1):
            compose([ApproximateDP(1.0, own), *others], 0.1)
    with refused("mu"):
        compose([Gaussian(6e3)] * 4, 1e-5)


RETURNING = {
    "Skellam": Renyi(skellam_rdp(100, 1e6)),
    "few Skellam": Renyi(skellam_rdp(3, 100.0)),
    "discrete Gaussian": Renyi(lambda alpha: discrete_gaussian_sum_zcdp(10, 1.0, 400).rho * alpha),
    "discrete Laplace": Renyi(discrete_laplace_rdp(10, 100.0)),
    "pure": PureDP(0.1),
    "Gaussian": Gaussian(0.2),
}


@pytest.mark.parametrize("delta", [0.1, 1e-6])
@pytest.mark.parametrize("name", RETURNING)
def test_returning_users(name, delta):
    event, again = RETURNING[name], functools.partial(returning, RETURNING[name], delta)
    one, two = (compose([event] * n, delta) for n in (1, 2))
    assert again(1) == pytest.approx((one, one), rel=1e-9, abs=1e-12)
    assert again(2)[0] == pytest.approx(event.at(delta, 2) if name == "pure" else two, rel=1e-9, abs=1e-12)
    for visits in (10, 100):
        together, advanced = again(visits)
        assert one <= together <= advanced
        each = compose([event], delta / (2 * visits))
        assert advanced <= advanced_composition([each] * visits, [delta / (2 * visits)] * visits, delta / 2)[0]


def test_returning_users_in_closed_form():
    """Pure mechanisms by plain sums, where delta is 0, and by advanced composition; a Renyi curve by multiples."""
    assert returning(PureDP(0.1), 0.0, 30) == (pytest.approx(3.0), pytest.approx(3.0))
    advanced = advanced_composition([0.1] * 100, [0.0] * 100, 1e-5)[0]
    assert returning(PureDP(0.1), 1e-5, 100)[1] == pytest.approx(advanced, rel=1e-9)
    curve = Renyi(lambda alpha: 0.005 * alpha)
    assert returning(curve, 1e-5, 100)[0] == pytest.approx(zcdp_epsilon(0.5, 1e-5), rel=1e-9)
    assert compose([curve], 1e-5) == rdp_epsilon(curve.curve, 1e-5)
    with refused("event"):
        returning(ApproximateDP(0.1, 0.0), 0.1, 2)
    with refused("delta", 0.0):
        returning(Gaussian(0.1), 0.0, 2)


INF, NAN = math.inf, math.nan


def binomial_epsilon(**noise):
    return binomial(**noise).epsilon(noise["delta"])


INTEGERS = {"sensitivity": 1.0, "n_entries": 3, "delta": 0.1}


def test_conversions_that_do_not_go_together():
    for argument, call in (
        ("epsilons", lambda: advanced_composition([1.0], [], 0.1)),
        ("deltas", lambda: advanced_composition([1.0, 1.0], [0.5, 0.6], 0.1)),
        *(("rdp", lambda at=at: rdp_epsilon(lambda alpha: at * alpha, 0.1)) for at in (NAN, -1.0, INF)),
        ("failure / n", lambda: relaxed_secagg(1.0, 1e-100, 4, 5)),
        ("sigma / sqrt(n_agents)", lambda: discrete_gaussian(sensitivity=1.0, n_entries=3, sigma=0.6, n_agents=2)),
        ("sigma", lambda: discrete.discrete_gaussian_sum_zcdp(1, 0.49, 8)),  # where no bound of the paper holds
        ("shift", lambda: shift_epsilon(Skellam(1.0), 10**13, 0.1)),
    ):
        with refused(argument):
            call()


@pytest.mark.parametrize("delta", [1e-300, 0.5, 1 - 1e-12])
def test_extremes_are_finite(delta):
    for event in (Gaussian(1e4), Gaussian(0.0), PureDP(1e6), PureDP(0.0), PureDP(1e-300)):
        for events in ([event], [event, PureDP(1.0)]):
            assert 0 <= compose(events, delta) < 1e9
    for rho in (0.0, 1e-300, 1e-9, 1e7):
        assert 0 <= zcdp_epsilon(rho, delta) < 1e10
    for sensitivity in (1.0, 1e-300):
        near = discrete_gaussian(sensitivity=sensitivity, n_entries=3, sigma=10.0, n_agents=2)
        assert 0 <= near.epsilon(delta) < 1e3
        noise = {**INTEGERS, "sensitivity": sensitivity, "delta": delta}
        assert 0 <= binomial_epsilon(**noise, n_trials=10**6) < 1e3
    for m, points in ((10**5, [1]), (10**9, [10**6 * 2**level for level in range(29)])):
        tree = {"n_agents": m, "points": points, "delta": max(delta, 1e-280)}
        for epsilon in (1e-9, 1e6):
            assert 0 < shuffled_sigma(epsilon=epsilon, sensitivity=1e-50, **tree) < INF
        assert shuffled_epsilon(sigma=1e300, sensitivity=1.0, **tree) <= 1e-8
    assert zcdp_epsilon(0.0, delta) < 1e-12


def test_too_few_trials_prove_nothing():
    for change in ({"n_trials": 10}, {"n_entries": 10**15}):
        assert binomial_epsilon(**{**INTEGERS, "n_trials": 1000, **change}) == INF
