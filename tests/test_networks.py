"""Distances, clique covers and costs against brute force."""

import itertools
from collections import deque

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.networks import GRAPHS, make, network


@st.composite
def cases(draw):
    """A random tree on at most 12 nodes, with more edges, and a gamma that suits it."""
    m = draw(st.integers(2, 12))
    edges = [(i, draw(st.integers(0, i - 1))) for i in range(1, m)]
    pairs = list(itertools.combinations(range(m), 2))
    graph = nx.Graph(edges + draw(st.lists(st.sampled_from(pairs), max_size=2 * m)))
    return graph, draw(st.integers(1, nx.diameter(graph)))


def transmissions(graph, source, gamma):
    """Forward one message by hand: how often it crosses an edge."""
    count, seen, queue = 0, {source}, deque([(source, gamma)])
    while queue:
        node, ttl = queue.popleft()
        for neighbour in graph[node]:
            count += 1
            if neighbour not in seen:
                seen.add(neighbour)
                if ttl > 1:
                    queue.append((neighbour, ttl - 1))
    return count


@settings(max_examples=100, deadline=None)
@given(cases())
def test_network(case):
    graph, gamma = case
    net = network(graph, gamma)
    np.testing.assert_array_equal(net.distances, nx.floyd_warshall_numpy(graph, range(len(graph))))
    assert net.diameter == nx.diameter(graph)
    assert set(net.clique) == set(range(len(net.sizes)))  # a partition: every agent has one clique, none is empty
    np.testing.assert_array_equal(net.sizes, [(net.clique == c).sum() for c in range(len(net.sizes))])
    for i, j in itertools.combinations(range(len(graph)), 2):
        assert net.clique[i] != net.clique[j] or net.distances[i, j] <= gamma
    np.testing.assert_array_equal(net.hops, [transmissions(graph, i, gamma) for i in range(len(graph))])


def test_line():
    """The clique-cover number of the line's power graph is ceil(M / (gamma + 1)), in whatever order the agents are."""
    rng = np.random.default_rng(0)
    for m in [*range(2, 16), 30]:
        for order in (range(m), rng.permutation(m).tolist()):
            graph = nx.relabel_nodes(make("line", m), dict(enumerate(order)))
            for gamma in range(1, m):
                assert len(network(graph, gamma).sizes) == -(-m // (gamma + 1)), (m, gamma)


def test_nobody_communicates_without_an_edge():
    alone = network(nx.empty_graph(4), 1)
    np.testing.assert_array_equal(alone.clique, range(4))
    np.testing.assert_array_equal(alone.hops, 0)
    assert alone.diameter == 0
    assert alone.distances[0, 1] == 4


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name):
    for m in (2, 3, 12, 31):
        graph = make(name, m)
        assert sorted(graph) == list(range(m))
        assert nx.is_connected(graph)
        assert nx.utils.graphs_equal(graph, make(name, m))
        network(graph, 1)


def test_shapes_of_graphs():
    grid = make("grid", 12)
    assert grid.number_of_edges() == 3 * 3 + 2 * 4  # three rows of four
    assert nx.diameter(grid) == 5
    assert {i: (i - 1) // 2 for i in range(1, 20)} == {max(e): min(e) for e in make("hierarchical", 20).edges}
    assert not nx.utils.graphs_equal(make("erdos_renyi", 30), make("erdos_renyi", 30, seed=1))
    edges = [make("erdos_renyi", 200, seed=1000 * s).number_of_edges() for s in range(20)]
    expected, std = 199 * np.log(200), np.sqrt(199 * np.log(200) / 20)
    assert abs(np.mean(edges) - expected) < 5 * std


def test_equal_graphs_are_covered_once():
    """Recipes ask for their network when they are made, changed and bound; nodes may be listed in any order."""
    one, other = nx.cycle_graph(9), nx.Graph([(i, (i + 1) % 9) for i in range(8, -1, -1)])
    assert network(one, 2) is network(other, 2)
    assert network(one, 2) is not network(one, 3)
    assert network(nx.path_graph(9), 2) is not network(one, 2)
