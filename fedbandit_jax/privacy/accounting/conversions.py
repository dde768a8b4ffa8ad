"""Conversions from Renyi and concentrated differential privacy to (epsilon, delta), and advanced composition.

References: Canonne, Kamath & Steinke (2020), Proposition 12, for `rdp_epsilon`. Bun & Steinke (2016) for zCDP. Kairouz,
Oh & Viswanath (2015), Theorem 3.5, for `advanced_composition`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE, MOST_MU

Curve = Callable[[float], float]  # order alpha > 1 -> bound on the Renyi divergence of that order
_LOG_ORDERS = np.linspace(math.log(1e-9), math.log(1e20), 150)  # ln(alpha - 1) of the orders alpha tried first
_ORDERS = 1 + np.exp(_LOG_ORDERS)
_RHO_LIMIT = MOST_MU**2 / 2  # of Gaussian noise
_INFINITE = 1e100  # stands for an infinite divergence


def rdp_epsilon(rdp: Curve, delta: float) -> float:
    """Computes the smallest epsilon at `delta` that follows from a Renyi curve, rounded up.

        epsilon = inf_{alpha > 1} rdp(alpha) + ln(1 / (alpha delta)) / (alpha - 1) + ln(1 - 1/alpha), at least 0

    Orders with an infinite `rdp` are ignored.

    Args:
        rdp: maps every order alpha > 1 to a bound on the Renyi divergence of that order.
        delta: in (0, 1).

    Raises:
        ValueError: if `rdp` is negative or NaN at some order, or infinite at all of them, or delta is out of range.

    Example:
        >>> round(rdp_epsilon(lambda alpha: alpha / 2, 1e-5), 3)
        4.728
    """
    log_delta = math.log(validate.probability("delta", delta))
    if not callable(rdp):
        raise BadType("rdp", "must be a function of alpha", rdp)

    def divergence(alpha: float) -> float:
        try:
            found = min(rdp(alpha), _INFINITE)
        except OverflowError:
            return _INFINITE
        if not found >= 0:  # or NaN
            raise BadValue("rdp", "must be >= 0 at every order", found, got=f"{found} at alpha = {alpha:g}")
        return found

    def bounds(alpha: Any, divergences: Any) -> Any:
        return divergences - (log_delta + np.log(alpha)) / (alpha - 1) - np.log1p(1 / (alpha - 1))

    def bound(log_order: float) -> float:
        alpha = 1 + math.exp(log_order)
        return float(bounds(alpha, divergence(alpha)))

    values = bounds(_ORDERS, np.array([divergence(alpha) for alpha in _ORDERS.tolist()]))
    best = int(np.argmin(values))
    if values[best] >= _INFINITE / 2:
        raise BadValue("rdp", "must be finite at some order", rdp(2.0), got=f"{rdp(2.0)} at alpha = 2")
    around = (_LOG_ORDERS[max(best - 1, 0)], _LOG_ORDERS[min(best + 1, len(values) - 1)])
    refined = minimize_scalar(bound, bounds=around, method="bounded", options={"xatol": 1e-9})
    epsilon = min(float(refined.fun), float(values[best]))  # pyright: ignore[reportAttributeAccessIssue]
    return max(epsilon * (1 + 1e-10) + 1e-14, 0.0)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Computes the smallest epsilon at `delta` of rho-zCDP, with Renyi divergences of at most rho alpha, rounded up.

    Raises:
        ValueError, TypeError: if an argument is out of range or of a wrong type.
    """
    rho = validate.within("rho", rho, 0, _RHO_LIMIT)
    return rdp_epsilon(lambda alpha: rho * alpha, delta)


def advanced_composition(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> tuple[float, float]:
    """Composes mechanisms, each (epsilon_i, delta_i)-DP and chosen adaptively, into one (epsilon, delta).

        epsilon = sum epsilon_i tanh(epsilon_i / 2) + sqrt(2 ln(1/slack) sum epsilon_i^2),   delta = slack + sum delta_i

    If the plain sum of all epsilon_i is smaller, the plain sums are returned.

    Args:
        epsilons, deltas: one number for each mechanism.
        slack: the part of delta that the composition itself spends, in (0, 1).

    Returns:
        epsilon, rounded up, and delta.

    Raises:
        ValueError: if the lists differ in length or are empty, a number is out of range, or delta would reach 1.

    Example:
        >>> epsilon, delta = advanced_composition([0.1] * 100, [0.0] * 100, 1e-5)
        >>> round(epsilon, 3), delta
        (5.298, 1e-05)
    """
    if len(epsilons) != len(deltas) or not len(epsilons):
        got = f"{len(epsilons)} and {len(deltas)}"
        raise BadValue(("epsilons", "deltas"), "must have one length >= 1", len(epsilons), got=got)
    eps = np.array([validate.within("epsilons", e, 0, EPSILON_RANGE[1]) for e in epsilons])
    plain_delta = math.fsum(validate.within("deltas", d, 0, 1) for d in deltas)
    slack = validate.probability("slack", slack)
    plain = math.fsum(eps)
    advanced = math.fsum(eps * np.tanh(eps / 2)) + math.sqrt(-2 * math.log(slack) * math.fsum(eps**2))
    epsilon, delta = (plain, plain_delta) if plain <= advanced else (advanced, plain_delta + slack)
    if not delta < 1:
        raise BadValue(("deltas", "slack"), "must add up to less than 1", delta)
    return epsilon * (1 + 1e-12), delta
