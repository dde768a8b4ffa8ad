"""Predicts regret after T rounds from curves that end earlier, with an interval.

Letters: T0 is the last simulated round, D the growth of regret from T0/2 to T0, and D' from T0/4 to T0/2. If regret per
round is a power of time, every doubling of time multiplies this growth by the same factor 2^a, with a = log2(D / D').
From T0 to T regret then grows by D ((T/T0)^a - 1) / (1 - 2^-a), or D log2(T/T0) for a = 0. At a = 1 nothing is learned,
at a = 1/2 regret grows as sqrt T, at a = 0 as log T, and below it stays bounded.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

CONFIDENCE = 0.95
SLOPES = (-3.0, 1.0)  # range of a
USUAL, TRUST = -0.4, 0.3  # usual a of long tails, and weight of the a seen before T0
TRIED = 8  # largest T / T0 with tested intervals
LEAST = 1e-9  # smallest positive regret
BELOW, ABOVE = 0.6, 0.3  # range of a below and above both the seen and the expected one


class Forecast(NamedTuple):
    """Group regret after T rounds, of which `rounds` were simulated with `seeds` seeds.

    The interval from `low` to `high` should contain the mean over all worlds, rewards and noise, with probability 95 %,
    alone or jointly with others. It has two parts. Seeds differ, with regrets assumed lognormal. If no seed has regret,
    one more may have the most possible. And the tail may bend: after T0 its exponent a is expected to be
    `TRUST` a + (1 - `TRUST`) `USUAL`, up to `BELOW` and `ABOVE`. These numbers were chosen by a hundred full runs, and
    tested on others, see tests/planning/test_recommend.py.
    """

    regret: float
    low: float
    high: float
    rounds: int
    seeds: int

    def tried(self, horizon: int) -> bool:
        """Returns whether enough of the horizon was simulated for tested intervals."""
        return horizon <= TRIED * self.rounds


def forecast(
    rounds: Int[np.ndarray, " N"], regret: Float[np.ndarray, "S N"], horizon: int, most: float = math.inf, of: int = 1
) -> Forecast:
    """Predicts the regret after T = `horizon` rounds.

    Args:
        rounds: recorded rounds 1, 2, ...; the last one is T0 <= T.
        regret: cumulative regret of every seed at these rounds, S >= 2.
        horizon: T.
        most: upper bound on regret.
        of: number of intervals that should hold jointly, by the union bound.
    """
    end, now = int(rounds[-1]), regret[:, -1]
    half, quarter = (np.array([np.interp(end / part, [0, *rounds], [0, *one]) for one in regret]) for part in (2, 4))
    recent, earlier = now - half, half - quarter
    slope = SLOPES[1]  # the worst case without earlier regret
    if earlier.mean() > 0:
        slope = math.log2(max(recent.mean(), LEAST * earlier.mean()) / earlier.mean())
    slope = float(np.clip(slope, *SLOPES))
    likely = USUAL + TRUST * (slope - USUAL)
    # while regret per round does not fall, it may end at once
    lowest = SLOPES[0] if slope > 0 else min(slope, likely) - BELOW
    tails = lowest, likely, max(slope, likely) + ABOVE
    least, middle, largest = (now + recent * doublings(horizon / end, float(np.clip(a, *SLOPES))) for a in tails)
    low, high = least.mean() / _spread(least, of), largest.mean() * _spread(largest, of)
    if now.max() <= 0:  # 95 % bound on the probability of an event unseen in n runs
        high = most * (1 - ((1 - CONFIDENCE) / of) ** (1 / len(now)))
    regret, low, high = (min(float(x), most) for x in (middle.mean(), low, high))
    return Forecast(regret, low, high, end, len(now))


def doublings(ratio: float, slope: float) -> float:
    """Returns the growth from T0 to T = `ratio` T0, in units of the growth from T0/2 to T0.

    >>> doublings(4.0, 0.0), doublings(4.0, 1.0), doublings(1.0, 0.3)
    (2.0, 6.0, 0.0)
    """
    if abs(slope) < 1e-6:
        return math.log2(ratio)
    return (ratio**slope - 1) / (1 - 2**-slope)


def _spread(regrets: np.ndarray, of: int) -> float:
    logs, n = np.log(np.maximum(regrets, LEAST)), len(regrets)
    return math.exp(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * of), n - 1) * logs.std(ddof=1) / math.sqrt(n))
