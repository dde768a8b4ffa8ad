"""Continual release: which noise the k-th private prefix sum carries, as a linear recurrence of fresh draws.

A release is a factorisation A = B C of the prefix-sum matrix. The messages are C gamma + z for batch sums gamma and
iid noise z, the k-th private prefix is row k of B (C gamma + z) = A gamma + B z. A user is in one batch, so the
squared sensitivity of all messages together is the largest squared column norm of C, times that of one batch sum.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax._core import validate


class Release(Protocol):
    """A continual-release mechanism for S synchronisations. Hashable: it shapes the compiled program."""

    @property
    def n_syncs(self) -> int:
        """S."""
        ...

    def init(self, shape: tuple[int, ...]) -> Any:
        """State before the first release of an array of this shape."""
        ...

    def step(self, state: Any, k: Array, z: Array) -> tuple[Array, Any]:
        """Noise of prefix k = 1, 2, ..., S given the fresh draw z of release k, and the next state."""
        ...

    def sensitivity_sq(self) -> float:
        """Largest squared column norm of C: how many times (squared) one batch is released."""
        ...

    def prefix_variance(self) -> np.ndarray:
        """Variance of the noise of every prefix, (S,), for z of variance 1: squared row norms of B."""
        ...

    def encoder(self) -> np.ndarray:
        """C, (S, S)."""
        ...


@dataclasses.dataclass(frozen=True)
class Tree:
    """Binary tree, Algorithm 2 of Zhou & Chowdhury (2024).

    Release k is the noisy p-sum of the last 2^ctz(k) batches; prefix k adds up the popcount(k) nodes at the one-bits
    of k. kappa = 1 + floor(log2 S) levels; one user is in at most kappa nodes.
    """

    n_syncs: int

    @property
    def n_levels(self) -> int:
        """kappa. (The paper's `1 + log(T/B)` has no base; natural logarithms would be unsound.)"""
        return 1 + int(math.log2(self.n_syncs)) if self.n_syncs else 1

    def init(self, shape: tuple[int, ...]) -> Array:
        """Noise of the live node of every level, (L, *shape)."""
        return jnp.zeros((self.n_levels, *shape))

    def step(self, state: Array, k: Array, z: Array) -> tuple[Array, Array]:
        """Node ctz(k) is drawn afresh, those below it are consumed."""
        level = jnp.arange(self.n_levels).reshape(-1, *(1,) * z.ndim)
        lowest = jnp.bitwise_count((k & -k) - 1)
        nodes = jnp.where(level < lowest, 0, jnp.where(level == lowest, z, state))
        return nodes.sum(0), nodes

    def sensitivity_sq(self) -> float:
        """kappa: the first batch is in nodes 1, 2, 4, ..."""
        return float(self.n_levels)

    def prefix_variance(self) -> np.ndarray:
        """popcount(k)."""
        return np.bitwise_count(np.arange(1, self.n_syncs + 1)).astype(float)

    def encoder(self) -> np.ndarray:
        """Row k covers batches k - 2^ctz(k) + 1 .. k."""
        k = np.arange(1, self.n_syncs + 1)[:, None]
        j = k.T
        return ((j <= k) & (j > k - (k & -k))).astype(float)


@dataclasses.dataclass(frozen=True)
class PrefixTree(Tree):
    """P_alt, Algorithm 4 of Zhou & Chowdhury (2024), the protocol of Dubey & Pentland (2020).

    Every silo keeps its own tree and sends the private prefix sum itself. That is post-processing of the tree's
    messages, so the guarantee and the law of the server's sums are the tree's; a shuffler could not amplify it,
    because one user is in S of the messages instead of kappa.
    """


RELEASES = {"tree": Tree, "prefix_tree": PrefixTree}


def make(name: str, n_syncs: int) -> Release:
    """The named release for S synchronisations."""
    return RELEASES[validate.one_of("release", name, RELEASES)](n_syncs)
