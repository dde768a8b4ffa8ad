"""Mechanisms as privacy events, and their composition for one user in all of them."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.accounting.conversions import Curve, advanced_composition, rdp_epsilon
from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE, MOST_MU
from fedbandit_jax.privacy.accounting.losses import Losses
from fedbandit_jax.privacy.accounting.nearly_gaussian import NearlyGaussian


def _dp_event() -> Any:
    try:
        return import_module("dp_accounting.dp_event")
    except ImportError as error:
        raise ImportError("an event for dp_accounting needs that package: pip install dp-accounting") from error


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

    def to_dp_accounting(self) -> Any:
        """Returns the same event for the package dp_accounting, under its default relation of neighbours.

        Raises:
            ValueError: if it has a pure part, which that package has no event for under this relation.
            ImportError: if dp_accounting is missing.
        """
        if self.pure:
            raise BadValue("pure", "must be 0 for an event of dp_accounting", self.pure)
        return _dp_event().GaussianDpEvent(1 / self.mu) if self.mu else _dp_event().NoOpDpEvent()

    def rdp(self, alpha: float) -> float:
        """Returns alpha mu^2 / 2, the Renyi divergence of order alpha, plus the divergence of the pure mechanism."""
        return alpha * self.mu**2 / 2 + (PureDP(self.pure).rdp(alpha) if self.pure else 0.0)


@dataclasses.dataclass(frozen=True)
class PureDP:
    """Any (epsilon, 0)-DP mechanism, for epsilon in [0, 1e6]."""

    epsilon: float

    def __post_init__(self):
        validate.within("epsilon", self.epsilon, 0, EPSILON_RANGE[1])

    def to_dp_accounting(self) -> Any:
        """Returns randomised response with this epsilon for the package dp_accounting, under REPLACE_ONE.

        Raises:
            ValueError: if epsilon is above 700, and the odds of randomised response are beyond float64.
            ImportError: if dp_accounting is missing.
        """
        if self.epsilon > 700:
            raise BadValue("epsilon", "must be at most 700 for an event of dp_accounting", self.epsilon)
        return _dp_event().RandomizedResponseDpEvent(2 / (1 + math.exp(self.epsilon)), 2)

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


@dataclasses.dataclass(frozen=True)
class Composition:
    """The joint privacy of events: `epsilon` at the delta asked for, and the accountant that proves it."""

    epsilon: float
    accountant: str


def compose(events: Sequence[Event], delta: float) -> Composition:
    """Computes epsilon at `delta` of all events together, in any order, each chosen by earlier outputs.

    The events must have independent noise. A user of two silos is in two events under "silo_local". A user with r
    visits to a silo is in `Gaussian(r * mu)`, as visits may share a batch. Under "central", "secagg" or shuffling
    visits at two silos may share one noise, too. That is one event, calibrated for visits=2.

    All events must have the same adjacency and privacy unit, which they do not state; epsilon is for these. It is for
    ideal noise. Only certificates charge tails that are never drawn, see `Certificate.smallest_delta`.

    Gaussian mechanisms add the squares of mu, which is exact (Dong, Roth & Su 2022). With `PureDP` and `ApproximateDP`
    events among them, privacy losses are enumerated, see `fedbandit_jax.privacy.accounting.losses`. That gives the
    epsilon of the worst such mechanisms, also if queries to several of them interleave (Vadhan & Zhang 2023). If an
    event has only Renyi divergences, or there are too many different epsilons, all Renyi curves are added. The `event`
    of "secagg" and "shuffle_vector_sum" is integer noise. It is composed as Gaussian noise with the excess of its
    proof, see `fedbandit_jax.privacy.accounting.nearly_gaussian`.

    Args:
        events: at least one mechanism, with independent noise; the same user may be in all of them.
        delta: in (0, 1).

    Raises:
        ValueError: if there is no event, or delta is out of range or too small for the deltas of the events.
        TypeError: if an element of `events` is not an event.

    Example:
        >>> composed = compose([Gaussian(0.3), Gaussian(0.4)], delta=0.1)
        >>> round(composed.epsilon, 4), composed.accountant
        (0.2865, 'exact Gaussian')
        >>> composed = compose([Gaussian(0.5), PureDP(0.3)], delta=1e-5)
        >>> round(composed.epsilon, 3), composed.accountant
        (2.226, 'privacy loss distribution')
    """
    delta = validate.probability("delta", delta)
    for event in validate.sequence("events", events, "privacy events"):
        if not isinstance(event, Event):
            raise BadType("events", "must be privacy events", event)
    if not len(events):
        raise BadValue("events", "must not be empty", None, got="none")
    near = NearlyGaussian.together([event for event in events if isinstance(event, NearlyGaussian)])
    events = [event for event in events if not isinstance(event, NearlyGaussian)]
    events += [Gaussian(near.mu)] if near else []
    known = collections.Counter(events)
    mu = math.hypot(*(event.mu for event in events if isinstance(event, Gaussian)))
    if mu > MOST_MU:
        raise BadValue("events", "must have a mu of at most 10000 together", mu)
    own = [event.delta for event in events if isinstance(event, ApproximateDP)]
    log_finite = math.fsum(math.log1p(-one) if one < 1 else -math.inf for one in own)
    pure: collections.Counter[float] = collections.Counter()
    for event, n in known.items():
        pure[event.pure if isinstance(event, Gaussian) else getattr(event, "epsilon", 0.0)] += n
    losses = Losses.of(mu, {epsilon: n for epsilon, n in pure.items() if epsilon > 0})
    losses = None if any(isinstance(event, Renyi) for event in events) else losses
    if losses is None:
        at = functools.partial(rdp_epsilon, lambda alpha: math.fsum(n * event.rdp(alpha) for event, n in known.items()))
        accountant = "Renyi"
    else:
        at = losses.epsilon
        accountant = "privacy loss distribution" if own or len(losses.values) > 1 else "exact Gaussian"
    room = delta + math.expm1(log_finite)  # for finite losses
    level, epsilon = min(room * math.exp(-log_finite), 1 - 1e-16) if room > 0 else 0.0, math.inf
    if near:
        accountant = f"{accountant}, corrected for integer noise"
        epsilon = near.epsilon(level, at) if room > 0 else math.inf
    elif room > 0:
        epsilon = at(level)
    elif room > -1e-15 * delta and losses is not None and not mu:
        epsilon = float(losses.values.max())
    if epsilon == math.inf:
        spent = -math.expm1(log_finite) + (near.rest if near else 0.0)
        raise BadValue("delta", f"must exceed the events' own deltas, {spent:g} together", delta)
    return Composition(epsilon, accountant)


def returning(event: Event, delta: float, visits: int) -> tuple[float, float]:
    """Computes epsilon at `delta` of a user in several batches, each of them one `event`, for its adjacency.

    Args:
        event: the proof of one batch; not `ApproximateDP`, and not integer noise that is nearly Gaussian.
        delta: of all batches together, in (0, 1); for `PureDP` also 0, with the plain sum as both results.
        visits: the number of batches, in [1, 1e5].

    Returns:
        Epsilon from `compose`, and epsilon by advanced composition. The latter takes each batch at its own (epsilon_0,
        delta_0). It splits delta between batches and slack in the best of a few ways.

    Raises:
        ValueError, TypeError: if `event` has no Renyi curve, or a number is out of range or of a wrong type.

    Example:
        >>> tuple(round(epsilon, 3) for epsilon in returning(Renyi(lambda alpha: 0.005 * alpha), 1e-5, visits=100))
        (4.728, 36.139)

    Reference: Chowdhury & Zhou (2023), Appendix H.
    """
    n = validate.count("visits", visits, 1e5)
    if not isinstance(event, Event) or isinstance(event, ApproximateDP | NearlyGaussian):
        raise BadType("event", "must have a Renyi curve", event)
    if not isinstance(event, PureDP):
        validate.probability("delta", delta)
    elif validate.within("delta", delta, 0, 1) == 0:
        return n * event.epsilon, n * event.epsilon
    return _together(event, delta, n), _advanced(event, delta, n)


def _together(event: Event, delta: float, n: int) -> float:
    if isinstance(event, Renyi):
        return compose([Renyi(lambda alpha: n * event.rdp(alpha))], delta).epsilon
    return compose([event] * n, delta).epsilon


def _advanced(event: Event, delta: float, n: int) -> float:

    def batch(delta: float) -> float:
        return compose([event], delta).epsilon

    found = [n * batch(delta / n)]
    for part in (0.25, 0.5, 0.75):
        each = (1 - part) * delta / n
        found.append(advanced_composition([batch(each)] * n, [each] * n, part * delta)[0])
    if isinstance(event, PureDP):
        found.append(advanced_composition([event.epsilon] * n, [0.0] * n, delta)[0])
    return min(found)
