"""The squared sensitivity of trees to a returning user: the sum over nodes of squared contributions.

A node of level l is the sum of 2^l consecutive batches, and is sent or not. C'C >= 0 counts the nodes that contain two
batches. So a pattern n (see `participation`) moves the messages by the sum of (sum of n_k within)^2 over sent nodes.
"""

from __future__ import annotations

import functools

import numpy as np

from fedbandit_jax.privacy.releases.participation import Sensitivity
from fedbandit_jax.privacy.users import Users

WORK = 2**28  # most steps of the exact computation


@functools.lru_cache
def of_trees(n_syncs: int, users: Users) -> Sensitivity:
    """Returns the largest sum over sent nodes of squared contributions: exact, or a bound if that takes too long.

    S batches are a forest of complete trees with the sizes of the one-bits of S, the largest first. Nodes that end
    where a larger one does, the right halves, are not sent.

    *Exact.* F_l[c, f, g] is the largest sum within a tree of 2^l batches for c contributions. The first of them is at
    least f < b batches from its left end. The last is at least g < b from its right end. A tree is two halves with c_1
    and c_2 contributions, and its square c^2. The last of the left half is x batches from the middle. The first of the
    right half is b - 1 - x. All trees of one level are alike. Trees of a forest are joined as halves are.

    *By levels.* The squares of the nodes of a level add up to at most the largest of them times all contributions. This
    is m min(m, ceil(2^l / b)) for contributions to m batches.
    """
    n, apart, m = int(n_syncs), min(users.apart, int(n_syncs)), users.batches(n_syncs)
    if m**2 * apart**3 * n.bit_length() <= WORK:
        return Sensitivity(_exact(n, m, apart), True).times(users.most)
    levels = [min(m, -(-(1 << level) // apart)) for level in range(n.bit_length())]
    return Sensitivity(float(m * sum(levels)), False).times(users.most)


def _exact(n: int, m: int, apart: int) -> float:
    inner = np.full((m, apart, apart), -np.inf)  # without the square of the tree's own node; counts 1, ..., m
    inner[0, 0, 0] = 0
    forest, size = None, 0
    for level in range(n.bit_length()):
        sent = inner + np.arange(1, m + 1.0)[:, None, None] ** 2
        if n >> level & 1:  # from the right: the smallest tree is last
            forest, size = (
                (sent, 1 << level) if forest is None else (_joined(sent, forest, 1 << level, size), size + (1 << level))
            )
        inner = _joined(sent, inner, 1 << level, 1 << level)
    assert forest is not None
    return float(forest[:, 0, 0].max())


def _joined(left: np.ndarray, right: np.ndarray, n_left: int, n_right: int) -> np.ndarray:  # F of two neighbours
    visits, apart, _ = left.shape
    edge = np.arange(apart)
    out = np.maximum(left[:, :, np.maximum(edge - n_right, 0)], right[:, np.maximum(edge - n_left, 0), :])
    for c in range(1, visits):  # of the left, with x batches to the right of its last
        for x in range(apart):
            both = left[c - 1, None, :, x, None] + right[: visits - c, apart - 1 - x, None, :]
            np.maximum(out[c:], both, out=out[c:])
    return out
