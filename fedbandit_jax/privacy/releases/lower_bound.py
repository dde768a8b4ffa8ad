"""How much noise any release of prefix sums must have: a lower bound by the singular values of the prefix-sum matrix.

Let A (S, S) be the prefix-sum matrix, A_kj = 1 for j <= k, and A = R C any factorisation. A release has the largest
standard deviation r, the largest row norm of R, at a sensitivity of c, the largest column norm of C, and r c compares
releases at equal privacy. Let |X|_* be the sum of the singular values of X and |X|_F the root of the sum of its squared
entries. As |R C|_* <= |R|_F |C|_F (Cauchy-Schwarz for singular values), |R|_F <= sqrt(S) r and |C|_F <= sqrt(S) c,

    r c >= |A|_* / S = (1 / S) sum_{j = 1..S} 1 / (2 sin((2 j - 1) pi / (4 S + 2))).

The singular values of A are these, because the inverse of A takes differences, x_k - x_{k-1} with x_0 = 0, and so the
inverse of A A' is the tridiagonal matrix with 2 on the diagonal but 1 as its last entry, and -1 beside it. Its
eigenvectors are v_k = sin(k t) with t = (2 j - 1) pi / (2 S + 1): they have v_0 = 0 and v_{S+1} = v_S, so that 2 v_k -
v_{k-1} - v_{k+1} = (2 - 2 cos t) v_k holds for all k, and 2 - 2 cos t = (2 sin(t / 2))^2.

The bound is (ln S) / pi + O(1), as is the best r c, which is known as the gamma_2 norm of A (Matousek, Nikolov & Talwar
2020). It holds for every release, also one that could look into the future.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.releases.release import Release


def least_std(n_syncs: int) -> float:
    """Computes the bound for S = `n_syncs`: the largest std of a private prefix sum is at least this at sensitivity 1.

    >>> round(least_std(400), 3)
    2.612
    """
    s = validate.integer("n_syncs", n_syncs, at_least=1)
    j = np.arange(1, s + 1)
    return float((0.5 / np.sin((2 * j - 1) * (math.pi / (4 * s + 2)))).sum()) / s


def relative_std(release: Release) -> float:
    """Computes the largest std of a private prefix sum at equal privacy, relative to the least of any release.

    It is at least 1. The bound may be below what is possible: at S = 16, 64 and 400 the best releases have 1.047, 1.035
    and 1.022.

    Example:
        >>> from fedbandit_jax.privacy.releases import RELEASES
        >>> for name, make in RELEASES.items():
        ...     print(f"{name:18} {relative_std(make(400)):.3f}")
        tree               3.248
        prefix_tree        3.248
        honaker            2.517
        sqrt_toeplitz      1.138
        blt                1.139
        input_perturbation 7.657

    Raises:
        TypeError: if `release` is not a `Release`.
    """
    validate.instance("release", release, Release, "an fb.privacy.Release")
    return math.sqrt(release.largest_variance() * release.sensitivity_sq()) / least_std(release.n_syncs)
