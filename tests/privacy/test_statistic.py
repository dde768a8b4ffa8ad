"""The linear statistic, centred or not: how far one user moves it, what is summed, and which noise that gets."""

import copy
import dataclasses
import math

import numpy as np
import pytest
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.budget import ADJACENCY, matrix_sensitivity_sq, sensitivity_sq

BUDGET = fb.privacy.Budget(1.0, 0.1)
CONSTANT = fb.Spec(n_agents=3, n_arms=2, dim=3, max_norm=1.0, rewards_in_unit=True, constant=True)
VARIANTS = [(False, 1.0), (False, 0.5), (True, 1.0), (True, 0.2)]


@pytest.mark.parametrize(("centred", "scale"), VARIANTS)
def test_sensitivity_is_the_supremum(centred, scale):
    """Over a grid of two users, of whom the first has x = (a, 0); the formula is at most a part in 1,000 above it."""
    a, b = (np.linspace(0, 1, 41)[shape] for shape in (np.s_[:, None, None, None], np.s_[None, :, None, None]))
    cosine = np.linspace(-1, 1, 401)[None, None, :, None]
    ends = np.array([-0.5, 0.5] if centred else [0.0, 1.0])
    y, z = (np.array(one).reshape(1, 1, 1, -1) for one in zip(*((y, z) for y in ends for z in ends)))
    bias = (a * y) ** 2 + (b * z) ** 2 - 2 * a * b * cosine * y * z
    gram = a**4 + b**4 - 2 * (a * b * cosine) ** 2
    moved = (bias + scale**2 * gram).max()
    law = fb.privacy.Linear(centred=centred, gram_scale=scale)
    found = BoundStatistic(2, rule=law).sensitivity_sq("replace")
    assert moved <= found + 1e-12
    assert found <= moved * 1.001
    alone = ((a * y) ** 2 + scale**2 * a**4).max()
    assert BoundStatistic(2, rule=law).sensitivity_sq("zero_out") == pytest.approx(alone, rel=1e-12)


def test_sensitivities_are_those_of_the_papers():
    assert [sensitivity_sq(adjacency) for adjacency in ADJACENCY] == [4.5, 2.0]
    assert [matrix_sensitivity_sq(adjacency) for adjacency in ADJACENCY] == [4.0, 1.5]
    for adjacency in ADJACENCY:
        assert matrix_sensitivity_sq(adjacency) == pytest.approx(sensitivity_sq(adjacency, weight=0.5**0.5))


def with_fields(rule, **fields):
    """A forged copy, whose fields nobody checks."""
    forged = copy.copy(rule)
    for name, value in fields.items():
        object.__setattr__(forged, name, value)
    return forged


def private(**options):
    return fb.algos.Federated(policy=fb.algos.Greedy(), schedule=5, privacy=fb.privacy.Mechanism(BUDGET, **options))


def test_certificates_know_the_statistic():
    """Three quarters of the noise are enough if x (y - 1/2) is summed, and not if x y is."""
    plain, centred = (
        private(statistic=fb.privacy.Linear(centred=centred)).bind(CONSTANT, 50) for centred in (False, True)
    )
    ratio = plain.mechanism.trust.sum_std() / centred.mechanism.trust.sum_std()
    assert ratio == pytest.approx((4.5 / 2.53125) ** 0.5, rel=1e-4)
    found = centred.guarantee()
    assert (found.claim, round(found.epsilon_exact, 3)) == ("certified", 1.0)
    half = private(statistic=fb.privacy.Linear(centred=True, gram_scale=0.5)).bind(CONSTANT, 50)
    assert half.guarantee().server_noise_std == pytest.approx(half.mechanism.stds().max())
    assert ", 2 times that on x x'" in str(half.guarantee().noise_whose)
    one = centred.mechanism.statistic
    for forged in (dict(centred=False), dict(gram_scale=1.5)):
        statistic = dataclasses.replace(one, rule=with_fields(one.rule, **forged))
        other = centred.replace(mechanism=dataclasses.replace(centred.mechanism, statistic=statistic)).guarantee()
        assert other.claim == "none"


def test_no_trust_model_keeps_its_claim_with_a_forged_scale():
    """Beyond 1 noise on x x' would be divided away; every trust model looks at the statistic that is bound."""
    for trust in set(fb.privacy.TRUST) - {"shuffle_amplified"}:
        release = {"local": "input_perturbation"}.get(trust, "tree")
        mechanism = fb.privacy.Mechanism(fb.privacy.Budget(8.0, 0.1), release, trust)
        bound = fb.algos.private_fed_lin_ucb(mechanism, schedule=5).bind(CONSTANT, 10)
        assert bound.guarantee().claim == "certified"
        one = bound.mechanism.statistic
        for scale in (1e6, math.nan):
            statistic = dataclasses.replace(one, rule=with_fields(one.rule, gram_scale=scale))
            other = bound.replace(mechanism=dataclasses.replace(bound.mechanism, statistic=statistic)).guarantee()
            assert other.claim == "none"


def test_refusals():
    spec, P = fb.envs.gap(3, 2, 3).spec, fb.privacy
    with refused("statistic"):
        fb.algos.fed_ucb(P.Mechanism(BUDGET, statistic=P.Linear(gram_scale=0.5))).bind(spec, 10)
    for options in (dict(method="theorem"), dict(trust="silo_local_matrix")):
        with refused("moves_sq", 2.0):
            P.calibrate(BUDGET, n_syncs=4, moves_sq=2.0, **options)
    with refused("centred"):
        private(statistic=P.Linear(centred=True)).bind(spec, 10)
    centred, scaled = P.Linear(centred=True), P.Linear(gram_scale=0.5)
    for options in (dict(calibration="theorem"), dict(trust="silo_local_matrix"), dict(trust="shuffle_vector_sum")):
        with refused("statistic"):
            P.Mechanism(BUDGET, statistic=centred, **options)
    with refused("statistic"):
        P.Mechanism(BUDGET, calibration="theorem", statistic=scaled)
