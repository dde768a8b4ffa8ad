"""Mechanisms as privacy events, and their composition for one user in all of them."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_expit

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.accounting.conversions import Curve, advanced_composition, rdp_epsilon
from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE, MOST_MU, gaussian_epsilon
from fedbandit_jax.privacy.accounting.nearly_gaussian import NearlyGaussian


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """A Gaussian mechanism with noise of standard deviation sensitivity / mu, for mu in [0, 1e4].

    With `pure` > 0 it is joined by a (pure, 0)-DP mechanism, such as the tests of a private schedule.
    """

    mu: float
    pure: float = 0.0

    def __post_init__(self):
        validate.within("mu", self.mu, 0, MOST_MU)
        validate.within("pure", self.pure, 0, EPSILON_RANGE[1])

    def rdp(self, alpha: float) -> float:
        """Returns alpha mu^2 / 2, the Renyi divergence of order alpha, plus the divergence of the pure mechanism."""
        return alpha * self.mu**2 / 2 + (PureDP(self.pure).rdp(alpha) if self.pure else 0.0)

    def at(self, delta: float, n: int = 1) -> float:
        """Returns epsilon at `delta` of n such mechanisms. Their pure parts count as one, if that is less."""
        as_one = gaussian_epsilon(math.sqrt(n) * self.mu, delta, n * self.pure)
        return min(as_one, rdp_epsilon(lambda alpha: n * self.rdp(alpha), delta)) if self.pure else as_one


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
    """A mechanism known by its Renyi curve, which maps an order alpha > 1 to a bound on the divergence.

    For a rho-zCDP mechanism the curve is rho alpha (Bun & Steinke 2016).
    """

    curve: Curve

    def __post_init__(self):
        if not callable(self.curve):
            raise BadType("curve", "must be a function of alpha", self.curve)

    def rdp(self, alpha: float) -> float:
        """Returns the bound on the Renyi divergence of order alpha."""
        return self.curve(alpha)

    def at(self, delta: float, n: int = 1) -> float:
        """Returns epsilon at `delta` of n such mechanisms."""
        return rdp_epsilon(lambda alpha: n * self.curve(alpha), delta)


@dataclasses.dataclass(frozen=True)
class ApproximateDP:
    """Any (epsilon, delta)-DP mechanism, for epsilon in [0, 1e6] and delta in [0, 1]."""

    epsilon: float
    delta: float

    def __post_init__(self):
        validate.within("epsilon", self.epsilon, 0, EPSILON_RANGE[1])
        validate.within("delta", self.delta, 0, 1)

    def rdp(self, alpha: float) -> float:
        """Returns the largest possible Renyi divergence of order alpha, given the part of probability 1 - delta."""
        return PureDP(self.epsilon).rdp(alpha)


Event = Gaussian | PureDP | Renyi | ApproximateDP | NearlyGaussian


def compose(events: Sequence[Event], delta: float) -> float:
    """Computes epsilon at `delta` of all events together, in any order, each chosen by earlier outputs.

    The events must have independent noise. A user of two silos is in two events under "silo_local". As visits may share
    a batch, a user with r visits to a silo is in `Gaussian(r * mu)`. Under "central", "secagg" or shuffling visits at
    two silos may share one noise, too. That is one event, calibrated for visits=2.

    All events must have the same adjacency and privacy unit, which they do not state. Epsilon is for these. It is for
    ideal noise. Only certificates charge tails that are never drawn, see `Certificate.smallest_delta`.

    Gaussian mechanisms add the squares of mu, which is exact (Dong, Roth & Su 2022). All pure parts together count as
    one, also if queries to several of them interleave (Vadhan & Zhang 2023). This is exact for one part. The deltas of
    `ApproximateDP` events are subtracted. Renyi curves are added, and the smaller of both bounds is returned. The
    `event` of "secagg" and "shuffle_vector_sum" is integer noise. It is composed as Gaussian noise with the excess of
    its proof, see `fedbandit_jax.privacy.accounting.nearly_gaussian`. For one event several times, see `returning`.

    Args:
        events: at least one mechanism, with independent noise. The same user may be in all of them.
        delta: in (0, 1).

    Raises:
        ValueError: if there is no event, or delta is out of range or too small for the deltas of the events.
        TypeError: if an element of `events` is not an event.

    Example:
        >>> round(compose([Gaussian(0.3), Gaussian(0.4)], delta=0.1), 4)
        0.2865
        >>> round(compose([Gaussian(0.5), PureDP(0.3)], delta=1e-5), 3)
        2.226
    """
    delta = validate.probability("delta", delta)
    for event in validate.sequence("events", events, "privacy events"):
        if not isinstance(event, Event):
            raise BadType("events", "must be privacy events", event)
    if not len(events):
        raise BadValue("events", "must not be empty", None, got="none")
    near = NearlyGaussian.together([event for event in events if isinstance(event, NearlyGaussian)])
    others = [event for event in events if not isinstance(event, NearlyGaussian)]
    known = collections.Counter(others + ([Gaussian(near.mu)] if near else []))
    own = math.fsum(event.delta for event in others if isinstance(event, ApproximateDP))
    mu = math.hypot(*(event.mu for event in known.elements() if isinstance(event, Gaussian)))
    pure = math.fsum(getattr(event, "epsilon", getattr(event, "pure", 0.0)) for event in others)
    renyi = any(isinstance(event, Renyi) for event in others)

    def at(level: float) -> float:
        by_curves = rdp_epsilon(lambda alpha: math.fsum(n * event.rdp(alpha) for event, n in known.items()), level)
        return by_curves if renyi or pure > EPSILON_RANGE[1] else min(by_curves, gaussian_epsilon(mu, level, pure))

    if delta - own > (near.rest if near else 0.0):
        return near.epsilon(delta - own, at) if near else at(delta - own)
    if own <= delta * (1 + 1e-15) and not (near or mu or renyi):
        return pure
    raise BadValue("delta", f"must exceed the events' own deltas, {own + (near.rest if near else 0.0):g}", delta)


def returning(event: Event, delta: float, visits: int) -> tuple[float, float]:
    """Computes epsilon at `delta` of a user in several batches, each of them one `event`, for its adjacency.

    Args:
        event: the proof of one batch; not `ApproximateDP`, and not integer noise that is nearly Gaussian.
        delta: of all batches together, in (0, 1); for `PureDP` also 0, with the plain sum as both results.
        visits: the number of batches, in [1, 1e5].

    Returns:
        Epsilon of all batches, and epsilon by advanced composition. The latter takes each batch at its own (epsilon_0,
        delta_0). It splits delta between batches and slack in the best of a few ways.

    Raises:
        ValueError, TypeError: if `event` has no Renyi curve, or a number is out of range or of a wrong type.

    Example:
        >>> tuple(round(epsilon, 3) for epsilon in returning(Renyi(lambda alpha: 0.005 * alpha), 1e-5, visits=100))
        (4.728, 36.139)

    Reference: Chowdhury & Zhou (2023), Appendix H.
    """
    n = validate.count("visits", visits, 1e5)
    if not isinstance(event, Gaussian | PureDP | Renyi):
        raise BadType("event", "must have a Renyi curve", event)
    if not isinstance(event, PureDP):
        validate.probability("delta", delta)
    elif validate.within("delta", delta, 0, 1) == 0:
        return event.at(0.0, n), event.at(0.0, n)
    advanced = [n * event.at(delta / n)]
    for part in (0.25, 0.5, 0.75):
        each = (1 - part) * delta / n
        advanced.append(advanced_composition([event.at(each)] * n, [each] * n, part * delta)[0])
    if isinstance(event, PureDP):
        advanced.append(advanced_composition([event.epsilon] * n, [0.0] * n, delta)[0])
    return event.at(delta, n), min(advanced)
