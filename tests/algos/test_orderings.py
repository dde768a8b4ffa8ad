"""Algorithms show the orderings of their papers, over paired seeds."""

import itertools
from typing import Any, NamedTuple

import jax
import networkx as nx
import numpy as np
import pytest
from four_arms import algorithm
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


def by_ranks(better, worse):
    """At 99 %: a few seeds lose the best arm for long."""
    return stats.wilcoxon(better, worse, alternative="less").pvalue < 0.01


def by_means(better, worse):
    """At 99.95 %, as there are many."""
    return stats.ttest_rel(better, worse, alternative="less").pvalue < 5e-4


def by_signs(better, worse):
    """At 99.9 %, of instances that differ."""
    less, more = (better < worse).sum(), (better > worse).sum()
    return stats.binom.sf(less - 1, less + more, 0.5) < 1e-3


class Orders(NamedTuple):
    env: Any
    horizon: int
    seeds: int
    algos: dict
    chains: list[tuple]  # names of algorithms whose regrets rise, perhaps with a factor of regret
    smaller: Any = by_ranks


def chain(env, horizon, seeds, *algos, factors=None):
    """Algorithms whose regrets, times factors, rise."""
    names = [str(i) for i in range(len(algos))]
    return Orders(env, horizon, seeds, dict(zip(names, algos)), [tuple(zip(names, factors or [1] * len(algos)))])


def gossip(graph):
    return A.GossipFedUCB(graph=graph, gamma=1).replace(schedule=S.LogDet(10.0), regularization=0.2)


def grouped(grouping):
    mechanism = P.Mechanism(P.Budget(4.0, 0.1), "blt", unit="visit", statistic=HALF)
    return A.Grouped(grouping=grouping, privacy=mechanism)


def phased(epsilon):
    mechanism = P.Mechanism(P.Budget(epsilon, 0.1), "input_perturbation", statistic=HALF)
    return A.dp_dpe(np.float32(X), mechanism, exploration_scale=0.5)


def private(epsilon=1.0, delta=0.1, **options):
    return A.private_fed_lin_ucb(P.Mechanism(P.Budget(epsilon, delta), **options))


def eliminating(epsilon, horizon):
    """Figure 4 and Section 7 of the paper; what shuffling costs is seen at its size only."""
    names = ["SE", "Dist-CDP-SE", "Dist-RDP-SE", "Dist-DP-SE", "LDP-SE"]
    chains = [tuple(names)]
    if horizon == 10**6:
        names += ["CDP-SE", "Shuffle-DP-SE"]
        chains += [("CDP-SE", "LDP-SE"), ("Dist-DP-SE", "Shuffle-DP-SE", "LDP-SE")]
        chains += [(("CDP-SE", 0.9), "Dist-DP-SE"), ("Dist-DP-SE", ("CDP-SE", 1.1))]
    algos = {name: algorithm(name, epsilon) for name in names}
    return Orders(fb.envs.arms(n_arms=5), horizon, 40, algos, chains, by_signs)


UCB = A.UCB(exploration_scale=0.3)
PLAIN = A.Federated(policy=UCB, schedule=10)
ADAC = [A.AdaCUCB(A.DistDPSE(epsilon, radius="exact")) for epsilon in (1.0, 0.05)]
SILOS = {
    "plain": A.fed_lin_ucb(),
    "alone": A.LinUCB(),
    **{f"{epsilon}, {delta}": private(epsilon, delta) for epsilon in (0.2, 1.0, 5.0) for delta in (0.1, 1e-4)},
    "theorem": private(std="theorem_5_1"),
    "secagg": private(trust="secagg", release="blt"),
    "vector sum": private(trust="shuffle_vector_sum"),
    "local": private(trust="local", release="input_perturbation"),
    "blt": private(release="blt"),
    "known noise": private(release="blt").replace(confidence="known_noise"),
    "greedy": A.Federated(
        policy=A.Greedy(),
        schedule=S.Geometric(1.5, first=3),
        privacy=P.Mechanism(P.Budget(1.0, 0.1), P.Decaying(1.5), trust="secagg", statistic=HALF),
    ),
}
ORDERS = {
    "Zhou & Chowdhury (2024)": Orders(
        *(fb.envs.sphere(20, 20, 5, rewards="bernoulli"), 1000, 12, SILOS),
        [
            ("plain", "alone"),
            ("plain", "secagg", "vector sum", "1.0, 0.1", "local"),
            ("known noise", "blt", "1.0, 0.1", "theorem"),
            ("greedy", "plain", "5.0, 0.1", "1.0, 0.1", "0.2, 0.1"),
            ("5.0, 0.1", "5.0, 0.0001", "1.0, 0.0001"),
            ("1.0, 0.1", "1.0, 0.0001"),
        ],
        by_means,
    ),
    **{
        f"Chowdhury & Zhou (2023): epsilon = {epsilon}, T = {horizon}": eliminating(epsilon, horizon)
        for epsilon, horizon in itertools.product((0.1, 1.0), (10**5, 10**6))
    },
    "Dubey & Pentland (2020): denser graphs": chain(
        *(fb.envs.gap(6, 8, 4), 200, 12),
        *(gossip(graph) for graph in (nx.complete_graph(6), nx.cycle_graph(6), nx.empty_graph(6))),
    ),
    "He et al. (2022), Theorem 5.1: more uploads": chain(
        *(fb.envs.clustered(10, 1, 1, n_arms=10, dim=6), 4000, 32),
        *(*map(A.async_fed_lin_ucb, (1.01, 2.0, 16.0)), A.LinUCB()),
    ),
    "Azize & Basu (2022): privacy costs less than learning": chain(
        *(fb.envs.arms(5), 200_000, 12, ADAC[0], A.AdaCUCB(), ADAC[1]), factors=(1, 2, 1)
    ),
    **{
        f"Azize et al. (2025): all rewards are better than the last batch, {kind.__name__}": chain(
            *(SPREAD, 100_000, 40, kind(A.CDPSE(epsilon)), A.AdaCUCB(A.CDPSE(epsilon, radius="exact")))
        )
        for kind, epsilon in ((A.PhasedIMED, 1.0), (A.PhasedKLUCB, 10.0))
    },
    "Li, Zhou & Ji: privacy becomes free": chain(
        *(SAME, 2000, 32, phased(10.0), phased(500.0), phased(0.3)), factors=(1, 1.5, 1)
    ),
    "Russac et al. (2019): forgetting after a change": chain(
        *(fb.envs.drift(fb.envs.sphere(10, 10, 4, rewards="bernoulli"), (200,)), 800, 16),
        *(PLAIN.replace(policy=A.Forgetting(policy=UCB, memory=P.Discounted(0.8))), PLAIN),
    ),
    **{
        f"ours: kinds are told apart, not {other.__name__}": chain(
            *(fb.envs.clustered(10, n_clusters=2), 5000, 12, grouped(A.Mixture()), grouped(other()))
        )
        for other in (A.Together, A.Alone)
    },
    "ours: noise on samples costs regret": chain(
        *(fb.envs.arms(means=[0.4, 0.5, 0.6], rewards="bernoulli"), 20_000, 100),
        *(A.ThompsonArms(epsilon, first=10, growth=1.2) for epsilon in (1e5, 1.0, 0.001)),
        factors=(1, 1, 0.5),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERS)
def test_orderings(name):
    env, horizon, seeds, algos, chains, smaller = ORDERS[name]
    found = fb.sweep(env, algos, horizon=horizon, key=jax.random.key(1), seeds=seeds, stride=horizon)
    assert {found.certificates[label].claim for label in algos} <= {"none", "certified"}
    for order in chains:
        pairs = [one if isinstance(one, tuple) else (one, 1) for one in order]
        ends = [factor * found[label].regret[:, -1] for label, factor in pairs]
        for (better, worse), names in zip(itertools.pairwise(ends), itertools.pairwise(order)):
            assert smaller(better, worse), names
