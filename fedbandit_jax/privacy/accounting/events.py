"""Mechanisms as events, and what several of them prove together.

A user in several events: mechanisms with independent noise compose, also when each is chosen by what the earlier ones
released. A user who comes several times to one mechanism shifts it further (group privacy).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.accounting.conversions import Curve, advanced_composition, gaussian_rho, rdp_epsilon
from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE, gaussian_epsilon


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Gaussian noise of standard deviation sensitivity / mu."""

    mu: float

    def __post_init__(self):
        gaussian_rho(self.mu)

    def rdp(self, alpha: float) -> float:
        """alpha mu^2 / 2."""
        return alpha * self.mu**2 / 2


@dataclasses.dataclass(frozen=True)
class PureDP:
    """Any (epsilon, 0)-DP mechanism."""

    epsilon: float

    def __post_init__(self):
        validate.within("epsilon", self.epsilon, 0, EPSILON_RANGE[1])

    def rdp(self, alpha: float) -> float:
        """That of randomised response: ln(cosh y + tanh(epsilon/2) sinh y) / (alpha - 1), y = (alpha - 1) epsilon."""
        y, t = (alpha - 1) * self.epsilon, math.tanh(self.epsilon / 2)
        if y < 1:
            log = math.log1p(2 * math.sinh(y / 2) ** 2 + t * math.sinh(y))
        else:
            log = y + math.log1p(-(1 - t) * -math.expm1(-2 * y) / 2)
        return log / (alpha - 1)


@dataclasses.dataclass(frozen=True)
class ZeroConcentrated:
    """rho-zCDP: Renyi divergence at most rho alpha (Bun & Steinke 2016)."""

    rho: float

    def __post_init__(self):
        validate.within("rho", self.rho, 0, EPSILON_RANGE[1])

    def rdp(self, alpha: float) -> float:
        """rho alpha."""
        return self.rho * alpha


@dataclasses.dataclass(frozen=True)
class Renyi:
    """A mechanism known by its Renyi curve, alpha > 1 -> divergence of order alpha."""

    curve: Curve

    def __post_init__(self):
        if not callable(self.curve):
            raise TypeError(f"curve must be a function of alpha, got {self.curve!r}")

    def rdp(self, alpha: float) -> float:
        """curve(alpha)."""
        return self.curve(alpha)


@dataclasses.dataclass(frozen=True)
class ApproximateDP:
    """Any (epsilon, delta)-DP mechanism."""

    epsilon: float
    delta: float

    def __post_init__(self):
        validate.within("epsilon", self.epsilon, 0, EPSILON_RANGE[1])
        validate.within("delta", self.delta, 0, 1)


Event = Gaussian | PureDP | ZeroConcentrated | Renyi | ApproximateDP


@dataclasses.dataclass(frozen=True)
class Composition:
    """What events prove together: epsilon at the delta asked for, and by which accountant."""

    epsilon: float
    accountant: str


def compose(events: Sequence[Event], delta: float) -> Composition:
    """Epsilon at `delta` of all events together, in any order, adaptively.

    Gaussian mechanisms add the squares of mu, exactly (Dong, Roth & Su 2022); mechanisms with a Renyi curve add their
    curves; `ApproximateDP` events go through advanced composition and add to the epsilon of the others, which share the
    delta left with its slack (Vadhan & Zhang 2023: also when their queries interleave).

    >>> composed = compose([Gaussian(0.3), Gaussian(0.4)], delta=0.1)
    >>> round(composed.epsilon, 4), composed.accountant
    (0.2865, 'exact Gaussian')
    """
    delta = validate.probability("delta", delta)
    for event in events:
        if not isinstance(event, Event):
            raise TypeError(f"events must be privacy events, got {event!r}")
    if not len(events):
        raise ValueError("events must not be empty, got none")
    curves = [event for event in events if not isinstance(event, ApproximateDP)]
    rest = [event for event in events if isinstance(event, ApproximateDP)]
    if not rest:
        return _compose_curves(curves, delta)
    epsilons, deltas = [event.epsilon for event in rest], [event.delta for event in rest]
    room = delta - math.fsum(deltas)  # for the others and for the slack of advanced composition
    if room < 0 or (room == 0 and curves):
        raise ValueError(f"delta must exceed the sum of the events' deltas, {math.fsum(deltas):g}, got {delta:g}")

    def others(delta: float) -> float:
        return _compose_curves(curves, delta).epsilon if curves else 0.0

    epsilon = others(room) + math.fsum(epsilons)
    if room > 0:
        slack = room / 2 if curves else room
        epsilon = min(epsilon, others(slack) + advanced_composition(epsilons, deltas, slack)[0])
    return Composition(epsilon * (1 + 1e-12), "advanced composition")


def _compose_curves(events: Sequence[Gaussian | PureDP | ZeroConcentrated | Renyi], delta: float) -> Composition:
    mus = [event.mu for event in events if isinstance(event, Gaussian)]
    if len(mus) == len(events):
        return Composition(gaussian_epsilon(math.hypot(*mus), delta), "exact Gaussian")
    epsilon = rdp_epsilon(lambda alpha: math.fsum(event.rdp(alpha) for event in events), delta)
    return Composition(epsilon, "Renyi")


def returning_mu(mus: Sequence[float], visits: Sequence[int]) -> float:
    """mu of a user who comes r_i times to silo i, whose noise is Gaussian with ratio mu_i and its own.

        mu = sqrt(sum_i (r_i mu_i)^2)

    In one silo her visits may share a batch, which is moved r_i times as far (group privacy, attained); silos compose.

    >>> returning_mu([0.3, 0.2], [1, 2])
    0.5

    Reference: Zhou & Chowdhury (2024), Appendix G.4.
    """
    if len(mus) != len(visits):
        raise ValueError(f"mus and visits must be as many, got {len(mus)} and {len(visits)}")
    ratios = [validate.within("mus", mu, 0, 1e4) for mu in mus]
    counts = [validate.within("visits", validate.integer("visits", r, at_least=0), 0, 1e15) for r in visits]
    return math.hypot(*(r * mu for r, mu in zip(counts, ratios)))


def returning(event: Event, delta: float, visits: int) -> tuple[float, float]:
    """Epsilon at `delta` of a user in `visits` batches: composed as one Renyi curve, and by advanced composition.

    The second takes each batch at its own (epsilon_0, delta_0), delta being split between the batches and the slack in
    the best of a few ways. At delta = 0, which only `PureDP` allows, both are the plain sum.

    >>> tuple(round(epsilon, 3) for epsilon in returning(ZeroConcentrated(0.005), 1e-5, visits=100))
    (4.728, 36.139)

    Reference: Chowdhury & Zhou (2023), Appendix H.
    """
    n = int(validate.within("visits", validate.integer("visits", visits, at_least=1), 1, 1e5))
    if not isinstance(event, Event) or isinstance(event, ApproximateDP):
        raise TypeError(f"event must have a Renyi curve, got {event!r}")
    if isinstance(event, PureDP) and validate.within("delta", delta, 0, 1) == 0:
        return n * event.epsilon, n * event.epsilon
    total = Gaussian(math.sqrt(n) * event.mu) if isinstance(event, Gaussian) else Renyi(lambda a: n * event.rdp(a))

    def batch(delta: float) -> float:
        return compose([event], delta).epsilon

    advanced = [n * batch(delta / n)]
    for part in (0.25, 0.5, 0.75):
        each = (1 - part) * delta / n
        advanced.append(advanced_composition([batch(each)] * n, [each] * n, part * delta)[0])
    if isinstance(event, PureDP):
        advanced.append(advanced_composition([event.epsilon] * n, [0.0] * n, delta)[0])
    return compose([total], delta).epsilon, min(advanced)
