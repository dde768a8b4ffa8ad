"""Patterns of one user's contributions, of bounded number and distance, and the sensitivity of all messages to them.

C (messages, S) makes the messages from the sums over S batches. A user moves batch sum k by g_k. All messages together
move by |C g|_F^2 = sum_jk (C'C)_jk <g_j, g_k>. The user adds n_k times to batch k, each time at most 1 in l2 norm.
Hence |g_k| <= n_k. A pattern n is valid for (r, v, b) under three conditions. These are 0 <= n_k <= v, sum_k n_k <= r,
and |j - k| >= b for any j != k with n_j, n_k > 0. By Cauchy-Schwarz,

    |C g|_F^2 <= n' G n,   G_jk = |(C'C)_jk|,

with equality if C'C >= 0 wherever n is not zero, and all moves are n_k times one unit vector. The squared sensitivity
is at most the largest n' G n over valid patterns. Batches and patterns may depend on earlier releases. Then every
sequence of outputs has its own valid pattern. C is lower triangular. So along every sequence the squared moves of the
messages add up to at most the largest n' G n. Fully adaptive composition of Gaussian mechanisms needs exactly that
(Smith & Thakurta 2022).

*Vertices.* n' G n is convex in n along e_k, and along e_j - e_k since G_jj + G_kk >= 2 G_jk (Cauchy-Schwarz again). Of
two entries strictly between 0 and v one can go to 0 or to v. So the largest value has all entries 0 or v, except at
most one, the remainder. As G >= 0, as many batches as possible have v, and one more the rest of r.

*Front.* Let M >= G be monotone. This means M_{j,k-1} >= M_jk if k - j > b, and M_{j-1,k-1} >= M_jk for all j <= k.
Shift a vertex as a whole to begin with batch 0. Wherever a gap is larger than b, shift all later batches by one, until
they are 0, b, 2b, ... No entry of n' M n falls. The remainder w < v is worst in the last batch m. All entries of M at
these batches contribute v^2 times their sum. In batch t the remainder adds -(v - w) ((v + w) M_tt + 2 v sum_{i != t}
M_ti). Here M_tt >= M_mm, M_it >= M_im for i < t, and M_ti >= M_{m+t-i,m} for t < i < m. Together with M_tm, the right
sides are M_im for all i <= m. So the largest n' M n is that for 0, b, 2b, ... with the remainder at the end. (For full
batches see Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu 2023.) For a Toeplitz C with first column c_0
>= c_1 >= ... >= 0, G itself is monotone. Any other c is bounded by the least nonincreasing column above |c|. For a
matrix the least M >= G is made, and another for batches in reverse order.

*Row by row.* With n_j in batch j, the others add at most o_j(n_j) to row j of G n. It is the largest sum of G_jk n_k
over valid n with this n_j. Dynamic programming over batches finds it. So n' G n <= sum_j n_j (n_j G_jj + o_j(n_j)). The
largest such sum is found likewise. If the columns that a pattern may contain together are orthogonal, as with at most b
bands, the bound is exact. Orthogonal moves g_k reach sum_k n_k^2 (C'C)_kk.

*Group.* n' G n <= (sum_k n_k)^2 max_k G_kk.
"""

from __future__ import annotations

import collections
import functools
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

from fedbandit_jax.privacy.users import Users

WORK = 2**31  # most steps of dynamic programming for one matrix; beyond, the other bounds hold
MATRIX = 2048  # most synchronisations S for which a Toeplitz matrix is built
ROUNDING = 1e-6  # a bound this close to a pattern's own value, relatively, is exact


class Sensitivity(NamedTuple):
    """The squared l2 sensitivity of all messages if every contribution moves a batch sum by at most 1.

    If `exact`, moves of some valid pattern reach it, to `ROUNDING`. Otherwise it is an upper bound.
    """

    squared: float
    exact: bool


def of_column(column: Float[np.ndarray, " S"], users: Users) -> Sensitivity:
    """Returns the sensitivity of a lower triangular Toeplitz matrix, without the matrix.

    If the first column is nonnegative and does not increase, the sensitivity is the energy of the sum of columns 0, b,
    2b, ... Otherwise it is computed from the matrix for S <= `MATRIX`. For larger S it is the bound by the least such
    column above |c|.
    """
    counts, energy = users.counts(len(column)), float((column**2).sum())
    group = float(counts.sum() ** 2) * energy
    if len(counts) == 1:
        return Sensitivity(group, True)
    above = np.maximum.accumulate(np.abs(column)[::-1])[::-1]
    if len(column) <= MATRIX and not (above == column).all():
        return of_encoder(scipy.linalg.toeplitz(column, np.zeros(len(column))), users)
    front = float((shifted(above, counts, users.apart) ** 2).sum())
    return Sensitivity(min(front, group), bool((above == column).all()))


def shifted(column: np.ndarray, counts: np.ndarray, apart: int) -> np.ndarray:
    """Returns sum_i counts_i column_{k - i apart} for k = 0, ..., S - 1. All counts but the last are equal."""
    n = len(column)
    rows = np.pad(column, (0, -n % apart)).reshape(-1, apart)  # entry (i, j) is of synchronisation i apart + j
    sums, m = np.cumsum(rows, axis=0), len(counts)
    full = sums.copy()
    full[m - 1 :] -= sums[: len(rows) - m + 1]  # m - 1 columns with the first count
    added = counts[0] * full
    added[m - 1 :] += counts[-1] * rows[: len(rows) - m + 1]
    return added.reshape(-1)[:n]


def of_encoder(c: Float[np.ndarray, "messages S"], users: Users) -> Sensitivity:
    """Returns the sensitivity of any matrix: the least of the bounds by group, front, back and rows."""
    squares = (c**2).sum(0)
    counts = users.counts(c.shape[1])
    group = Sensitivity(float(counts.sum() ** 2 * squares.max()), len(counts) == 1)
    if group.exact:
        return group
    signed = c.T @ c
    lag = np.abs(np.subtract.outer(np.arange(len(signed)), np.arange(len(signed))))
    gram = np.where((lag == 0) | (lag >= users.apart), np.abs(signed), 0)
    front = users.apart * np.arange(len(counts))
    full, rest = users.split(len(gram))
    reach = functools.partial(_largest, apart=users.apart, n_full=full, with_rest=rest > 0)
    found, bounds = [float(reach(users.most**2 * squares[None], rest**2 * squares[None])[0])], [group.squared]
    for order in (slice(None), slice(None, None, -1)):
        bounds.append(_quadratic(_monotone(gram[order, order]), front, counts))
        found.append(_quadratic(signed[order, order], front, counts))
    if gram.size * (full + 1) <= WORK:
        bounds.append(_by_rows(gram, users))
    return Sensitivity(min(bounds), min(bounds) <= max(found) * (1 + ROUNDING))


def _quadratic(matrix: np.ndarray, places: np.ndarray, counts: np.ndarray) -> float:
    return float(counts @ matrix[np.ix_(places, places)] @ counts)


def _monotone(gram: np.ndarray) -> np.ndarray:
    """Returns the least M >= gram with M_{j,k-1} >= M_jk for j < k - 1 and M_{j-1,k-1} >= M_jk for j <= k."""
    above, n = np.triu(gram), len(gram)
    for j in reversed(range(n)):
        if j + 1 < n:
            above[j, :-1] = np.maximum(above[j, :-1], above[j + 1, 1:])
        above[j, j + 1 :] = np.maximum.accumulate(above[j, j + 1 :][::-1])[::-1]
    return above + np.triu(above, 1).T


def _by_rows(gram: np.ndarray, users: Users) -> float:
    full, rest = users.split(len(gram))
    most, apart, diagonal = users.most, users.apart, np.diag(gram)
    others = gram - np.diag(diagonal)
    beside = _largest(most * others, rest * others, apart, full - 1, rest > 0)
    alone = _largest(most * others, others, apart, full, False)
    of_full, of_rest = most * (most * diagonal + beside), rest * (rest * diagonal + alone)
    return float(_largest(of_full[None], of_rest[None], apart, full, rest > 0)[0])


def _largest(full: np.ndarray, rest: np.ndarray, apart: int, n_full: int, with_rest: bool) -> np.ndarray:
    """Returns every row's largest sum at distances >= `apart`: of at most `n_full` of `full`, and one of `rest`."""
    rows, n = full.shape
    recent = collections.deque([np.zeros((n_full + 1, 1 + with_rest, rows))] * apart, maxlen=apart)
    for k in range(n):
        before, best = recent[0], recent[-1].copy()  # of positions <= k - apart and of those <= k - 1
        best[1:] = np.maximum(best[1:], before[:-1] + full[:, k])
        if with_rest:
            best[:, 1] = np.maximum(best[:, 1], before[:, 0] + rest[:, k])
        recent.append(best)
    return recent[-1][-1, -1]
