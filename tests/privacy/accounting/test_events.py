import math

import dp_accounting
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit_jax as fb
from fedbandit_jax.privacy import gaussian_epsilon
from fedbandit_jax.privacy.accounting.conversions import advanced_composition, rdp_epsilon, zcdp_epsilon
from fedbandit_jax.privacy.accounting.events import (
    ApproximateDP,
    Gaussian,
    PureDP,
    Renyi,
    compose,
)

MUS = st.lists(st.floats(0.05, 1.5), min_size=1, max_size=5)
DELTAS = st.floats(-18, -1).map(math.exp)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(MUS, DELTAS)
def test_gaussians_are_exact(mus, delta):
    composition = compose([Gaussian(mu) for mu in mus], delta)
    assert composition.accountant == "exact Gaussian"
    accountant = pld.PLDAccountant()
    for mu in mus:
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    assert composition.epsilon == pytest.approx(accountant.get_epsilon(delta), rel=2e-3, abs=2e-4)


@settings(max_examples=30, deadline=None)
@given(MUS, DELTAS)
def test_less_knowledge_is_more_epsilon(mus, delta):
    """exact <= Renyi = zCDP, and exact <= what is left if each mechanism is known at one (epsilon, delta) only."""
    exact = compose([Gaussian(mu) for mu in mus], delta).epsilon
    rho = [Renyi(Gaussian(mu).rdp) for mu in mus]
    renyi = compose(rho, delta)
    assert renyi.accountant == "Renyi"
    assert exact <= renyi.epsilon
    mixed = compose([Gaussian(mus[0]), *rho[1:]], delta).epsilon
    assert mixed <= renyi.epsilon * (1 + 1e-9)
    assert renyi.epsilon == pytest.approx(zcdp_epsilon(sum(mu**2 for mu in mus) / 2, delta), rel=1e-9)
    share = delta / (2 * len(mus))
    each = [ApproximateDP(gaussian_epsilon(mu, share), share) for mu in mus]
    approximate = compose(each, delta)
    assert approximate.accountant == "privacy loss distribution"
    assert exact <= approximate.epsilon
    epsilon, spent = advanced_composition([e.epsilon for e in each], [share] * len(each), delta / 2)
    assert spent > delta * (1 - 1e-9) or epsilon == pytest.approx(sum(e.epsilon for e in each))
    assert approximate.epsilon <= epsilon * (1 + 1e-9)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.1, 1.0), st.floats(0.1, 1.0), DELTAS)
def test_mixtures_are_never_optimistic(mu, epsilon, delta):
    """A Gaussian and randomised response (the worst pure mechanism), against dp-accounting's composition of the two.

    If the pure mechanism is known by its Renyi curve only, that says less; the other two are within 1 %.
    """
    laws = pld.privacy_loss_distribution
    flip = laws.from_randomized_response(2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=1e-3)
    both = flip.compose(laws.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3))
    exact = both.get_epsilon_for_delta(delta)
    for pure in (PureDP(epsilon), ApproximateDP(epsilon, 0.0), Renyi(PureDP(epsilon).rdp)):
        composed = compose([Gaussian(mu), pure], delta)
        assert composed.epsilon >= exact * (1 - 1e-3) - 1e-3
        if composed.accountant == "privacy loss distribution":
            assert composed.epsilon <= 1.01 * exact + 1e-6
        else:
            assert composed.accountant == "Renyi"
            assert composed.epsilon <= zcdp_epsilon(mu**2 / 2, delta) + epsilon + 1e-9


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.3, 3.0, 40.0, 1e4])
@pytest.mark.parametrize("alpha", [1 + 1e-9, 1.5, 3.0, 1e3, 1e15])
def test_renyi_of_pure_privacy(epsilon, alpha):
    """ln(p^alpha (1-p)^(1-alpha) + (1-p)^alpha p^(1-alpha)) / (alpha - 1) with p = e^eps / (1 + e^eps)."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(80):
        e, a = mp.mpf(epsilon), mp.mpf(alpha)
        exact = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
    assert PureDP(epsilon).rdp(alpha) == pytest.approx(float(exact), rel=1e-9)
    assert PureDP(epsilon).rdp(alpha) <= min(epsilon, alpha * epsilon**2 / 2) * (1 + 1e-9)


def test_pure_events_never_exceed_their_sum():
    assert compose([PureDP(0.5), PureDP(0.25)], 1e-9).epsilon <= 0.75 * (1 + 1e-9)
    assert compose([PureDP(0.01)] * 1000, 1e-6).epsilon < 2.0


def test_approximate_events():
    """No room beside their deltas: the plain sum. Room: they are pure with probability prod (1 - delta_i)."""
    assert compose([ApproximateDP(1.0, 1e-5)], 1e-5).epsilon == pytest.approx(1.0, rel=1e-9)
    assert compose([ApproximateDP(1.0, 0.1)] * 2, 0.19).epsilon == pytest.approx(2.0, rel=1e-6)
    pure, finite = [PureDP(0.01)] * 1000, (1 - 1e-9) ** 1000
    many = [ApproximateDP(0.01, 1e-9)] * 1000
    room = (1e-5 - (1 - finite)) / finite
    assert compose(many, 1e-5).epsilon == pytest.approx(compose(pure, room).epsilon, rel=1e-9)
    assert compose(many, 1e-5).epsilon < 0.85 * advanced_composition([0.01] * 1000, [1e-9] * 1000, 9e-6)[0]
    mixed = compose([*many, Gaussian(0.2)], 1e-5).epsilon
    assert mixed == pytest.approx(compose([*pure, Gaussian(0.2)], room).epsilon, rel=1e-9)
    curve = Renyi(lambda alpha: alpha / 50)  # that of Gaussian(0.2)
    renyi = compose([*many, curve], 1e-5)
    assert renyi.accountant == "Renyi"
    assert renyi.epsilon == pytest.approx(compose([*pure, curve], room).epsilon, rel=1e-9)
    assert mixed < renyi.epsilon < 1.1 * mixed


def test_a_gaussian_with_a_pure_part_is_both():
    """Beside events that are known by one (epsilon, delta), and beside Renyi curves."""
    together, apart = [Gaussian(0.7, pure=0.4)], [Gaussian(0.7), PureDP(0.4)]
    for other in (ApproximateDP(0.1, 1e-6), Renyi(lambda alpha: alpha / 50)):
        one, same = (compose([*events, other], 1e-4) for events in (together, apart))
        assert one.accountant == same.accountant
        assert one.epsilon == pytest.approx(same.epsilon, rel=1e-6)
        assert one.epsilon > compose([Gaussian(0.7), other], 1e-4).epsilon + 0.1


def test_a_curve_is_a_renyi_event():
    assert compose([Renyi(lambda alpha: alpha / 8)], 1e-5).epsilon == rdp_epsilon(lambda alpha: alpha / 8, 1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e300])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("mu", Gaussian),
        ("epsilon", PureDP),
        ("epsilon", lambda v: ApproximateDP(v, 0.0)),
        ("delta", lambda v: ApproximateDP(1.0, v)),
        ("delta", lambda v: compose([Gaussian(1.0)], v)),
    ],
)
def test_bad_numbers_end_in_a_sentence(name, function, value):
    with pytest.raises((ValueError, TypeError), match=f"^{name} must .* got "):
        function(value)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda: Renyi(0.3), TypeError, "curve must be a function of alpha, got 0.3"),  # pyright: ignore
        (lambda: compose([], 0.1), ValueError, "events must not be empty"),
        (lambda: compose([0.3], 0.1), TypeError, "events must be privacy events, got 0.3"),  # pyright: ignore
        (
            lambda: compose([ApproximateDP(1.0, 0.2)], 0.1),
            ValueError,
            "delta must exceed the events' own deltas, 0.2 together, got 0.1",
        ),
        (lambda: compose([ApproximateDP(1.0, 0.1), Gaussian(1.0)], 0.1), ValueError, "delta must exceed"),
        (lambda: compose([ApproximateDP(1.0, 1.0)], 0.1), ValueError, "own deltas, 1 together, got 0.1"),
        (
            lambda: compose([ApproximateDP(1.0, 0.1), Renyi(lambda alpha: alpha)], 0.1),
            ValueError,
            "delta must exceed the events' own deltas, 0.1 together",
        ),
        (
            lambda: compose([Gaussian(6e3)] * 4, 1e-5),
            ValueError,
            "events must have a mu of at most 10000 together, got 12",
        ),
        (lambda: PureDP(800.0).to_dp_accounting(), ValueError, "epsilon must be at most 700 .* got 800"),
    ],
)
def test_bad_arguments(function, error, words):
    with pytest.raises(error, match=words):
        function()


@pytest.mark.parametrize("delta", [1e-300, 1 - 1e-12])
def test_extremes_are_finite(delta):
    for event in (Gaussian(1e4), Gaussian(0.0), PureDP(1e6), PureDP(0.0), PureDP(1e-300)):
        for events in ([event], [event, PureDP(1.0)]):
            assert 0 <= compose(events, delta).epsilon < 1e9


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-7), (4.0, 1e-5)])
def test_another_accountant_agrees(epsilon, delta):
    """Reviewers may account again, with a tool that they trust: it finds the same epsilon, within 1 %."""
    env = fb.envs.sphere(4, 3, 2, rewards="bernoulli")
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(epsilon, delta))
    certificate = algo.certificate(env.spec, 400)
    event = fb.privacy.calibrate(fb.privacy.Budget(epsilon, delta), n_syncs=16).event
    accountant = pld.PLDAccountant().compose(event.to_dp_accounting())
    assert accountant.get_epsilon(delta) == pytest.approx(certificate.epsilon_exact, rel=0.01)
    twice = pld.PLDAccountant().compose(event.to_dp_accounting(), 2)
    assert twice.get_epsilon(delta) == pytest.approx(compose([event, event], delta).epsilon, rel=0.01)
    pure = pld.PLDAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    assert pure.compose(PureDP(epsilon).to_dp_accounting()).get_epsilon(delta) == pytest.approx(epsilon, rel=0.01)
    concentrated = rdp.RdpAccountant().compose(dp_accounting.ZCDpEvent(0.05, 0.0))
    ours = compose([Renyi(lambda alpha: 0.05 * alpha)], delta)
    assert concentrated.get_epsilon(delta) == pytest.approx(ours.epsilon, rel=0.01)


def test_what_another_accountant_has_no_event_for():
    with pytest.raises(ValueError, match="pure must be 0 for an event of dp_accounting, got 0.5"):
        Gaussian(1.0, 0.5).to_dp_accounting()
    assert isinstance(Gaussian(0.0).to_dp_accounting(), dp_accounting.NoOpDpEvent)
