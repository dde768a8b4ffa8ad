"""Audits of functions: true claims pass, and false ones are caught by a stated margin."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.audits.black_box import audit
from fedbandit_jax.core import backend
from fedbandit_jax.privacy import gaussian_epsilon, gaussian_mu
from fedbandit_jax.report.findings import Audit, table


def honest(key, x):
    return x + jax.random.normal(key, jnp.shape(x))


def gaussian(key, data):
    """x + sigma N(0, 1)."""
    x, sigma = data
    return x + sigma * jax.random.normal(key, x.shape)


def laplace(key, data):
    x, scale = data
    return x + scale * jax.random.laplace(key, x.shape)


def randomized_response(key, data):
    bit, epsilon = data
    return jnp.where(jax.random.bernoulli(key, jax.nn.sigmoid(epsilon)), bit, 1 - bit).astype(jnp.int32)


def never_added(key, data):
    x, sigma = data
    return jnp.stack([x, sigma * jax.random.normal(key)])


def shared_draw(key, data):
    """One draw for two releases that differ in their sensitivity: their difference is noiseless."""
    x, sigma = data
    return jnp.stack([1000 + x, 0.5 * x]) + sigma * jax.random.normal(key)


def sides(claim, factor=1.0, shape=(1,)):
    """Zeros and ones, and the noise of a Gaussian mechanism with `factor` times the ratio that the claim allows."""
    sigma = np.float32(1 / (factor * gaussian_mu(*claim)))
    return (np.zeros(shape, np.float32), sigma), (np.ones(shape, np.float32), sigma)


def run(mechanism, pair, claim, key, **options):
    return audit(mechanism, *pair, epsilon=claim[0], delta=claim[1], key=key, **options)


# Lower bounds at N = 1e5: Clopper-Pearson, Gaussian DP; and the standard deviation of each over 12 audits.
EXPECTED = {
    (1.0, 0.1): ((0.927, 0.015), (0.943, 0.010)),
    (5.0, 0.1): ((4.47, 0.19), (4.88, 0.025)),
    (1.0, 1e-5): ((0.46, 0.042), (0.974, 0.003)),
}


@pytest.mark.parametrize("claim", EXPECTED)
def test_exact_noise_passes_and_the_bounds_are_tight(key, claim):
    a = run(gaussian, sides(claim), claim, key, gaussian=True)
    (cp, cp_error), (gdp, gdp_error) = EXPECTED[claim]
    assert a.passed, a.reasons
    assert cp - 4 * cp_error < a.epsilon_cp <= a.epsilon_lower <= claim[0]  # a better threshold may show more
    assert gaussian_epsilon(a.mu_lower, claim[1]) == pytest.approx(gdp, abs=4 * gdp_error)
    assert (a.n_runs, a.mu_lower <= gaussian_mu(*claim)) == (100_000, True)


@pytest.mark.parametrize("claim", EXPECTED)
def test_too_little_gaussian_noise_is_caught(key, claim):
    """Calibration to one stream instead of both. It is said if views must be Gaussian, as promised."""
    factor = math.sqrt(4.5 / 2)
    a = run(gaussian, sides(claim, factor), claim, key, gaussian=True, n_runs=20_000)
    assert (a.passed, a.mu_lower <= factor * gaussian_mu(*claim)) == (False, True)
    assert f"{a.epsilon_lower:.4g} " in a.reasons[0]
    assert ("Gaussian" in a.reasons[0]) == ("Gaussian" in a.bound)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("mechanism", [laplace, randomized_response])
def test_pure_dp(key, mechanism, epsilon):
    """Clopper-Pearson at delta = 0, on a continuous and on a discrete view: the truth passes, double is caught."""
    for true, passed in ((epsilon, True), (2 * epsilon, False)):
        parameter = np.float32(1 / true if mechanism is laplace else true)
        pair = (np.float32(0), parameter), (np.float32(1), parameter)
        a = run(mechanism, pair, (epsilon, 0.0), key, n_runs=20_000)
        assert a.passed == passed
        assert 0.75 * true < a.epsilon_lower <= true
        assert (a.bound, a.mu_lower) == ("Clopper-Pearson", None)
        assert a.same_control_flow == (mechanism is laplace)  # a bit may be the answer: none is claimed


@pytest.mark.slow
def test_coverage():
    """At equality a claim fails in at most 5 % of 70 audits, plus 3 standard errors, by any choice of the test."""
    repeats, allowed = 70, 0.05 + 3 * math.sqrt(0.05 * 0.95 / 70)
    claim = (1.0, 0.1)
    for mechanism, pair, options in (
        (gaussian, sides(claim), {"gaussian": True}),
        (randomized_response, ((np.float32(0), np.float32(1)), (np.float32(1), np.float32(1))), {}),
    ):
        delta = 0.1 if options else 0.0
        found = [run(mechanism, pair, (1.0, delta), jax.random.key(i), n_runs=2000, **options) for i in range(repeats)]
        assert np.mean([not a.passed for a in found]) <= allowed
        assert np.mean([a.epsilon_lower for a in found]) > 0.6  # not by claiming nothing


@pytest.mark.parametrize(
    ("mechanism", "moved", "sigma"), [(never_added, 1e-3, 10), (shared_draw, 1, 1), (shared_draw, 1, 1000)]
)
def test_noise_that_is_missing_or_shared(key, mechanism, moved, sigma):
    pair = ((np.float32(x), np.float32(sigma)) for x in (0.5, 0.5 + moved))
    assert run(mechanism, pair, (5.0, 1e-5), key, n_runs=20_000).epsilon_lower > 7.5


def test_schedule_that_depends_on_the_data(key):
    """Found by the statistic, and by replaying equal keys; deterministic, so 7.9 is shown by 1e4 runs."""

    def adaptive_schedule(key, data):
        """The noise is right, but when the first of 16 synchronisations happens follows the data."""
        x, sigma = data
        total = jnp.cumsum(jnp.full(16, 0.2).at[0].add(x))
        return {"sum": total[-1] + sigma * jax.random.normal(key), "first": jnp.argmax(total > 2)}

    a = run(adaptive_schedule, sides((1.0, 1e-5), shape=()), (1.0, 1e-5), key, n_runs=20_000, fixed_control_flow=True)
    assert not a.same_control_flow
    assert a.epsilon_lower == pytest.approx(7.9, abs=0.02)
    assert len(a.reasons) == 2


def norm(view, other):
    return np.linalg.norm(view["sum"] - other["sum"])


def far(moved, mechanism, key, **options):
    """The audit of a mechanism that a user moves by `moved`, and what single runs with equal keys differ by."""
    x, y = np.zeros(40, np.float32), np.full(40, moved / 40**0.5, np.float32)
    asked = dict(epsilon=9.0, delta=0.1, key=key, n_runs=8000, sensitivity=1.0, measure=norm)
    return audit(mechanism, x, y, **asked | options), norm(mechanism(key, x), mechanism(key, y))


@pytest.mark.parametrize("moved", [1.0, 2.0])
def test_sensitivity_is_measured(key, moved):
    """Far below what the claim could show, equal keys still see the difference of the views."""

    def mechanism(key, x):
        return {"sum": x + 100 * jax.random.normal(key, x.shape), "synced": jnp.arange(3)}

    a, _ = far(moved, mechanism, key, n_runs=1000)
    assert a.sensitivity_measured == pytest.approx(moved, rel=1e-3)
    assert (a.passed, len(a.reasons)) == ((True, 0) if moved == 1 else (False, 1))
    assert a.same_control_flow


@pytest.mark.parametrize("measure", [norm, lambda view, other: np.nan])
def test_sensitivity_that_cannot_be_measured_fails(key, measure):
    """All runs differ in a bool as well, so that no two of them tell how far sums move; or a measure fails."""

    def mechanism(key, x):
        return {"sum": x + 100 * jax.random.normal(key, x.shape), "long": (measure is norm) & (x[0] > 1)}

    a, _ = far(600.0, mechanism, key, n_runs=1000, measure=measure)
    assert np.isnan(a.sensitivity_measured)
    assert not make(sensitivity_measured=a.sensitivity_measured).passed
    assert not a.passed


@pytest.mark.parametrize("moved", [1.0, 1.5])
def test_rounding_after_the_noise_moves_no_more(key, moved):
    """Single runs differ by steps of the grid, four times the sensitivity; their means by what the user moves."""

    def mechanism(key, x):
        return {"sum": 2 * jnp.round((x + 10 * jax.random.normal(key, x.shape)) / 2)}

    a, single = far(moved, mechanism, key)
    assert single > 2 * moved
    assert a.passed == (moved == 1)
    assert 0.8 * moved < a.sensitivity_measured <= moved


def test_hidden_randomness_is_caught(key):
    rng, shape = np.random.default_rng(0), jax.ShapeDtypeStruct((), np.float32)

    def hidden(words):
        return rng.standard_normal(words.shape[:-1], np.float32)

    def mechanism(key, x):
        return x + jax.pure_callback(hidden, shape, jax.random.key_data(key), vmap_method="expand_dims")

    a = audit(mechanism, np.float32(0), np.float32(0), epsilon=1.0, delta=0.1, key=key, n_runs=1000)
    assert (a.deterministic, a.passed, len(a.reasons)) == (False, False, 1)


@pytest.mark.slow
def test_many_correlated_coordinates(key):
    """The statistic found in 48 dimensions is within 10 % of the likelihood ratio, mu = |C^-1/2 (x - y)|."""
    rng = np.random.default_rng(3)
    mix = rng.standard_normal((48, 48)).astype(np.float32) * np.geomspace(1e-3, 1e3, 48, dtype=np.float32)[:, None]
    gap = (mix @ rng.standard_normal(48)).astype(np.float32)

    def mechanism(key, x):
        return x + mix @ jax.random.normal(key, (48,))

    for mu in (0.4, 2.0):
        y = gap * np.float32(mu / np.linalg.norm(np.linalg.solve(mix.astype(float), gap.astype(float))))
        a = audit(mechanism, 0 * y, y, epsilon=50, delta=0.1, key=key, gaussian=True)
        assert 0.9 * mu < a.mu_lower <= mu


def test_equal_data_shows_nothing(key):
    for mechanism in (gaussian, lambda key, data: data[0]):
        x = (np.ones(2, np.float32), 1.0)  # a number of Python is data, too
        a = audit(mechanism, x, x, epsilon=0.05, delta=1e-5, key=key, n_runs=2000, gaussian=True)
        assert a.passed
        assert a.epsilon_lower < 0.05


TRACED = []


@fb.pytree
class Scaled:
    """A Gaussian mechanism that is a pytree."""

    sigma: float

    def __call__(self, key, x):
        TRACED.append(1)
        return x + self.sigma * jax.random.normal(key, x.shape)


def test_mechanisms_that_are_pytrees_share_a_program(key):
    """And numbers in them are those that run: half of the noise is caught by the program of the right one."""
    x, sigma = np.zeros(1, np.float32), np.float32(1 / gaussian_mu(1.0, 0.1))
    asked = [(sigma, key), (sigma, key), (sigma, jax.random.key(1)), (sigma / 2, key)]
    found = [audit(Scaled(sigma=s), x, x + 1, epsilon=1, delta=0.1, key=k, n_runs=4001) for s, k in asked]
    assert len(TRACED) <= 1 + len(asked)  # shapes, and one program for both sides and all chunks
    assert [(one.passed, one.n_runs) for one in found] == [(True, 4001)] * 3 + [(False, 4001)]
    assert found[0].epsilon_lower == found[1].epsilon_lower != found[2].epsilon_lower


def test_the_pair_that_shows_most_is_tested(key):
    """Of three pairs one differs, and there only the second entry; the claim fails by name of that pair."""
    x, sigma = np.zeros(2, np.float32), np.float32(1)
    far = np.array([0, 3], np.float32)
    others = {"reward": ((x, sigma), (x, sigma)), "last user": ((x, sigma), (far, sigma))}
    a = audit(gaussian, (x, sigma), (x, sigma), others=others, epsilon=1.0, delta=0.1, key=key, n_runs=4000)
    assert not a.passed
    assert (a.which, a.statistic) == ("last user", "linear")
    assert "last user" in str(a)


def make(**changes):
    shown = dict(epsilon_lower=0.9, bound="Gaussian DP", epsilon_cp=0.8, mu_lower=0.7, statistic="linear")
    moved = dict(sensitivity=2.0, sensitivity_measured=2.0, which="last user")
    replayed = dict(fixed_control_flow=True, same_control_flow=True, deterministic=True)
    asked = dict(name="tree, tight", epsilon=1.0, delta=0.1, confidence=0.95, n_runs=100_000, seconds=3.21)
    return Audit(**{**shown, **moved, **replayed, **asked, **changes})


@pytest.mark.parametrize(
    "change",
    [
        *({"epsilon_lower": value} for value in (1.01, math.nan)),
        *({"sensitivity_measured": value} for value in (2.01, math.nan)),
        {"same_control_flow": False},
        {"deterministic": False},
    ],
)
def test_verdicts_and_reports(change):
    one = make(**change)
    assert (make().passed, one.passed, len(one.reasons)) == (True, False, 1)
    assert max(map(len, str(one).splitlines())) <= 100
    cells = table([make(), make(name="x", **change)]).splitlines()[-1].split()
    assert (cells[0], "FAIL" in cells, cells[-2:]) == ("x", True, ["100,000", "3.2"])


REFUSED = {  # argument -> changes
    "delta": [{"delta": 0.0, "gaussian": True}, {"delta": 0.0, "scheduled": True}],
    "gaussian": [{"scheduled": True, "gaussian": True}],
    "sensitivity": [{"sensitivity": 2.0}],  # without a measure
    "data": [{"neighbour": np.zeros(2)}, {"neighbour": (np.zeros(1),)}, {"data": {"x": "far"}}, {"data": [1e300]}],
    "data of others['last']": [{"others": {"last": (np.zeros(3), np.ones(1))}}],
    "others": [{"others": {"as given": (np.zeros(1), np.ones(1))}}, {"others": {"last": np.zeros(2)}}],
    "mechanism": [
        {"measure": 3},
        *({"mechanism": made} for made in (3, lambda key: key, lambda key, x: (), lambda key, x: key)),
        {"mechanism": lambda key, x: jnp.zeros(1001)},
        {"mechanism": lambda key, x: 1 / x},  # infinite on data
        {"mechanism": lambda key, x: 2**24 + x.astype(jnp.int32)},  # floats are no such integers
        {"mechanism": lambda key, x: -(2**31) + x.astype(jnp.int32)},
    ],
}


@pytest.mark.parametrize(("argument", "change"), [(name, one) for name, some in REFUSED.items() for one in some])
def test_bad_arguments(key, argument, change):
    arguments = dict(mechanism=honest, data=np.zeros(1), neighbour=np.ones(1), epsilon=1.0, delta=0.1, n_runs=1000)
    with refused(argument):
        audit(**{**arguments, **change}, key=key)


@pytest.mark.parametrize("level", [0, 1])
def test_quick_options_are_known_to_xla(level):
    """Were one not, audits would take three times as long, and nobody would know why."""
    options = backend.quick_options(level)
    assert (options is not None) == backend.on_cpu()
