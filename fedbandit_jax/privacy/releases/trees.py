"""Binary trees: a node of level l is the sum of 2^l consecutive batches, and every prefix is a sum of few nodes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.releases.release import Release


def _level(k: Array) -> Array:
    """ctz(k): level of the largest node that ends with batch k."""
    return jnp.bitwise_count((k & -k) - 1)


@struct.sealed
@dataclasses.dataclass(frozen=True)
class Tree(Release):
    """Binary tree, Algorithm 2 of Zhou & Chowdhury (2024).

    Message k is the p-sum of the last 2^ctz(k) batches; prefix k adds up the popcount(k) nodes at the one-bits of k.
    kappa = 1 + floor(log2 S) levels; one user is in at most kappa nodes. Both states hold the live node of every
    level, (kappa, *shape).
    """

    @property
    def n_levels(self) -> int:
        """kappa. (The paper's `1 + log(T/B)` has no base; natural logarithms would be unsound.)"""
        return int(self.n_syncs).bit_length()

    def encode_init(self, shape: tuple[int, ...]) -> Array:
        """No batches yet."""
        return jnp.zeros((self.n_levels, *shape))

    def encode(self, state: Array, k: Array, gamma: Array) -> tuple[Array, Array]:
        """alpha_l = gamma_k + sum_{j < l} alpha_j at l = ctz(k)."""
        node = gamma + jnp.where(self._levels(gamma) < _level(k), state, 0).sum(0)
        return node[None], self._place(state, k, node)

    def init(self, shape: tuple[int, ...]) -> Array:
        """No nodes yet."""
        return jnp.zeros((self.n_levels, *shape))

    def decode(self, state: Array, k: Array, message: Array) -> tuple[Array, Array]:
        """The new node and the live ones above it."""
        nodes = self._place(state, k, message[0])
        return nodes.sum(0), nodes

    def sensitivity_sq(self) -> float:
        """kappa: the first batch is in nodes 1, 2, 4, ..."""
        return float(self.n_levels)

    def touched(self) -> int:
        """kappa."""
        return self.n_levels

    def message_bound(self) -> float:
        """2^(kappa - 1), batches in the largest node."""
        return 2.0 ** (self.n_levels - 1)

    def prefix_variance(self) -> np.ndarray:
        """popcount(k)."""
        return np.bitwise_count(np.arange(1, self.n_syncs + 1)).astype(float)

    def largest_variance(self) -> float:
        """At k = 2^m - 1, the largest such k <= S."""
        return float((self.n_syncs + 1).bit_length() - 1)

    def encoder(self) -> np.ndarray:
        """Row k covers batches k - 2^ctz(k) + 1 .. k."""
        k = np.arange(1, self.n_syncs + 1)[:, None]
        j = k.T
        return ((j <= k) & (j > k - (k & -k))).astype(float)

    def _levels(self, like: Array) -> Array:
        """0, ..., kappa - 1 along a new leading axis."""
        return jnp.arange(self.n_levels).reshape(-1, *(1,) * like.ndim)

    def _place(self, state: Array, k: Array, node: Array) -> Array:
        """Store the node of level ctz(k); it covers those below."""
        level = self._levels(node)
        return jnp.where(level < _level(k), 0, jnp.where(level == _level(k), node, state))


@struct.sealed
@dataclasses.dataclass(frozen=True)
class PrefixTree(Tree):
    """P_alt, Algorithm 4 of Zhou & Chowdhury (2024), the protocol of Dubey & Pentland (2020).

    Every silo keeps its own tree and sends the private prefix sum itself. That is post-processing of the tree's
    messages, so the guarantee and the law of the server's sums are the tree's; a shuffler could not amplify it,
    because one user is in S of the messages instead of kappa.
    """

    prefix_at_silo: ClassVar[bool] = True


@struct.sealed
@dataclasses.dataclass(frozen=True)
class Honaker(Tree):
    """The tree with every node released and estimated from below, Honaker (2015).

    Message k holds the nodes of levels 0, ..., ctz(k) that end with batch k. A node is estimated by its own noisy sum
    and, if l > 0, by the estimates of its two halves, weighted by inverse variance: w own + (1 - w)(left + right) with
    w = v_l = 2 v_{l-1} / (1 + 2 v_{l-1}), v_0 = 1, that is v_l = 2^l / (2^(l+1) - 1). Unrolled along the right halves,
    which also end with batch k,

        estimate_l = [sum_{j <= l} 2^j own_j + sum_{j < l} (2^(j+1) - 1) left_j] / (2^(l+1) - 1),

    where left_j, the estimate kept at level j, is the left half of the node at level j + 1. A prefix adds up the
    estimates at the one-bits of k: at most about half the variance of the tree's, for the same sensitivity.
    """

    @property
    def n_parts(self) -> int:
        """kappa."""
        return self.n_levels

    def live(self, k: Array) -> Array:
        """Levels 0, ..., ctz(k)."""
        return jnp.arange(self.n_levels) <= _level(k)

    def encode(self, state: Array, k: Array, gamma: Array) -> tuple[Array, Array]:
        """All nodes that end with batch k; zero at levels where none does."""
        below = jnp.cumsum(jnp.concatenate([gamma[None], state[:-1]]), axis=0)
        nodes = jnp.where(self._levels(gamma) <= _level(k), below, 0)
        return nodes, self._place(state, k, nodes[_level(k)])

    def decode(self, state: Array, k: Array, message: Array) -> tuple[Array, Array]:
        """The estimate of node ctz(k) and the live ones above it; the nodes below are used here and never again."""
        level = self._levels(message[0])
        own = jnp.where(level <= _level(k), (1 << level) * message, 0).sum(0)
        return self._estimate(state, k, own)

    def step(self, state: Array, k: Array, z: Array) -> tuple[Array, Array]:
        """The l + 1 fresh draws meet in one estimate only: one draw of variance sum_j 4^j = (4^(l+1) - 1)/3 will do."""
        last = jnp.asarray(k & -k, z.dtype)  # 2^l
        return self._estimate(state, k, jnp.sqrt((4 * last**2 - 1) / 3) * z)

    def prefix_variance(self) -> np.ndarray:
        """Sum of v_l over the one-bits l of k."""
        k = np.arange(1, self.n_syncs + 1)
        variance = np.zeros(self.n_syncs)
        for level in range(self.n_levels):
            variance += ((k >> level) & 1) / (2 - 2.0**-level)
        return variance

    def largest_variance(self) -> float:
        """At k = 2^m - 1, the largest such k <= S."""
        ones = (self.n_syncs + 1).bit_length() - 1
        return float((1 / (2 - 2.0 ** -np.arange(ones))).sum())

    def encoder(self) -> np.ndarray:
        """Row (k, l) covers batches k - 2^l + 1 .. k, for every l <= ctz(k)."""
        j = np.arange(1, self.n_syncs + 1)
        ends = [(k, 1 << level) for k in range(1, self.n_syncs + 1) for level in range(self.n_levels)]
        return np.array([(j <= k) & (j > k - size) for k, size in ends if k % size == 0], float)

    def _estimate(self, state: Array, k: Array, own: Array) -> tuple[Array, Array]:
        """Prefix sum and live estimates from sum_j 2^j own_j."""
        level = self._levels(own)
        left = jnp.where(level < _level(k), ((2 << level) - 1) * state, 0).sum(0)
        nodes = self._place(state, k, (own + left) / (2.0 * (k & -k) - 1))
        return nodes.sum(0), nodes
