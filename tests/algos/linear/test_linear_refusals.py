"""What suits no other part of a recipe by its size or type is refused; pairs of parts are in test_compatibility.py."""

import dataclasses

import examples as ex
import networkx as nx
import numpy as np
import pytest
from helpers import Bias, refused

import fedbandit_jax as fb
from fedbandit_jax import networks

A, P, S = fb.algos, fb.privacy, fb.schedules
BUDGET, SPEC, DISCOUNTED = ex.BUDGET, ex.SPHERE.spec, ex.DISCOUNTED
LONG, AWAY = dataclasses.replace(SPEC, max_norm=2.8), dataclasses.replace(SPEC, drops=True)
RING = networks.make("ring", ex.M)
FORGETS, ARMS = A.Forgetting(policy=A.UCB(), memory=DISCOUNTED), np.eye(2, ex.D)


def gossip(graph=RING, **options):
    return A.Gossip(graph=graph, **options)


def gossip_ucb(graph=RING, **options):
    return A.GossipFedUCB(graph=graph, **options)


def forgetting(policy, memory=DISCOUNTED):
    return A.Forgetting(policy=policy, memory=memory)


@fb.pytree
class Together(Bias):
    """A user-defined policy that scores all users at once."""

    index = fb.Policy.index

    def indices(self, key, t, prepared, offered):
        return offered.contexts[..., 0].T


MADE = [  # the argument that is named, and what is made
    ("gamma", lambda: gossip_ucb(gamma=3)),
    ("schedule", lambda: gossip_ucb(schedule=S.Every(3))),
    ("schedule", lambda: gossip_ucb(schedule=S.LogDet(max_syncs=3))),
    ("schedule", lambda: gossip(schedule=S.LogDet())),
    ("policy", lambda: gossip_ucb(policy=A.UCB())),
    ("policy", lambda: gossip(policy=FORGETS)),
    ("policy", lambda: forgetting(FORGETS)),
    ("arms", lambda: A.PhasedElimination(arms=np.zeros((2, 3)))),
]
BOUND = [  # the argument that is named, an algorithm, and what it is bound to
    ("n_agents", A.fed_ucb(), dataclasses.replace(SPEC, n_agents=1)),
    ("policy", A.Federated(policy=FORGETS, schedule=S.LogDet()), SPEC),
    ("policy", A.Federated(policy=forgetting(Together())), SPEC),
    ("graph", gossip_ucb(nx.path_graph(3)), SPEC),
    ("graph", gossip(nx.path_graph(3)), SPEC),
    ("schedule", gossip(gamma=2, schedule=1), SPEC),
    *(("env", make(), SPEC) for make in (A.FCLUB, A.homo_dc, A.CLUB, A.SCLUB, A.Grouped)),
    ("arms", A.dp_dpe(np.eye(2), BUDGET), SPEC),
    ("dropouts", A.Federated(privacy=P.Mechanism(BUDGET, "input_perturbation", "secagg", dropouts=ex.M)), AWAY),
    *(("max_norm", one, LONG) for one in (A.fed_ucb(BUDGET), gossip(privacy=BUDGET))),
    *(("max_norm", one, dataclasses.replace(ex.USERS.spec, max_norm=2.8))
      for one in (A.AsyncFederated(schedule=3, privacy=ex.VISIT), A.FCLUB(BUDGET))),
]  # fmt: skip


@pytest.mark.parametrize(("argument", "make"), MADE)
def test_parts_that_do_not_go_together(argument, make):
    with refused(argument):
        make()


@pytest.mark.parametrize(("argument", "algo", "spec"), BOUND)
def test_environments_that_do_not_suit(argument, algo, spec):
    with refused(argument):
        algo.bind(spec, 50)


def test_offered_arms_are_those_of_the_policy():
    with refused("arms"):
        fb.simulate(ex.TABLE, A.dp_dpe(ARMS, BUDGET), horizon=20, key=ex.KEY, seeds=1)
