"""How far two partitions agree."""

import jax.numpy as jnp
from jax import Array


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
    n = len(labels)
    table = jnp.zeros((n, n_classes), jnp.float32).at[labels, truth].add(1)
    together = _pairs(table).sum()
    found, true = _pairs(table.sum(1)).sum(), _pairs(table.sum(0)).sum()
    expected = found * true / max(n * (n - 1) / 2, 1)
    room = (found + true) / 2 - expected
    return jnp.where(room > 0, (together - expected) / jnp.where(room > 0, room, 1), 1.0)


def n_labels(labels: Array) -> Array:
    """How many clusters, int32, of labels (n,) in 0 ... n - 1."""
    return jnp.zeros(len(labels), jnp.int32).at[labels].set(1).sum()


def _pairs(sizes: Array) -> Array:
    return sizes * (sizes - 1) / 2
