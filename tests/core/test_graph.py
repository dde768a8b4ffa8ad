"""Components are those of networkx, whatever the depth, alone and side by side."""

import jax
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.core import graph

N = 40


@jax.jit
def one(linked):
    return graph.components(graph.smallest_neighbour(linked), N)


together = jax.jit(jax.vmap(lambda linked: graph.components(graph.smallest_neighbour(linked), N)))


def matrix(g, rng=None):
    """Adjacency matrix of N nodes, renamed at random; those that the graph lacks are lonely."""
    names = np.arange(N) if rng is None else rng.permutation(N)
    linked = np.zeros((N, N), bool)
    for a, b in g.edges:
        linked[names[a], names[b]] = linked[names[b], names[a]] = True
    return linked


def expected(linked):
    label = np.zeros(N, int)
    for component in nx.connected_components(nx.from_numpy_array(linked)):
        label[list(component)] = min(component)
    return label


@settings(max_examples=40, deadline=None)
@given(st.integers(0, N), st.floats(0, 0.2), st.booleans(), st.integers(0, 10**6))
def test_random_graphs(n, p, loops, seed):
    linked = matrix(nx.gnp_random_graph(n, p, seed=seed), np.random.default_rng(seed))
    linked |= np.eye(N, dtype=bool) & loops
    label = one(linked)
    assert label.dtype == np.int32
    np.testing.assert_array_equal(label, expected(linked))


DEEP = {
    "path": nx.path_graph(N),
    "star": nx.star_graph(N - 1),
    "cycle": nx.cycle_graph(N),
    "tree": nx.balanced_tree(2, 4),
    "two paths": nx.disjoint_union(nx.path_graph(23), nx.path_graph(17)),
    "caterpillar": nx.Graph([(i, i + 1) for i in range(19)] + [(i, i + 20) for i in range(20)]),
    "complete": nx.complete_graph(N),
    "empty": nx.empty_graph(N),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_graphs(name):
    for rng in (None, *map(np.random.default_rng, range(20))):
        linked = matrix(DEEP[name], rng)
        np.testing.assert_array_equal(one(linked), expected(linked))


def test_zigzag():
    """A path along which labels go up and down, so that trees are hooked to each other as badly as can be."""
    order = np.ravel(np.column_stack([np.arange(N // 2), N - 1 - np.arange(N // 2)]))
    for names in (order, order[::-1], np.argsort(order)):
        linked = matrix(nx.Graph(list(zip(names[:-1].tolist(), names[1:].tolist()))))
        np.testing.assert_array_equal(one(linked), 0)


def test_side_by_side():
    """Lanes that end early wait for the others, unchanged."""
    rng = np.random.default_rng(0)
    linked = np.stack([matrix(g, rng) for g in DEEP.values()])
    np.testing.assert_array_equal(together(linked), [expected(one) for one in linked])


@pytest.mark.parametrize("n", [1, 2])
def test_few_nodes(n):
    linked = np.ones((n, n), bool)
    np.testing.assert_array_equal(graph.components(graph.smallest_neighbour(linked), n), 0)
    np.testing.assert_array_equal(graph.components(graph.smallest_neighbour(~linked), n), np.arange(n))
