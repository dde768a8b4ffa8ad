import math

import jax
import jax.numpy as jnp
import matplotlib.colors
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.audits.black_box import audit
from fedbandit_jax.core import backend
from fedbandit_jax.privacy import gaussian_epsilon, gaussian_mu
from fedbandit_jax.report import plotting
from fedbandit_jax.report.findings import Audit, table


def gaussian(key, data):
    """x + sigma N(0, 1)."""
    x, sigma = data
    return x + sigma * jax.random.normal(key, x.shape)


def laplace(key, data):
    x, scale = data
    return x + scale * jax.random.laplace(key, x.shape)


def randomized_response(key, data):
    bit, epsilon = data
    return jnp.where(jax.random.bernoulli(key, jax.nn.sigmoid(epsilon)), bit, 1 - bit)


def never_added(key, data):
    x, sigma = data
    return jnp.stack([x, sigma * jax.random.normal(key)])


def shared_draw(key, data):
    """One draw for two releases that differ in their sensitivity: their difference is noiseless."""
    x, sigma = data
    return jnp.stack([1000 + x, 0.5 * x]) + sigma * jax.random.normal(key)


def adaptive_schedule(key, data):
    """The noise is right, but when the first of 16 synchronisations happens follows the data."""
    x, sigma = data
    total = jnp.cumsum(jnp.full(16, 0.2).at[0].add(x))
    return {"sum": total[-1] + sigma * jax.random.normal(key), "first": jnp.argmax(total > 2)}


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
@pytest.mark.parametrize("factor", [2.0, math.sqrt(4.5 / 2)])
def test_too_little_gaussian_noise_is_caught(key, claim, factor):
    """Half the noise; calibration to one stream instead of both."""
    a = run(gaussian, sides(claim, factor), claim, key, gaussian=True)
    assert not a.passed
    given = " if views are Gaussian, as promised" * ("Gaussian" in a.bound)
    shown = f"at least {a.epsilon_lower:.4g} with confidence 0.95{given}"
    assert a.reasons[0] == f"epsilon is {shown}, claimed {claim[0]:g}"
    assert f">= {a.epsilon_lower:.4g} (confidence 0.95{given};" in " ".join(str(a).split())
    assert a.mu_lower <= factor * gaussian_mu(*claim)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("mechanism", [laplace, randomized_response])
def test_pure_dp(key, mechanism, epsilon):
    """Clopper-Pearson at delta = 0, on a continuous and on a discrete view: the truth passes, double is caught."""
    for true, passed in ((epsilon, True), (2 * epsilon, False)):
        parameter = np.float32(1 / true if mechanism is laplace else true)
        pair = (np.float32(0), parameter), (np.float32(1), parameter)
        a = run(mechanism, pair, (epsilon, 0.0), key)
        assert a.passed == passed
        assert 0.85 * true < a.epsilon_lower <= true
        assert (a.bound, a.mu_lower) == ("Clopper-Pearson", None)


@pytest.mark.slow
def test_coverage():
    """At equality a claim fails in at most 5 % of 70 audits, plus 3 standard errors, whatever chooses the test.

    `test_statistics` tries each bound by itself 1,000 times.
    """
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


def test_noise_drawn_but_never_added(key):
    pair = (np.float32(0.5), np.float32(10)), (np.float32(0.501), np.float32(10))
    assert run(never_added, pair, (5.0, 1e-5), key).epsilon_lower > 9


@pytest.mark.parametrize("sigma", [1.0, 1000.0])
def test_one_draw_shared_by_two_releases(key, sigma):
    pair = (np.float32(0), np.float32(sigma)), (np.float32(1), np.float32(sigma))
    a = run(shared_draw, pair, (5.0, 1e-5), key)
    assert not a.passed
    assert a.epsilon_lower > 9


def test_schedule_that_depends_on_the_data(key):
    """Found by the statistic, and by replaying equal keys; deterministic, so 7.9 is shown by 1e4 runs."""
    a = run(adaptive_schedule, sides((1.0, 1e-5), shape=()), (1.0, 1e-5), key, n_runs=20_000, fixed_control_flow=True)
    assert not a.same_control_flow
    assert a.epsilon_lower == pytest.approx(7.9, abs=0.02)
    assert [reason.split(" ")[0:3] for reason in a.reasons] == [["epsilon", "is", "at"], ["the", "control", "flow"]]
    assert "different" in str(a)


@pytest.mark.parametrize("moved", [1.0, 2.0])
def test_sensitivity_is_measured(key, moved):
    """Far below what the claim could show, equal keys still see the difference of the views."""

    def norm(view, other):
        return np.linalg.norm(view["sum"] - other["sum"])

    def mechanism(key, x):
        return {"sum": x + 100 * jax.random.normal(key, x.shape), "synced": jnp.arange(3)}

    x = np.zeros(4, np.float32)
    a = audit(mechanism, x, x + moved / 2, epsilon=1.0, delta=0.1, key=key, n_runs=1000, sensitivity=1.0, measure=norm)
    assert a.sensitivity_measured == pytest.approx(moved, rel=1e-3)
    assert a.passed == (moved == 1)
    assert [reason[:29] for reason in a.reasons] == ([] if moved == 1 else ["the sensitivity is at least 2"])
    assert a.same_control_flow


def test_sensitivity_that_cannot_be_measured_fails(key):
    """All runs differ in a bool as well, so that no two of them tell how far sums move."""

    def mechanism(key, x):
        return {"sum": x + 100 * jax.random.normal(key, x.shape), "long": x[0] > 1}

    x = np.zeros(4, np.float32)
    options = dict(epsilon=9.0, delta=0.1, key=key, n_runs=1000, fixed_control_flow=False, sensitivity=1.0)
    a = audit(mechanism, x, x + 100, **options, measure=lambda view, other: np.linalg.norm(view["sum"] - other["sum"]))
    assert np.isnan(a.sensitivity_measured)
    assert any("the sensitivity could not be measured" in reason for reason in a.reasons)
    pairs = dict(epsilon=9.0, delta=0.1, key=key, n_runs=1000, sensitivity=1.0)
    a = audit(lambda key, x: x + jax.random.normal(key, x.shape), x, x, **pairs, measure=lambda view, other: np.nan)
    assert np.isnan(a.sensitivity_measured)
    assert not a.passed


@pytest.mark.parametrize("moved", [1.0, 1.5])
def test_rounding_after_the_noise_moves_no_more(key, moved):
    """Single runs differ by steps of the grid, four times the sensitivity; their means by what the user moves."""

    def mechanism(key, x):
        return 2 * jnp.round((x + 10 * jax.random.normal(key, x.shape)) / 2)

    x, y = np.zeros(40, np.float32), np.full(40, moved / 40**0.5, np.float32)
    size = lambda view, other: np.linalg.norm(view - other)  # noqa: E731
    options = dict(epsilon=1.0, delta=0.1, key=key, n_runs=8000, sensitivity=1.0, measure=size)
    a = audit(mechanism, x, y, **options)
    single = np.linalg.norm(mechanism(key, x) - mechanism(key, y))
    assert single > 2 * moved
    assert a.passed == (moved == 1)
    assert 0.8 * moved < a.sensitivity_measured <= moved


def test_hidden_randomness_is_caught(key):
    rng = np.random.default_rng(0)

    def mechanism(key, x):
        shape = jax.ShapeDtypeStruct((), np.float32)
        hidden = jax.pure_callback(
            lambda k: rng.standard_normal(k.shape[:-1], np.float32), shape, jax.random.key_data(key),
            vmap_method="expand_dims",
        )  # fmt: skip
        return x + hidden

    a = audit(mechanism, np.float32(0), np.float32(0), epsilon=1.0, delta=0.1, key=key, n_runs=1000)
    assert not a.deterministic
    assert a.reasons == ("equal keys and data gave different views: some randomness is not from the key",)


@pytest.mark.slow
def test_many_correlated_coordinates(key):
    """The statistic found in 48 dimensions is within 10 % of the likelihood ratio, mu = |C^-1/2 (x - y)|."""
    rng = np.random.default_rng(3)
    mix = rng.standard_normal((48, 48)).astype(np.float32) * np.geomspace(1e-3, 1e3, 48, dtype=np.float32)[:, None]
    gap = (mix @ rng.standard_normal(48)).astype(np.float32)
    for mu in (0.4, 2.0):
        y = gap * np.float32(mu / np.linalg.norm(np.linalg.solve(mix.astype(float), gap.astype(float))))
        a = audit(
            lambda key, x: x + mix @ jax.random.normal(key, (48,)), 0 * y, y, epsilon=50, delta=0.1, key=key,
            gaussian=True,
        )  # fmt: skip
        assert 0.9 * mu < a.mu_lower <= mu


def test_coordinates_that_say_nothing(key):
    """Constant, copied and rescaled coordinates change neither the bound nor its validity."""

    def padded(key, data):
        view = gaussian(key, data)
        return jnp.zeros(3), jnp.full(2, 7.3), view, 3 * view, jnp.array([True, False])

    claim = (1.0, 0.1)
    alone, among = (run(f, sides(claim), claim, key, gaussian=True) for f in (gaussian, padded))
    assert among.passed
    assert among.mu_lower == pytest.approx(alone.mu_lower, abs=0.03)


def test_python_numbers_are_data(key):
    a = audit(lambda key, x: x + jax.random.normal(key), 0.0, np.float32(1), epsilon=1, delta=0.5, key=key, n_runs=1000)
    assert a.passed


def test_equal_data_shows_nothing(key):
    for mechanism in (gaussian, lambda key, data: data[0]):
        x = (np.ones(2, np.float32), np.float32(1))
        a = audit(mechanism, x, x, epsilon=0.05, delta=1e-5, key=key, n_runs=2000, gaussian=True)
        assert a.passed
        assert a.epsilon_lower < 0.05


def test_results_repeat_and_compile_once(key):
    traced = []

    def counted(key, data):
        traced.append(1)
        return gaussian(key, data)

    claim = (1.0, 0.1)
    one, other = (run(counted, sides(claim), claim, key, n_runs=30_001) for _ in range(2))
    assert len(traced) <= 2  # shapes, then one program for both sides and all chunks
    assert one.epsilon_lower == other.epsilon_lower
    assert one.n_runs == 30_001
    assert run(counted, sides(claim), claim, jax.random.key(1), n_runs=30_001).epsilon_lower != one.epsilon_lower


@fb.pytree
class Scaled:
    """A Gaussian mechanism that is a pytree."""

    sigma: float

    def __call__(self, key, x):
        TRACED.append(1)
        return x + self.sigma * jax.random.normal(key, x.shape)


TRACED = []


def test_mechanisms_that_are_pytrees_share_a_program(key):
    """And numbers in them are those that run: half of the noise is caught by the program of the right one."""
    claim, x = (1.0, 0.1), np.zeros(1, np.float32)
    sigma = np.float32(1 / gaussian_mu(*claim))
    found = [audit(Scaled(sigma=s), x, x + 1, epsilon=1, delta=0.1, key=key, n_runs=10_000) for s in (sigma, sigma / 2)]
    assert [a.passed for a in found] == [True, False]
    assert len(TRACED) <= 3  # shapes twice, and one program


def test_the_pair_that_shows_most_is_tested(key):
    """Of three pairs one differs, and there only the second entry; the claim fails by name of that pair."""
    x, sigma = np.zeros(2, np.float32), np.float32(1)
    far = np.array([0, 3], np.float32)
    others = {"reward": ((x, sigma), (x, sigma)), "last user": ((x, sigma), (far, sigma))}
    a = audit(gaussian, (x, sigma), (x, sigma), others=others, epsilon=1.0, delta=0.1, key=key, n_runs=4000)
    assert not a.passed
    assert (a.which, a.statistic) == ("last user", "linear")
    assert "neighbours: last user" in str(a)


def make(**changes):
    fields = {
        "name": "tree, tight", "epsilon": 1.0, "delta": 0.1, "confidence": 0.95, "epsilon_lower": 0.9,
        "bound": "Gaussian DP", "epsilon_cp": 0.8, "mu_lower": 0.7, "sensitivity": 2.0, "sensitivity_measured": 2.0,
        "which": "last user", "statistic": "linear",
        "fixed_control_flow": True, "same_control_flow": True, "deterministic": True, "n_runs": 100_000,
        "seconds": 3.21,
    }  # fmt: skip
    return Audit(**{**fields, **changes})


def test_verdicts_and_reports():
    assert make().passed
    for change in (
        {"epsilon_lower": 1.01},
        {"epsilon_lower": math.nan},
        {"sensitivity_measured": 2.01},
        {"sensitivity_measured": math.nan},
        {"same_control_flow": False},
        {"deterministic": False},
    ):
        a = make(**change)
        assert not a.passed
        assert len(a.reasons) == 1
        assert "FAIL" in str(a)
        assert max(map(len, str(a).splitlines())) <= 100
    lines = table([make(), make(name="x", epsilon_lower=12.5, sensitivity=None, sensitivity_measured=None)]).split("\n")
    assert lines == [
        "mechanism    epsilon, delta  epsilon >=  sensitivity  statistic  neighbours  verdict     runs  seconds",
        "tree, tight          1, 0.1       0.900        2 / 2     linear   last user     pass  100,000      3.2",
        "x                    1, 0.1      12.500        - / -     linear   last user     FAIL  100,000      3.2",
    ]


def test_figure(tmp_path):
    """A row for every mechanism: its claim, what was shown, by which neighbours and statistic, and the verdict."""
    shipped = [make(name=f"m{i}", epsilon_lower=0.5 + i, which=f"user {i}") for i in range(3)]
    flawed = [make(name="caught one", epsilon_lower=7.0), make(name="missed one", epsilon_lower=0.3)]
    figure = plotting.audits(shipped, flawed)
    above, below = ([text.get_text() for text in ax.texts] for ax in figure.axes)
    assert {"m0", "m1", "m2", "0.5", "1.5", "2.5", "user 2", "linear (Gaussian DP)"} <= set(above)
    assert (above.count("pass"), above.count("FAIL"), below.count("caught"), below.count("MISSED")) == (1, 2, 1, 1)
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.5, 1.5, 2.0]  # longer ones are cut off
    assert "7 →" in below
    good, bad = (matplotlib.colors.to_rgba(plotting.COLOURS[i], 0.8) for i in (3, 2))
    found = [[bar.get_facecolor() for bar in ax.patches] for ax in figure.axes]
    assert found == [[good, bad, bad], [good, bad]]  # what is missed is as bad as what fails
    (saved,) = plotting.save(figure, tmp_path / "audits.png")
    assert saved.stat().st_size > 1000
    assert len(plotting.audits(shipped).axes) == 1
    with pytest.raises(ValueError, match="audits must hold at least one audit, got none"):
        plotting.audits([])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": 0}, ValueError, "epsilon must be finite and > 0, got 0"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be finite and > 0, got inf"),
        ({"delta": -0.1}, ValueError, r"delta must be in \[0, 1\], got -0.1"),
        ({"delta": 0.0, "gaussian": True}, ValueError, r"delta must be in \(0, 1\), got 0.0"),
        ({"gaussian": 1}, TypeError, "gaussian must be True or False, got 1"),
        ({"scheduled": True, "delta": 0.0}, ValueError, r"delta must be in \(0, 1\), got 0.0"),
        ({"scheduled": True, "gaussian": True}, ValueError, "gaussian and scheduled must not both be promised"),
        ({"confidence": 1.0}, ValueError, r"confidence must be in \(0, 1\), got 1.0"),
        ({"n_runs": 999}, ValueError, "n_runs must be >= 1000, got 999"),
        ({"n_runs": 1e5}, TypeError, "n_runs must be an integer >= 1000, got 100000.0"),
        ({"key": 0}, TypeError, "key must be a typed key"),
        ({"mechanism": 3}, TypeError, "mechanism and measure must be functions, got 3 and None"),
        ({"measure": 3}, TypeError, "mechanism and measure must be functions, got .* and 3"),
        ({"sensitivity": -1.0}, ValueError, "sensitivity must be finite and > 0, got -1.0"),
        ({"sensitivity": 2.0}, ValueError, "sensitivity must come with a measure, got 2 and none"),
        (
            {"neighbour": np.zeros(2)},
            ValueError,
            r"^data and neighbour must have the shapes .*\(1,\).* got .*\(2,\)",
        ),
        ({"neighbour": (np.zeros(1),)}, ValueError, "data and neighbour must have the shapes"),
        (
            {"others": {"last": (np.zeros(3), np.ones(1))}},
            ValueError,
            r"^data of others\['last'\] must have the shapes .*\(1,\).* got .*\(3,\)",
        ),
        (
            {"others": {"as given": (np.zeros(1), np.ones(1))}},
            ValueError,
            "^others must map labels other than 'as given' to pairs of data sets, got 'as given': ",
        ),
        ({"others": {"last": np.zeros(2)}}, ValueError, "^others must map labels .* got 'last': array"),
        (
            {"data": {"x": "far"}},
            TypeError,
            "^data must be a pytree of numbers that the device .* got {'x': 'far'}",
        ),
        (
            {"data": np.array([1e300])},
            TypeError,
            "^data must be a pytree of numbers that the device .* got array",
        ),
        (
            {"mechanism": lambda key: key},
            TypeError,
            "^mechanism must be a JAX function of a key and data, got from it TypeError: .*argument",
        ),
        ({"mechanism": lambda key, x: ()}, ValueError, "mechanism must return 1 to 1000 numbers per run, got 0"),
        ({"mechanism": lambda key, x: jnp.zeros(1001)}, ValueError, "1 to 1000 numbers per run, got 1001"),
        ({"mechanism": lambda key, x: key}, ValueError, "mechanism must return floating-point .* got key<fry>"),
        (
            {"mechanism": lambda key, x: 1 / x},
            ValueError,
            "must return finite numbers, got inf at coordinate 0 on data",
        ),
        (
            {"mechanism": lambda key, x: 2**24 + x.astype(jnp.int32)},
            ValueError,
            "^mechanism must return integers within 2.24 of 0, .* got one of size 16777217 on neighbour",
        ),
        (
            {"mechanism": lambda key, x: -(2**31) + x.astype(jnp.int32)},
            ValueError,
            "^mechanism must return integers .* got one of size 2147483648 on data",
        ),
    ],
)
def test_bad_arguments(key, change, error, words):
    arguments = {
        "mechanism": lambda key, x: x + jax.random.normal(key, x.shape), "data": np.zeros(1), "neighbour": np.ones(1),
        "epsilon": 1.0, "delta": 0.1, "key": key, "n_runs": 1000,
    }  # fmt: skip
    with pytest.raises(error, match=words):
        audit(**{**arguments, **change})


def test_integers_may_be_the_mechanism(key):
    """Randomised response is private and answers with a bit: no control flow is claimed, none is held against it."""

    def respond(key, bit):
        return jnp.where(jax.random.bernoulli(key, 0.7), bit, 1 - bit)  # ln(.7 / .3) = 0.847

    options = dict(epsilon=0.85, delta=1e-6, key=key, n_runs=20_000)
    found = audit(respond, jnp.int32(0), jnp.int32(1), **options)
    assert found.passed
    assert not found.same_control_flow
    assert not audit(respond, jnp.int32(0), jnp.int32(1), **{**options, "epsilon": 0.7}).passed


@pytest.mark.parametrize("level", [0, 1])
def test_quick_options_are_known_to_xla(level):
    """Were one not, audits would take three times as long, and nobody would know why."""
    options = backend.quick_options(level)
    assert (options is not None) == backend.on_cpu()
