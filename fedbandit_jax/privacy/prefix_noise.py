"""Noise of the prefix sums of a binary tree that is nowhere stored: every node is drawn again from its own key.

Prefix k = 0, 1, ... has k + 1 leaves and the noise H_k of the nodes at the one-bits of k + 1. From one prefix to the
next, one node comes, of level ctz(k + 2), and those of all lower levels go. For thousands of trees, of which few move.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import control
from fedbandit_jax.privacy.statistic import packed_size, unpack
from fedbandit_jax.privacy.trust.protocols import matrix_weights


def first(key: Array, dim: int) -> Array:
    """H_0, (d, d + 1), of the tree of this key, in units of sigma."""
    return _node(key, jnp.int32(0), jnp.int32(1), dim)


def change(key: Array, k: Array, dim: int) -> Array:
    """H_(k+1) - H_k, (d, d + 1), in units of sigma."""
    leaves = k + 2
    level = jnp.bitwise_count((leaves & -leaves) - 1).astype(jnp.int32)

    def add(j, total):
        comes = jnp.where(j == level, _node(key, j, leaves >> j, dim), 0)
        goes = jnp.where(j < level, _node(key, j, (leaves - 1) >> j, dim), 0)
        return total + comes - goes

    return lax.fori_loop(0, control.largest(level) + 1, add, jnp.zeros((dim, dim + 1)))


def prefix(key: Array, k: Array, dim: int) -> Array:
    """H_k, (d, d + 1), in units of sigma."""
    leaves = k + 1

    def add(j, total):
        return total + jnp.where((leaves >> j) & 1 == 1, _node(key, j, leaves >> j, dim), 0)

    return lax.fori_loop(0, 32 - lax.clz(control.largest(leaves)), add, jnp.zeros((dim, dim + 1)))


def _node(key: Array, level: Array, index: Array, dim: int) -> Array:
    """Node `index` = 1, 2, ... of a level: [(G + G') / sqrt 2 | g], G and g iid N(0, 1)."""
    own = jax.random.fold_in(jax.random.fold_in(key, level), index)
    size = packed_size(dim)
    return unpack(jax.random.normal(own, (size,)) * matrix_weights(size), dim)
