"""Whoever composes something dishonest, by classes of their own or in a registry, loses the claim or is refused."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from helpers import AUTHORS, Prefixes, refused
from honest import BATCH, BUDGET, HORIZON, SPEC, BoundOffice, Office, changed, federated, honest, nosy, of, subclass

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import RELEASES, TRUST
from fedbandit_jax.privacy.bound import Exact
from fedbandit_jax.privacy.releases import Blt, Tree
from fedbandit_jax.privacy.trust import Central, SecAgg, SiloLocal


def trust(**methods):
    return lambda: federated(trust=subclass(Central, **methods))


def release(parent=Prefixes, **methods):
    return lambda: federated(release=type("Own", (parent,), methods))


def bent(self, state, k, gamma):
    """Twice what was asked for, from message 7 on, for those who give more than a little."""
    large = jnp.where((k > 6) & (abs(gamma) > 0.5), 2, 1)
    return state + large * gamma, state + gamma


@dataclasses.dataclass(frozen=True)
class Cheap(fb.schedules.PrivateLogDet):
    """Keeps the releases' noise that of a schedule which spends nothing."""

    def pure(self, epsilon):
        return 1e-12 * epsilon

    def bind(self, setting):
        return fb.schedules.PrivateLogDet(3.0, share=0.5).bind(setting)


@dataclasses.dataclass(frozen=True)
class EasyBudget(fb.privacy.Budget):
    joint_sensitivity_sq = 1e-6


class OpenMechanism(fb.privacy.Mechanism):
    def bind(self, statistic, **sizes):
        made = super().bind(statistic, **sizes)
        return of(subclass(type(made), step=Exact.step), made)


class Forged(fb.algos.Federated):
    """A recipe that binds no noise, and speaks for itself."""

    def bind(self, spec, horizon):
        return changed(super().bind(spec, horizon), "", mechanism=Exact(n_agents=spec.n_agents))


OWN = "trust model of its own"
COMPOSED = {
    "trust: less noise": (trust(noise=lambda s, key, n: Central.noise(s, key, n) * 0.95), OWN),
    "trust: its own proof": (trust(proof=lambda s, ask: SiloLocal.proof(s, ask)), OWN),
    "trust: no Gaussian one": (lambda: federated(trust=subclass(SecAgg, sentence="mine")), OWN),
    "release: nonlinear later": (release(encode=bent), "sum of all batches"),
    "release: sums left out": (release(decode=lambda s, state, k, m: (m * (k < 5), state)), "sum of all batches"),
    "release: for another horizon": (lambda: federated(release=lambda n: Tree(n - 1)), "n_syncs = 8"),
    "schedule: pays too little": (lambda: federated(policy=fb.algos.UCB(), schedule=Cheap()), "not 1$"),
    "schedule: unknown reading": (lambda: federated(fb.algos.UCB(), schedule=Office(nosy(reads="all"))), "reads must"),
    "budgets with two deltas": (lambda: federated(budget=(BUDGET, fb.privacy.Budget(1, 1e-9)) * 2), "one delta"),
    "budgets for too few silos": (lambda: federated(budget=(BUDGET,) * 3), "one budget for each of 4 silos"),
    "budget with a sensitivity": (lambda: federated(budget=EasyBudget(1.0, 0.1)), "not 1$"),
    "a mechanism": (
        lambda: fb.algos.Federated(privacy=OpenMechanism(BUDGET), schedule=BATCH),
        "a user-defined mechanism",
    ),
    "a recipe": (lambda: Forged(privacy=BUDGET, schedule=BATCH), "not a private algorithm"),
    "as the authors' code": (lambda: federated(std=AUTHORS["silo_local"]), "the noise gives"),
}


def refusal(make):
    """Why nothing is claimed, or what the error says."""
    try:
        found = make().certificate(SPEC, HORIZON)
    except (ValueError, TypeError, AttributeError) as error:
        return str(error)
    assert found.claim == "none"
    return found.reason


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_dishonestly(name):
    make, words = COMPOSED[name]
    assert re.search(words, refusal(make))


@pytest.mark.parametrize(
    ("registry", "name", "value", "options", "words"),
    [
        (RELEASES, "tree", Blt, {"trust": "shuffle_amplified"}, "does not support trust"),
        (TRUST, "silo_local", subclass(SiloLocal, noise=lambda s, key, n: jnp.zeros(n)), {}, OWN),
    ],
)
def test_registries_changed(monkeypatch, registry, name, value, options, words):
    monkeypatch.setitem(registry, name, value)
    assert re.search(words, refusal(lambda: federated(**options)))


def test_a_policy_cannot_reach_the_noise():
    """A policy is told of a copy of the mechanism."""

    class Vandal(fb.algos.Thompson):
        def bind(self, law):
            law.mechanism.trust.std[:] = 0
            law.stds[:] = 0
            return self

    bound = federated(policy=fb.pytree(Vandal)()).bind(SPEC, HORIZON)
    assert certify(bound).claim == "certified"
    assert (bound.mechanism.trust.std == honest("tree").mechanism.trust.std).all()


def test_a_release_is_its_matrices():
    """What a user-defined class says beside `encode` and `decode` changes nothing."""
    wanted = honest("own release")
    methods = {"prefix_variance": lambda self: np.zeros(self.n_syncs), "sensitivity_sq": lambda self: 1e-4}
    found = release(**methods)().bind(SPEC, HORIZON)
    assert dataclasses.replace(found.guarantee(), release="Prefixes") == wanted.guarantee()
    for a, b in zip(jax.tree.leaves(found.mechanism), jax.tree.leaves(wanted.mechanism), strict=True):
        np.testing.assert_array_equal(a, b)


def test_forged_classes_share_no_program():
    """A compiled program is found by equality of its static parts: a lookalike must not equal the honest one."""
    bound = honest("tree")
    one = bound.mechanism.statistic
    forged = changed(bound, "mechanism", statistic=of(type("Loose", (type(one),), {}), one))
    assert jax.tree.structure(bound) != jax.tree.structure(forged)
    assert jax.tree.structure(bound) == jax.tree.structure(changed(bound, "mechanism.statistic", dim=2))


RETURNING = dataclasses.replace(SPEC, n_users=12)


def test_returning_users_are_said_to_return():
    """By the environment's own spec; what is protected then must be asked for."""
    found = federated(unit="visit").certificate(RETURNING, HORIZON)
    assert found.claim == "certified"
    assert "users return in this environment, and nobody is protected in more rounds together" in found.unit
    thrice = federated(unit=fb.privacy.Users(3)).certificate(RETURNING, HORIZON)
    assert thrice.unit.startswith("one user: all their contributions, up to 3 times at a silo")
    assert "silos leave out what is beyond" in thrice.unit
    assert "who comes when, and how often" in thrice.not_covered
    assert thrice.noise_std == pytest.approx(3 * found.noise_std, rel=1e-6)
    assert "counts as a new user" in federated().certificate(SPEC, HORIZON).unit
    assert federated().certificate(SPEC, HORIZON) == federated(unit="visit").certificate(SPEC, HORIZON)


GRAPH = nx.path_graph(SPEC.n_agents)


@pytest.mark.parametrize(
    "algo",
    [
        federated(schedule=fb.schedules.PrivateLogDet(), policy=fb.algos.UCB()),
        federated(schedule=1000),  # longer than the run, so that nothing is released
        fb.algos.Gossip(graph=GRAPH, privacy=BUDGET, schedule=2),
    ],
    ids=["private", "closed", "neighbours"],
)
def test_returning_users_need_visits(algo):
    with refused("unit", None):
        algo.bind(RETURNING, HORIZON)
    algo.replace(unit="visit").bind(RETURNING, HORIZON)


def test_gossip_cannot_be_certified():
    """Not even under a schedule that claims to read nothing: its code hands out what agents gained."""
    bound = fb.algos.GossipFedUCB(graph=GRAPH, privacy=BUDGET).bind(SPEC, HORIZON)
    for forged in (bound, changed(bound, "", schedule=BoundOffice()), changed(bound, "", sizes=bound.sizes / 1e6)):
        assert certify(forged).claim == "none"
        assert certify(forged).epsilon_exact == float("inf")
