"""Lower bounds of privacy from how often an event happens in two samples. NumPy, float64.

If an event has probability p under one of two neighbouring data sets and q under the other, then

    epsilon >= max{ln((q - delta) / p), ln((1 - p - delta) / (1 - q))}      for any mechanism,
    mu >= Phi^-1(q) - Phi^-1(p)                                             for a Gaussian mechanism,

where Phi is the normal distribution function and mu the parameter of Gaussian DP. With a Clopper-Pearson upper bound of
p and lower bound of q this is a lower confidence bound (Jagielski, Ullman & Oprea 2020; Nasr et al. 2023). Events are
"statistic > threshold", and, for the other direction, "-statistic > -threshold".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, expit, ndtri

Bound = Callable[[np.ndarray, np.ndarray], np.ndarray]  # upper bound of p, upper bound of 1 - q -> lower bound


def epsilon_bound(delta: float) -> Bound:
    """Returns the bound of epsilon at delta that holds for any mechanism."""

    def bound(p: np.ndarray, missed: np.ndarray) -> np.ndarray:
        ratio = np.maximum((1 - delta - missed) / p, (1 - delta - p) / missed)
        return np.log(np.maximum(ratio, np.finfo(float).tiny))

    return bound


def mu_bound(p: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Returns the bound of mu that holds for Gaussian mechanisms."""
    return -ndtri(p) - ndtri(missed)


class Event(NamedTuple):
    """The event sign * statistic > threshold."""

    sign: int  # 1 or -1
    threshold: float


def choose(bound: Bound, x: np.ndarray, y: np.ndarray, alpha: float) -> tuple[float, Event]:
    """Finds the event that shows most, and what it shows at level alpha for each rate; for samples to choose by.

    Thresholds are quantiles of both samples, dense in the tails. Each is charged for all others, lest a lucky tail win.

    Args:
        bound: `mu_bound`, or an `epsilon_bound`.
        x, y: statistics (n,) of runs on data and on its neighbour.
        alpha: error probability of the bound of each rate.
    """
    x, y = np.sort(x), np.sort(y)
    both = np.sort(np.concatenate([x, y]), kind="stable")
    tail = np.log(len(both))
    levels = np.unique(both[np.rint((len(both) - 1) * expit(np.linspace(-tail, tail, 256))).astype(int)])
    thresholds = np.append((levels[1:] + levels[:-1]) / 2, levels[-1])  # between the atoms of a discrete statistic
    found = []
    for sign in (1, -1):
        sides = (x, y) if sign == 1 else (-x[::-1], -y[::-1])
        shown = bound(*_rates(*sides, sign * thresholds, alpha / len(thresholds)))
        best = int(np.argmax(shown))
        found.append((float(shown[best]), Event(sign, float(sign * thresholds[best]))))
    return max(found, key=lambda pair: pair[0])


def middle(x: np.ndarray, y: np.ndarray) -> Event:
    """Returns the event that shows the largest mu of two Gaussians of equal variance: more than half-way between."""
    return Event(1, float(np.median(np.concatenate([x, y]))))


def show(bound: Bound, x: np.ndarray, y: np.ndarray, event: Event, alpha: float) -> float:
    """Computes what an event shows on samples that it was not chosen by, at least 0; arguments are as in `choose`."""
    p, missed = _rates(np.sort(event.sign * x), np.sort(event.sign * y), np.array(event.threshold), alpha)
    return max(float(bound(p, missed)), 0.0)


def _rates(x: np.ndarray, y: np.ndarray, threshold: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Computes Clopper-Pearson upper bounds of p = P(x > threshold) and 1 - q = P(y <= threshold); both are sorted."""
    happened = len(x) - np.searchsorted(x, threshold, side="right")
    missed = np.searchsorted(y, threshold, side="right")

    def upper(count: np.ndarray, n: int) -> np.ndarray:
        return np.where(count < n, betaincinv(count + 1, np.maximum(n - count, 1), 1 - alpha), 1.0)

    return upper(happened, len(x)), upper(missed, len(y))
