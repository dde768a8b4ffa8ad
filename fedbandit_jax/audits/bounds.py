"""Lower bounds on epsilon, at a stated confidence, from the frequencies of events in two samples of runs.

If an event has probability p under one of two neighbouring data sets and q under the other, then

    epsilon >= max{ln((q - delta) / p), ln((1 - p - delta) / (1 - q))}      for any mechanism,
    mu >= Phi^-1(q) - Phi^-1(p)                                             for a Gaussian mechanism,

with the normal distribution function Phi and the parameter mu of Gaussian DP. Likewise, let the mean of a statistic
with variance s^2 differ by d s. Then d^2 is at most the chi-square divergence of N(mu, 1) from N(0, 1), and

    mu >= sqrt(ln(1 + d^2))                                                 for a Gaussian mechanism,

which is nearly d if d is small. Runs with equal keys share most of their noise. So they give d with hardly any error. A
Clopper-Pearson upper bound of p and lower bound of q make this a lower confidence bound (Jagielski, Ullman & Oprea
2020; Nasr et al. 2023). Events are "statistic > threshold", and, for the other direction, "-statistic > -threshold".

An adaptive schedule spends a pure epsilon on release times. Releases are Gaussian given their times. Both are bounded
separately, times at delta = 0. They are composed in the worst case, as in a certificate. This bounds the joint claim,
also if no single pair of neighbours is the worst for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, expit, ndtri

from fedbandit_jax.audits.likelihood import Flow

Bound = Callable[[np.ndarray, np.ndarray], np.ndarray]  # upper bounds of p and of 1 - q -> lower bound


class Event(NamedTuple):
    """The event sign * statistic > threshold."""

    sign: int  # 1 or -1
    threshold: float


def epsilon_bound(delta: float) -> Bound:
    """Makes the bound on epsilon at delta that holds for any mechanism."""

    def bound(p: np.ndarray, missed: np.ndarray) -> np.ndarray:
        ratio = np.maximum((1 - delta - missed) / p, (1 - delta - p) / missed)
        return np.log(np.maximum(ratio, np.finfo(float).tiny))

    return bound


def mu_bound(p: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Bounds mu for Gaussian mechanisms."""
    return -ndtri(p) - ndtri(missed)


def mean_bound(x: np.ndarray, y: np.ndarray, alpha: float) -> float:
    """Bounds mu by the means of a statistic of runs (n,) on both data sets, perhaps with equal keys.

    It fails with probability `alpha`, up to the error of the central limit theorem for n runs.
    """
    x, y = x.astype(float), y.astype(float)
    variance = (np.var(x) + np.var(y)) / 2
    if not variance > 0:
        return 0.0
    moved = y - x
    d = abs(moved.mean()) / math.sqrt(variance)
    square = ((x - x.mean()) ** 2 + (y - y.mean()) ** 2) / (2 * variance)  # with mean 1
    influence = moved / math.sqrt(variance) * np.sign(moved.mean()) - d / 2 * square
    lower = d + ndtri(alpha) * influence.std() / math.sqrt(len(x))
    return math.sqrt(math.log1p(max(lower, 0.0) ** 2))


def choose(bound: Bound, x: np.ndarray, y: np.ndarray, alpha: float) -> tuple[float, Event]:
    """Finds the event with the largest bound, at level alpha for each rate; for samples that choose a test.

    Thresholds are quantiles of both samples, dense in the tails. Each is charged for all others, against lucky tails.

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
    """Returns the event with the largest mu for two Gaussians of equal variance: above the midpoint."""
    return Event(1, float(np.median(np.concatenate([x, y]))))


def show(bound: Bound, x: np.ndarray, y: np.ndarray, event: Event, alpha: float) -> float:
    """Computes the lower bound of an event, at least 0, on samples independent of its choice; see `choose`."""
    p, missed = _rates(np.sort(event.sign * x), np.sort(event.sign * y), np.array(event.threshold), alpha)
    return max(float(bound(p, missed)), 0.0)


def _rates(x: np.ndarray, y: np.ndarray, threshold: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Computes Clopper-Pearson upper bounds of p = P(x > threshold) and 1 - q = P(y <= threshold) for sorted x, y."""
    happened = len(x) - np.searchsorted(x, threshold, side="right")
    missed = np.searchsorted(y, threshold, side="right")

    def upper(count: np.ndarray, n: int) -> np.ndarray:
        return np.where(count < n, betaincinv(count + 1, np.maximum(n - count, 1), 1 - alpha), 1.0)

    return upper(happened, len(x)), upper(missed, len(y))


class Scheduled(NamedTuple):
    """Tests of a schedule with a pure epsilon, and of releases that are Gaussian given it."""

    flow: Flow
    chance: Event  # of the log ratio of control flow
    kind: bytes  # control flow of the tested releases
    centre: Event  # of their discriminant

    @classmethod
    def choose(cls, flow: Flow, x: np.ndarray, y: np.ndarray, alpha: float) -> Scheduled | None:
        """Chooses event and kind of control flow by views (n, d) that `flow` was not fitted to."""
        _, chance = choose(epsilon_bound(0.0), flow.chances(x), flow.chances(y), alpha)
        found = []
        for kind, (_, fisher, _) in flow.seen.items():
            one, two = (given[~np.isnan(given)] for given in (flow.given(x, kind), flow.given(y, kind)))
            if fisher and len(one) and len(two):
                centre = middle(one, two)
                found.append((show(mu_bound, one, two, centre, alpha), cls(flow, chance, kind, centre)))
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def shown(self, x: list[np.ndarray], y: list[np.ndarray], alpha: float) -> tuple[float, float]:
        """Lower-bounds the pure epsilon of control flow, and mu given it, from the `columns` of all runs."""
        pure = show(epsilon_bound(0.0), x[0], y[0], self.chance, alpha)
        one, two = (given[~np.isnan(given)] for given in (x[1], y[1]))
        return pure, show(mu_bound, one, two, self.centre, alpha) if len(one) and len(two) else 0.0

    def columns(self, rows: np.ndarray) -> list[np.ndarray]:
        """Returns the log ratio of the control flow of views (n, d), and the discriminant of this kind."""
        return [self.flow.chances(rows), self.flow.given(rows, self.kind)]
