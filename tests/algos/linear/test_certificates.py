"""Certificates of the linear family say what is proved of what runs, and whoever changes it changes them."""

import dataclasses
import math

import pytest
from helpers import refused
from scipy.special import ndtr

import fedbandit_jax as fb
from fedbandit_jax.certificate import BEYOND, Certificate
from fedbandit_jax.core.validate import BadArgument

UNIT = fb.Spec(n_agents=10, n_arms=5, dim=3, max_norm=1.0, rewards_in_unit=True)
UNBOUNDED = fb.Spec(n_agents=10, n_arms=5, dim=3, max_norm=1.0, rewards_in_unit=False)
BUDGET = fb.privacy.Budget(1.0, 0.1)
PRIVATE = fb.algos.private_fed_lin_ucb(BUDGET)


def certificate(spec=UNIT, horizon=1000, **options):
    return PRIVATE.replace(**options).certificate(spec, horizon)


@pytest.mark.parametrize(
    ("options", "spec", "claim", "words"),
    [
        ({}, UNIT, "certified", "noise of known law"),
        ({"calibration": "theorem"}, UNIT, "certified", "known law"),
        ({}, UNBOUNDED, "certified", "known law"),  # rewards are clipped inside the statistic
        ({"statistic": fb.privacy.Linear(clip=False)}, UNIT, "certified", "known law"),
        ({"statistic": fb.privacy.Linear(clip=False)}, UNBOUNDED, "none", "rewards enter unclipped"),
        ({"learns_in_batch": True}, UNIT, "as_printed", "batch cascade"),
        ({"calibration": "authors"}, UNIT, "none", "gives epsilon = 1.5"),
        ({"calibration": "authors", "learns_in_batch": True}, UNIT, "none", "gives epsilon = 1.5"),
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
    if "unclipped" in words:
        assert c.epsilon_exact == math.inf
    if claim == "as_printed":
        assert c.adjacency == certificate().adjacency + ", all other users' actions being held fixed"


def test_the_range_that_unclipped_rewards_leave_is_named():
    found = certificate(UNBOUNDED, statistic=fb.privacy.Linear(low=0.9, clip=False))
    assert "were they in the range of Linear(" in found.reason
    assert "low=0.9" in found.reason


def test_numbers():
    c = certificate()
    assert c.noise_std == pytest.approx(math.sqrt(6 * 4.5) / fb.privacy.gaussian_mu(1.0, 0.1))
    assert c.server_noise_std == pytest.approx(
        c.noise_std * math.sqrt(10 * 5), rel=1e-5
    )  # popcount(31) = 5 of 40 releases


@pytest.mark.parametrize(
    ("trust", "release", "unit"),
    [
        ("silo_local", "tree", None),
        ("silo_local", "blt", fb.privacy.Users(3, per_batch=1)),
        ("silo_local_matrix", "prefix_tree", None),
        ("central", "sqrt_toeplitz", None),
        ("local", "input_perturbation", None),
    ],
)
@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_epsilon_follows_from_the_certificate_alone(trust, release, unit, adjacency):
    """By the formula of its docstring (Balle & Wang 2018), with nothing else than its numbers."""
    budget = fb.privacy.Budget(0.7, 1e-4, adjacency)
    privacy = fb.privacy.Mechanism(budget, release, trust=trust, unit=unit)
    c = fb.algos.Federated(privacy=privacy, schedule=25).certificate(UNIT, 1000)
    mu = c.sensitivity / c.noise_std
    delta = ndtr(mu / 2 - c.epsilon_exact / mu) - math.exp(c.epsilon_exact) * ndtr(-mu / 2 - c.epsilon_exact / mu)
    assert delta == pytest.approx(c.delta, rel=1e-3)
    assert f"moved by at most {c.sensitivity:.6g} in l2 norm, {mu:.6g} of the noise" in " ".join(str(c).split())
    read = Certificate.from_json(c.to_json())
    assert read.sensitivity == c.sensitivity


def test_fixed_contexts_are_not_covered():
    found = certificate(dataclasses.replace(UNIT, fixed_contexts=True))
    assert "contexts, which are fixed and public" in found.not_covered
    assert "rewards changed" in found.adjacency


def test_where_a_contribution_becomes_zero_rewards_do_not_change():
    """Whose changed reward moves these sums by 1, which is more than what the certificate is computed for."""
    spec = dataclasses.replace(UNIT, fixed_contexts=True, constant=True)
    budget = dataclasses.replace(BUDGET, adjacency="zero_out")
    found = certificate(spec, privacy=budget, statistic=fb.privacy.Linear(centred=True, gram_scale=0.5))
    assert found.claim == "certified"
    assert found.sensitivity / math.sqrt(found.releases_per_user) == pytest.approx(math.sqrt(1 / 2), rel=1e-5)
    assert found.adjacency == "zero_out (one user's contribution replaced by zero)"
    assert "contexts, which are fixed and public" in found.not_covered


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ("users, which is public", "seen by that user alone")),
        ({}, ("the key of all noise, curves", "floating-point attacks")),
        ({}, ("status bits, decoding failures, sha256 of data", "tuning by a sweep or fb.plan, itself a release")),
        ({"learns_in_batch": True}, ("actions inside a batch, which use raw statistics",)),
        ({"trust": "secagg"}, ("silos that drop out, collude with the server, or subtract their own share",)),
        ({"trust": "shuffle_vector_sum"}, ("silos that show the server their own bits, or send none",)),
        ({"schedule": fb.schedules.LogDet()}, ("when silos ask for synchronisations, and which of them",)),
    ],
)
def test_what_is_not_covered_is_said(options, words):
    found = certificate(**options).not_covered
    for one in words:
        assert any(one in sentence for sentence in found), (one, found)


def test_every_protocol_says_what_is_beyond_it():
    """Users of linear bandits, of arms, of clusters, and who come by themselves."""
    returning = fb.envs.clustered(n_users=6, n_clusters=2, n_servers=2, n_arms=3, dim=3).spec
    mechanism = fb.privacy.Mechanism(BUDGET, unit="visit")
    fixed = fb.schedules.Geometric(1.5, first=20)
    arms = fb.algos.SuccessiveElimination(epsilon=1.0, mechanism="discrete_laplace", trust="central")
    every = [
        (PRIVATE, UNIT),
        (arms, fb.envs.arms(means=[0.1, 0.9]).spec),
        (fb.algos.FCLUB(BUDGET, alpha_1=math.inf, trigger="count", upload=1.2, alpha_2=0.3), returning),
        (fb.algos.Grouped(privacy=mechanism), returning),
        (fb.algos.AsyncFederated(policy=fb.algos.Greedy(), schedule=fixed, privacy=mechanism), returning),
    ]
    for algo, spec in every:
        assert set(BEYOND) <= set(algo.certificate(spec, 200).not_covered), algo.name


def test_noise_in_the_run_covers_float32_and_the_norm_tolerance():
    """What runs has at least the calibrated noise for vectors as long as the check lets through."""
    for epsilon in (0.1, 0.3, 1.0, 2.0, 7.0):
        c = 1 + 1e-6
        longest = math.sqrt((3 * c**2 + 1.5 * c**4) / 4.5)
        sigma = math.sqrt(6 * 4.5) / fb.privacy.gaussian_mu(epsilon, 0.1)
        bound = PRIVATE.replace(epsilon=epsilon).bind(UNIT, 1000)
        assert (bound.mechanism.trust.std.astype(float) >= sigma * longest).all()


def test_endless_runs_are_refused():
    """A certificate is read from what would run, whose variances are listed."""
    with refused("horizon"):
        certificate(horizon=25 * 80_000_000)


@pytest.mark.parametrize("norm", [math.inf, 1.1])
def test_norms_are_checked_by_the_certificate_too(norm):
    with pytest.raises(BadArgument, match="norm"):
        certificate(dataclasses.replace(UNIT, max_norm=norm))


def test_nothing_released():
    for options in ({}, {"schedule": fb.schedules.Geometric(first=25)}):
        c = certificate(horizon=24, **options)
        assert c.claim == "certified"
        assert "nothing is released" in c.reason
        assert certificate(horizon=25, **options).epsilon_exact == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("spec", "horizon", "delta", "users"),
    [
        (UNIT, 1000, 0.1, "10,000"),  # M T arrivals, all of whom are new
        (UNIT, 1000, 1e-4, "10,000"),
        (UNIT, 1000, 0.99e-4, None),
        (UNIT, 999, 1e-4, None),
        (UNIT, 137, 1 / 1370, "1,370"),  # delta times that is rounded to less than 1
        (dataclasses.replace(UNIT, n_users=50), 1000, 1e-4, "10,000"),  # each visit is protected by itself
        (dataclasses.replace(UNIT, n_users=10**6), 1000, 1e-4, "10,000"),
    ],
)
def test_deltas_that_protect_nobody(spec, horizon, delta, users):
    """As large as one over the number of visits: to publish one at random is (0, 1 / n)-DP."""
    c = certificate(spec, horizon, delta=delta, unit="visit")
    assert c.warning == (
        f"delta = {delta:g} is not below 1 / {users} visits of users: it allows some to be exposed" if users else ""
    )
    assert (f"warning {c.warning}" in " ".join(str(c).split())) == bool(users)


def test_warnings_of_other_families():
    """Pure DP has no delta; where nothing is claimed there is nothing to warn of."""
    spec = fb.envs.arms(n_arms=2).spec
    for label, warned in (("CDP-SE", False), ("Dist-RDP-SE", True), ("Dist-CDP-SE", True)):
        mechanism, trust = fb.algos.ELIMINATION[label]
        algo = fb.algos.SuccessiveElimination(epsilon=1.0, mechanism=mechanism, trust=trust, delta=1e-3)
        assert algo.certificate(spec, 999).warning == ""
        assert ("1 / 1,000 visits of users" in algo.certificate(spec, 1000).warning) == warned
    assert certificate(learns_in_batch=True).warning
    for unclaimed in (certificate(calibration="authors"), fb.algos.LinUCB().certificate(UNIT, 100)):
        assert unclaimed.warning == ""
    for wrong in (0, -3, 2.5):
        with refused("n_visits", wrong):
            certificate().among(wrong)


@pytest.mark.parametrize(("visits", "per_batch"), [(1, 1), (64, 4), (300, 16)])
def test_epsilon_of_secure_aggregation_follows_from_the_certificate(visits, per_batch):
    """Sensitivity is stated with the rounding of messages, which is a third of it for 300 visits."""
    unit = fb.privacy.Users(visits, per_batch=per_batch) if visits > 1 else None
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 1e-6), trust="secagg", unit=unit)
    env = fb.envs.sphere(20, 5, 5, rewards="bernoulli")
    found = fb.algos.Federated(privacy=mechanism, schedule=10).certificate(env.spec, horizon=200)
    epsilon = fb.privacy.gaussian_epsilon(found.sensitivity / found.noise_std, found.delta)
    assert found.claim == "certified"
    assert epsilon == pytest.approx(found.epsilon_exact, abs=2e-4)
    assert epsilon < found.epsilon_exact  # what integer noise lacks to Gaussian noise


def test_round_trip_and_one_screen():
    for c in (certificate(), certificate(learns_in_batch=True), fb.algos.LinUCB().certificate(UNIT, 10)):
        assert Certificate.from_json(c.to_json()) == c
        lines = str(c).splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 100
    text = str(certificate())
    for words in ("claim", "trust model", "adjacency", "privacy unit", "accountant", "not covered", "floating-point"):
        assert words in text


def test_budgets_are_replaced_whole():
    """Replacing one number of the budget changes the noise, and the certificate, of all silos alike."""
    budgets = [fb.privacy.Budget(e, 1e-3) for e in (1.0, 2.0)]
    for options in (dict(epsilon=3.0), dict(delta=1e-5), dict(adjacency="zero_out")):
        asked = dataclasses.replace(budgets[0], **options)
        c = fb.algos.private_fed_lin_ucb(budgets[0]).replace(**options).certificate(UNIT, 1000)
        assert (c.epsilon, c.delta, c.adjacency.split()[0]) == (asked.epsilon, asked.delta, asked.adjacency)
        assert c.epsilon_exact == pytest.approx(asked.epsilon, rel=1e-6)
        with pytest.raises(TypeError, match="no parameter"):
            fb.algos.private_fed_lin_ucb(budgets).replace(**options)
