"""Graphs packed into bits, their connected components, and the agreement of two partitions.

A set of n nodes takes W = ceil(n / 32) words of 32 bits. Node i is bit i mod 32 of word i // 32. A graph is one set for
each node, (n, W) uint32, an eighth of a table of bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import control
from fedbandit_jax.core.backend import on_cpu

BITS = 32  # in a word


def pack(nodes: Array) -> Array:
    """Packs sets of nodes (..., n) bool into words (..., W) uint32.

    >>> pack(jnp.array([True, False, True])).tolist()
    [5]
    """
    *shape, n = nodes.shape
    padded = jnp.pad(nodes, [(0, 0)] * len(shape) + [(0, -n % BITS)]).reshape(*shape, -1, BITS)
    return jnp.where(padded, jnp.uint32(1) << jnp.arange(BITS, dtype=jnp.uint32), 0).sum(-1, dtype=jnp.uint32)


def unpack(words: Array, n: int) -> Array:
    """Unpacks words (..., W) uint32 into sets of nodes (..., n) bool.

    >>> unpack(jnp.array([5], jnp.uint32), 3).tolist()
    [True, False, True]
    """
    bits = words[..., None] >> jnp.arange(BITS, dtype=jnp.uint32) & 1
    return bits.reshape(*words.shape[:-1], -1)[..., :n] == 1


def without(graphs: Array, which: Array | int, node: Array | int, gone: Array) -> Callable[[Array], Array]:
    """Returns the neighbours in graph `which` after `cut`, as a function of a node, from the graphs before."""

    def neighbours(i: Array) -> Array:
        own, theirs = jnp.where(i == node, gone, 0), jnp.where(has(gone, i), only(node, gone.shape[-1]), 0)
        return graphs[which, i] & ~(own | theirs)

    return neighbours


def cut(graphs: Array, which: Array | int, node: Array | int, gone: Array, due: Array | bool) -> Array:
    """Removes the links between a node of graph `which` and the nodes `gone` (W,) from graphs (G, n, W), if `due`.

    A loop of at most one turn writes the graphs in place on a CPU, unlike a branch.
    """
    word, bit = node // BITS, jnp.uint32(1) << jnp.uint32(node % BITS)

    def off(_: Array | int, graphs: Array) -> Array:
        column = graphs[which, :, word]
        return graphs.at[which, :, word].set(jnp.where(unpack(gone, len(column)), column & ~bit, column), mode="drop")

    gone = jnp.where(due, gone, 0)
    if on_cpu():
        graphs = lax.fori_loop(0, control.any_over_lanes(jnp.asarray(due)).astype(jnp.int32), off, graphs)
    else:
        graphs = off(0, graphs)
    return graphs.at[which, node].set(graphs[which, node] & ~gone, mode="drop")


def only(node: Array | int, n_words: int) -> Array:
    """Returns the set of one node, (W,)."""
    own = jnp.arange(n_words) == node // BITS
    return jnp.where(own, jnp.uint32(1) << jnp.uint32(node % BITS), jnp.uint32(0))


def has(nodes: Array, node: Array | int) -> Array:
    """Returns whether a node is in a set of nodes (W,)."""
    return (nodes[node // BITS] >> jnp.uint32(node % BITS) & 1) == 1


def components(neighbours: Callable[[Array], Array], among: Array, start: Array | int = 0) -> Array:
    """Computes the connected components of a graph, or some of them.

    On a CPU nodes are searched one by one. That ends early if most are linked. Elsewhere all nodes hook their trees at
    once.

    Args:
        neighbours: maps a node to its neighbours, in words (W,).
        among: requested nodes, (n,) bool: whole components, possibly none.
        start: node to search from first, best in a small component, since the last one is not searched completely.

    Returns:
        The smallest node of every node's component, (n,) int32; other nodes keep their own index.

    >>> linked = pack(jnp.array([[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]], bool))
    >>> components(lambda i: linked[i], jnp.ones(4, bool)).tolist()
    [0, 1, 1, 0]
    """
    return searched(neighbours, among, start) if on_cpu() else hooked(neighbours, among)


def searched(neighbours: Callable[[Array], Array], among: Array, start: Array | int) -> Array:
    """Computes `components` by searches, from `start` and then from the smallest unreached node."""
    n, own = len(among), jnp.arange(-(-len(among) // BITS))

    def first(nodes: Array) -> Array:
        lowest = lax.population_count((nodes & -nodes) - 1).astype(jnp.int32)
        return jnp.where(nodes != 0, own * BITS + lowest, n).min()

    def visit(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        reached, left = carry
        node = first(reached)
        found = neighbours(node) & left
        return reached & ~only(node, len(own)) | found, left & ~found

    def search(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        label, left = carry
        head = only(jnp.where(has(left, start), start, first(left)), len(own))
        _, rest = lax.while_loop(
            lambda carry: (carry[0] != 0).any() & (carry[1] != 0).any(), visit, (head, left & ~head)
        )
        found = left & ~rest
        return jnp.where(unpack(found, n), first(found), label), rest

    everyone = jnp.arange(n, dtype=jnp.int32), pack(among)
    return lax.while_loop(lambda carry: (carry[1] != 0).any(), search, everyone)[0]


def hooked(neighbours: Callable[[Array], Array], among: Array) -> Array:
    """Computes `components` by hooking and pointer jumping, mostly in O(log n) sweeps.

    In a sweep every tree hooks its root to the smallest label next to any of its nodes. Then all nodes point to their
    roots.
    """
    own = jnp.arange(len(among), dtype=jnp.int32)
    linked = jax.vmap(neighbours)(own)

    def sweep(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        label, _ = carry
        smallest = jnp.where(unpack(linked, len(own)), label[None, :], len(own)).min(1)
        seen = jnp.minimum(label, jnp.where(among, smallest, label))
        hooks = label.at[label].min(seen)  # any node of a tree may hook its root
        hooks = jnp.minimum(hooks, seen)
        jumped = hooks[hooks]
        return jumped, (jumped != label).any()

    return lax.while_loop(lambda carry: control.any_over_lanes(carry[1]), sweep, (own, among.any()))[0]


def adjusted_rand(labels: Array, truth: Array, n_classes: int) -> Array:
    """Computes the adjusted Rand index of two partitions of n items: 1 if equal, 0 on average for random ones.

    It counts pairs in a float32 table (n, n_classes), accurate to about 1e-6. If both partitions have one cluster, or
    both have n, the index is 1.

    Args:
        labels: cluster of every item in the first partition, (n,) integers in 0 ... n - 1.
        truth: cluster of every item in the second partition, (n,) integers in 0 ... n_classes - 1.
        n_classes: number of clusters in `truth`, static.

    Returns:
        The index, a float32 scalar. It is NaN if a label is out of range. (JAX would drop such an index.)

    >>> float(adjusted_rand(jnp.array([3, 3, 0, 0]), jnp.array([1, 1, 0, 0]), 2))
    1.0

    Reference: Hubert & Arabie (1985), equation 5.
    """
    inside = (labels >= 0) & (labels < len(labels)) & (truth >= 0) & (truth < n_classes)
    table = jnp.zeros((len(labels), n_classes), jnp.float32).at[labels, truth].add(1)
    together = _pairs(table).sum()
    found, true = _pairs(table.sum(1)).sum(), _pairs(table.sum(0)).sum()
    expected = found * true / jnp.maximum(_pairs(jnp.float32(len(labels))), 1)
    room = (found + true) / 2 - expected
    index = jnp.where(room > 0, (together - expected) / jnp.where(room > 0, room, 1), 1.0)
    return jnp.where(inside.all(), index, jnp.nan)


def n_labels(labels: Array) -> Array:
    """Counts distinct labels, int32, of labels (n,) in 0 ... n - 1."""
    return jnp.zeros(len(labels), jnp.int32).at[labels].set(1).sum()


def _pairs(sizes: Array) -> Array:
    return sizes * (sizes - 1) / 2
