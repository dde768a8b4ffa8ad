"""Laws of integer noise, known by their cumulants: exact tails, probabilities, and epsilon of a shift (NumPy, float64).

For integer noise X with K(s) = ln E e^(s X), and any lambda > 0 with finite K,

    P(X >= k) = (1 / 2 pi) int_(-pi)^(pi) e^(K(s) - k s) / (1 - e^(-s)) dt,   s = lambda + i t.

P(X = k) is the same without the denominator. Let m be half the root of K'(s) = k, and v = K''(2 m). Take lambda = m +
sqrt(m^2 + 1/v), near the saddle point of the integrand. Then nothing cancels. All of the integral but e^(-30) is within
a few 1 / sqrt(v). Because of the pole at 0, the midpoint rule of step h has an error of at most e^(-2 pi lambda / h).
This is e^(-31) for h = 0.2 / sqrt(v), since lambda >= 1 / sqrt(v).

*Skellam.* The difference of two Poisson variables of one rate has K = variance (cosh s - 1) = 2 variance sinh^2(s/2).

*Discrete Laplace.* The sum of n variables with P(x) proportional to b^|x|, b = e^(-1/scale), has K = -n ln(1 -
(sinh(s/2) / sinh(1 / 2 scale))^2). Nothing cancels in it for a large scale. For a small n the integrand falls too
slowly. But then the law is a finite mixture. Let alpha = (1 - b) / (1 - b e^s), the moment generating function of a
geometric variable, and y = 1 / alpha. Then

    e^K = alpha^n [(1 - (1 - b) y) / (1 + b - y)]^n,   1 / (1 - e^(-s)) = (1 - (1 - b) y) / ((1 - b) (1 - y)),

both with positive coefficients in y. P(X = k) and P(X >= k) for k >= 0 come from the partial fractions in alpha^1 ...
alpha^n.

*Discrete Gaussian.* Let P(x) be proportional to e^(-x^2 / 2 sigma^2). Let theta = sum_m e^(-2 pi^2 sigma^2 m^2). By
Poisson summation e^K is the sum over integers m of e^(sigma^2 (s - 2 pi i m)^2 / 2) / theta. The rest of the integrand
has period 2 pi i. So the term m = 0 is integrated over the whole line. There is no sum over m.

*Epsilon.* All three laws have a log-concave pmf p. Hence the privacy loss L(x) = ln p(x) / p(x + shift) is monotone. So
the largest shift is the worst. It has delta(epsilon) = max_x P(X >= x) - e^epsilon P(X >= x + shift). So the
smallest epsilon at delta is

    max_x e(x),   e(x) = ln (P(X >= x) - delta) / P(X >= x + shift),   if that is positive.

e(x + 1) >= e(x) as long as L(x) <= e(x). So bisection finds the maximum.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log1p, logsumexp
from typing_extensions import override

from fedbandit_jax.core import validate

_STEP = 0.2  # h, the step of the inversion integral, in units of 1 / sqrt(K'')
_FEW = 64  # sums of at most this many discrete Laplace variables are treated as mixtures


class LatticeLaw(abc.ABC):
    """A symmetric law of an integer X, with probabilities that are right to about ten digits, however small."""

    variance: float
    _reach = 4.2  # the integrand is below e^-30 of its peak where 2 sin(t / 2) exceeds 2 reach / sqrt(K'')

    @abc.abstractmethod
    def cumulant(self, s: Any) -> Any:
        """Returns K(s) = ln E e^(s X), for real or complex s of any shape at which it is finite."""

    @abc.abstractmethod
    def _saddle(self, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns lambda >= 0 with K'(lambda) = k >= 0, and K''(lambda), both of the shape of k."""

    def _half_range(self, std: np.ndarray) -> np.ndarray:
        return 2 * np.arcsin(np.minimum(self._reach / std, 1))

    def tail(self, x: ArrayLike) -> np.ndarray:
        """Returns P(X > x) for real x in [0, 1e12], in the shape of x."""
        return np.exp(self._log_tail(np.floor(x) + 1))

    def log_pmf(self, x: ArrayLike) -> np.ndarray:
        """Returns ln P(X = x) for integers x, in the shape of x."""
        return self._log_inverse(np.abs(np.asarray(x, float)), tail=False)

    def _log_tail(self, k: ArrayLike) -> np.ndarray:
        """Returns ln P(X >= k) for integers k >= 1, in the shape of k."""
        return self._log_inverse(np.asarray(k, float), tail=True)

    def _log_inverse(self, k: np.ndarray, *, tail: bool) -> np.ndarray:
        saddle, curvature = self._saddle(k)
        if tail:
            saddle = saddle / 2 + np.sqrt(saddle**2 / 4 + 1 / curvature)
        std = np.sqrt(curvature)
        half_range = self._half_range(std)
        n_steps = max(32, math.ceil(np.max(half_range * std, initial=0) / _STEP))
        t = half_range[..., None] * ((np.arange(n_steps) + 0.5) / n_steps)
        s = saddle[..., None] + 1j * t
        peak = self.cumulant(saddle + 0j).real
        integrand = np.exp(self.cumulant(s) - peak[..., None] - 1j * k[..., None] * t)
        if tail:
            integrand /= -np.expm1(-s)
        return np.log(integrand.real.mean(-1) * half_range / np.pi) + peak - k * saddle


@dataclass(frozen=True)
class Skellam(LatticeLaw):
    """Law of the difference of two independent Poisson variables with the same rate.

    Args:
        variance: twice the rate, in [1e-100, 1e16].

    Example:
        >>> float(Skellam(1e12).tail(2e6).round(5))  # a Gaussian has 0.02275
        0.02275
    """

    variance: float

    def __post_init__(self):
        validate.within("variance", self.variance, 1e-100, 1e16)

    @override
    def cumulant(self, s: Any) -> Any:
        return 2 * self.variance * np.sinh(s / 2) ** 2

    def _saddle(self, k):
        return np.arcsinh(k / self.variance), np.hypot(self.variance, k)


@dataclass(frozen=True)
class DiscreteLaplace(LatticeLaw):
    """Law of the sum of n independent variables, each with P(x) proportional to exp(-|x| / scale).

    Args:
        scale: in [0.01, 1e9].
        n: number of variables, at most 2^31.

    Example:
        >>> DiscreteLaplace(10.0).tail([0, 20, 20.9]).round(6).tolist()  # e^(-k / scale) / (1 + e^(-1 / scale)), k > x
        [0.475021, 0.064287, 0.064287]
    """

    scale: float
    n: int = 1
    _reach = 7.2

    def __post_init__(self):
        validate.within("scale", self.scale, 1e-2, 1e9)
        validate.count("n", self.n, 2**31)

    @property
    @override
    def variance(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.n / (2 * math.sinh(0.5 / self.scale) ** 2)

    @override
    def log_pmf(self, x: ArrayLike) -> np.ndarray:
        if self.n > _FEW:
            return super().log_pmf(x)
        return self._log_mixture(self._weights, np.abs(np.asarray(x, float)))

    def _log_tail(self, k):
        if self.n > _FEW:
            return super()._log_tail(k)
        b, series = math.exp(-1 / self.scale), self._weights[::-1]
        weights = (series + b * (np.cumsum(series) - series)) / -math.expm1(-1 / self.scale)
        return self._log_mixture(weights[::-1], np.asarray(k, float))

    @override
    def cumulant(self, s: Any) -> Any:
        return -self.n * log1p(-((np.sinh(s / 2) / math.sinh(0.5 / self.scale)) ** 2))

    def _saddle(self, k):
        u = 1 / self.scale
        slope = k * math.sinh(u)
        rise = 2 * k * math.sinh(u / 2) ** 2 + slope * (slope / (self.n + np.hypot(self.n, slope)))
        saddle = np.log1p(rise / (self.n + k))
        gap = 2 * np.sinh((u + saddle) / 2) * np.sinh((u - saddle) / 2)
        return saddle, self.n * (np.cosh(saddle) / gap + (np.sinh(saddle) / gap) ** 2)

    @cached_property
    def _weights(self) -> np.ndarray:
        """Coefficients (n,) of alpha^1 ... alpha^n in e^K."""
        b = math.exp(-1 / self.scale)
        base = (1 + b) ** -np.arange(1.0, self.n + 1) * np.where(np.arange(self.n), b * b, 1)
        return reduce(lambda series, _: np.convolve(series, base)[: self.n], range(self.n), np.ones(1))[::-1]

    def _log_mixture(self, weights: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Returns ln sum_j weights_j P(Y_j = k), for sums Y_j of j = 1 ... n geometric variables."""
        j = np.arange(self.n)
        log_binomial = np.cumsum(np.log1p(k[..., None] / np.maximum(j, 1)) * (j > 0), -1)  # C(k + j, j)
        log_q = math.log(-math.expm1(-1 / self.scale))
        with np.errstate(divide="ignore"):
            return np.asarray(logsumexp(np.log(weights) + log_binomial + (j + 1) * log_q, axis=-1)) - k / self.scale


@dataclass(frozen=True)
class DiscreteGaussian(LatticeLaw):
    """The law on the integers with P(x) proportional to exp(-x^2 / (2 sigma^2)).

    Args:
        sigma: the parameter, about the standard deviation, in [1/2, 1e8].

    Example:
        >>> DiscreteGaussian(0.5).variance, DiscreteGaussian(3.0).variance  # sigma^2, or less  # doctest: +ELLIPSIS
        (0.2150..., 9.0)
    """

    sigma: float

    def __post_init__(self):
        validate.within("sigma", self.sigma, 0.5, 1e8)

    @property
    def variance(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """sigma^2 less terms of order e^(-2 pi^2 sigma^2)."""
        m, images = self._images
        return self.sigma**2 * (1 - float((2 * math.pi * self.sigma * m) ** 2 @ images) / self._theta)

    @override
    def log_pmf(self, x: ArrayLike) -> np.ndarray:
        normaliser = math.log(math.sqrt(2 * math.pi) * self.sigma * self._theta)
        return -((np.asarray(x, float) / self.sigma) ** 2) / 2 - normaliser

    @property
    def _images(self) -> tuple[np.ndarray, np.ndarray]:
        m = np.arange(-4, 5)
        return m, np.exp(-2 * (math.pi * self.sigma * m) ** 2)

    @property
    def _theta(self) -> float:
        return float(self._images[1].sum())

    @override
    def cumulant(self, s: Any) -> Any:
        return (self.sigma * s) ** 2 / 2 - math.log(self._theta)

    def _saddle(self, k):
        return k / self.sigma**2, np.full_like(k, self.sigma**2)

    def _half_range(self, std):
        return 2 * self._reach / std


def shift_epsilon(law: LatticeLaw, shift: int, delta: float) -> float:
    """Computes epsilon at `delta`, rounded up, of an integer plus noise. One user moves it by at most `shift`.

    Args:
        law: the law of the noise.
        shift: the largest move by one user, an integer in [1, 1e12].
        delta: in (0, 1).

    Example:
        >>> round(shift_epsilon(Skellam(1e8), 10_000, 1e-5), 3)  # a Gaussian has 4.377
        4.377
    """
    shift = validate.count("shift", shift, 1e12)
    delta = validate.probability("delta", delta)

    def epsilon(x: int) -> float:
        if x > 0:
            log_mass = float(law._log_tail(x))
            excess = math.log(delta) - log_mass
            log_left = log_mass + math.log(-math.expm1(excess)) if excess < 0 else -math.inf
        else:
            left = 1 - delta - float(law.tail(-x))
            log_left = math.log(left) if left > 0 else -math.inf
        return log_left - float(law._log_tail(x + shift))

    def past(x: int) -> bool:
        """Returns whether e(x + 1) < e(x): L(x) > e(x), or by e(x + 1) itself if both tails are nearly one atom."""
        here = epsilon(x)
        gap = float(law.log_pmf(x) - law.log_pmf(x + shift)) - here
        return gap > 0 if abs(gap) > 1e-9 else epsilon(x + 1) < here

    low = high = -((shift - 1) // 2)  # the smallest x with a positive loss
    step = 1
    while not past(high):
        low, high, step = high + 1, high + step, 2 * step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if past(middle) else (middle + 1, high)
    return max(epsilon(high), 0.0) * (1 + 1e-9) + 1e-12
