"""Gossip on released statistics equals a simulation of every message, is certified, and has the limits it should."""

import dataclasses
import math

import examples as ex
import jax
import networkx as nx
import numpy as np
import pytest
from helpers import deep
from oracles import linear as oracles
from oracles.gossip import released_gossip

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.privacy.packing import packed_size, unpack

S, M, D, T = fb.schedules, ex.M, ex.D, ex.T
BUDGET = fb.privacy.Budget(1.0, 0.1)
SLIGHT = fb.privacy.Mechanism(ex.LITTLE, "tree")
ROUNDS = S.Geometric(1.4, first=7)


def gossip(graph=None, gamma=1, **options):
    graph = nx.cycle_graph(M) if graph is None else graph
    return fb.algos.Gossip(**dict(graph=graph, gamma=gamma, policy=fb.algos.UCB(), schedule=ROUNDS) | options)


MORE = {
    "ring": gossip(nx.cycle_graph(M), privacy=SLIGHT),
    "long line": gossip(nx.path_graph(M), 3, privacy=SLIGHT),
    "empty": gossip(nx.empty_graph(M), privacy=SLIGHT),
    "star": gossip(nx.star_graph(M - 1)),
}
ROWS = [row.name for row in ex.EXAMPLES.values() if row.oracle == ex.GOSSIP]


@pytest.mark.parametrize("name", deep([*ROWS, *MORE], keep={0, 1}))
def test_every_message(name):
    run = ex.played(name) if name in ROWS else ex.play(ex.SCRIPT, MORE[name])
    algo = ex.EXAMPLES[name].algo if name in ROWS else MORE[name]
    bound, key, trees, rounds = run.bound, jax.random.fold_in(ex.KEY, 1), {}, algo.schedule.rounds(T)

    def noise(i, k):
        one = jax.random.fold_in(random.stream(key, "syncs"), rounds[k - 1] - 1)
        one = jax.random.split(random.stream(one, "release"), M)[i]
        draw = np.asarray(unpack(bound.mechanism.trust.noise(one, packed_size(D)), D), float)
        return trees.setdefault(i, oracles.Tree()).release(k, 0.0, draw)

    width, lam = bound.policy.width, np.asarray(bound.policy.regularization, float)
    expected, sent = released_gossip(
        ex.SCRIPT, algo.graph, algo.gamma, T, rounds, lam, lambda i, t: float(jax.tree.map(lambda x: x[i], width)(t)),
        noise=noise if algo.privacy else None,
    )  # fmt: skip
    np.testing.assert_allclose(run.gaps[1], expected, atol=2e-5)
    assert run.result.counts["hops"][1, -1] == sent["data"]


@pytest.mark.parametrize("policy", deep([ex.UCB, fb.algos.Thompson(), fb.algos.EpsilonGreedy(explore=8.0)], keep={0}))
def test_a_complete_graph_is_federated(policy):
    """Without noise to the last bit: everybody hears of everybody's sums, one round after they were sent.

    A silo adds up its own users only, in finer steps, so that less rounding is charged to its noise.
    """
    graph, options = nx.complete_graph(M), dict(policy=policy, schedule=ROUNDS)
    ours = ex.play(ex.SCRIPT, fb.algos.Gossip(graph=graph, **options))
    np.testing.assert_allclose(ours.gaps, ex.play(ex.SCRIPT, fb.algos.Federated(**options)).gaps, atol=1e-4)
    mine, federated = (
        algo.replace(privacy=ex.private("blt")).bind(ex.SCRIPT.spec, T)
        for algo in (fb.algos.Gossip(graph=graph, **options), fb.algos.Federated(**options))
    )
    charged = federated.mechanism.statistic.rounding(M * federated.mechanism.longest)
    np.testing.assert_allclose(mine.stds * math.sqrt(M), federated.stds, rtol=1e-6 + charged)
    assert (mine.stds * math.sqrt(M) < federated.stds).all()
    assert charged < 1e-4
    for i in range(M):
        agent = jax.tree.map(lambda leaf, i=i: leaf[i], mine.policy)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), agent, federated.policy)


def test_it_is_certified():
    env = fb.envs.sphere(6, 4, 3, rewards="bernoulli")
    mechanism = fb.privacy.Mechanism(BUDGET, "blt", statistic=fb.privacy.Linear(centred=True, gram_scale=0.5))
    algo = gossip(nx.star_graph(5), 1, privacy=mechanism, policy=fb.algos.Greedy())
    found = algo.certificate(env.spec, T)
    assert found.claim == "certified"
    assert 0.99 < found.epsilon_exact <= 1 + 1e-6
    assert found.server_noise_std is None
    sigma = fb.privacy.calibrate(BUDGET, n_syncs=ROUNDS.n_syncs(T), release="blt", moves_sq=9 / 8)
    most = math.sqrt(6 * sigma.ask.release.largest_variance()) * sigma.sigma / 0.5
    assert f"at most {most:.6g}"[:14] in found.noise_whose  # the middle of the star adds up six silos


@fb.pytree
class Crowd(fb.algos.Thompson):
    """A policy of one's own, which scores all agents at once."""

    def indices(self, key, t, prepared, offered):
        return offered.contexts.sum(2).T


def test_a_policy_that_looks_at_other_agents_proves_nothing():
    for policy, claim in ((fb.algos.Thompson(), "certified"), (Crowd(), "none")):
        assert gossip(policy=policy, privacy=BUDGET).certificate(ex.SCRIPT.spec, T).claim == claim


def test_handing_over_in_parts_changes_nothing():
    run = ex.played("Gossip")
    often = run.bound.replace(mechanism=dataclasses.replace(run.bound.mechanism, longest=3))
    np.testing.assert_allclose(ex.simulate(ex.SCRIPT, often).regret, run.result.regret, atol=1e-3)
