"""Components are those of networkx, however they are found, whatever the depth, alone and side by side; bits."""

import jax
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.core import graph

N = 40


def both(linked, among, start):
    """As they are searched and as they are hooked."""
    words = graph.pack(linked)
    return graph.searched(lambda i: words[i], among, start), graph.hooked(lambda i: words[i], among)


alone, together = jax.jit(both), jax.jit(jax.vmap(both))
ALL = np.ones(N, bool)


def one(linked, among=ALL, start=0):
    searched, hooked = alone(linked, among, start)
    np.testing.assert_array_equal(searched, hooked)
    assert searched.dtype == hooked.dtype == np.int32
    return searched


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
    label = expected(linked)
    np.testing.assert_array_equal(one(linked), label)
    among = np.random.default_rng(seed).random(N)[label] < 0.5  # whole components
    some = np.where(among, label, np.arange(N))
    for start in (0, seed % N):
        np.testing.assert_array_equal(one(linked, among, start), some)


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
    among = np.ones((len(DEEP), N), bool)
    among[0] = False
    for found in together(linked, among, np.arange(len(DEEP))):
        np.testing.assert_array_equal(found, [np.arange(N), *(expected(one) for one in linked[1:])])


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.slow
def test_few_nodes(n):
    linked = np.ones((n, n), bool)
    for links, label in ((linked, np.zeros(n)), (~linked, np.arange(n))):
        for found in both(links, np.ones(n, bool), 0):
            np.testing.assert_array_equal(found, label)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 70])
@pytest.mark.slow
def test_bits(n):
    nodes = np.random.default_rng(n).random((3, n)) < 0.5
    words = np.asarray(graph.pack(nodes))
    assert words.dtype == np.uint32
    assert words.shape == (3, -(-n // 32))
    for row, found in zip(nodes, words):
        assert sum(int(word) << 32 * i for i, word in enumerate(found)) == sum(
            1 << i for i in np.flatnonzero(row).tolist()
        )
        assert [bool(graph.has(found, i)) for i in range(n)] == row.tolist()
    np.testing.assert_array_equal(graph.unpack(words, n), nodes)


@pytest.mark.parametrize("cpu", [True, False])
def test_cuts(cpu, monkeypatch):
    """Both ends lose a link, or nothing happens; and what is left is known beforehand."""
    monkeypatch.setattr(graph, "on_cpu", lambda: cpu)
    rng = np.random.default_rng(0)
    linked = rng.random((2, N, N)) < 0.5
    linked |= linked.transpose(0, 2, 1)
    words, gone = graph.pack(linked), rng.random(N) < 0.5
    gone[35] = False
    left = linked.copy()
    left[1, 35] &= ~gone
    left[1, :, 35] &= ~gone
    off = graph.pack(gone)
    rows = jax.jit(lambda words, off: jax.vmap(graph.without(words, 1, 35, off))(np.arange(N)))
    cut = jax.jit(lambda *given: graph.cut(*given))
    np.testing.assert_array_equal(graph.unpack(cut(words, 1, 35, off, True), N), left)
    np.testing.assert_array_equal(graph.unpack(rows(words, off), N), left[1])
    for which, due in ((2, True), (1, False)):
        np.testing.assert_array_equal(cut(words, which, 35, off, due), words)
