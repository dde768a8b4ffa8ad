"""The oracle of decentralized FedUCB, where it can be checked by hand."""

import networkx as nx
import numpy as np
import pytest
from oracles.gossip import gossip_fed_ucb

import fedbandit_jax as fb
from fedbandit_jax.networks import make

ALWAYS = -np.inf


def world(m, horizon=40, k=5, d=3, seed=0):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((horizon, m, k, d))
    contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True) * 1.01
    means = 0.5 + 0.5 * contexts @ np.array([0.6, -0.5, 0.3])
    return fb.envs.script(contexts, rng.random(means.shape) < means, means)


def run(env, graph, clique, gamma, threshold=1.0, horizon=40, **options):
    options = {"rho_min": 1.0, "rho_max": 1.0, "beta": lambda i, growth: 0.5 + 0.1 * np.sqrt(growth), **options}
    return gossip_fed_ucb(env, graph, clique, gamma, horizon, threshold=threshold, **options)


def test_synchronises_every_second_round():
    """Asked for in round 0, released in round 1, applied in round 2, when the next is asked for."""
    result = run(world(3), make("complete", 3), [0, 0, 0], 1, ALWAYS)
    expected = [(t, i, 0, "data" if t % 2 else "request") for t in range(40) for i in range(3)]
    assert result.log == expected
    np.testing.assert_array_equal(result.syncs, [[20]])


def test_messages_from_outside_the_clique_change_nothing():
    """A line of four, two cliques, with and without the edge between them."""
    env = world(4)
    graphs = make("line", 4), nx.Graph([(0, 1), (2, 3)])
    line, cut = (run(env, graph, [0, 0, 1, 1], 1) for graph in graphs)
    np.testing.assert_array_equal(line.regret, cut.regret)
    assert line.log == cut.log
    assert line.transmissions["data"] > cut.transmissions["data"] > 0


@pytest.mark.parametrize(("trigger", "first"), [("dp20", 0), ("zc24", 1)])
def test_trigger(trigger, first):
    """One context, 1: V = 2, 3, ... after rounds 0, 1, ...; [DP20] add rho_max - rho_min = 2 to it."""
    env = fb.envs.script(np.ones((3, 2, 1, 1)), np.zeros((3, 2, 1)))
    result = run(env, nx.empty_graph(2), [0, 1], 1, 2.5, 3, rho_max=3.0, trigger=trigger)
    assert result.log[0] == (first, 0, 0, "request")  # log 4 >= 2.5 / 2 > log 2, but log 3 >= 2.5 / 4
