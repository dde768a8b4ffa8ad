"""Privacy loss distributions: tight composition of mechanisms of different kinds (NumPy, float64).

A pair of laws (P, Q) dominates a mechanism if its output tells neighbours apart at most as well as a draw tells P from
Q. The privacy loss is L = ln P(x) / Q(x) for x ~ P, infinite where Q(x) = 0, and delta(epsilon) = E (1 - e^(epsilon -
L))_+. The losses of independent mechanisms add up, also if each is chosen by what earlier ones released (Zhu, Dong &
Wang 2022). Gaussian mechanisms with mu = sensitivity / noise std have L ~ N(mu^2 / 2, mu^2), and together they are one,
with the root of the sum of mu^2. Any (epsilon, delta)-DP mechanism is dominated by a loss that is infinite with
probability delta and otherwise that of randomised response, +-epsilon with odds e^epsilon : 1 (Kairouz, Oh & Viswanath
2015).

The law of the sum of all losses is computed on a grid of step h, and never to the benefit of the claim:

*Rounding.* An atom at l between neighbours a < b of the grid is split between them, with the share (1 - e^(a - l)) /
(1 - e^(a - b)) at b. Its masses under P and under Q stay as they are, so that whoever merges the two parts has the atom
back: by post-processing, the new pair dominates (Doroshenko et al. 2022). For Gaussian losses between a and b that
share is an average over their density, which is log-concave, and so at most the average over the exponential density
with its slope at a. What lies above the highest point becomes infinite, what lies below the lowest one moves up to it.

*Tilting.* All masses are multiplied by e^(lambda l) and normalised, with lambda as in the Chernoff bound of delta. That
centres the sum where delta(epsilon) is decided, and gives float64 its relative precision there, however small delta is.

*Folding.* The tilted laws are convolved by a fast Fourier transform on a circle of N points, where mass outside of the
window is added to that inside, which it only makes larger; what should be above the window is bounded by Chernoff and
counted as infinite. The rounding error of the transform, at most about log2 N units in the last place for every
mechanism, is added to every mass.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import exprel, log_expit, log_ndtr

from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon, log_delta

_POINTS = 2**16  # N, points of the grid
_TAIL = 30.0  # -ln of the part of delta, and of the tilted mass, that may be outside of the window
_LEFT = 9.0  # standard deviations below the mean at which Gaussian losses are cut: the rest has probability 1e-19


class _Atoms(NamedTuple):
    """A discrete law of losses, of n independent mechanisms."""

    losses: np.ndarray  # (A,) finite
    logs: np.ndarray  # (A,) ln of their probabilities, which sum to 1
    n: int


# a tilted law on a grid: the largest loss, indices (steps from there down), ln of the masses, which sum to 1, and ln of
# what they summed to before, if the tilt is 1 at the largest loss
_Grid = tuple[float, np.ndarray, np.ndarray, float]


def _log_sum(logs: np.ndarray) -> float:
    """ln sum e^logs; scipy's is ten times slower on two numbers."""
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).sum())) if largest > -math.inf else largest


class _Sum(NamedTuple):
    """The law of the sum of all losses in a window, from the largest loss to the smallest."""

    top: float  # the largest loss
    step: float  # h
    logs: np.ndarray  # (N,) bounds of ln of the probabilities of top, top - h, ...
    above: float  # ln of a bound of the probability of larger losses

    def log_delta(self, epsilon: float) -> float:
        """Bound on ln delta(epsilon)."""
        inside = max(0, min(len(self.logs), math.ceil((self.top - epsilon) / self.step)))
        gaps = self.top - epsilon - self.step * np.arange(inside)
        gains = self.logs[:inside] + np.log(-np.expm1(-np.maximum(gaps, 1e-300)))
        return _log_sum(np.append(gains, self.above)) + 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class PLD:
    """The privacy loss distribution of independent mechanisms that the same user is in.

    `epsilon` and `delta` choose the grid and round up; nothing is rounded for Gaussian mechanisms alone, nor for one
    discrete law alone.

    Args:
        mu: root of the sum of mu^2 over all Gaussian mechanisms.
        parts: discrete laws of finite losses, each with the number of mechanisms that have it.
        log_finite: ln of the probability that no loss is infinite.

    Example:
        >>> both = PLD.from_gaussian(0.5).compose(PLD.from_pure(0.3))
        >>> round(both.epsilon(1e-5), 3), round(both.delta(2.0) * 1e5, 3)
        (2.226, 5.692)
    """

    mu: float = 0.0
    parts: tuple[_Atoms, ...] = ()
    log_finite: float = 0.0

    @classmethod
    def from_gaussian(cls, mu: float) -> PLD:
        """That of a Gaussian mechanism whose noise has standard deviation sensitivity / mu."""
        return cls(mu=mu)

    @classmethod
    def from_pure(cls, epsilon: float) -> PLD:
        """That of the worst (epsilon, 0)-DP mechanism, randomised response."""
        losses = max(epsilon, 1e-12) * np.array([1.0, -1.0])
        return cls(parts=(_Atoms(losses, log_expit(losses), 1),)) if epsilon > 0 else cls()

    @classmethod
    def from_approximate(cls, epsilon: float, delta: float) -> PLD:
        """That of the worst (epsilon, delta)-DP mechanism."""
        return dataclasses.replace(cls.from_pure(epsilon), log_finite=math.log1p(-delta) if delta < 1 else -math.inf)

    def compose(self, other: PLD) -> PLD:
        """That of the mechanisms of both."""
        mu = math.hypot(self.mu, other.mu)
        return PLD(mu=mu, parts=self.parts + other.parts, log_finite=self.log_finite + other.log_finite)

    def times(self, n: int) -> PLD:
        """That of n copies."""
        parts = tuple(part._replace(n=n * part.n) for part in self.parts)
        return PLD(mu=math.sqrt(n) * self.mu, parts=parts, log_finite=n * self.log_finite)

    def delta(self, epsilon: float) -> float:
        """The least delta at `epsilon` >= 0, rounded up."""
        if not self.parts:
            log = log_delta(epsilon, self.mu) if self.mu > 0 else -math.inf
        else:
            tilt, log = self._least(lambda s: self._cumulant(s) - s * epsilon + _peak(s))
            if epsilon < self._largest:
                log = min(log, self._sum(tilt, log).log_delta(epsilon))
            elif self.mu == 0:
                log = -math.inf
        return min(1.0, -math.expm1(self.log_finite) + math.exp(self.log_finite + log))

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at `delta`, rounded up.

        It is infinite if delta is below the probability of an infinite loss.
        """
        room = delta + math.expm1(self.log_finite)  # for finite losses
        if room <= 0:
            return max(0.0, self._largest) if room > -1e-15 * delta else math.inf
        room = min(room * math.exp(-self.log_finite), 1 - 1e-16)
        if not self.parts:
            return gaussian_epsilon(self.mu, room)
        level = math.log(room)
        if self.mu == 0 and len(self.parts) == self.parts[0].n == 1:
            return max(0.0, min(_epsilon_of_one(self.parts[0], level), self._largest))
        tilt, chernoff = self._least(lambda s: (self._cumulant(s) - level + _peak(s)) / s)
        reach = 1
        while True:  # delta falls with epsilon
            found = self._sum(tilt, level, reach)
            low = max(found.top - found.step * len(found.logs), 0.0)
            if found.log_delta(low) > level:
                break
            if low == 0:
                return 0.0
            reach *= 4  # the laws are so coarse that the answer is below the window
        high = min(chernoff * (1 + 1e-10), self._largest, found.top)
        if found.log_delta(high) >= level:
            return high
        root = brentq(lambda epsilon: found.log_delta(epsilon) - level, low, high, xtol=1e-13)
        return float(root) * (1 + 1e-10) + 2e-13  # pyright: ignore[reportArgumentType]

    @property
    def _largest(self) -> float:
        return math.inf if self.mu > 0 else sum(part.n * float(part.losses.max()) for part in self.parts)

    @property
    def _scale(self) -> float:
        """Root mean square of all losses together, as if they had mean 0."""
        return max(math.sqrt(self.mu**2 + sum(n * float(np.exp(p) @ x**2) for x, p, n in self.parts)), 1e-12)

    def _cumulant(self, s: float) -> float:
        """ln E e^(s L) over finite losses."""
        return s * (s + 1) / 2 * self.mu**2 + sum(n * _log_sum(p + s * x) for x, p, n in self.parts)

    def _least(self, bound: Callable[[float], float]) -> tuple[float, float]:
        """The s > 0 at which a quasi-convex bound is least, and the bound."""
        scale = self._scale
        found = minimize_scalar(lambda u: bound(math.exp(u) / scale), bounds=(-14.0, 10.0), method="bounded")
        s = math.exp(float(found.x)) / scale  # pyright: ignore[reportAttributeAccessIssue]
        return s, bound(s)

    def _sum(self, tilt: float, level: float, reach: int = 1) -> _Sum:
        """The law of the sum, for probabilities of about e^level that are decided at this tilt.

        The window is `reach` times as long as the tilted law needs.
        """
        centre = self._cumulant(tilt)
        more, high = self._least(lambda s: (self._cumulant(s) - level + _TAIL) / s)
        low = -self._least(lambda s: (self._cumulant(tilt - s) - centre + _TAIL) / s)[1]
        high, low = min(high, self._largest), max(low, -self._largest)
        step = reach * (high - low) / (_POINTS - 2)
        widest = max(float(np.ptp(part.losses)) for part in self.parts)
        if widest > step:
            step = widest / math.floor(widest / step)  # the ends of the widest part are on the grid
        laws = [(*_round(part, step, tilt), part.n) for part in self.parts]
        lost = -math.inf
        if self.mu > 0:
            law, lost = _gaussian(self.mu, step, tilt, level)
            laws.append((*law, 1))
        top = sum(n * highest for highest, *_, n in laws)
        first = max(0, math.floor((top - high) / step))  # steps from the largest sum of all down to the window
        more = max(more - tilt, 0.0) * step
        spectrum, log_scale, log_above = np.ones(_POINTS // 2 + 1, complex), 0.0, more * first
        for _, index, logs, log_mass, n in laws:
            spectrum *= np.fft.rfft(np.bincount(index % _POINTS, np.exp(logs), _POINTS)) ** n
            log_scale += n * log_mass
            log_above += n * _log_sum(logs - more * index)
        folded = np.roll(np.fft.irfft(spectrum, _POINTS), -first % _POINTS)
        error = 4 * np.finfo(float).eps * math.log2(_POINTS) * (2 + sum(n for *_, n in laws))
        index = first + np.arange(_POINTS)
        logs = np.log(np.maximum(folded, 0) + error) + log_scale + tilt * step * index
        above = log_above + log_scale + tilt * step * first if first else -math.inf
        return _Sum(top - step * first, step, logs, float(np.logaddexp(above, lost)))


def _epsilon_of_one(part: _Atoms, level: float) -> float:
    """The least epsilon at delta = e^level of one law, the largest ln (P_i - delta) / Q_i of i worst losses."""
    order = np.argsort(-part.losses)
    p = np.logaddexp.accumulate(part.logs[order])
    q = np.logaddexp.accumulate((part.logs - part.losses)[order])
    worse = p > level
    return float(np.max(p[worse] + np.log(-np.expm1(level - p[worse])) - q[worse], initial=0.0)) * (1 + 1e-10)


def _peak(s: float) -> float:
    """ln max_x e^(-s x) (1 - e^(-x)), by which E e^(s L) bounds delta (Canonne, Kamath & Steinke 2020)."""
    return -s * math.log1p(1 / s) - math.log1p(s)


def _round(part: _Atoms, step: float, tilt: float) -> _Grid:
    highest = float(part.losses.max())
    upper = np.floor((highest - part.losses) / step)
    share = np.expm1(highest - (upper + 1) * step - part.losses) / math.expm1(-step)
    return highest, *_tilted(upper.astype(np.int64), part.logs, np.clip(share, 0, 1), step, tilt)


def _gaussian(mu: float, step: float, tilt: float, level: float) -> tuple[_Grid, float]:
    """Rounds and tilts the losses N(mu^2 / 2, mu^2), as `_round` does, and returns ln of the mass cut off above."""
    cut = math.sqrt(2 * (_TAIL - level))  # P(z > cut) <= e^(level - 30)
    n = math.ceil((cut + _LEFT) * mu / step)
    z = cut - np.arange(n + 1) * (step / mu)  # of the points, from the highest to the lowest
    right, left, outside = z[:-1], z[1:], log_ndtr(-np.abs(z))  # ln of the mass on the side of z that is far from 0
    near, far = np.where(left >= 0, [outside[1:], outside[:-1]], [outside[:-1], outside[1:]])
    between = (left < 0) & (right > 0)
    within = near + np.log(-np.expm1(np.minimum(far - near, -1e-300)))
    logs = np.where(between, np.log1p(-np.exp(near) - np.exp(far)), within)
    slope = -left * (step / mu)  # times step, of the log-density at the lower end
    ratio = exprel(np.minimum(slope, 30) - step) / exprel(np.minimum(slope, 30))
    share = np.where(slope < 30, (1 - ratio) / -math.expm1(-step) + 1e-15 / step, 1.0)
    logs, share = np.append(logs, log_ndtr(z[-1])), np.append(np.clip(share, 0, 1), 1.0)
    return (mu**2 / 2 + mu * cut, *_tilted(np.arange(n + 1), logs, share, step, tilt)), float(log_ndtr(-cut))


def _tilted(
    upper: np.ndarray, logs: np.ndarray, share: np.ndarray, step: float, tilt: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Puts a `share` of every mass at index `upper` and the rest one below; returns the last three of a `_Grid`."""
    index = np.concatenate([upper, upper + 1])
    with np.errstate(divide="ignore"):
        logs = np.concatenate([logs + np.log(share), logs + np.log1p(-share)])
    logs = logs - tilt * step * index
    log_mass = _log_sum(logs)
    return index, logs - log_mass, log_mass
