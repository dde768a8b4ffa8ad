"""Tells two samples apart, and says what that shows about privacy. NumPy, float64.

A test that guesses which sample a draw is from, with false positive rate FPR and false negative rate FNR, shows that

    epsilon >= max{ln((1 - delta - FNR) / FPR), ln((1 - delta - FPR) / FNR)}      for any mechanism,
    mu >= Phi^-1(1 - FPR) - Phi^-1(FNR)                                           for a Gaussian mechanism,

where Phi is the normal distribution function and mu the parameter of Gaussian DP. With Clopper-Pearson upper bounds for
both rates this is a lower confidence bound (Jagielski, Ullman & Oprea 2020; Nasr et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import betaincinv, expit, ndtri

_BLOCK = 4096  # rows held in float64 at a time


def discriminant(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes Fisher's linear discriminant (v - o)' w of two samples, with rows (n, d) each.

    w is (C + R)^-1 (mean y - mean x), scaled to unit variance. C is the pooled covariance, and R the diagonal variance
    of rounding to float32, which makes C + R regular: a difference of means in a direction without noise counts for as
    much as float32 resolves. The system is solved in units of sqrt((C + R)_ii).

    Returns:
        Origin o and weights w, (d,) each.
    """
    means = [rows.mean(0, dtype=np.float64) for rows in (x, y)]
    covariance = np.diag((2.0**-24 * np.maximum(np.abs(x).max(0), np.abs(y).max(0)).astype(float)) ** 2)
    for rows, mean in zip((x, y), means):
        for block in np.array_split(rows, len(rows) // _BLOCK + 1):
            covariance += (block - mean).T @ (block - mean) / (2 * len(rows))
    scale = np.sqrt(np.diag(covariance))
    scale[scale == 0] = 1
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    gap = vectors.T @ ((means[1] - means[0]) / scale)
    weights = gap / np.maximum(values, len(values) * np.finfo(float).eps)
    weights /= np.sqrt(gap @ weights) or 1
    return (means[0] + means[1]) / 2, vectors @ weights / scale


def epsilon_bound(
    chosen: Sequence[np.ndarray], tested: Sequence[np.ndarray], alpha: float, delta: float
) -> tuple[float, float]:
    """Computes a lower bound of epsilon at delta, and its threshold; the other arguments are those of `_bound`."""

    def bound(fpr: np.ndarray, fnr: np.ndarray) -> np.ndarray:
        ratio = np.maximum((1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr)
        return np.log(np.maximum(ratio, np.finfo(float).tiny))

    return _bound(bound, chosen, tested, alpha)


def mu_bound(chosen: Sequence[np.ndarray], tested: Sequence[np.ndarray], alpha: float) -> tuple[float, float]:
    """Computes a lower bound of mu for a Gaussian mechanism, and its threshold; the arguments are those of `_bound`."""
    return _bound(lambda fpr, fnr: -ndtri(fpr) - ndtri(fnr), chosen, tested, alpha)


def _bound(
    bound: Callable[[np.ndarray, np.ndarray], np.ndarray],
    chosen: Sequence[np.ndarray],
    tested: Sequence[np.ndarray],
    alpha: float,
) -> tuple[float, float]:
    """Computes `bound(FPR, FNR)`, at least 0, on half of the runs at the threshold that is best on the other half.

    Each of the two rates exceeds its upper bound with probability at most alpha.

    Args:
        bound: maps upper bounds of FPR and FNR to a lower bound of epsilon or mu.
        chosen: statistics (n,) of data and of neighbour in the half that chooses the threshold.
        tested: the same in the half that is tested.
        alpha: error probability of the bound of each rate.

    Returns:
        The bound and the threshold.
    """
    tail = np.log(2 * len(chosen[0]))
    levels = np.unique(np.quantile(np.stack(chosen), expit(np.linspace(-tail, tail, 512)), method="nearest"))
    thresholds = np.append((levels[1:] + levels[:-1]) / 2, levels[-1])  # between the atoms of a discrete statistic
    shown = bound(*_rates(chosen, thresholds, alpha / len(thresholds)))  # valid at all at once: no lucky tail wins
    best = thresholds[np.argmax(shown)]
    return max(float(bound(*_rates(tested, best, alpha))), 0.0), float(best)


def _rates(statistics: Sequence[np.ndarray], threshold: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Computes Clopper-Pearson upper bounds of FPR and FNR of the test that guesses "neighbour" if t > threshold."""
    x, y = map(np.sort, statistics)
    false_positives = len(x) - np.searchsorted(x, threshold, side="right")
    false_negatives = np.searchsorted(y, threshold, side="right")

    def upper(errors: np.ndarray, n: int) -> np.ndarray:
        return np.where(errors < n, betaincinv(errors + 1, np.maximum(n - errors, 1), 1 - alpha), 1.0)

    return upper(false_positives, len(x)), upper(false_negatives, len(y))
