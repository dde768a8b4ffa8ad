"""Privacy losses of several mechanisms together, by enumeration (NumPy, float64).

A pair of laws (P, Q) dominates a mechanism if outputs distinguish neighbours no better than a draw distinguishes P from
Q. The privacy loss is L = ln P(x) / Q(x) for x ~ P, infinite if Q(x) = 0, and delta(epsilon) = E (1 - e^(epsilon -
L))_+. Losses of independent mechanisms add up, also if each is chosen by earlier outputs (Zhu, Dong & Wang 2022).
Gaussian mechanisms with mu = sensitivity / noise std have L ~ N(mu^2 / 2, mu^2). Together they are one, with the root
of the sum of mu^2. Any (epsilon, delta)-DP mechanism is dominated by a loss that is infinite with probability delta.
Otherwise it equals the loss of randomised response, +-epsilon with odds e^epsilon : 1 (Kairouz, Oh & Viswanath 2015).

So n mechanisms with one epsilon have a loss of n + 1 values, with binomial probabilities. delta(epsilon) is a sum over
values of the closed form of a Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_expit

from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon, log_delta

MOST_VALUES, MOST_WITH_GAUSSIANS = 10**6, 20_000  # enumerated, each in about a second


def _log_sum(logs: np.ndarray) -> float:
    largest = logs.max()
    return float(largest + np.log(np.exp(logs - largest).sum()))


class Losses(NamedTuple):
    """The law of the finite losses of independent mechanisms that see the same user."""

    mu: float  # of all Gaussian mechanisms together
    values: np.ndarray  # (A,) losses of all pure mechanisms together
    logs: np.ndarray  # (A,) ln of their probabilities

    @classmethod
    def of(cls, mu: float, pure: Mapping[float, int]) -> Losses | None:
        """Returns the losses of Gaussian and pure mechanisms (epsilon -> count); None if there are too many values.

        >>> Losses.of(0.0, {0.5: 2}).values.tolist()
        [1.0, 0.0, -1.0]
        """
        values, logs = np.zeros(1), np.zeros(1)
        most = MOST_WITH_GAUSSIANS if mu > 0 else MOST_VALUES
        for epsilon, n in pure.items():
            if len(values) * (n + 1) > most:
                return None
            k = np.arange(n + 1)  # negative ones of the n losses
            ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
            each = ways + (n - k) * log_expit(epsilon) + k * log_expit(-epsilon)
            values = np.add.outer(values, (n - 2 * k) * epsilon).ravel()
            logs = np.add.outer(logs, each).ravel()
        return cls(mu, values, logs)

    def log_delta(self, epsilon: float) -> float:
        """Returns ln of the smallest delta at `epsilon`."""
        if self.mu > 0:
            terms = [log_delta(epsilon - float(value), self.mu) for value in self.values]
            return _log_sum(self.logs + terms)
        above = self.values > epsilon
        if not above.any():
            return -math.inf
        return _log_sum(self.logs[above] + np.log(-np.expm1(epsilon - self.values[above])))

    def epsilon(self, delta: float) -> float:
        """Returns the smallest epsilon >= 0 at `delta`, rounded up by a part in 10^10."""
        if len(self.values) == 1:
            return gaussian_epsilon(self.mu, delta)
        target, largest = math.log(delta) - 2e-10, float(self.values.max())

        def excess(epsilon: float) -> float:
            return max(self.log_delta(epsilon), target - 1) - target

        if excess(0.0) <= 0:
            return 0.0
        high = largest
        while excess(high) > 0:
            high *= 2
        root = float(brentq(excess, 0.0, high, xtol=1e-14 * min(1.0, high), rtol=1e-14))  # pyright: ignore[reportArgumentType]
        return root * (1 + 1e-10) if self.mu > 0 else min(root * (1 + 1e-10), largest)
