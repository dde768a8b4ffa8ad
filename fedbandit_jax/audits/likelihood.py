"""Likelihood ratios of two samples of views: Fisher's discriminant, and the same given control flow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_BLOCK = 4096  # rows in float64 at a time
_FLOWS = 256  # most kinds of control flow
_FEW = 4  # least views of a kind per number, on either side, to fit a discriminant


class Fisher(NamedTuple):
    """Fisher's linear discriminant (v - o)' w of two samples, scaled to unit variance."""

    origin: np.ndarray  # o (d,), half-way between the means
    weights: np.ndarray  # w (d,)
    apart: float  # squared distance of the means, in standard deviations of the views

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Returns the discriminant of views (n, d), (n,)."""
        return (rows - self.origin) @ self.weights

    def ratio(self, rows: np.ndarray, noise: float) -> np.ndarray:
        """Returns the log likelihood ratio (n,) of Gaussians: mu times the discriminant, with mu^2 reduced by `noise`.

        By chance alone, the squared gap of two means of n views (D numbers) exceeds mu^2 by 2 D / n.
        """
        return max(self.apart - noise, 0.0) ** 0.5 * self(rows)


def discriminant(x: np.ndarray, y: np.ndarray) -> Fisher:
    """Fits Fisher's discriminant: w is (C + R)^-1 (mean y - mean x), scaled to unit variance.

    C is the pooled covariance. R is the diagonal variance of rounding to float32, which makes C + R regular. So in a
    direction without noise, a difference of means counts up to the resolution of float32. The system is solved in units
    of sqrt((C + R)_ii).
    """
    means = [rows.mean(0, dtype=np.float64) for rows in (x, y)]
    covariance = np.diag((2.0**-24 * np.maximum(np.abs(x).max(0), np.abs(y).max(0)).astype(float)) ** 2)
    for rows, mean in zip((x, y), means):
        for block in np.array_split(rows, len(rows) // _BLOCK + 1):
            covariance += (block - mean).T @ (block - mean) / (2 * len(rows))
    scale = np.sqrt(np.diag(covariance))
    scale[scale == 0] = 1
    ridge = 1e-13 * len(scale) * np.eye(len(scale))
    factor = np.linalg.cholesky(covariance / np.outer(scale, scale) + ridge)
    whiten = np.linalg.inv(factor).T / scale[:, None]
    gap = (means[1] - means[0]) @ whiten
    weights = whiten @ gap / (np.linalg.norm(gap) or 1)
    return Fisher((means[0] + means[1]) / 2, weights, float(gap @ gap))


class Flow:
    """The log likelihood ratio of control flow, and of the other numbers given it, assumed Gaussian.

    An adaptive schedule decides release times by noise of its own. Releases have Gaussian noise only given their times.
    If one is earlier for one user, all later rounds show other numbers.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, flow: np.ndarray):
        """Fits views x, y (n, d) with columns `flow` (d,) bool of control flow."""
        self.flow = flow
        self.seen: dict[bytes, tuple[float, Fisher | None, float]] = {}
        kinds, counts = np.unique(np.concatenate([x, y])[:, flow], axis=0, return_counts=True)
        for kind in kinds[np.argsort(-counts)[:_FLOWS]]:
            one, two = (rows[(rows[:, flow] == kind).all(1)][:, ~flow] for rows in (x, y))
            chance = np.log((len(two) + 1) / (len(one) + 1) * (len(x) + 1) / (len(y) + 1))
            enough = min(len(one), len(two)) > _FEW * one.shape[1] > 0
            noise = one.shape[1] * (1 / max(len(one), 1) + 1 / max(len(two), 1))
            self.seen[kind.tobytes()] = chance, discriminant(one, two) if enough else None, noise

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Returns the log likelihood ratio of views (n, d), (n,); 0 for unseen control flow."""
        return self.chances(rows, given=True)

    def chances(self, rows: np.ndarray, *, given: bool = False) -> np.ndarray:
        """Returns the log likelihood ratio (n,) of control flow alone or, if `given`, of all numbers."""
        total = np.zeros(len(rows))
        kinds, index = np.unique(rows[:, self.flow], axis=0, return_inverse=True)
        for i, kind in enumerate(kinds):
            chance, fisher, noise = self.seen.get(kind.tobytes(), (0.0, None, 0.0))
            here = index.reshape(-1) == i
            total[here] = chance
            if given and fisher:
                total[here] += fisher.ratio(rows[here][:, ~self.flow], noise)
        return total

    def given(self, rows: np.ndarray, kind: bytes) -> np.ndarray:
        """Returns the discriminant of views (n, d) with this kind of control flow, NaN for others, (n,)."""
        found, fisher = np.full(len(rows), np.nan), self.seen[kind][1]
        here = (rows[:, self.flow] == np.frombuffer(kind, rows.dtype)).all(1)
        if fisher:
            found[here] = fisher(rows[here][:, ~self.flow])
        return found
