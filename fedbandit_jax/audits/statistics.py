"""Statistics in which two samples of views may differ, and lower bounds of epsilon from how often events happen. NumPy.

| name | sees |
|---|---|
| linear | a difference of means: Fisher's discriminant, the best statistic of Gaussian noise |
| two-sided | its distance from the middle: an atom, or too much or too little noise |
| residual | the distance of the whole view from what data (or its neighbour) give in the mean: noise that is left out |
| atoms | numbers, or differences of two numbers, that repeat exactly: noise left out, shared, or drawn on a grid |
| low bits | remainders v 2^j mod 1 that repeat exactly: digits of the data behind those that the noise has |
| control flow | how likely integers are, such as when something was released, and all other numbers given them |
| upper, lower edge | numbers beyond all those that data (or its neighbour) gave: noise of bounded support |
| classifier | all of these together, by logistic regression |

A `Panel` is fitted to runs that nothing is tested on. Views are rows (n, d) of float32.

If an event has probability p under one of two neighbouring data sets and q under the other, then

    epsilon >= max{ln((q - delta) / p), ln((1 - p - delta) / (1 - q))}      for any mechanism,
    mu >= Phi^-1(q) - Phi^-1(p)                                             for a Gaussian mechanism,

where Phi is the normal distribution function and mu the parameter of Gaussian DP. Likewise, if the mean of a statistic
of variance s^2 differs by d s, then d^2 is at most the chi-square divergence of N(mu, 1) from N(0, 1), and

    mu >= sqrt(ln(1 + d^2))                                                 for a Gaussian mechanism,

which is nearly d if d is small. Runs on both data sets with equal keys show d with hardly any error, as most of the
noise is the same in both. With a Clopper-Pearson upper bound of
p and lower bound of q this is a lower confidence bound (Jagielski, Ullman & Oprea 2020; Nasr et al. 2023). Events are
"statistic > threshold", and, for the other direction, "-statistic > -threshold".

An adaptive schedule spends a pure epsilon on when something is released; what is released is Gaussian given when. Both
are bounded apart, the first at delta = 0, and composed as a certificate composes them, at their worst. That is a bound
of what may be claimed of both together, also where no single pair of neighbours is the worst for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, expit, ndtri

from fedbandit_jax.audits.likelihood import Flow, discriminant

NAMES = (
    "linear",
    "two-sided",
    "residual",
    "residual of neighbour",
    "atoms",
    "low bits",
    "upper edge",
    "lower edge",
    "control flow",
    "classifier",
)
_BLOCK = 4096  # rows held in float64 at a time
_ROWS, _COLUMNS, _CELLS = 2000, 128, 64  # most rows and numbers looked at for atoms, and most atoms
_REPEATS = 4  # how often a number occurs at least for an atom
_WIDTH = 1e-5  # half the width of an atom, in standard deviations
_GRIDS = (6, 11, 16)  # low bits of numbers that are looked at, of the 24 that the largest of them has
Bound = Callable[[np.ndarray, np.ndarray], np.ndarray]  # upper bound of p, upper bound of 1 - q -> lower bound


class Atoms(NamedTuple):
    """Places where numbers, or differences of two numbers, of a view repeat more often in one sample than in the other.

    An atom is left[i] v - right[i] v within `width` of `place`; its `weight` is the log ratio of its frequencies.
    """

    left: np.ndarray  # (A,) int
    right: np.ndarray  # (A,) int, -1 for none
    place: np.ndarray  # (A,)
    width: np.ndarray  # (A,)
    weight: np.ndarray  # (A,)

    @classmethod
    def none(cls) -> Atoms:
        """No atoms."""
        return cls(*np.zeros((2, 0), int), *np.zeros((3, 0)))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """The sum of the weights of the atoms that a view is in, (n,)."""
        total = np.zeros(len(rows))
        for left, right, place, width, weight in zip(*self):
            value = rows[:, left] - (rows[:, right] if right >= 0 else 0)
            total += weight * (np.abs(value - place) <= width)
        return total


def atoms(x: np.ndarray, y: np.ndarray) -> Atoms:
    """Finds the atoms that tell two samples apart best, among numbers and differences of numbers drawn at random."""
    x, y = x[:_ROWS], y[:_ROWS]
    varies = np.flatnonzero((np.concatenate([x, y]) != x[0]).any(0))[:_COLUMNS]
    if not len(varies):
        return Atoms.none()
    pairs = np.stack(np.triu_indices(len(varies), 1))
    few = np.random.default_rng(0).permutation(pairs.shape[1])[: _COLUMNS - len(varies)]
    left = np.concatenate([varies, varies[pairs[0, few]]])
    right = np.concatenate([np.full(len(varies), -1), varies[pairs[1, few]]])
    single = np.arange(len(left)) < len(varies)
    both = [rows[:, left] - np.where(single, 0, rows[:, right]) for rows in (x, y)]
    values = np.sort(np.concatenate(both), 0)
    width = np.maximum(_WIDTH * values.std(0, dtype=float), 2.0**-22 * np.abs(values).max(0))
    repeats = values[_REPEATS - 1 :] - values[: 1 - _REPEATS] <= width
    repeats[1:] &= ~repeats[:-1]  # where they begin
    first, column = np.nonzero(repeats)
    place = values[first, column]
    counts = np.stack([_within(rows, column, place, 2 * width[column]) for rows in both])
    z = np.abs(counts[1] - counts[0]) / np.sqrt(counts.sum(0) + 1)
    best = np.argsort(-z)[:_CELLS]
    best = best[z[best] > 2]
    weight = np.log((counts[1, best] + 0.5) / (counts[0, best] + 0.5))
    chosen = column[best]
    return Atoms(left[chosen], right[chosen], place[best], 2 * width[chosen], weight)


def _within(rows: np.ndarray, column: np.ndarray, place: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Counts the rows whose number in `column[i]` is within `width[i]` of `place[i]`, (n,) int."""
    count = np.zeros(len(column), int)
    for one in np.unique(column):
        here, numbers = column == one, np.sort(rows[:, one])
        edges = [place[here] - width[here], place[here] + width[here]]
        count[here] = np.searchsorted(numbers, edges[1], side="right") - np.searchsorted(numbers, edges[0])
    return count


class LowBits(NamedTuple):
    """Remainders v 2^j mod 1 of some numbers v of a view, and where they repeat.

    Noise that has fewer bits than the sum to which it is added, such as noise cast to float16, hides no others.
    """

    column: np.ndarray  # (C,) int
    power: np.ndarray  # (C,) j
    atoms: Atoms

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray) -> LowBits:
        """The low bits that tell two samples apart best."""
        x, y = x[:_ROWS], y[:_ROWS]
        largest = np.maximum(np.abs(x).max(0), np.abs(y).max(0))
        column = np.flatnonzero((x != x[0]).any(0) & (y != y[0]).any(0) & (largest > 0))[: _COLUMNS // len(_GRIDS)]
        last = 24 - np.ceil(np.log2(largest[column].astype(float)))  # j of the last bit of the largest
        empty = cls(np.repeat(column, len(_GRIDS)), np.subtract.outer(last, _GRIDS).reshape(-1), Atoms.none())
        return empty._replace(atoms=atoms(empty.remainders(x), empty.remainders(y)))

    def remainders(self, rows: np.ndarray) -> np.ndarray:
        """v 2^j mod 1 of the columns of views (n, d), (n, C)."""
        scaled = rows[:, self.column].astype(float) * 2.0**self.power
        return (scaled - np.floor(scaled)).astype(np.float32)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """The sum of the weights of the atoms that remainders are in, (n,)."""
        return self.atoms(self.remainders(rows))


class Panel:
    """All statistics of `NAMES`, fitted to two samples of views, data's and its neighbour's.

    Columns `flow` (d,) bool of the views are control flow; by default none is.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, flow: np.ndarray | None = None):
        self.fisher, self.atoms, self.low_bits = discriminant(x, y), atoms(x, y), LowBits.fit(x, y)
        self.flow = Flow(x, y, np.zeros(x.shape[1], bool) if flow is None else flow)
        self.scale = np.maximum(np.concatenate([x, y]).std(0, dtype=float), np.finfo(np.float32).tiny)
        self.signs = np.where(y.mean(0, dtype=float) >= x.mean(0, dtype=float), 1.0, -1.0)
        self.edges = (self.signs * x).max(0), (-self.signs * y).max(0)
        features = [self._features(rows) for rows in (x, y)]
        self.middle, self.spread = (f(np.concatenate(features), 0) for f in (np.mean, np.std))
        self.coefficients = _logistic(*map(self._standard, features))

    def __call__(self, name: str, rows: np.ndarray) -> np.ndarray:
        """The statistic of this name for views (n, d), float32, so that equal views stay equal."""
        if name == "linear":  # the others cost more
            return ((rows - self.fisher.origin) @ self.fisher.weights).astype(np.float32)
        return self.all(rows)[name]

    def all(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """All statistics of views (n, d) by name."""
        features = np.concatenate([self._features(block) for block in np.array_split(rows, len(rows) // _BLOCK + 1)])
        columns = np.column_stack([features, self._standard(features) @ self.coefficients]).astype(np.float32)
        return dict(zip(NAMES, columns.T))

    def _features(self, rows: np.ndarray) -> np.ndarray:
        from_origin, half = rows - self.fisher.origin, self.fisher.gap / 2
        white, linear = from_origin @ self.fisher.whiten, from_origin @ self.fisher.weights
        residuals = (np.linalg.norm(white + side * half, axis=1) for side in (1, -1))
        edges = (((s * rows - edge) / self.scale).max(1) for s, edge in zip((self.signs, -self.signs), self.edges))
        repeats = self.atoms(rows), self.low_bits(rows)
        return np.stack([linear, np.abs(linear), *residuals, *repeats, *edges, self.flow(rows)], 1)

    def _standard(self, features: np.ndarray) -> np.ndarray:
        """Features (n, F) in standard deviations, at most 6 of them, the squares of the first four, and 1."""
        scaled = np.clip((features - self.middle) / np.maximum(self.spread, 1e-30), -6, 6)
        return np.concatenate([scaled, scaled[:, :4] ** 2, np.ones((len(scaled), 1))], 1)


def _logistic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    rows, label = np.concatenate([x, y]), np.repeat([0.0, 1.0], [len(x), len(y)])
    ridge, w = 1e-3 * len(rows) * np.eye(rows.shape[1]), np.zeros(rows.shape[1])
    for _ in range(8):
        p = expit(rows @ w)
        hessian = (rows * (p * (1 - p))[:, None]).T @ rows + ridge
        w += np.linalg.solve(hessian, rows.T @ (label - p) - ridge @ w)
    return w


def epsilon_bound(delta: float) -> Bound:
    """The bound of epsilon at delta that holds for any mechanism."""

    def bound(p: np.ndarray, missed: np.ndarray) -> np.ndarray:
        ratio = np.maximum((1 - delta - missed) / p, (1 - delta - p) / missed)
        return np.log(np.maximum(ratio, np.finfo(float).tiny))

    return bound


def mu_bound(p: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """The bound of mu that holds for Gaussian mechanisms."""
    return -ndtri(p) - ndtri(missed)


def mean_bound(x: np.ndarray, y: np.ndarray, alpha: float) -> float:
    """The bound of mu by the means of a statistic of runs (n,) on both data sets, which may have equal keys.

    It fails with probability `alpha`, but for what the central limit theorem neglects at n runs.
    """
    x, y = x.astype(float), y.astype(float)
    variance = (np.var(x) + np.var(y)) / 2
    if not variance > 0:
        return 0.0
    moved = y - x
    d = abs(moved.mean()) / math.sqrt(variance)
    square = ((x - x.mean()) ** 2 + (y - y.mean()) ** 2) / (2 * variance)  # its mean is 1
    influence = moved / math.sqrt(variance) * np.sign(moved.mean()) - d / 2 * square
    lower = d + ndtri(alpha) * influence.std() / math.sqrt(len(x))
    return math.sqrt(math.log1p(max(lower, 0.0) ** 2))


class Scheduled(NamedTuple):
    """What is tested of a schedule that spends a pure epsilon, and of releases that are Gaussian given it."""

    flow: Flow
    chance: Event  # of the log ratio of control flow
    kind: bytes  # the control flow given which releases are looked at
    centre: Event  # of their discriminant

    @classmethod
    def choose(cls, flow: Flow, x: np.ndarray, y: np.ndarray, alpha: float) -> Scheduled | None:
        """The event, and the kind of control flow, that show most of views (n, d) which `flow` was not fitted to."""
        _, chance = choose(epsilon_bound(0.0), flow.chances(x), flow.chances(y), alpha)
        found = []
        for kind, (_, fisher, _) in flow.seen.items():
            one, two = (given[~np.isnan(given)] for given in (flow.given(x, kind), flow.given(y, kind)))
            if fisher and len(one) and len(two):
                centre = middle(one, two)
                found.append((show(mu_bound, one, two, centre, alpha), cls(flow, chance, kind, centre)))
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def shown(self, x: list[np.ndarray], y: list[np.ndarray], alpha: float) -> tuple[float, float]:
        """Lower bounds of the pure epsilon of control flow, and of mu given it, from what `columns` are of all runs."""
        pure = show(epsilon_bound(0.0), x[0], y[0], self.chance, alpha)
        one, two = (given[~np.isnan(given)] for given in (x[1], y[1]))
        return pure, show(mu_bound, one, two, self.centre, alpha) if len(one) and len(two) else 0.0

    def columns(self, rows: np.ndarray) -> list[np.ndarray]:
        """The log ratio of the control flow of views (n, d), and the discriminant of those of the kind."""
        return [self.flow.chances(rows), self.flow.given(rows, self.kind)]


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
    """The event that shows the largest mu of two Gaussians of equal variance: more than half-way between."""
    return Event(1, float(np.median(np.concatenate([x, y]))))


def show(bound: Bound, x: np.ndarray, y: np.ndarray, event: Event, alpha: float) -> float:
    """Computes the lower bound of an event, at least 0, on samples that had no part in choosing it; see `choose`."""
    p, missed = _rates(np.sort(event.sign * x), np.sort(event.sign * y), np.array(event.threshold), alpha)
    return max(float(bound(p, missed)), 0.0)


def _rates(x: np.ndarray, y: np.ndarray, threshold: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Computes Clopper-Pearson upper bounds of p = P(x > threshold) and 1 - q = P(y <= threshold); both are sorted."""
    happened = len(x) - np.searchsorted(x, threshold, side="right")
    missed = np.searchsorted(y, threshold, side="right")

    def upper(count: np.ndarray, n: int) -> np.ndarray:
        return np.where(count < n, betaincinv(count + 1, np.maximum(n - count, 1), 1 - alpha), 1.0)

    return upper(happened, len(x)), upper(missed, len(y))
