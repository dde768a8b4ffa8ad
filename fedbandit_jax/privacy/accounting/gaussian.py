"""Exact Gaussian-mechanism accounting on the host, in float64.

A Gaussian mechanism with sensitivity-to-noise ratio mu is (epsilon, delta)-DP exactly when delta >= delta(epsilon; mu)
(Balle & Wang 2018, Theorem 8). Adaptive composition adds the squares of mu (Dong, Roth & Su 2022, Corollary 3.3). If
earlier outputs decide each mu, a bound on the sum of squares is enough (Smith & Thakurta 2022). With the Mills ratio
R(x) = Phi(-x) / phi(x) of the standard normal distribution,

    delta(epsilon; mu) = phi(a) [R(a) - R(b)],   a = epsilon/mu - mu/2,   b = epsilon/mu + mu/2.

This keeps its precision for tiny delta, when Phi(-a) - e^epsilon Phi(-b) cancels or overflows.

An (epsilon_0, 0)-DP mechanism may see the same user (the argument `pure` = epsilon_0). At worst its privacy loss equals
the loss of randomised response, +-epsilon_0 with odds e^epsilon_0 : 1 (Kairouz, Oh & Viswanath 2015). This holds also
if the queries to the two interleave (Vadhan & Zhang 2023). With p = e^epsilon_0 / (1 + e^epsilon_0) the two together
give at most (exactly, for randomised response)

    delta(epsilon; mu, epsilon_0) = p delta(epsilon - epsilon_0; mu) + (1 - p) delta(epsilon + epsilon_0; mu).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_expit, log_ndtr

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

EPSILON_RANGE = (1e-9, 1e6)  # float64 gives at least nine digits in it
MOST_MU = 1e4  # the largest mu = sensitivity / noise that has a computed epsilon
_MU_RANGE = (1e-12, MOST_MU)


def _log_mills(x: float) -> float:
    if x > -5:
        return math.log(math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2))))
    return float(log_ndtr(-x)) + x * x / 2 + math.log(2 * math.pi) / 2


def log_delta(epsilon: float, mu: float, pure: float = 0.0) -> float:
    """Computes ln delta at `epsilon` of a Gaussian mechanism and, if `pure` > 0, a (`pure`, 0)-DP mechanism.

    Args:
        epsilon: any real number.
        mu: sensitivity / noise standard deviation, > 0.
        pure: epsilon_0 of a mechanism that sees the same user.
    """
    if pure > 0:
        terms = log_expit(pure) + log_delta(epsilon - pure, mu), log_expit(-pure) + log_delta(epsilon + pure, mu)
        return float(np.logaddexp(*terms))
    if epsilon < 0:  # delta(epsilon) = 1 - e^epsilon + e^epsilon delta(-epsilon), where the difference below cancels
        return float(np.logaddexp(math.log(-math.expm1(epsilon)), epsilon + log_delta(-epsilon, mu)))
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    log_ra, log_rb = _log_mills(a), _log_mills(b)
    gap = log_rb - log_ra
    if gap > -1e-5:  # R(a) and R(b) agree to 5 digits: R(a) - R(b) = (b - a) |R'|, R'(x) = x R(x) - 1
        mid = epsilon / mu
        slope = 1 / (1 + mid * mid) if mid > 1e4 else 1 - mid * math.exp(_log_mills(mid))
        log_difference = math.log(mu) + math.log(slope)
    else:
        log_difference = log_ra + math.log(-math.expm1(gap))
    return -a * a / 2 - math.log(2 * math.pi) / 2 + log_difference


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=1e-14 * min(1.0, high), rtol=1e-14))  # pyright: ignore[reportArgumentType]


def gaussian_mu(epsilon: float, delta: float, pure: float = 0.0) -> float:
    """Computes the largest mu of an (epsilon, delta)-DP Gaussian mechanism, rounded down by a part in 10^10.

    Args:
        epsilon: in [1e-9, 1e6].
        delta: in (0, 1).
        pure: epsilon_0 < epsilon of an (epsilon_0, 0)-DP mechanism that sees the same user. Both together are then
            (epsilon, delta)-DP.

    Returns:
        mu = sensitivity / noise standard deviation.

    Raises:
        ValueError, TypeError: if an argument is out of range or of a wrong type.

    Example:
        >>> round(gaussian_mu(1.0, 0.1), 5), round(gaussian_mu(1.0, 0.1, pure=0.1), 5)
        (0.92091, 0.91547)
    """
    epsilon = validate.within("epsilon", validate.positive("epsilon", epsilon), *EPSILON_RANGE)
    delta = validate.probability("delta", delta)
    if not validate.within("pure", pure, 0, EPSILON_RANGE[1]) < epsilon:
        raise BadValue("pure", f"must be in [0, epsilon = {epsilon:g})", pure)
    target = math.log(delta)

    def excess(log_mu: float) -> float:
        return log_delta(epsilon, math.exp(log_mu), pure) - target

    low, high = map(math.log, _MU_RANGE)
    if excess(low) >= 0:
        raise BadValue("pure", f"must leave more of epsilon = {epsilon:g} at delta = {delta:g} for noise", pure)
    return math.exp(_root(excess, low, high)) * (1 - 1e-10)


def gaussian_epsilon(mu: float, delta: float, pure: float = 0.0) -> float:
    """Computes the smallest epsilon at `delta` of a Gaussian mechanism, rounded up by a part in 10^10.

    The delta is taken smaller by more than `log_delta` may err. That is a part in 10^10 for small mu, and 10^-13 / mu
    for others.

    Args:
        mu: sensitivity / noise standard deviation, in [0, 1e4].
        delta: in (0, 1).
        pure: epsilon_0 of an (epsilon_0, 0)-DP mechanism that sees the same user. The result is for both together.

    Raises:
        ValueError, TypeError: if an argument is out of range or of a wrong type.

    Example:
        >>> round(gaussian_epsilon(0.92091, 0.1), 4)
        1.0
    """
    mu, delta = validate.within("mu", mu, 0, _MU_RANGE[1]), validate.probability("delta", delta)
    mu = max(mu, _MU_RANGE[0])
    target = math.log(delta) - min(1e-10, 1e-13 / mu)
    pure = validate.within("pure", pure, 0, EPSILON_RANGE[1])
    if log_delta(0.0, mu, pure) <= target:
        return 0.0
    high = EPSILON_RANGE[0]
    while log_delta(high, mu, pure) > target:
        high *= 10
    return _root(lambda e: log_delta(e, mu, pure) - target, 0.0, high) * (1 + 1e-10)
