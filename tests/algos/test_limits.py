"""Limits: algorithms that are others without noise, alone, or in one cluster, and horizons with no release."""

import examples as ex
import networkx as nx
import numpy as np
import pytest
from four_arms import ARMS
from helpers import deep

import fedbandit_jax as fb

A, S = fb.algos, fb.schedules
ALONE, ONE_USER = fb.envs.sphere(1, 8, 5, rewards="bernoulli"), fb.envs.clustered(1, 1, 1, n_arms=5, dim=4)
ONE_SERVER = fb.envs.clustered(9, 1, 1, n_arms=4, dim=3)
SILO = A.Federated(policy=A.Thompson(), schedule=10, privacy=ex.BUDGET)
SYNCED = A.GossipFedUCB(graph=nx.complete_graph(ex.M), gamma=1, schedule=S.LogDet(1e-6)).replace(regularization=0.5)
MEAN = A.UCB(exploration_scale=0.0)  # as widths differ
FCLUB, INF = A.FCLUB(upload=1, download=1), np.inf
LIMITS = {  # environment, two algorithms, and how far regrets may be apart
    "one agent is LinUCB": (ALONE, A.fed_lin_ucb(schedule=20), A.LinUCB(), 1e-4),
    "a batch of one round has no cascade": (
        *(ex.SCRIPT, *(A.Federated(policy=MEAN, schedule=1, learns_in_batch=learns) for learns in (True, False)), 1e-4),
    ),
    "one silo is the central model": (ALONE, SILO, SILO.replace(trust="central"), 0),
    "a complete graph is a controller one round late": (
        *(ex.SCRIPT, SYNCED, A.fed_ucb(schedule=2).replace(regularization=0.5), 2e-5),
    ),
    **{
        f"a complete graph is federated, {type(policy).__name__}": (
            ex.SCRIPT,
            A.Gossip(graph=nx.complete_graph(ex.M), policy=policy, schedule=ex.GROWING),
            *(A.Federated(policy=policy, schedule=ex.GROWING), 1e-4),
        )
        for policy in (ex.UCB, A.Thompson(), A.EpsilonGreedy(explore=8.0))
    },
    "one user who always uploads is LinUCB": (ONE_USER, A.async_fed_lin_ucb(1.0 + 1e-6), A.LinUCB(), 1e-4),
    "FCLUB of one user is LinUCB": (ONE_USER, FCLUB, A.LinUCB(), 1e-4),
    "a mixture of one user is alone": (
        *(ONE_USER, A.Grouped(grouping=A.Alone(), schedule=6), A.Grouped(grouping=A.Mixture(), schedule=6), 0),
    ),
    "FCLUB of one cluster": (ONE_SERVER, FCLUB.replace(alpha_1=INF), A.homo(), 1e-4),
    "CLUB of one cluster": (ONE_SERVER, A.CLUB(alpha_edge=INF), A.homo(), 1e-4),
    "SCLUB of one cluster": (ONE_SERVER, A.SCLUB(alpha_theta=INF, alpha_p=INF), A.homo(), 1e-4),
}


@pytest.mark.parametrize("name", deep(list(LIMITS), keep={1}))
def test_it_is_another(name):
    env, *algos, apart = LIMITS[name]
    one, other = (ex.simulate(env, algo, horizon=200 if env is not ex.SCRIPT else ex.T) for algo in algos)
    np.testing.assert_allclose(one.regret, other.regret, rtol=0, atol=apart)
    assert (one.regret[:, -1] > 0).all()
    assert one.certificate.epsilon_exact == other.certificate.epsilon_exact


SHORT = {name: ex.EXAMPLES[name] for name in ("Private-FedLinUCB", "known noise", "Greedy", "vector sums", "Gossip")}
SHORT |= {name: row._replace(algo=row.algo.replace(schedule=ex.T + 1)) for name, row in SHORT.items()}
SHORT["Dist-DP-SE"] = ex.EXAMPLES["Dist-DP-SE"]._replace(env=ARMS)


@pytest.mark.parametrize("name", deep(list(SHORT), keep={0}))
def test_a_horizon_shorter_than_a_batch(name):
    """Nothing is released, and nothing has to be paid for."""
    row = SHORT[name]
    result = ex.simulate(row.env, row.algo, horizon=7 if row.env is ARMS else ex.T)
    assert (result.regret[:, -1] > 0).all()
    for curve in (*result.communication.values(), *result.counts.values()):
        assert not curve.any()
    assert result.certificate.claim == "certified"
    assert result.certificate.reason.startswith("nothing is released") or row.env is not ARMS
