"""Likelihood ratios of two samples of views: Fisher's discriminant, and the same given control flow. NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_BLOCK = 4096  # rows held in float64 at a time
_FLOWS = 256  # most kinds of control flow that are told apart
_FEW = 4  # views of a kind on either side, for each of their numbers, by which a discriminant is fitted


class Fisher(NamedTuple):
    """Fisher's linear discriminant (v - o)' w of two samples, scaled to unit variance, and the whitening behind it."""

    origin: np.ndarray  # o (d,), half-way between the means
    weights: np.ndarray  # w (d,)
    whiten: np.ndarray  # (d, d): (v - o) whiten has uncorrelated entries of unit variance
    gap: np.ndarray  # (d,) the difference of means, whitened

    def ratio(self, rows: np.ndarray, noise: float) -> np.ndarray:
        """The log likelihood ratio (n,) of Gaussians: mu times the discriminant, where `noise` is in the square of mu.

        The gap of two means of n views that have D numbers is longer than mu^2 by 2 D / n, by chance alone.
        """
        return max(float(self.gap @ self.gap) - noise, 0.0) ** 0.5 * ((rows - self.origin) @ self.weights)


def discriminant(x: np.ndarray, y: np.ndarray) -> Fisher:
    """Fits Fisher's discriminant: w is (C + R)^-1 (mean y - mean x), scaled to unit variance.

    C is the pooled covariance, and R the diagonal variance of rounding to float32, which makes C + R regular: a
    difference of means in a direction without noise counts for as much as float32 resolves. The system is solved in
    units of sqrt((C + R)_ii).
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
    return Fisher((means[0] + means[1]) / 2, weights, whiten, gap)


class Flow:
    """The log likelihood ratio of control flow, and of all other numbers given it, which are taken for Gaussian.

    An adaptive schedule decides by noise of its own when something is released. What is released has Gaussian noise
    only given when: in a view that is released earlier for one user, the numbers of all later rounds are others.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, flow: np.ndarray):
        """Fits views x, y (n, d) whose columns `flow` (d,) bool are control flow."""
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
        """The log likelihood ratio of views (n, d), (n,); 0 for control flow never seen."""
        return self.chances(rows, given=True)

    def chances(self, rows: np.ndarray, *, given: bool = False) -> np.ndarray:
        """That of their control flow alone or, if the others are `given`, of all numbers, (n,)."""
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
        """The discriminant of views (n, d) whose control flow is of this kind, and NaN for all others, (n,)."""
        found, fisher = np.full(len(rows), np.nan), self.seen[kind][1]
        here = (rows[:, self.flow] == np.frombuffer(kind, rows.dtype)).all(1)
        if fisher:
            found[here] = (rows[here][:, ~self.flow] - fisher.origin) @ fisher.weights
        return found
