"""Patterns of one user's contributions, of bounded number and distance, and the sensitivity of all messages to them.

C (S, S) makes the messages from the sums over S batches. A user moves batch sum k by g_k. All messages together move by
|C g|_F^2 = sum_jk (C'C)_jk <g_j, g_k>. The user adds n_k times to batch k, each time at most 1 in l2 norm. Hence |g_k|
<= n_k. A pattern n is valid for (r, v, b) under three conditions. These are 0 <= n_k <= v, sum_k n_k <= r, and |j - k|
>= b for any j != k with n_j, n_k > 0. By Cauchy-Schwarz,

    |C g|_F^2 <= n' G n,   G_jk = |(C'C)_jk|,

with equality if C'C >= 0 wherever n is not zero, and all moves are n_k times one unit vector. The squared sensitivity
is at most the largest n' G n over valid patterns. Batches and patterns may depend on earlier releases. Then every
sequence of outputs has its own valid pattern. C is lower triangular. So along every sequence the squared moves of the
messages add up to at most the largest n' G n. Fully adaptive composition of Gaussian mechanisms needs exactly that
(Smith & Thakurta 2022).

*Vertices.* n' G n is convex in n along e_k, and along e_j - e_k since G_jj + G_kk >= 2 G_jk (Cauchy-Schwarz again). Of
two entries strictly between 0 and v one can go to 0 or to v. As v divides r, a single such entry can go to v. So the
largest value is v^2 times that of m batches with one contribution each, for the largest m that fits (`Users.batches`).

*Front.* Let M >= G be monotone. This means M_{j,k-1} >= M_jk if k - j > b, and M_{j-1,k-1} >= M_jk for all j <= k.
Shift a vertex as a whole to begin with batch 0. Wherever a gap is larger than b, shift all later batches by one, until
they are 0, b, 2b, ... No entry of n' M n falls. (See Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu
2023.) For a Toeplitz C with first column c_0 >= c_1 >= ... >= 0, G itself is monotone. Any other c is bounded by the
least nonincreasing column above |c|. For a matrix the least M >= G is made, and another for batches in reverse order.

*Row by row.* With a contribution to batch j, the others add at most o_j to row j of G n. It is the largest sum of G_jk
over batches k of a valid pattern. Dynamic programming over batches finds it. So n' G n <= v^2 sum_j (G_jj + o_j) over
the batches of n. The largest such sum is found likewise. If the columns that a pattern may contain together are
orthogonal, as with at most b bands, the bound is exact. Orthogonal moves g_k reach sum_k n_k^2 (C'C)_kk.

*Group.* n' G n <= (sum_k n_k)^2 max_k G_kk.

*Several silos.* The user contributes n^i to silo i. If silos count together, n = sum_i n^i is a valid pattern. If one
noise is on the sum over silos, the messages move by |C sum_i g^i|^2 <= n' G n. If every silo has its own noise, they
move by sum_i |C g^i|^2 <= sum_i n^i' G n^i <= n' G n, since no entry of G is negative. So one silo is the worst case.
If k silos count separately, each n^i is a valid pattern. Then the bounds are k times and, with one noise, k^2 times
that of one silo (`Requirement.kappa`).
"""

from __future__ import annotations

import collections

import numpy as np
from jaxtyping import Float

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.users import Users

WORK = 2**31  # most steps of dynamic programming for one matrix; beyond, the other bounds hold


def of_column(column: Float[np.ndarray, " S"], users: Users) -> float:
    """Returns the squared sensitivity of a lower triangular Toeplitz matrix, without the matrix.

    If the first column is nonnegative and does not increase, it is the energy of the sum of columns 0, b, 2b, ...
    Otherwise it is bounded by that of the least such column above |c|.
    """
    m, group = checked(users).batches(len(column)), float((column**2).sum())
    above = np.maximum.accumulate(np.abs(column)[::-1])[::-1]
    front = float((shifted(above, m, users.apart) ** 2).sum())
    return users.most**2 * min(front, m**2 * group)


def checked(users: Users) -> Users:
    """Checks that these are bounds on contributions."""
    return validate.instance("users", users, Users, "an fb.privacy.Users")


def shifted(column: np.ndarray, m: int, apart: int) -> np.ndarray:
    """Returns sum_{i < m} column_{k - i apart} for k = 0, ..., S - 1."""
    n = len(column)
    rows = np.pad(column, (0, -n % apart)).reshape(-1, apart)  # entry (i, j) is of synchronisation i apart + j
    sums = np.cumsum(rows, axis=0)
    sums[m:] -= sums[:-m].copy()
    return sums.reshape(-1)[:n]


def of_encoder(c: Float[np.ndarray, "messages S"], users: Users) -> float:
    """Returns the squared sensitivity of any matrix: the least of the bounds by group, front, back and rows."""
    squares, m, apart = (c**2).sum(0), checked(users).batches(c.shape[1]), users.apart
    bounds = [m**2 * squares.max()]
    if m > 1:
        gram = np.abs(c.T @ c)
        lag = np.abs(np.subtract.outer(np.arange(len(gram)), np.arange(len(gram))))
        gram = np.where((lag == 0) | (lag >= apart), gram, 0)
        front = np.ix_(apart * np.arange(m), apart * np.arange(m))
        bounds += [_monotone(gram[order, order])[front].sum() for order in (slice(None), slice(None, None, -1))]
        if gram.size * (m + 1) <= WORK:
            rows = np.diag(gram) + _largest(gram - np.diag(np.diag(gram)), apart, m - 1)
            bounds.append(_largest(rows[None], apart, m)[0])
    return users.most**2 * float(min(bounds))


def _monotone(gram: np.ndarray) -> np.ndarray:
    """Returns the least M >= gram with M_{j,k-1} >= M_jk for j < k - 1 and M_{j-1,k-1} >= M_jk for j <= k."""
    above, n = np.triu(gram), len(gram)
    for j in reversed(range(n)):
        if j + 1 < n:
            above[j, :-1] = np.maximum(above[j, :-1], above[j + 1, 1:])
        above[j, j + 1 :] = np.maximum.accumulate(above[j, j + 1 :][::-1])[::-1]
    return above + np.triu(above, 1).T


def _largest(values: np.ndarray, apart: int, m: int) -> np.ndarray:
    """Returns every row's largest sum of at most m entries at distances >= `apart`."""
    recent = collections.deque([np.zeros((m + 1, len(values)))] * apart, maxlen=apart)
    for column in values.T:
        before, best = recent[0], recent[-1].copy()  # of positions <= k - apart and of those <= k - 1
        best[1:] = np.maximum(best[1:], before[:-1] + column)
        recent.append(best)
    return recent[-1][-1]
