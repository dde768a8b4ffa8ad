"""Users who return: their bounds and what they cost."""

import dataclasses

import pytest

import fedbandit_jax as fb
from fedbandit_jax.interfaces.algorithm import certify

A, P = fb.algos, fb.privacy
BUDGET = P.Budget(1.0, 1e-5)
SPEC = fb.Spec(n_agents=4, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True, n_users=5)


def test_silos_add_up():
    """Silos with noise of their own compose, so that squares add up; where sums are added up, so is one user's part."""
    size = dict(n_syncs=8, release="blt", n_agents=9, batch=1, dim=2)
    for trust, power, correction in (("silo_local", 0.5, 1e-6), ("central", 1, 1e-6), ("secagg", 1, 1e-2)):
        one, four = (P.calibrate(BUDGET, **size, trust=trust, users=P.Users(silos=silos)) for silos in (1, 4))
        assert four.sigma == pytest.approx(4**power * one.sigma, rel=correction)  # of integer noise


def test_certificates_are_of_one_user():
    unit = P.Users(6, per_batch=1, apart=2)
    bound = A.Federated(schedule=3, privacy=P.Mechanism(BUDGET, "blt", unit=unit)).bind(SPEC, 30)
    found = certify(bound)
    assert found.claim == "certified"
    words = "one user: all their contributions, up to 6 times at a silo, 1 in a batch, in batches at least 2 apart"
    assert found.unit.startswith(words)
    lax = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, enforced=False))
    assert (certify(lax).claim, "nobody leaves out" in certify(lax).reason) == ("none", True)
    crossing = bound.replace(spec=dataclasses.replace(SPEC, silos=3))
    assert (certify(crossing).claim, "another statistic" in certify(crossing).reason) == ("none", True)


def test_promises_are_said_to_be_promises():
    """Users who are not told apart cannot be counted."""
    algo = A.Federated(schedule=3, privacy=P.Mechanism(BUDGET, "blt", unit=P.Users(3)))
    bound = algo.bind(dataclasses.replace(SPEC, n_users=0), 30)
    found = certify(bound)
    often = "up to 3 times at a silo, always at the same silo (a promise: silos do not compare users)"
    assert found.unit == f"one user, who contributes {often}, as is promised: users are not told apart here"
    said = certify(bound.replace(mechanism=dataclasses.replace(bound.mechanism, enforced=True)))
    assert (said.claim, "nobody can be left out" in said.reason) == ("none", True)
