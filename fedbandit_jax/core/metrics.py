"""Measures of how far two partitions agree."""

import jax.numpy as jnp
from jax import Array, lax


def adjusted_rand(labels: Array, truth: Array, n_classes: int) -> Array:
    """Computes the adjusted Rand index of two partitions of n items: 1 if they are equal, 0 on average for random ones.

    Pairs are counted in a table (n, n_classes), in float32, which is right to about 1e-6. If both partitions have one
    cluster, or both have n, they agree and the index is 1.

    Args:
        labels: cluster of every item in the first partition, (n,) integers in 0 ... n - 1.
        truth: cluster of every item in the second partition, (n,) integers in 0 ... n_classes - 1.
        n_classes: number of clusters that `truth` may name, static.

    Returns:
        The index, a float32 scalar; NaN if any label is out of range.

    >>> float(adjusted_rand(jnp.array([3, 3, 0, 0]), jnp.array([1, 1, 0, 0]), 2))
    1.0

    Reference: Hubert & Arabie (1985), equation 5.
    """
    return _adjusted(labels, truth, n_classes, jnp.ones(len(labels), bool))


def mean_adjusted_rand(labels: Array, truth: Array, n_classes: int, n_servers: int) -> Array:
    """Computes the adjusted Rand index separately among the items of every server, and returns the mean over servers.

    Item i is at server i mod n_servers (static); the other arguments and NaN are as in `adjusted_rand`.

    >>> found, truth = jnp.array([0, 0, 0, 3]), jnp.array([0, 1, 0, 0])
    >>> float(mean_adjusted_rand(found, truth, 2, 2))  # right for items 0 and 2, and for 1 and 3
    1.0
    """
    n = len(labels)
    places = -(-n // n_servers)
    item = jnp.arange(places)[None] * n_servers + jnp.arange(n_servers)[:, None]
    own, true, taken = labels[item % n], truth[item % n], item < n

    def of_server(args):
        own, true, taken = args
        inside = (own >= 0) & (own < n)
        where = jnp.where(inside, own, n)
        first = jnp.full(n, places).at[where].min(jnp.arange(places), mode="drop")  # relabels to 0 ... places - 1
        return _adjusted(jnp.where(inside, first[own], places), true, n_classes, taken)

    return lax.map(of_server, (own, true, taken)).mean()


def _adjusted(labels: Array, truth: Array, n_classes: int, counted: Array) -> Array:
    """Computes the index of the items for which `counted` (n,) holds.

    It is NaN if any of their labels is out of range, since JAX would silently drop such an index.
    """
    inside = (labels >= 0) & (labels < len(labels)) & (truth >= 0) & (truth < n_classes)
    n = counted.sum().astype(jnp.float32)
    table = jnp.zeros((len(labels), n_classes), jnp.float32).at[labels, truth].add(counted)
    together = _pairs(table).sum()
    found, true = _pairs(table.sum(1)).sum(), _pairs(table.sum(0)).sum()
    expected = found * true / jnp.maximum(_pairs(n), 1)
    room = (found + true) / 2 - expected
    index = jnp.where(room > 0, (together - expected) / jnp.where(room > 0, room, 1), 1.0)
    return jnp.where((inside | ~counted).all(), index, jnp.nan)


def n_labels(labels: Array) -> Array:
    """Returns the number of distinct labels, int32, of labels (n,) in 0 ... n - 1."""
    return jnp.zeros(len(labels), jnp.int32).at[labels].set(1).sum()


def _pairs(sizes: Array) -> Array:
    return sizes * (sizes - 1) / 2
