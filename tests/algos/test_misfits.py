"""What suits no other part by its size or type is refused, and nothing is compiled before.

Values of one argument are in tests/test_arguments.py, and pairs of parts in tests/privacy/test_compatibility.py.
"""

import dataclasses

import examples as ex
import networkx as nx
import numpy as np
import pytest
from four_arms import ARMS, HORIZON, algorithm
from helpers import Bias, SharesRDPSE, refused

import fedbandit_jax as fb
from fedbandit_jax import networks
from fedbandit_jax.engine import driver

A, P, S = fb.algos, fb.privacy, fb.schedules
BUDGET, SPEC, DISCOUNTED = ex.BUDGET, ex.SPHERE.spec, ex.DISCOUNTED
LONG, AWAY = dataclasses.replace(SPEC, max_norm=2.8), dataclasses.replace(SPEC, drops=True)
FORGETS, FEW = A.Forgetting(policy=A.UCB(), memory=DISCOUNTED), P.Users(4, per_batch=1)
RING = networks.make("ring", ex.M)
RUN = dict(key=ex.KEY, seeds=1)


def gossip(graph=RING, kind=A.Gossip, **options):
    return kind(graph=graph, **options)


def forgetting(policy, memory=DISCOUNTED):
    return A.Forgetting(policy=policy, memory=memory)


@fb.pytree
class Together(Bias):
    """A user-defined policy that scores all users at once."""

    index = fb.Policy.index

    def indices(self, key, t, prepared, offered):
        return offered.contexts[..., 0].T


MADE = [  # the argument that is named, and what is made
    ("gamma", lambda: gossip(kind=A.GossipFedUCB, gamma=3)),
    ("schedule", lambda: gossip(kind=A.GossipFedUCB, schedule=S.Every(3))),
    ("schedule", lambda: gossip(kind=A.GossipFedUCB, schedule=S.LogDet(max_syncs=3))),
    ("schedule", lambda: gossip(schedule=S.LogDet())),
    ("policy", lambda: gossip(kind=A.GossipFedUCB, policy=A.UCB())),
    ("policy", lambda: gossip(policy=FORGETS)),
    ("policy", lambda: forgetting(FORGETS)),
    ("arms", lambda: A.PhasedElimination(arms=np.zeros((2, 3)))),
    ("arms", lambda: fb.simulate(ex.TABLE, A.dp_dpe(np.eye(2, ex.D), BUDGET), horizon=20, **RUN)),
    *(("sums", lambda kind=kind: kind(A.DPSE(1.0)))  # which has epochs of its own
      for kind in (A.AdaCUCB, A.PhasedKLUCB, A.PhasedIMED, A.TopTwo, A.SequentialHalving)),
    ("sums", lambda: A.TruncatedSE(A.SE(radius="exact"))),
    ("epsilon", lambda: A.DistDPSE(1e-8, unit=P.Users(1000, 1))),  # less than 1e-9 for each sum
    ("unit", lambda: A.TruncatedSE(A.CDPSE(1.0, unit=FEW))),
    ("horizon", lambda: fb.simulate(ARMS, A.SE(), horizon=2**31 - 1, **RUN)),
    ("recommended", lambda: fb.simulate(ARMS, A.AdaCUCB(), horizon=20, **RUN, record={
        "recommended": fb.record.final(fb.record.recommended)})),
]  # fmt: skip
BOUND = [  # the argument that is named, an algorithm, what it is bound to, and perhaps its horizon
    ("n_agents", A.fed_ucb(), dataclasses.replace(SPEC, n_agents=1)),
    ("policy", A.Federated(policy=FORGETS, schedule=S.LogDet()), SPEC),
    ("policy", A.Federated(policy=forgetting(Together())), SPEC),
    ("graph", gossip(nx.path_graph(3), A.GossipFedUCB), SPEC),
    ("graph", gossip(nx.path_graph(3)), SPEC),
    ("schedule", gossip(gamma=2, schedule=1), SPEC),
    *(("env", make(), SPEC) for make in (A.FCLUB, A.homo_dc, A.CLUB, A.SCLUB, A.Grouped)),
    ("arms", A.dp_dpe(np.eye(2), BUDGET), SPEC),
    ("dropouts", A.Federated(privacy=P.Mechanism(BUDGET, "input_perturbation", "secagg", dropouts=ex.M)), AWAY),
    *(("max_norm", one, LONG) for one in (A.fed_ucb(BUDGET), gossip(privacy=BUDGET))),
    *(("max_norm", one, dataclasses.replace(ex.USERS.spec, max_norm=2.8))
      for one in (A.AsyncFederated(schedule=3, privacy=ex.VISIT), A.FCLUB(BUDGET))),
    # machine words, horizons, and noise that drowns everything
    ("horizon", A.SE(), ARMS.spec, 3),
    ("horizon", A.AdaCUCB(A.DistDPSE(1.0)), ARMS.spec, 3),
    ("horizon", A.SequentialHalving(), ARMS.spec, 10),
    *(("budget", A.SequentialHalving(budget=budget), ARMS.spec) for budget in (15, HORIZON + 1)),
    ("failure", A.TopTwo(A.CDPSE(1.0), failure=1e-4), ARMS.spec),
    ("failure", algorithm("Shuffle-DP-SE", radius="exact", failure=1e-6), ARMS.spec, 1000),
    ("first", A.ThompsonArms(1.0, first=100), ARMS.spec, 399),
    ("sums", A.TopTwo(A.RRSE(1.0)), ARMS.spec),  # flips have no law that is added to sums
    ("epsilon", A.RRSE(1e-8), ARMS.spec),
    ("epsilon", A.ThompsonArms(1e-9), ARMS.spec, 10**6),
    ("epsilon", algorithm("Dist-RDP-SE", 500.0, scale=200.0), ARMS.spec, 400_000),  # 25,600,000 steps a unit
    ("epsilon", algorithm("Dist-CDP-SE", 500.0, scale=200.0, radius="exact"), ARMS.spec, 400_000),
    ("epsilon", algorithm("CDP-SE", 1e-9, radius="exact"), ARMS.spec),  # noise of 10^9 steps
    ("epsilon", algorithm("DP-SE", 1e-9), ARMS.spec),
    ("bound", SharesRDPSE(1.0, scale=2.0**12), ARMS.spec, 2**24),
    ("n_arms", A.SE(), fb.envs.sphere(1, 1, 5).spec),
]  # fmt: skip


@pytest.mark.parametrize(("argument", "make"), MADE)
def test_parts_that_do_not_go_together(argument, make, monkeypatch):
    monkeypatch.setattr(driver, "run_program", lambda *a, **k: pytest.fail("compiled before checking"))
    with refused(argument):
        make()


@pytest.mark.parametrize(("argument", "algo", "spec", "horizon"), [(*row, HORIZON)[:4] for row in BOUND])
def test_environments_and_horizons_that_do_not_suit(argument, algo, spec, horizon):
    with refused(argument):
        algo.bind(spec, horizon)
