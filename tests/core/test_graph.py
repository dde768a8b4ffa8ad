"""Components are those of networkx, whatever the depth, alone and side by side; Rand indices are scikit-learn's."""

import jax
import networkx as nx
import numpy as np
import pytest
from helpers import deep
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fedbandit_jax.core import graph

N = 40


def both(linked, among, start):
    """As they are searched and as they are hooked."""
    words = graph.pack(linked)
    return graph.searched(lambda i: words[i], among, start), graph.hooked(lambda i: words[i], among)


alone, together = jax.jit(both), jax.jit(jax.vmap(both))
pack, unpack = jax.jit(graph.pack), jax.jit(graph.unpack, static_argnums=1)
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


ZIGZAG = np.ravel(np.column_stack([np.arange(N // 2), N - 1 - np.arange(N // 2)])).tolist()
DEEP = {
    "path": nx.path_graph(N),
    "star": nx.star_graph(N - 1),
    "cycle": nx.cycle_graph(N),
    "tree": nx.balanced_tree(2, 4),
    "two paths": nx.disjoint_union(nx.path_graph(23), nx.path_graph(17)),
    "caterpillar": nx.Graph([(i, i + 1) for i in range(19)] + [(i, i + 20) for i in range(20)]),
    "zigzag": nx.path_graph(ZIGZAG),  # labels go up and down, so that trees are hooked to each other badly
    "zigzag back": nx.path_graph(np.argsort(ZIGZAG).tolist()),
    "complete": nx.complete_graph(N),
    "empty": nx.empty_graph(N),
}


def test_side_by_side():
    """Deep graphs; lanes that end early wait for the others, unchanged."""
    among = np.ones((len(DEEP), N), bool)
    among[-1] = False  # the empty graph, where that is no difference
    for rng in (None, *map(np.random.default_rng, range(10))):
        linked = np.stack([matrix(g, rng) for g in DEEP.values()])
        for found in together(linked, among, np.arange(len(DEEP))):
            np.testing.assert_array_equal(found, [expected(one) for one in linked])


@pytest.mark.parametrize("n", deep([33, 1, 32, 70], keep=(0,)))
def test_bits(n):
    """Of few nodes and many: words of 32 bits hold them, and all or none are one component or n."""
    nodes = np.random.default_rng(n).random((3, n)) < 0.5
    words = np.asarray(pack(nodes))
    assert (words.dtype, words.shape) == (np.uint32, (3, -(-n // 32)))
    for row, found in zip(nodes.tolist(), words.tolist()):
        assert sum(word << 32 * i for i, word in enumerate(found)) == sum(bit << i for i, bit in enumerate(row))
    has = jax.jit(jax.vmap(graph.has, (None, 0)))
    assert has(words[0], np.arange(n)).tolist() == nodes[0].tolist()
    np.testing.assert_array_equal(unpack(words, n), nodes)
    for links, label in ((np.ones((n, n), bool), np.zeros(n)), (np.zeros((n, n), bool), np.arange(n))):
        for found in alone(links, np.ones(n, bool), 0):
            np.testing.assert_array_equal(found, label)


@pytest.mark.parametrize("cpu", [True, False])
def test_cuts(cpu, monkeypatch):
    """Both ends lose a link, or nothing happens; and what is left is known beforehand."""
    monkeypatch.setattr(graph, "on_cpu", lambda: cpu)
    rng = np.random.default_rng(0)
    linked = rng.random((2, N, N)) < 0.5
    linked |= linked.transpose(0, 2, 1)
    words, gone = pack(linked), rng.random(N) < 0.5
    gone[35] = False
    left = linked.copy()
    left[1, 35] &= ~gone
    left[1, :, 35] &= ~gone
    off = pack(gone)
    rows = jax.jit(lambda words, off: jax.vmap(graph.without(words, 1, 35, off))(np.arange(N)))
    cut = jax.jit(lambda *given: graph.cut(*given))
    np.testing.assert_array_equal(unpack(cut(words, 1, 35, off, True), N), left)
    np.testing.assert_array_equal(unpack(rows(words, off), N), left[1])
    for which, due in ((2, True), (1, False)):
        np.testing.assert_array_equal(cut(words, which, 35, off, due), words)


# The adjusted Rand index.

USERS, M = 24, 6
rand = jax.jit(graph.adjusted_rand, static_argnums=2)
count = jax.jit(graph.n_labels)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, USERS), st.integers(1, M), st.floats(0, 1), st.integers(0, 10**6))
def test_random_partitions(found, true, right, seed):
    """The truth with some labels drawn anew; names do not matter."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, true, USERS)
    labels = np.where(rng.random(USERS) < right, truth, rng.integers(0, found, USERS))
    labels = rng.permutation(USERS)[labels]
    np.testing.assert_allclose(rand(labels, truth, M), adjusted_rand_score(truth, labels), atol=2e-6)
    assert count(labels) == len(set(labels.tolist()))


@pytest.mark.parametrize("n", deep([2, 1, 3], keep=(0, 1)))
def test_few_users(n):
    for labels in np.ndindex(*[n] * n):
        for truth in np.ndindex(*[n] * n):
            found = rand(np.array(labels), np.array(truth), n)
            np.testing.assert_allclose(found, adjusted_rand_score(truth, labels), atol=1e-6)


def test_labels_out_of_range_are_no_clusters():
    for labels, truth in ((np.array([0, 3, 1]), np.zeros(3, int)), (np.zeros(3, int), np.array([0, 2, -1]))):
        assert np.isnan(rand(labels, truth, 2))
