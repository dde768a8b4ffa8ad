"""Algorithms show the orderings of their papers, over paired seeds."""

import itertools

import jax
import networkx as nx
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb

A, P, S = fb.algos, fb.privacy, fb.schedules
HALF = P.Linear(centred=True, gram_scale=0.5)
POINTS = np.random.default_rng(0).standard_normal((10, 3))
X = np.hstack([POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True), np.ones((10, 1))]) / np.sqrt(2)
SPREAD = fb.envs.arms(means=[0.75, 0.625, 0.5, 0.375, 0.25], rewards="bernoulli")
SAME = fb.envs.replay(
    np.tile(X, (20, 1)), np.full(20, 10), np.array([0.5, 0, 0, 0.5**0.5]), n_agents=20, rewards="bernoulli"
)


def gossip(graph):
    return A.GossipFedUCB(graph=graph, gamma=1).replace(schedule=S.LogDet(10.0), regularization=0.2)


def grouped(grouping):
    mechanism = P.Mechanism(P.Budget(4.0, 0.1), "blt", unit="visit", statistic=HALF)
    return A.Grouped(grouping=grouping, privacy=mechanism)


def phased(epsilon):
    mechanism = P.Mechanism(P.Budget(epsilon, 0.1), "input_perturbation", statistic=HALF)
    return A.dp_dpe(np.float32(X), mechanism, exploration_scale=0.5)


UCB = A.UCB(exploration_scale=0.3)
PLAIN = A.Federated(policy=UCB, schedule=10)
ADAC = [A.AdaCUCB(A.DistDPSE(epsilon, radius="exact")) for epsilon in (1.0, 0.05)]
ORDERS = {  # environment, horizon, seeds, and algorithms whose regrets rise, with factors of regret
    "Dubey & Pentland (2020): denser graphs": (
        *(fb.envs.gap(6, 8, 4), 200, 12),
        [(1, gossip(graph)) for graph in (nx.complete_graph(6), nx.cycle_graph(6), nx.empty_graph(6))],
    ),
    "He et al. (2022), Theorem 5.1: more uploads": (
        *(fb.envs.clustered(10, 1, 1, n_arms=10, dim=6), 4000, 32),
        [*((1, A.async_fed_lin_ucb(growth)) for growth in (1.01, 2.0, 16.0)), (1, A.LinUCB())],
    ),
    "Azize & Basu (2022): privacy costs less than learning": (
        *(fb.envs.arms(5), 200_000, 12),
        [(1, ADAC[0]), (2, A.AdaCUCB()), (1, ADAC[1])],
    ),
    **{
        f"Azize et al. (2025): all rewards are better than the last batch, {kind.__name__}": (
            *(SPREAD, 100_000, 40),
            [(1, kind(A.CDPSE(epsilon))), (1, A.AdaCUCB(A.CDPSE(epsilon, radius="exact")))],
        )
        for kind, epsilon in ((A.PhasedIMED, 1.0), (A.PhasedKLUCB, 10.0))
    },
    "Li, Zhou & Ji: privacy becomes free": (
        *(SAME, 2000, 32),
        [(1, phased(10.0)), (1.5, phased(500.0)), (1, phased(0.3))],
    ),
    "Russac et al. (2019): forgetting after a change": (
        *(fb.envs.drift(fb.envs.sphere(10, 10, 4, rewards="bernoulli"), (200,)), 800, 16),
        [(1, PLAIN.replace(policy=A.Forgetting(policy=UCB, memory=P.Discounted(0.8)))), (1, PLAIN)],
    ),
    **{
        f"ours: kinds are told apart, not {other.__name__}": (
            *(fb.envs.clustered(10, n_clusters=2), 5000, 12),
            [(1, grouped(A.Mixture())), (1, grouped(other()))],
        )
        for other in (A.Together, A.Alone)
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERS)
def test_orderings(name):
    """At 99 %, by ranks of paired differences: a few seeds lose the best arm for long."""
    env, horizon, seeds, order = ORDERS[name]
    algos = {str(i): algo for i, (_, algo) in enumerate(order)}
    found = fb.sweep(env, algos, horizon=horizon, key=jax.random.key(1), seeds=seeds, stride=horizon)
    ends = [factor * found[label].regret[:, -1] for label, (factor, _) in zip(algos, order)]
    for better, worse in itertools.pairwise(ends):
        assert stats.wilcoxon(better, worse, alternative="less").pvalue < 0.01
