"""Privacy of integer noise on a sum that one user shifts by D: curves of Renyi divergence, and pure DP.

P is the law of the noise. Q is the law of the noise shifted by D = `shift`, one user's move of the sum. Here alpha > 1
is the order of a Renyi divergence.

*Discrete Laplace* of scale s has probabilities proportional to e^(-|x| / s). With h = D / s, b = 1 / s and u = alpha -
1, the geometric series in the divergence add up to

    E_Q (P / Q)^alpha = A e^(u h) + (1 - A) e^(-(u + 1) h),   A / (1 - A) = sinh((u + 1) b) / sinh(u b).

If h is tiny, the two terms cancel. The divergence is then nearly that of randomised response with epsilon = h, which is
never less.

Modulo m, the probability of y in 0..m-1 is proportional to cosh(b (m / 2 - y)). Its logarithm is steepest next to 0 and
falls towards m / 2 in steps that shrink. So the largest ratio of probabilities under a shift of k <= m / 2 is cosh(b m
/ 2) / cosh(b (m / 2 - k)).

*Skellam* of variance v has, for integer alpha >= 2, a divergence of at most (Agarwal, Kairouz & Liu 2021, Theorem 3.5)

    alpha D^2 / 2v + min{((2 alpha - 1) D^2 + 6 D) / 4v^2, 3 D / 2v}.

Theorem 2 of Chowdhury & Zhou (2023) has D = g and v = g^2 / epsilon^2. Here g = s epsilon sqrt(n) for their scale s and
n users. Then 3 D / 2v is 3 epsilon / (2 s sqrt(n)). Appendix D prints it as 3 epsilon^2 / (2 s sqrt(n)), and the
theorem as 3 epsilon^2 / 2s.

*Discrete Gaussian* noise of n users sums to nearly discrete Gaussian noise (Chowdhury & Zhou 2023, Lemma 4). See also
Kairouz, Liu & Steinke 2021, Proposition 13.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import expit

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.accounting.conversions import Curve
from fedbandit_jax.privacy.accounting.nearly_gaussian import discrete_gaussian_xi
from fedbandit_jax.privacy.accounting.visits import PureDP

_SCALES = (1e-6, 1e12)  # range of scales of discrete Laplace noise
_VARIANCES = (1e-9, 1e30)  # range of variances of Skellam noise


def discrete_laplace_rdp(shift: int, scale: float) -> Curve:
    """Returns the Renyi curve of discrete Laplace noise, rounded up; it tends to shift / scale for large orders.

    Example:
        >>> curve = discrete_laplace_rdp(5, scale=10.0)
        >>> round(curve(2.0), 4), round(curve(1e20), 4)
        (0.2015, 0.5)
    """
    b = 1 / _scale(scale)
    h = _shift(shift) * b
    if h < 1e-7:
        return PureDP(h).rdp

    def curve(alpha: float) -> float:
        u = alpha - 1
        lost = float(expit(-b)) * math.expm1(-2 * u * b) / math.expm1(-(2 * u + 1) * b)  # 1 - A
        return h * (1 + 3e-15) + math.log1p(lost * math.expm1(-(2 * u + 1) * h)) / u

    return curve


def wrapped_discrete_laplace_epsilon(shift: int, scale: float, modulus: int) -> float:
    """Computes epsilon of pure DP of discrete Laplace noise modulo m, for a move of the sum by exactly `shift`.

    This is the largest log ratio of probabilities, and at most shift / scale. It is largest for a shift of m // 2. That
    shift covers moves *up to* any g > m / 2.

    Example:
        >>> [round(wrapped_discrete_laplace_epsilon(5, 10.0, modulus=m), 4) for m in (16, 2**61)]
        [0.2464, 0.5]
    """
    _shift(shift)
    b, m = 1 / _scale(scale), validate.count("modulus", modulus, 2.0**64)
    k = min(shift % m, -shift % m)
    if k * b > 1:
        return k * b - (math.log1p(math.exp(-(m - 2 * k) * b)) - math.log1p(math.exp(-m * b)))
    fall = math.expm1(-k * b) * math.expm1(-(m - k) * b) / (1 + math.exp(-m * b))  # = 1 - 1 / ratio
    return min(-math.log1p(-fall), k * b)


def skellam_rdp(shift: int, variance: float) -> Curve:
    """Returns an upper bound of the Renyi curve of Skellam noise, for every alpha > 1.

    For the divergence D_alpha, (alpha - 1) D_alpha is convex and 0 at alpha = 1. Between integers it lies below its
    chord.

    Example:
        >>> curve = skellam_rdp(10, variance=1e4)
        >>> round(curve(2.0), 7), round(curve(2.5), 7)
        (0.0100009, 0.0133346)
    """
    d, v = _shift(shift), validate.within("variance", validate.positive("variance", variance), *_VARIANCES)

    def lemma(alpha: int) -> float:
        return alpha * d**2 / (2 * v) + min(((2 * alpha - 1) * d**2 + 6 * d) / (4 * v**2), 3 * d / (2 * v))

    def curve(alpha: float) -> float:
        low = math.floor(alpha)
        part = alpha - low
        left = (1 - part) * (low - 1) * lemma(low)
        return (left + part * low * lemma(low + 1)) / (alpha - 1)

    return curve


class SumPrivacy(NamedTuple):
    """Level of zCDP of a sum with a sum of discrete Gaussian variables as noise."""

    rho: float  # of rho-zCDP
    xi: float  # how far the noise is from one discrete Gaussian, in log probability; included in rho


def discrete_gaussian_sum_zcdp(shift: int, sigma: float, n: int) -> SumPrivacy:
    """Computes the zCDP of a sum with discrete Gaussian noise of parameter sigma by each of n users.

        rho = min{D^2 / (n sigma^2) + xi / 2, (D / (sqrt(n) sigma) + xi)^2} / 2

    Example:
        >>> round(discrete_gaussian_sum_zcdp(10, sigma=1.0, n=400).rho, 5)
        0.12514
    """
    d, sigma = _shift(shift), validate.within("sigma", validate.positive("sigma", sigma), 0.5, 1e100)
    n = validate.count("n", n, 1e15)
    xi = discrete_gaussian_xi(sigma, n)
    mu = d / (math.sqrt(n) * sigma)
    return SumPrivacy(min(mu**2 + xi / 2, (mu + xi) ** 2) / 2, xi)


def _shift(value: int) -> float:
    return float(validate.count("shift", value, 2.0**61))


def _scale(value: float) -> float:
    return validate.within("scale", validate.positive("scale", value), *_SCALES)
