"""Releases by binary trees: a node of level l = 0, 1, ... is the sum of 2^l consecutive batches.

Every prefix is a sum of few nodes. Here ctz(k) counts the trailing zeros of k in binary, and popcount(k) the ones.
Batch k completes the nodes of levels 0, ..., ctz(k).

Reference: Chan, Shi & Song (2011); Dwork, Naor, Pitassi & Rothblum (2010).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from typing_extensions import override

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.releases.participation import checked
from fedbandit_jax.privacy.releases.release import Release
from fedbandit_jax.privacy.users import ONCE, Users

MATRIX = 2048  # most synchronisations S with the bound of the (S, S) matrix for several visits


def _level(k: Array) -> Array:
    return jnp.bitwise_count((k & -k) - 1)


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class Tree(Release):
    """Binary tree of Algorithm 2 of Zhou & Chowdhury (2024).

    Message k is the p-sum, the sum of the last 2^ctz(k) batches. Prefix k adds up the popcount(k) nodes at the one-bits
    of k. The tree has kappa = 1 + floor(log2 S) levels. One user is in at most kappa nodes. Both states hold the live
    node of every level, (kappa, *shape).
    """

    n_levels: int = struct.static(init=False, repr=False, compare=False)  # kappa, of the states

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "n_levels", self.touched())

    @property
    def size(self) -> int:
        """Returns the most synchronisations of a tree with this number of levels."""
        return 2**self.n_levels - 1

    @override
    def encode_init(self, shape: tuple[int, ...]) -> Float[Array, " kappa *shape"]:
        return jnp.zeros((self.n_levels, *shape))

    @override
    def encode(self, state: Any, k: Array, gamma: Array) -> tuple[Array, Any]:
        node = gamma + jnp.where(self._levels(gamma) < _level(k), state, 0).sum(0)
        return node, self._place(state, k, node)

    init = encode_init  # the server keeps the same number of nodes

    @override
    def decode(self, state: Any, k: Array, message: Array) -> tuple[Array, Any]:
        nodes = self._place(state, k, message)
        return nodes.sum(0), nodes

    @override
    def encoder(self) -> Float[np.ndarray, "S S"]:
        k = np.arange(1, self._size() + 1)
        age = k[:, None] - k
        return ((age >= 0) & (age < (k & -k)[:, None])).astype(float)

    @override
    def sensitivity_sq(self, users: Users = ONCE) -> float:
        """Returns the sensitivity of the matrix, or the bound by levels for S > `MATRIX` and several visits.

        The squares of the nodes of a level add up to at most the largest of them times all contributions. This is m
        min(m, ceil(2^l / b)) for contributions to m batches. For m = 1 it is exact: the first batch is in the nodes
        that end with batches 1, 2, 4, ...
        """
        n, m = int(self.n_syncs), checked(users).batches(self.n_syncs)
        if m > 1 and n <= MATRIX:
            return super().sensitivity_sq(users)
        levels = [min(m, -(-(1 << level) // users.apart)) for level in range(n.bit_length())]
        return float(users.most**2 * m * sum(levels))

    @override
    def touched(self) -> int:
        # the paper's kappa = `1 + log(T/B)` names no base; natural logarithms would be unsound
        return int(self.n_syncs).bit_length()  # of the S that runs; states may have room for more

    @override
    def message_bound(self) -> float:
        return 2.0 ** (self.touched() - 1)

    @override
    def prefix_variance(self) -> Float[np.ndarray, " S"]:
        return np.bitwise_count(np.arange(1, self.n_syncs + 1)).astype(float)

    def _levels(self, like: Array) -> Array:  # 0, ..., kappa - 1 along a new leading axis
        return jnp.arange(self.n_levels).reshape(-1, *(1,) * like.ndim)

    def _place(self, state: Array, k: Array, node: Array) -> Array:
        level = self._levels(node)
        return jnp.where(level < _level(k), 0, jnp.where(level == _level(k), node, state))
