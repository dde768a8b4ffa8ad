import math

import pytest

import fedbandit_jax as fb
from fedbandit_jax.certificate import Certificate

UNIT = fb.Spec(n_agents=10, n_arms=5, dim=3, max_norm=1.0, rewards_in_unit=True)
UNBOUNDED = fb.Spec(n_agents=10, n_arms=5, dim=3, max_norm=1.0, rewards_in_unit=False)
BUDGET = fb.privacy.Budget(1.0, 0.1)


def certificate(spec=UNIT, horizon=1000, **options):
    return fb.algos.private_fed_lin_ucb(BUDGET, **options).certificate(spec, horizon)


@pytest.mark.parametrize(
    ("options", "spec", "claim", "words"),
    [
        ({}, UNIT, "certified", "noise of known law"),
        ({"release": "prefix_tree"}, UNIT, "certified", "known law"),
        ({"calibration": "theorem"}, UNIT, "certified", "known law"),
        ({}, UNBOUNDED, "certified", "known law"),  # rewards are clipped inside the statistic
        ({"clip_rewards": False}, UNIT, "certified", "known law"),
        ({"clip_rewards": False}, UNBOUNDED, "none", "rewards unbounded"),
        ({"lazy": False}, UNIT, "as_printed", "batch cascade"),
        (
            {"lazy": False, "calibration": "theorem"},
            UNIT,
            "as_printed",
            "actions of all other users being fixed",
        ),
        ({"calibration": "released"}, UNIT, "none", "gives epsilon = 1.5"),
        ({"calibration": "released", "lazy": False}, UNIT, "none", "only if the actions stay fixed"),
    ],
)
def test_claims(options, spec, claim, words):
    c = certificate(spec, 1000, **options)
    assert c.claim == claim
    assert words in c.reason
    assert (c.epsilon, c.delta) == (1.0, 0.1)
    assert c.releases == 40
    assert c.releases_per_user == 6
    if claim == "certified":
        assert c.epsilon_exact <= 1.0


def test_unbounded_rewards_have_no_epsilon():
    assert certificate(UNBOUNDED, clip_rewards=False).epsilon_exact == math.inf


def test_numbers():
    c = certificate()
    assert c.noise_std == pytest.approx(math.sqrt(6 * 4.5) / fb.privacy.gaussian_mu(1.0, 0.1))
    assert c.server_noise_std == pytest.approx(
        c.noise_std * math.sqrt(10 * 5), rel=1e-5
    )  # popcount(31) = 5 of 40 releases


def test_norms_are_checked_by_the_certificate_too():
    for norm in (float("inf"), 1.1):
        spec = fb.Spec(n_agents=1, n_arms=2, dim=2, max_norm=norm)
        with pytest.raises(ValueError, match="needs feature vectors of norm <= 1"):
            certificate(spec)


@pytest.mark.parametrize(
    "change",
    [{"n_agents": 0}, {"n_arms": 2.0}, {"dim": -1}, {"max_norm": math.nan}, {"max_norm": -1}, {"max_norm": "1"}],
)
def test_specs_are_checked(change):
    with pytest.raises((ValueError, TypeError), match=f"{next(iter(change))} must be"):
        fb.Spec(**{"n_agents": 1, "n_arms": 2, "dim": 2, **change})


def test_fixed_contexts_are_not_covered():
    spec = fb.Spec(n_agents=1, n_arms=2, dim=2, max_norm=1.0, fixed_contexts=True)
    assert "contexts, which are fixed and public" in certificate(spec).not_covered
    assert "rewards changed" in certificate(spec).adjacency


def test_noise_in_the_run_covers_float32_and_the_norm_tolerance():
    """What runs has at least the calibrated noise for vectors as long as the check lets through."""
    for epsilon in (0.1, 0.3, 1.0, 2.0, 7.0):
        algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(epsilon, 0.1))
        c = 1 + 1e-6
        longest = math.sqrt((3 * c**2 + 1.5 * c**4) / 4.5)
        (noise,) = algo.calibrate(UNIT, 1000)
        assert (algo.bind(UNIT, 1000).channel.protocol.std.astype(float) >= noise.sigma * longest).all()


def test_certificates_of_endless_runs():
    """10^9 synchronisations are certified without being listed; running them is refused."""
    algo = fb.algos.private_fed_lin_ucb(BUDGET)
    assert algo.certificate(UNIT, 25 * 10**9).releases_per_user == 30
    with pytest.raises(ValueError, match="horizon must allow at most 10,000,000 synchronisations, got 25000000000"):
        algo.bind(UNIT, 25 * 10**9)


def test_nothing_released():
    c = certificate(horizon=24)
    assert c.claim == "certified"
    assert "nothing is released" in c.reason


def test_not_private():
    for algo in (fb.algos.lin_ucb(), fb.algos.fed_lin_ucb()):
        c = algo.certificate(UNIT, 100)
        assert c.claim == "none"
        assert c.epsilon is None


def test_round_trip_and_one_screen():
    for c in (certificate(), certificate(lazy=False), fb.algos.lin_ucb().certificate(UNIT, 10)):
        assert Certificate.from_json(c.to_json()) == c
        lines = str(c).splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 100
    text = str(certificate())
    for words in (
        "claim",
        "trust model",
        "adjacency",
        "privacy unit",
        "accountant",
        "not covered",
        "floating-point",
    ):
        assert words in text
