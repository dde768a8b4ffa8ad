"""Parts that do not go together are refused, when a recipe is made or when it is bound: the argument is named."""

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
LONG = dataclasses.replace(SPEC, max_norm=2.8)
AWAY, LATE = dataclasses.replace(SPEC, drops=True), dataclasses.replace(SPEC, late=3)
AUTHORS, USERS, RING = A.UCB(confidence="authors"), ex.BY_BATCH, networks.make("ring", ex.M)
FORGETS, ARMS = A.Forgetting(policy=A.UCB(), memory=DISCOUNTED), np.eye(2, ex.D)
PHASED = A.PhasedElimination(arms=np.eye(ex.D))
GROWING, LOG_DET, TESTED = S.Geometric(), S.LogDet(), S.PrivateLogDet()


def private(release="blt", trust="silo_local", **options):
    return P.Mechanism(BUDGET, release, trust, **options)


def federated(privacy=None, **options):
    return A.Federated(privacy=privacy, **options)


def gossip(graph=RING, **options):
    return A.Gossip(graph=graph, **options)


def gossip_ucb(graph=RING, **options):
    return A.GossipFedUCB(graph=graph, **options)


def single(schedule=3, privacy=None, **options):
    return A.AsyncFederated(schedule=schedule, privacy=privacy, **options)


def forgetting(policy, memory=DISCOUNTED):
    return A.Forgetting(policy=policy, memory=memory)


@fb.pytree
class Together(Bias):
    """A user-defined policy that scores all users at once."""

    index = fb.Policy.index

    def indices(self, key, t, prepared, offered):
        return offered.contexts[..., 0].T


class Calls(Bias):
    calls_host = True


LEAF = dict(release="input_perturbation")
MADE = [  # the argument that is named, and what is made
    *(("schedule", lambda make=make: make(schedule=TESTED)) for make in (A.fed_ucb, federated, single)),
    ("calibration", lambda: A.fed_ucb(BUDGET).replace(calibration="authors")),
    ("schedule", lambda: federated(BUDGET, schedule=S.LogDet(trigger="dp20"))),
    ("policy", lambda: federated(policy=PHASED, privacy=private("input_perturbation", unit=P.Users(1, total=1.0)))),
    ("policy", lambda: federated(private(), policy=AUTHORS, aggregate="median")),
    ("gamma", lambda: gossip_ucb(gamma=3)),
    ("gamma", lambda: gossip(gamma=3)),
    ("graph", lambda: gossip_ucb(nx.path_graph(1))),
    ("graph", lambda: gossip_ucb(nx.Graph([(0, 1), (2, 3)]))),
    ("schedule", lambda: gossip_ucb(schedule=S.Every(3))),
    ("schedule", lambda: gossip_ucb(schedule=S.LogDet(max_syncs=3))),
    ("policy", lambda: gossip_ucb(policy=A.UCB())),
    ("trust", lambda: gossip_ucb(privacy=private("tree", "secagg"))),
    ("unit", lambda: gossip_ucb(privacy=private("prefix_tree", "silo_local_matrix", unit=P.Users(2)))),
    ("policy", lambda: gossip(policy=A.LogDetUCB())),
    ("policy", lambda: gossip(policy=FORGETS)),
    ("schedule", lambda: gossip(schedule=LOG_DET)),
    ("trust", lambda: gossip(privacy=private("blt", "central"))),
    ("budget", lambda: gossip(privacy=[BUDGET] * ex.M)),
    ("confidence", lambda: gossip(policy=AUTHORS, privacy=private(unit="visit"))),
    ("schedule", lambda: single(S.LogDet(1.0, "dp20"))),
    ("trust", lambda: single(privacy=private("tree", "secagg"))),
    ("trust", lambda: single(privacy=private("tree", "central"))),
    ("budget", lambda: single(privacy=[BUDGET, BUDGET])),
    ("policy", lambda: single(policy=FORGETS)),
    ("confidence", lambda: single(policy=AUTHORS, privacy=private(unit="visit"))),
    ("growth", lambda: A.async_fed_lin_ucb(1.0)),
    ("memory", lambda: forgetting(A.UCB(), 0.7)),
    *(("policy", lambda one=one: forgetting(one)) for one in (FORGETS, A.LogDetUCB(), PHASED, AUTHORS, Calls())),
    ("arms", lambda: A.PhasedElimination(arms=np.zeros((2, 3)))),
    ("dropouts", lambda: private(dropouts=1)),
    ("trust", lambda: federated(private("tree", "secagg"), schedule=LOG_DET)),
    ("messages", lambda: A.Grouped(privacy=private(unit="visit", messages=True))),
    *(
        (argument, lambda options=options: A.Grouped(**options).bind(ex.USERS.spec, 50))
        for argument, options in (
            ("trust", dict(privacy=private("tree", "central", unit="visit"))),
            ("schedule", dict(schedule=LOG_DET)),
            ("schedule", dict(schedule=TESTED, privacy=ex.VISIT)),
            ("unit", dict(privacy=private())),
            ("policy", dict(policy=PHASED)),
        )
    ),
    ("confidence", lambda: A.LinUCB().replace(confidence="authors").bind(ex.USERS.spec, 50)),
    ("trust", lambda: federated(private("tree", "shuffle_amplified"), schedule=GROWING)),
    ("trust", lambda: federated(private("tree", "shuffle_vector_sum"), schedule=TESTED)),
]
BOUND = [  # the argument that is named, an algorithm, and what it is bound to
    ("n_agents", A.fed_ucb(), dataclasses.replace(SPEC, n_agents=1)),
    ("trust", A.fed_ucb(private("tree", "central")), SPEC),
    ("messages", federated(private(messages=True), schedule=GROWING), SPEC),
    ("messages", federated(private("tree", messages=True), schedule=LOG_DET), SPEC),
    *(("policy", federated(policy=A.Thompson(), schedule=one, privacy=budget), SPEC)
      for one, budget in ((LOG_DET, None), (TESTED, BUDGET))),
    *(("policy", federated(policy=A.Thompson(), schedule=one, learns_in_batch=True), SPEC) for one in (5, GROWING)),
    ("policy", federated(policy=FORGETS, schedule=LOG_DET), SPEC),
    ("policy", federated(policy=forgetting(Together())), SPEC),
    ("graph", gossip_ucb(nx.path_graph(3)), SPEC),
    ("graph", gossip(nx.path_graph(3)), SPEC),
    ("schedule", gossip(gamma=2, schedule=1), SPEC),
    ("unit", single(privacy=BUDGET), ex.USERS.spec),
    ("policy", single(LOG_DET, policy=A.Thompson()), ex.USERS.spec),
    *(("env", make(), SPEC) for make in (A.FCLUB, A.homo_dc, A.CLUB, A.SCLUB, A.Grouped)),
    ("arms", A.dp_dpe(np.eye(2), BUDGET), SPEC),
    *(("confidence", federated(one, policy=AUTHORS), SPEC)  # of which nothing was released
      for one in (private("blt"), private("prefix_tree"), private("tree", "secagg"), private("tree", "central"))),
    *(("policy", federated(policy=PHASED), spec) for spec in (AWAY, LATE)),
    ("dropouts", federated(private(trust="secagg", dropouts=ex.M, **LEAF)), AWAY),
    ("release", federated(private()), AWAY),
    ("trust", federated(private("tree", "shuffle_amplified")), AWAY),
    ("messages", federated(private(**LEAF, messages=True)), AWAY),
    ("schedule", federated(schedule=LOG_DET), AWAY),
    *(("max_norm", one, LONG) for one in (A.fed_ucb(BUDGET), gossip(privacy=BUDGET))),
    *(("max_norm", one, dataclasses.replace(ex.USERS.spec, max_norm=2.8))
      for one in (single(privacy=ex.VISIT), A.FCLUB(BUDGET))),
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
