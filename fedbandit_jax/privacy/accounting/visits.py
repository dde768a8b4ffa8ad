"""Privacy of a user who adds to several sums, each with its own noise, under pure DP and from a Renyi curve."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_expit

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.accounting.conversions import Curve, advanced_composition, rdp_epsilon
from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE


@dataclasses.dataclass(frozen=True)
class PureDP:
    """Any (epsilon, 0)-DP mechanism, for epsilon in [0, 1e6]."""

    epsilon: float

    def __post_init__(self):
        validate.within("epsilon", self.epsilon, 0, EPSILON_RANGE[1])

    def rdp(self, alpha: float) -> float:
        """Returns the largest possible Renyi divergence of order alpha, reached by randomised response.

        It is ln(cosh y + tanh(epsilon/2) sinh y) / (alpha - 1) with y = (alpha - 1) epsilon.
        """
        y, t = (alpha - 1) * self.epsilon, math.tanh(self.epsilon / 2)
        if y < 1:
            log = math.log1p(2 * math.sinh(y / 2) ** 2 + t * math.sinh(y))
        else:
            log = y + math.log1p(-(1 - t) * -math.expm1(-2 * y) / 2)
        return log / (alpha - 1)

    def at(self, delta: float, n: int = 1) -> float:
        """Returns epsilon at `delta` of n such mechanisms, rounded up by a part in 10^10; at delta = 0 their sum.

        Outputs distinguish neighbours no better than n randomised responses do (Kairouz, Oh & Viswanath 2015). This
        holds also if each is chosen by earlier outputs. Their privacy loss L has n + 1 values, with binomial
        probabilities, and delta(epsilon) = E (1 - e^(epsilon - L))_+.
        """
        most, k = n * self.epsilon, np.arange(n + 1)  # k of n losses are negative
        if not delta:
            return most
        losses, target = (n - 2 * k) * self.epsilon, math.log(delta) - 2e-10
        ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        logs = ways + (n - k) * log_expit(self.epsilon) + k * log_expit(-self.epsilon)

        def excess(epsilon: float) -> float:
            above = losses > epsilon
            if not above.any():
                return -1.0
            log_delta = np.logaddexp.reduce(logs[above] + np.log(-np.expm1(epsilon - losses[above])))
            return max(float(log_delta) - target, -1.0)

        if excess(0.0) <= 0:
            return 0.0
        root = float(brentq(excess, 0.0, most, xtol=1e-14 * min(1.0, most), rtol=1e-14))  # pyright: ignore[reportArgumentType]
        return min(root * (1 + 1e-10), most)


@dataclasses.dataclass(frozen=True)
class Renyi:
    """A mechanism known by its Renyi curve, which maps an order alpha > 1 to a bound on the divergence."""

    curve: Curve

    def at(self, delta: float, n: int = 1) -> float:
        """Returns epsilon at `delta` of n such mechanisms."""
        return rdp_epsilon(lambda alpha: n * self.curve(alpha), delta)


def returning(proof: PureDP | Renyi, delta: float, visits: int) -> tuple[float, float]:
    """Computes epsilon at `delta` of a user in several batches, each with this proof.

    Args:
        proof: of one batch.
        delta: of all batches together, in (0, 1).
        visits: the number of batches, in [1, 1e5].

    Returns:
        Epsilon of all batches, and epsilon by advanced composition. The latter takes each batch at its own (epsilon_0,
        delta_0). It splits delta between batches and slack in the best of a few ways.

    Example:
        >>> tuple(round(epsilon, 3) for epsilon in returning(Renyi(lambda alpha: 0.005 * alpha), 1e-5, visits=100))
        (4.728, 36.139)

    Reference: Chowdhury & Zhou (2023), Appendix H.
    """
    n = validate.count("visits", visits, 1e5)
    advanced = [n * proof.at(delta / n)]
    for part in (0.25, 0.5, 0.75):
        each = (1 - part) * delta / n
        advanced.append(advanced_composition([proof.at(each)] * n, [each] * n, part * delta)[0])
    if isinstance(proof, PureDP):
        advanced.append(advanced_composition([proof.epsilon] * n, [0.0] * n, delta)[0])
    return proof.at(delta, n), min(advanced)
