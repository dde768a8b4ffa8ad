"""How far two partitions agree."""

import jax.numpy as jnp
from jax import Array, lax


def adjusted_rand(labels: Array, truth: Array, n_classes: int) -> Array:
    """Adjusted Rand index of two partitions of n items: 1 if they are equal, 0 on average for random ones.

    Pairs are counted in a table (n, n_classes); float32 is right to 1e-6 or so. Two partitions that both have one
    cluster, or both n, agree: 1.

    Args:
        labels: (n,) in 0 ... n - 1.
        truth: (n,) in 0 ... n_classes - 1.
        n_classes: static.

    >>> float(adjusted_rand(jnp.array([3, 3, 0, 0]), jnp.array([1, 1, 0, 0]), 2))
    1.0

    Reference: Hubert & Arabie (1985), equation 5.
    """
    return _adjusted(labels, truth, n_classes, jnp.ones(len(labels), bool))


def mean_adjusted_rand(labels: Array, truth: Array, n_classes: int, n_servers: int) -> Array:
    """Mean over servers of the index of their own users, item i being at server i mod n_servers (static).

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
        first = jnp.full(n, places).at[where].min(jnp.arange(places), mode="drop")  # labels 0 ... places - 1
        return _adjusted(jnp.where(inside, first[own], places), true, n_classes, taken)

    return lax.map(of_server, (own, true, taken)).mean()


def _adjusted(labels: Array, truth: Array, n_classes: int, counted: Array) -> Array:
    """Of the items that are counted; not a number if any label is out of range, which an index would drop."""
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
    """How many clusters, int32, of labels (n,) in 0 ... n - 1."""
    return jnp.zeros(len(labels), jnp.int32).at[labels].set(1).sum()


def _pairs(sizes: Array) -> Array:
    return sizes * (sizes - 1) / 2
