"""A server that is shown every silo's sums apart: its rules, what they cost, what they bear, and what is claimed."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from helpers import deep, refused
from oracles.linear import Tree

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.bound import Exact
from fedbandit_jax.privacy.byzantine import (
    AGGREGATES,
    ATTACKS,
    ExactRobust,
    RobustMechanism,
    Server,
    cost,
    with_robust_server,
)
from fedbandit_jax.privacy.packing import pack
from fedbandit_jax.privacy.trust import Central

A, P, S = fb.algos, fb.privacy, fb.schedules
BUDGET = P.Budget(1.0, 0.1)
ENV = fb.envs.sphere(5, 4, 3, rewards="bernoulli")
M, D = 5, 3
PACK, JITTED = jax.jit(pack), {name: jax.jit(rule) for name, rule in AGGREGATES.items()}


def bind(aggregate="median", liars=None, release="tree", m=M, **options):
    """A mechanism of M silos and 3 features, for S = 4 batches of 2 rounds."""
    recipe = P.Mechanism(BUDGET, release, **options)
    return with_robust_server(
        recipe.bind(BoundStatistic(D, constant=True), n_agents=m, n_syncs=4, batch=2), aggregate, liars
    )


def recipe(**options):
    return A.Federated(**{"policy": A.Greedy(), "schedule": 5, "privacy": BUDGET, "aggregate": "median", **options})


@pytest.mark.parametrize("m", [4, 9])
def test_rules_are_their_definitions(m):
    sent = np.random.default_rng(m).standard_normal((m, 6))
    found = {name: rule(np.float32(sent)) for name, rule in JITTED.items()}
    np.testing.assert_allclose(found["sum"], sent.mean(0), atol=1e-6)
    np.testing.assert_allclose(found["median"], np.median(sent, 0), atol=1e-6)
    np.testing.assert_allclose(found["trimmed_mean"], scipy.stats.trim_mean(sent, 0.25), atol=1e-6)

    def distance(centre):
        return np.linalg.norm(sent - centre, axis=1).sum()

    best = scipy.optimize.minimize(distance, sent.mean(0), tol=1e-9).x
    np.testing.assert_allclose(found["geometric_median"], best, atol=1e-3)


def test_far_lies_and_majorities_that_agree():
    """Four silos of nine move medians little, however far; of equal silos the geometric one is no division by 0."""
    honest = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    same = np.append(np.ones((5, 4)), honest[:4], 0).astype(np.float32)
    for aggregate, silos in (("median", 4), ("geometric_median", 4), ("trimmed_mean", 2)):
        told = honest + np.float32(1e9) * (np.arange(9) < silos)[:, None]
        assert np.abs(JITTED[aggregate](told) - JITTED[aggregate](honest)).max() < 4.5
    np.testing.assert_allclose(JITTED["geometric_median"](same), 1, atol=1e-4)
    np.testing.assert_allclose(JITTED["geometric_median"](0 * same), 0)


def test_lies(key):
    """Packed (x x', x y) of every attack; a lie of a colluding silo is what theta = e_1 would make it see."""
    sums = np.random.default_rng(0).standard_normal((2, D, D + 1)).astype(np.float32)
    sums[:, :, :D] += sums[:, :, :D].swapaxes(1, 2)
    sent = np.asarray(PACK(sums))
    said = {name: np.asarray(jax.jit(attack)(key, sent, sums)) for name, attack in ATTACKS.items()}
    np.testing.assert_array_equal(said["sign_flip"], -sent)
    np.testing.assert_array_equal(said["large"], -1000 * sent)
    np.testing.assert_array_equal(said["collude"][:, :6], sent[:, :6])
    np.testing.assert_array_equal(said["collude"][:, 6:], sums[:, :, :D] @ np.eye(D)[0])
    norms = np.linalg.norm(said["random"], axis=1)
    np.testing.assert_allclose(norms, np.linalg.norm(sent, axis=1), rtol=1e-5)
    assert abs(np.corrcoef(said["random"][0], sent[0])[0, 1]) < 0.9
    bound = bind("sum", P.Liars([0], "random"))  # every synchronisation has lies of its own
    nothing, state, seen, step = np.zeros((D, D + 1, M)), bound.init(D), [], jax.jit(bound.step)
    for k in (1, 2):
        _, state = step(jax.random.fold_in(key, k), k, state, nothing, nothing, nothing)
        seen.append(state.view[0] / np.linalg.norm(state.view[0]))
    assert abs(seen[0] @ seen[1]) < 0.99


def test_costs_are_those_of_tables():
    """Variances of the median of 3 Gaussians, 1 - sqrt(3) / pi, and of the mean of the middle two of 4."""
    assert cost("median", 3, 9) == pytest.approx(math.sqrt(3 * (1 - math.sqrt(3) / math.pi)), rel=2e-3)
    assert cost("median", 4, 9) == cost("trimmed_mean", 4, 9) == pytest.approx(math.sqrt(4 * 0.29817), rel=2e-3)
    assert cost("trimmed_mean", 2, 9) == cost("sum", 7, 9) == 1


@pytest.mark.slow
def test_costs_tend_to_those_of_many_silos():
    """sqrt(pi / 2) of the median; of the geometric one (1 / D) / (E[1 / r] (1 - 1 / D))^2, r = |D Gaussians|."""
    assert cost("median", 1001, 9) == pytest.approx(math.sqrt(math.pi / 2), rel=1e-2)
    spatial = 2 / 65 * math.exp(2 * (math.lgamma(32.5) - math.lgamma(32))) * (65 / 64) ** 2
    assert cost("geometric_median", 200, 65) == pytest.approx(math.sqrt(spatial), rel=2e-3)


RULES = [(rule, attack, private) for rule in AGGREGATES for attack in (None, "large") for private in (True, False)]


@pytest.mark.parametrize(("aggregate", "attack", "private"), deep(RULES, keep={6, 7, 11}))
def test_a_release_is_the_rule_on_prefix_sums(aggregate, attack, private):
    """The tree of every silo in NumPy, fed the same users and the same noise; silo 1 may lie. Or no noise."""
    liars = attack and P.Liars([1], attack)
    bound: RobustMechanism = bind(aggregate, liars)
    exact = with_robust_server(Exact(n_agents=M), aggregate, liars)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 2, D, M)) / 3, rng.random((4, 2, M))
    played = bound if private else exact
    state, keys = played.init(D), jax.random.split(jax.random.key(0), 4)
    sums, trees = np.zeros((M, D, D + 1)), Tree()
    total, step = jax.jit(played.total), jax.jit(played.step)
    draw = jax.jit(
        lambda keys, k: jax.vmap(bound.trust.randomize, (0, 0, None, None))(keys, np.arange(M), k, np.zeros(9))
    )
    for k in range(1, 5):
        xs, ys = np.float32(x[k - 1]), np.float32(y[k - 1])
        statistics, state = step(keys[k - 1], jnp.int32(k), state, total(xs, ys), xs, ys)
        sums += np.einsum("bim,bjm->mij", x[k - 1], np.concatenate([x[k - 1], y[k - 1][:, None]], 1))
        silos = jax.random.split(jax.random.split(keys[k - 1])[0], M)
        noise = trees.release(k, 0.0, np.asarray(draw(silos, k)))
        sent = np.asarray(PACK(np.float32(sums))) + private * noise
        if attack:
            sent[1] *= -1000
        np.testing.assert_allclose(state.view, sent, rtol=1e-4, atol=2e-4)
        expected = M * np.asarray(JITTED[aggregate](np.float32(sent)))
        np.testing.assert_allclose(
            PACK(statistics), expected, rtol=1e-3, atol=2e-3 * (1000 if aggregate == "sum" else 1)
        )


def test_groups_of_silos_are_not_added_up():
    """On a CPU a batch of many agents is run group after group, and their sums added up, where that is the same."""
    assert recipe(aggregate="sum").bind(ENV.spec, 40).adds
    for privacy in (None, BUDGET):
        assert not recipe(privacy=privacy).bind(ENV.spec, 40).adds


def test_the_claim_is_that_of_every_silo():
    """Neither the rule nor liars change what the noise of an honest silo proves, and whoever takes it away is seen."""
    whole, median = recipe(aggregate="sum").bind(ENV.spec, 20), recipe(liars=P.Liars([0])).bind(ENV.spec, 20)
    one, other = certify(whole), certify(median)
    assert (one.claim, other.claim) == ("certified", "certified")
    assert (other.epsilon_exact, other.noise_std, other.trust) == (one.epsilon_exact, one.noise_std, one.trust)
    assert other.server_noise_std == pytest.approx(one.server_noise_std * cost("median", M, 9), rel=1e-6)
    assert other.reason.endswith("the server's rule 'median' is post-processing of noised messages")
    assert set(other.not_covered) - set(one.not_covered) == {"users of silos that lie"}
    assert certify(recipe(privacy=None).bind(ENV.spec, 20)).claim == "none"
    mechanism = median.mechanism

    @fb.pytree
    class Office(Server):
        """Adds up what it likes."""

    office = Office(**{field.name: getattr(mechanism.server, field.name) for field in dataclasses.fields(Server)})
    for changes, words in (
        (dict(trust=Central(std=mechanism.trust.std[0])), "trust = 'Central' does not support aggregate"),
        (dict(epsilon=np.ones(M)), f"budget = {M} does not support aggregate"),
        (dict(server=office), "Office, a user-defined server"),
        (dict(trust=dataclasses.replace(mechanism.trust, std=mechanism.trust.std / 2)), "gives epsilon = "),
    ):
        forged = certify(dataclasses.replace(median, mechanism=dataclasses.replace(mechanism, **changes)))
        assert forged.claim == "none"
        assert words in forged.reason


def test_liars_are_checked():
    with refused("silos"):
        P.Liars([1, 1])
    for silos in ([7], 0.05, 0.95):
        with refused("silos"):
            recipe(liars=P.Liars(silos)).bind(ENV.spec, 20)
    assert isinstance(recipe(privacy=None).bind(ENV.spec, 20).mechanism, ExactRobust)
    assert recipe().bind(ENV.spec, 4).mechanism.guarantee is not None  # nothing is released before round 5
