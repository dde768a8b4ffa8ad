import math

import dp_accounting
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.privacy import Budget, calibrate, gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.accounting.gaussian import log_delta

EPSILONS = st.floats(1e-4, 50)
DELTAS = st.floats(-40, -0.01).map(math.exp)

# privacy.md section 3: S = 400 (kappa = 9); mu*, then sigma^2 by theorem, released, tight zero_out, tight replace.
TABLE = {
    (0.2, 0.1): (0.43497, 5752.3, 563.1, 95.1, 214.1),
    (1.0, 0.1): (0.92091, 287.7, 29.7, 21.2, 47.8),
    (5.0, 0.1): (2.35271, 23.03, 2.63, 3.25, 7.32),
    (1.0, 1e-5): (0.26805, 950.8, 112.6, 250.5, 563.7),
}


@pytest.mark.parametrize("budget", TABLE)
def test_calibration_table(budget):
    mu, theorem, released, zero_out, replace = TABLE[budget]
    assert gaussian_mu(*budget) == pytest.approx(mu, abs=5e-6)

    def variance(method, adjacency="replace"):
        return calibrate(Budget(*budget, adjacency), n_syncs=400, method=method).sigma ** 2

    assert variance("theorem") == pytest.approx(theorem, rel=2e-4)
    assert variance("authors") == pytest.approx(released, rel=2e-3)
    assert variance("tight", "zero_out") == pytest.approx(zero_out, rel=2e-3)
    assert variance("tight", "replace") == pytest.approx(replace, rel=2e-3)


def test_calibration_table_to_four_digits():
    """The same table, our own arithmetic in closed form; noise is a float32 number, rounded up."""
    for (epsilon, delta), _ in TABLE.items():
        sigma_sq = calibrate(Budget(epsilon, delta), n_syncs=400, method="theorem").sigma ** 2
        assert sigma_sq == pytest.approx(8 * 9 * (math.log(2 / delta) + epsilon) / epsilon**2, rel=1e-6)
        for adjacency, joint in (("replace", 4.5), ("zero_out", 2.0)):
            tight = calibrate(Budget(epsilon, delta, adjacency), n_syncs=400).sigma ** 2
            exact = 9 * joint * dp_accounting.get_sigma_gaussian(epsilon, delta) ** 2
            assert tight == pytest.approx(exact, rel=1e-6)


def test_released_noise_really_gives():
    """privacy.md section 3: at (5, 0.1) the released code gives 5.98 under zero_out, 11.9 under replace."""
    for adjacency, epsilon in (("zero_out", 5.98), ("replace", 11.9)):
        c = calibrate(Budget(5.0, 0.1, adjacency), n_syncs=400, method="authors")
        assert c.epsilon_exact == pytest.approx(epsilon, rel=3e-3)
        assert not c.sound


@settings(max_examples=200, deadline=None)
@given(EPSILONS, DELTAS)
def test_calibration_is_never_optimistic(epsilon, delta):
    """mu is rounded down: the exact delta at epsilon never exceeds the one asked for, and epsilon is recovered."""
    mu = gaussian_mu(epsilon, delta)
    assert log_delta(epsilon, mu) <= math.log(delta)
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-5, abs=1e-7)
    assert dp_accounting.get_epsilon_gaussian(1 / mu, delta) <= epsilon * (1 + 1e-9) + 1e-12


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 20), DELTAS)
def test_epsilon_is_never_optimistic(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon == 0:
        assert 2 * 0.5 * math.erf(mu / 2 / math.sqrt(2)) <= delta * (1 + 1e-9)
    else:
        assert log_delta(epsilon, mu) <= math.log(delta) + 1e-12
        assert dp_accounting.get_epsilon_gaussian(1 / mu, delta) <= epsilon * (1 + 1e-9) + 1e-12


def test_a_pure_part_that_leaves_nothing():
    with pytest.raises(ValueError, match="pure must leave more of epsilon = 1 at delta = 1e-13 for noise, got 0.9999"):
        gaussian_mu(1.0, 1e-13, pure=1 - 1e-15)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-7, 1e-4])
@pytest.mark.parametrize("delta", [1e-30, 1e-5, 0.1, 0.999])
def test_small_budgets(epsilon, delta):
    """Noise for them is certified, and epsilon is never below what 50 digits give."""
    assert calibrate(Budget(epsilon, delta), n_syncs=8).sound
    mp = pytest.importorskip("mpmath")
    with mp.workdps(50):
        m, e = mp.mpf(1.001 * gaussian_mu(epsilon, delta)), mp.mpf(epsilon)
        exact = mp.ncdf(-e / m + m / 2) - mp.exp(e) * mp.ncdf(-e / m - m / 2)
        rounded = exact - mp.mpf(float(exact))  # a step of Newton's method makes up for it
        low = float(e + rounded / (mp.exp(e) * mp.ncdf(-e / m - m / 2)))
    assert low <= gaussian_epsilon(float(m), float(exact)) <= low * (1 + 1e-5) + 1e-10


def test_agrees_with_privacy_loss_distributions():
    """An independent accountant: nine Gaussian releases composed numerically by dp-accounting."""
    c = calibrate(Budget(1.0, 1e-5), n_syncs=400)
    accountant = pld.PLDAccountant()
    noise_multiplier = c.sigma / math.sqrt(c.budget.joint_sensitivity_sq)
    accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier), int(c.releases_per_user))
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, abs=2e-3)


def test_wrong_sensitivities_are_rejected():
    """Controls: each classical mistake gives an epsilon clearly above the budget."""
    sigma = calibrate(Budget(1.0, 1e-5), n_syncs=400).sigma
    honest = math.sqrt(9 * 4.5) / sigma
    for name, factor in {"kappa=1": 3.0, "one stream": math.sqrt(4.5 / 2), "halved": 2.0}.items():
        assert gaussian_epsilon(honest * factor, 1e-5) > 1.4, name


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 10.0, 300.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.5, 5.0, 100.0])
def test_log_delta_against_high_precision(mu, epsilon):
    mp = pytest.importorskip("mpmath")
    with mp.workdps(60):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        exact = mp.ncdf(-e / m + m / 2) - mp.exp(e) * mp.ncdf(-e / m - m / 2)
        if exact > mp.mpf(10) ** -45:
            assert log_delta(epsilon, mu) == pytest.approx(float(mp.log(exact)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 0.1), "epsilon must be finite and > 0, got 0.0"),
        ((-1.0, 0.1), "epsilon must be finite and > 0, got -1.0"),
        ((math.nan, 0.1), "epsilon must be finite and > 0, got nan"),
        ((math.inf, 0.1), "epsilon must be finite and > 0, got inf"),
        ((1.0, 0.0), r"delta must be in \(0, 1\), got 0.0"),
        ((1.0, 1.0), r"delta must be in \(0, 1\), got 1.0"),
        ((1.0, math.nan), r"delta must be in \(0, 1\), got nan"),
        ((1.0, 0.1, "swap"), "adjacency must be one of 'replace', 'zero_out', got 'swap'"),
    ],
)
def test_bad_budgets(arguments, words):
    with pytest.raises(ValueError, match=words):
        Budget(*arguments)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"n_syncs": 0}, ValueError, "n_syncs must be >= 1, got 0"),
        ({"n_syncs": 2.5}, TypeError, "n_syncs must be an integer >= 1, got 2.5"),
        (
            {"method": "guess"},
            ValueError,
            "method must be one of 'tight', 'theorem', 'authors', got 'guess'",
        ),
        ({"release": "bush"}, ValueError, "release must be one of .* got 'bush'"),
        ({"budget": 1.0}, TypeError, "budget must be an fb.privacy.Budget, got 1.0"),
    ],
)
def test_bad_calibrations(change, error, words):
    with pytest.raises(error, match=words):
        calibrate(**{"budget": Budget(1.0, 0.1), "n_syncs": 8, **change})


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 30.0, 1e6])
@pytest.mark.parametrize("delta", [1e-300, 1e-9, 0.5, 1 - 1e-12])
@pytest.mark.parametrize("method", ["tight", "theorem", "authors"])
def test_extreme_budgets_have_finite_noise(epsilon, delta, method):
    """Or are refused, where delta is below the mass of the tails that are never drawn, 2 10^9 times 2^-127."""
    if delta == 1e-300:
        with pytest.raises(ValueError, match="delta must be larger than 2.35e-29, .* got 1e-300"):
            calibrate(Budget(epsilon, delta), n_syncs=10**9, method=method)
        return
    c = calibrate(Budget(epsilon, delta), n_syncs=10**9, method=method)
    assert 0 < c.sigma < math.inf
    assert c.releases_per_user == 30
    mu = c.sensitivity / c.sigma
    charged = 2e9 * 2.0**-127 * math.exp(min(gaussian_epsilon(mu, delta), 700))
    assert c.epsilon_exact >= 0
    assert math.isinf(c.epsilon_exact) or charged < delta
    assert math.isfinite(c.epsilon_exact) or charged > delta / 100


@pytest.mark.parametrize("epsilon", [1e-300, 1e300])
def test_budgets_beyond_float64_end_in_a_sentence(epsilon):
    for function in (lambda: Budget(epsilon, 0.1), lambda: gaussian_mu(epsilon, 0.1)):
        with pytest.raises(ValueError, match=r"epsilon must be in \[1e-09, 1000000\], got "):
            function()
    with pytest.raises(ValueError, match=r"mu must be in \[0, 10000\], got "):
        gaussian_epsilon(1e300, 0.1)


@pytest.mark.parametrize(("mu", "pure"), [(0.8, 0.1), (0.3, 0.5), (2.0, 1.5)])
def test_beside_a_pure_mechanism(mu, pure):
    """Against dp-accounting's numerical composition of the Gaussian with randomised response."""
    flip = pld.privacy_loss_distribution.from_randomized_response(
        2 / (1 + math.exp(pure)), 2, value_discretization_interval=1e-4
    )
    both = flip.compose(
        pld.privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    )
    for delta in (0.1, 1e-3, 1e-6):
        epsilon = gaussian_epsilon(mu, delta, pure)
        assert epsilon == pytest.approx(both.get_epsilon_for_delta(delta), rel=1e-3, abs=1e-3)
        assert gaussian_epsilon(mu, delta) < epsilon < gaussian_epsilon(mu, delta) + pure + 1e-9
        if epsilon > pure:
            assert gaussian_mu(epsilon, delta, pure) == pytest.approx(mu, rel=1e-6)


def test_pure_must_leave_something():
    with pytest.raises(ValueError, match=r"pure must be in \[0, epsilon = 1\), got 1.0"):
        gaussian_mu(1.0, 0.1, pure=1.0)


def test_little_noise_beside_a_pure_mechanism():
    """mu near 0: what is left is the pure mechanism."""
    assert gaussian_epsilon(1e-9, 0.01, pure=0.1) == pytest.approx(gaussian_epsilon(1e-6, 0.01, pure=0.1), abs=2e-4)
    assert 0 < gaussian_epsilon(1e-9, 0.01, pure=0.1) < 0.1
