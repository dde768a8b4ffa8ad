"""Certificates of the linear family: claims, numbers by hand, and the bounds that are enforced where data enter."""

import dataclasses
import itertools
import math

import helpers
import jax
import numpy as np
import pytest
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.privacy.admission import BoundStatistic

A, P, S = fb.algos, fb.privacy, fb.schedules
UNIT = fb.Spec(n_agents=10, n_arms=5, dim=3, max_norm=1.0, rewards_in_unit=True)
UNBOUNDED = dataclasses.replace(UNIT, rewards_in_unit=False)
BUDGET = P.Budget(1.0, 0.1)
PRIVATE = A.private_fed_lin_ucb(BUDGET)
AUTHORS, RAW = dict(std=helpers.AUTHORS["silo_local"]), dict(statistic=P.Linear(clip=False))
TESTED = S.PrivateLogDet()


def certificate(spec=UNIT, horizon=1000, **options):
    return PRIVATE.replace(**options).certificate(spec, horizon)


SCHEDULES = 25, 1, 2, S.Geometric(), S.Geometric(2.0, first=1), S.LogDet(), TESTED
PRINTED = dict(std="theorem_5_1")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("algo", [PRIVATE, A.fed_ucb(BUDGET)], ids=["UCB", "LogDetUCB"])
def test_claims(algo, schedule):
    """None if the schedule reads users or the noise is the authors'; as printed if agents learn in longer batches.

    What a user did is dropped before the next one comes if a batch is one round.
    """
    for learns, options in itertools.product((True, False), ({}, PRINTED, AUTHORS, RAW)):
        found = algo.replace(schedule=schedule, learns_in_batch=learns, **options).certificate(UNIT, 1000)
        if leaks := isinstance(schedule, S.LogDet):
            expected = "none", "the schedule leaks"
        elif options is AUTHORS:
            expected = "none", "gives epsilon = "
        else:
            expected = (
                ("as_printed", "batch cascade") if learns and schedule != 1 else ("certified", "known distribution")
            )
        claim, words = expected
        assert found.claim == claim, found.reason
        assert words in found.reason
        if claim == "none":
            assert found.epsilon_exact > 1.1
            assert (found.epsilon_exact == math.inf) == leaks
        else:
            assert found.epsilon_exact <= 1.0
            assert found.epsilon_exact > 1 - 1e-5 or options is PRINTED
        held = "with the actions of all other users fixed" in found.adjacency
        assert held == (claim == "as_printed")
        assert ("sparse vector" in str(found.schedule)) == (schedule == TESTED)


def test_rewards_are_clipped_or_bounded():
    assert certificate(UNBOUNDED).claim == "certified"
    found = certificate(UNBOUNDED, statistic=P.Linear(low=0.9, clip=False))
    assert (found.claim, found.epsilon_exact) == ("none", math.inf)
    assert "within the range of Linear(" in found.reason


def test_numbers():
    c = certificate()
    assert (c.epsilon, c.delta, c.releases, c.releases_per_user) == (1.0, 0.1, 40, 6)
    assert c.noise_std == pytest.approx(math.sqrt(6 * 4.5) / P.gaussian_mu(1.0, 0.1))
    nodes = 5  # of the worst of 40 releases, 31 = 11111
    assert c.server_noise_std == pytest.approx(c.noise_std * math.sqrt(10 * nodes), rel=1e-5)


def test_the_sensitivity_of_secure_aggregation_includes_rounding():
    """For 300 visits rounding is more than a quarter of it. The contract has single visits."""
    unit = P.Users(300, per_batch=15)
    c = certificate(privacy=P.Mechanism(P.Budget(1.0, 1e-6), trust="secagg", unit=unit), schedule=10, horizon=200)
    assert P.gaussian_epsilon(c.sensitivity / c.noise_std, c.delta) == pytest.approx(c.epsilon_exact, abs=2e-4)


def test_where_a_contribution_becomes_zero_rewards_do_not_change():
    """Whose changed reward moves these sums by 1, which is more than what the certificate is computed for."""
    spec = dataclasses.replace(UNIT, fixed_contexts=True, constant=True)
    assert "rewards changed" in certificate(spec).adjacency
    budget = dataclasses.replace(BUDGET, adjacency="zero_out")
    found = certificate(spec, privacy=budget, statistic=P.Linear(centred=True, gram_scale=0.5))
    assert found.claim == "certified"
    assert found.sensitivity / math.sqrt(found.releases_per_user) == pytest.approx(math.sqrt(1 / 2), rel=1e-5)
    assert found.adjacency == "zero_out (one user's contribution replaced by zero)"
    assert "contexts, which are fixed and public" in found.not_covered


@pytest.mark.parametrize(
    ("spec", "horizon", "delta", "users"),
    [
        (UNIT, 1000, 1e-4, "10,000"),  # M T arrivals, all of whom are new
        (UNIT, 1000, 0.99e-4, None),
        (UNIT, 137, 1 / 1370, "1,370"),  # delta times that is rounded to less than 1
        (dataclasses.replace(UNIT, n_users=50), 1000, 1e-4, "10,000"),  # each visit is protected by itself
    ],
)
def test_deltas_that_protect_nobody(spec, horizon, delta, users):
    """As large as one over the number of visits: to publish one at random is (0, 1 / n)-DP."""
    c = certificate(spec, horizon, delta=delta, unit="visit")
    assert c.warning == (
        f"delta = {delta:g} is not below 1 / {users} visits of users, so it permits full disclosure of a user"
        if users
        else ""
    )
    assert (f"warning {c.warning}" in " ".join(str(c).split())) == bool(users)


def test_warnings_of_other_families():
    """Pure DP has no delta; where nothing is claimed there is nothing to warn of."""
    spec = fb.envs.arms(n_arms=2).spec
    for kind, warned in ((A.CDPSE, False), (A.DistRDPSE, True), (A.DistCDPSE, True)):
        algo = kind(1.0, delta=1e-3)
        assert [bool(algo.certificate(spec, horizon).warning) for horizon in (999, 1000)] == [False, warned]
    assert certificate(learns_in_batch=True).warning
    assert certificate(**AUTHORS).warning == ""
    for wrong in (0, -3, 2.5):
        with refused("n_visits", wrong):
            certificate().among(wrong)


def test_batches_of_one_round_cannot_be_forged():
    """A run in longer batches keeps its leak, and a mechanism is bound to batches of one size."""
    algo = PRIVATE.replace(schedule=1, learns_in_batch=True)
    bound = algo.replace(schedule=2).bind(UNIT, 20)
    assert dataclasses.replace(bound, batch=1).guarantee().claim == "none"
    own = type("Own", (type(bound.policy),), {})
    mine = dataclasses.replace(algo.bind(UNIT, 20), policy=fb.pytree(own)(**vars(bound.policy)))
    assert mine.guarantee().claim == "none"  # a policy of one's own may score all users at once when it prepares


def test_both_bounds_are_enforced_where_data_enter():
    """Whatever is handed to it: vectors are scaled, rewards clipped, and who broke a promise is told."""
    long, x, nothing = np.array([30.0, 40.0]), np.array([0.6, 0.8]), np.zeros(2)
    bad = np.array([np.nan, 1.0])
    users = [(x, 1.0, x, 1.0, 0), (long, 0.3, x, 0.3, 1), (x, 50.0, x, 1.0, 1), (x, -50.0, x, 0.0, 1)]
    users += [(x, np.inf, x, 1.0, 1), (x, -np.inf, x, 0.0, 1), (x, np.nan, x, 0.0, 1), (bad, 1.0, nothing, 1.0, 1)]
    users += [(long * np.inf, 1.0, nothing, 1.0, 1), (x * 1e25, 1.0, nothing, 1.0, 1), (nothing, 0.5, nothing, 0.5, 0)]
    given = np.stack([user[0] for user in users], 1), np.array([user[1] for user in users])
    for unit in (True, False):
        features, rewards, broken, _ = jax.jit(BoundStatistic(2, unit_rewards=unit).admit)(*map(np.float32, given))
        np.testing.assert_allclose(features, np.stack([user[2] for user in users], 1), rtol=1e-6)
        np.testing.assert_allclose(rewards, [user[3] for user in users])
        too_long = [user[0] is not x and user[0] is not nothing for user in users]
        assert broken.tolist() == ([bool(user[4]) for user in users] if unit else too_long)
