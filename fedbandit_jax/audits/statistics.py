"""Statistics that distinguish two samples of views.

| name | sees |
|---|---|
| linear | a difference of means: Fisher's discriminant, the best statistic of Gaussian noise |
| atoms | numbers, or differences of two numbers, that repeat exactly: noise omitted, shared, or drawn on a grid |
| low bits | remainders v 2^j mod 1 that repeat exactly: digits of the data below the noise's last digit |
| control flow | the likelihood of integers, such as release times, and of all other numbers given them |
| upper, lower edge | numbers beyond the range under the data (or its neighbour): noise with bounded support |

A `Panel` is fitted to runs that test nothing. Views are rows (n, d) of float32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit_jax.audits.likelihood import Flow, discriminant

NAMES = "linear", "atoms", "low bits", "upper edge", "lower edge", "control flow"
_BLOCK = 4096  # rows in float64 at a time
_ROWS, _COLUMNS, _CELLS = 2000, 128, 64  # most rows and numbers searched for atoms, and most atoms
_REPEATS = 4  # least occurrences of an atom
_WIDTH = 1e-5  # half the width of an atom, in standard deviations
_GRIDS = (6, 11, 16)  # tested low bits, of the 24 of the largest number


class Atoms(NamedTuple):
    """Places of numbers, or of differences of two, that repeat more often in one sample than in the other.

    An atom is left[i] v - right[i] v within `width` of `place`. Its `weight` is the log ratio of its frequencies.
    """

    left: np.ndarray  # (A,) int
    right: np.ndarray  # (A,) int, -1 for none
    place: np.ndarray  # (A,)
    width: np.ndarray  # (A,)
    weight: np.ndarray  # (A,)

    @classmethod
    def none(cls) -> Atoms:
        """Returns no atoms."""
        return cls(*np.zeros((2, 0), int), *np.zeros((3, 0)))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Sums the weights of the atoms of each view, (n,)."""
        total = np.zeros(len(rows))
        for left, right, place, width, weight in zip(*self):
            value = rows[:, left] - (rows[:, right] if right >= 0 else 0)
            total += weight * (np.abs(value - place) <= width)
        return total


def atoms(x: np.ndarray, y: np.ndarray) -> Atoms:
    """Finds the most distinctive atoms of two samples, among numbers and random differences of numbers."""
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
    repeats[1:] &= ~repeats[:-1]  # starts of repetitions
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
    """Remainders v 2^j mod 1 of some numbers v of a view, and their atoms.

    Noise with fewer bits than its sum, such as noise cast to float16, leaves the last bits visible.
    """

    column: np.ndarray  # (C,) int
    power: np.ndarray  # (C,) j
    atoms: Atoms

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray) -> LowBits:
        """Finds the most distinctive low bits of two samples."""
        x, y = x[:_ROWS], y[:_ROWS]
        largest = np.maximum(np.abs(x).max(0), np.abs(y).max(0))
        column = np.flatnonzero((x != x[0]).any(0) & (y != y[0]).any(0) & (largest > 0))[: _COLUMNS // len(_GRIDS)]
        last = 24 - np.ceil(np.log2(largest[column].astype(float)))  # j of the last bit of the largest
        empty = cls(np.repeat(column, len(_GRIDS)), np.subtract.outer(last, _GRIDS).reshape(-1), Atoms.none())
        return empty._replace(atoms=atoms(empty.remainders(x), empty.remainders(y)))

    def remainders(self, rows: np.ndarray) -> np.ndarray:
        """Returns v 2^j mod 1 of the columns of views (n, d), (n, C)."""
        scaled = rows[:, self.column].astype(float) * 2.0**self.power
        return (scaled - np.floor(scaled)).astype(np.float32)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Sums the weights of the atoms of the remainders, (n,)."""
        return self.atoms(self.remainders(rows))


class Panel:
    """All statistics of `NAMES`, fitted to two samples of views, of the data and its neighbour.

    Columns `flow` (d,) bool of the views are control flow; by default none.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, flow: np.ndarray | None = None):
        self.fisher, self.atoms, self.low_bits = discriminant(x, y), atoms(x, y), LowBits.fit(x, y)
        self.flow = Flow(x, y, np.zeros(x.shape[1], bool) if flow is None else flow)
        self.scale = np.maximum(np.concatenate([x, y]).std(0, dtype=float), np.finfo(np.float32).tiny)
        self.signs = np.where(y.mean(0, dtype=float) >= x.mean(0, dtype=float), 1.0, -1.0)
        self.edges = (self.signs * x).max(0), (-self.signs * y).max(0)

    def __call__(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Returns a statistic of views (n, d) by name, in float32, where equal views stay equal."""
        if name == "linear":  # cheaper alone
            return self.fisher(rows).astype(np.float32)
        return self.all(rows)[name]

    def all(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns all statistics of views (n, d) by name."""
        columns = np.concatenate([self._columns(block) for block in np.array_split(rows, len(rows) // _BLOCK + 1)])
        return dict(zip(NAMES, columns.T))

    def _columns(self, rows: np.ndarray) -> np.ndarray:
        edges = (((s * rows - edge) / self.scale).max(1) for s, edge in zip((self.signs, -self.signs), self.edges))
        parts = self.fisher(rows), self.atoms(rows), self.low_bits(rows), *edges, self.flow(rows)
        return np.stack(parts, 1).astype(np.float32)
