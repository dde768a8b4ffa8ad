"""Predicts regret after T rounds from curves that end earlier, with an interval.

Letters: T0 is the last simulated round, D what regret grew by from T0/2 to T0, and D' from T0/4 to T0/2. If regret per
round falls as a power of time, then every doubling of time multiplies this growth by the same factor 2^a, so that
a = log2(D / D'), and from T0 to T regret grows by D ((T/T0)^a - 1) / (1 - 2^-a), or D log2(T/T0) if a = 0. At a = 1
nothing is learned, at a = 1/2 regret grows as sqrt T, at a = 0 as log T, and below that it stays bounded.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

CONFIDENCE = 0.95
SLOPES = (-3.0, 1.0)  # the least and the largest a
USUAL, TRUST = -0.4, 0.3  # the a of long tails, and the share of what was seen before T0 that is left of it after T0
TRIED = 8  # the largest T / T0 for which intervals were tried
LEAST = 1e-9  # regret that is taken for positive
BELOW, ABOVE = 0.6, 0.3  # how far a may be below and above both what was seen and what is expected


class Forecast(NamedTuple):
    """Group regret after T rounds, of which `rounds` were simulated under `seeds` seeds.

    The interval from `low` to `high` is meant to contain, with probability 95 % or together with others, the mean over
    all worlds, rewards and noise that can be drawn. It has two parts. Seeds differ, and the logarithms of their regrets
    are taken for normal; if no seed lost anything, one more may lose as much as there is to lose. And
    a tail that was not simulated bends: after T0 its exponent a is expected to be `TRUST` a + (1 - `TRUST`) `USUAL`, up
    to `BELOW` and `ABOVE`. These numbers were chosen by looking at some hundred full runs; others were then predicted,
    see tests/planning/test_plan_intervals.py.
    """

    regret: float
    low: float
    high: float
    rounds: int
    seeds: int

    def tried(self, horizon: int) -> bool:
        """Whether enough of the horizon was simulated for intervals to have been tried."""
        return horizon <= TRIED * self.rounds


def forecast(
    rounds: Int[np.ndarray, " N"], regret: Float[np.ndarray, "S N"], horizon: int, most: float = math.inf, of: int = 1
) -> Forecast:
    """The regret that is to be expected after T = `horizon` rounds.

    Args:
        rounds: recorded rounds 1, 2, ..., of which the last is T0 <= T.
        regret: cumulative regret of every seed at these rounds, S >= 2.
        horizon: T.
        most: what regret cannot exceed.
        of: how many intervals are meant to hold at once, by the union bound.
    """
    end, now = int(rounds[-1]), regret[:, -1]
    half, quarter = (np.array([np.interp(end / part, [0, *rounds], [0, *one]) for one in regret]) for part in (2, 4))
    recent, earlier = now - half, half - quarter
    slope = SLOPES[1]  # if nothing was lost earlier, nothing is known of how losses fall
    if earlier.mean() > 0:
        slope = math.log2(max(recent.mean(), LEAST * earlier.mean()) / earlier.mean())
    slope = float(np.clip(slope, *SLOPES))
    likely = USUAL + TRUST * (slope - USUAL)
    # as long as losses do not fall, they may end at once
    lowest = SLOPES[0] if slope > 0 else min(slope, likely) - BELOW
    tails = lowest, likely, max(slope, likely) + ABOVE
    least, middle, largest = (now + recent * doublings(horizon / end, float(np.clip(a, *SLOPES))) for a in tails)
    low, high = least.mean() / _spread(least, of), largest.mean() * _spread(largest, of)
    if now.max() <= 0:  # what was never seen in n runs has, in 95 of 100 cases, at most this chance
        high = most * (1 - ((1 - CONFIDENCE) / of) ** (1 / len(now)))
    regret, low, high = (min(float(x), most) for x in (middle.mean(), low, high))
    return Forecast(regret, low, high, end, len(now))


def doublings(ratio: float, slope: float) -> float:
    """The growth from T0 to T = `ratio` T0 in units of that from T0/2 to T0.

    >>> doublings(4.0, 0.0), doublings(4.0, 1.0), doublings(1.0, 0.3)
    (2.0, 6.0, 0.0)
    """
    if abs(slope) < 1e-6:
        return math.log2(ratio)
    return (ratio**slope - 1) / (1 - 2**-slope)


def _spread(regrets: np.ndarray, of: int) -> float:
    logs, n = np.log(np.maximum(regrets, LEAST)), len(regrets)
    return math.exp(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * of), n - 1) * logs.std(ddof=1) / math.sqrt(n))
