"""Mechanisms as privacy events, and what several events prove together about one user who is in all of them.

Mechanisms with independent noise compose, also when each is chosen by what the earlier ones released. A user who comes
several times to one mechanism shifts its input further (group privacy).
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
    """A Gaussian mechanism, whose noise has standard deviation sensitivity / mu, for mu in [0, 1e4]."""

    mu: float

    def __post_init__(self):
        gaussian_rho(self.mu)

    def rdp(self, alpha: float) -> float:
        """Returns alpha mu^2 / 2, the Renyi divergence of order alpha."""
        return alpha * self.mu**2 / 2


@dataclasses.dataclass(frozen=True)
class PureDP:
    """Any (epsilon, 0)-DP mechanism, for epsilon in [0, 1e6]."""

    epsilon: float

    def __post_init__(self):
        validate.within("epsilon", self.epsilon, 0, EPSILON_RANGE[1])

    def rdp(self, alpha: float) -> float:
        """Returns the largest possible Renyi divergence of order alpha, which is that of randomised response.

        It is ln(cosh y + tanh(epsilon/2) sinh y) / (alpha - 1) with y = (alpha - 1) epsilon.
        """
        y, t = (alpha - 1) * self.epsilon, math.tanh(self.epsilon / 2)
        if y < 1:
            log = math.log1p(2 * math.sinh(y / 2) ** 2 + t * math.sinh(y))
        else:
            log = y + math.log1p(-(1 - t) * -math.expm1(-2 * y) / 2)
        return log / (alpha - 1)


@dataclasses.dataclass(frozen=True)
class ZeroConcentrated:
    """Any rho-zCDP mechanism: its Renyi divergences are at most rho alpha (Bun & Steinke 2016)."""

    rho: float

    def __post_init__(self):
        validate.within("rho", self.rho, 0, EPSILON_RANGE[1])

    def rdp(self, alpha: float) -> float:
        """Returns rho alpha, the bound on the Renyi divergence of order alpha."""
        return self.rho * alpha


@dataclasses.dataclass(frozen=True)
class Renyi:
    """A mechanism known by its Renyi curve, which maps an order alpha > 1 to a bound on the divergence."""

    curve: Curve

    def __post_init__(self):
        if not callable(self.curve):
            raise TypeError(f"curve must be a function of alpha, got {self.curve!r}")

    def rdp(self, alpha: float) -> float:
        """Returns curve(alpha), the bound on the Renyi divergence of order alpha."""
        return self.curve(alpha)


@dataclasses.dataclass(frozen=True)
class ApproximateDP:
    """Any (epsilon, delta)-DP mechanism, for epsilon in [0, 1e6] and delta in [0, 1]."""

    epsilon: float
    delta: float

    def __post_init__(self):
        validate.within("epsilon", self.epsilon, 0, EPSILON_RANGE[1])
        validate.within("delta", self.delta, 0, 1)


Event = Gaussian | PureDP | ZeroConcentrated | Renyi | ApproximateDP


@dataclasses.dataclass(frozen=True)
class Composition:
    """What events prove together: `epsilon` at the delta asked for, and the name of the accountant that proves it."""

    epsilon: float
    accountant: str


def compose(events: Sequence[Event], delta: float) -> Composition:
    """Computes epsilon at `delta` of all events together, in any order and chosen adaptively.

    The events must have independent noise: a user who visits two silos is in two events under "silo_local". Under
    "central", "secagg" or shuffling her visits may share one noise: that is one event, calibrated for visits=2.

    Gaussian mechanisms add the squares of mu, which is exact (Dong, Roth & Su 2022); with other events that have a
    Renyi curve, the curves are added. `ApproximateDP` events go through advanced composition. Their epsilon is added to
    that of the others, with which its slack shares the rest of delta (Vadhan & Zhang 2023: also if queries interleave).

    Args:
        events: at least one mechanism, with independent noise; the same user may be in all of them.
        delta: in (0, 1).

    Raises:
        ValueError: there is no event, or delta is out of range or too small for the deltas of the events.
        TypeError: an element of `events` is not an event.

    Example:
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
    """Computes mu of a user who comes r_i times to silo i, which adds its own Gaussian noise of ratio mu_i.

        mu = sqrt(sum_i (r_i mu_i)^2)

    In one silo, her visits may share a batch, whose sum then moves r_i times as far (group privacy, which is attained);
    different silos compose.

    Args:
        mus: mu_i = sensitivity to one visit / noise standard deviation, for every silo.
        visits: r_i, for every silo.

    Raises:
        ValueError, TypeError: the lists differ in length, or a number is out of range or of a wrong type.

    Example:
        >>> returning_mu([0.3, 0.2], [1, 2])
        0.5

    Reference: Zhou & Chowdhury (2024), Appendix G.4.
    """
    if len(mus) != len(visits):
        raise ValueError(f"mus and visits must have one length, got {len(mus)} and {len(visits)}")
    ratios = [validate.within("mus", mu, 0, 1e4) for mu in mus]
    counts = [validate.within("visits", validate.integer("visits", r, at_least=0), 0, 1e15) for r in visits]
    return math.hypot(*(r * mu for r, mu in zip(counts, ratios)))


def returning(event: Event, delta: float, visits: int) -> tuple[float, float]:
    """Computes epsilon at `delta` of a user who comes to several batches, each of which is one `event`.

    Args:
        event: what one batch proves; not `ApproximateDP`.
        delta: of all batches together, in (0, 1); for `PureDP` also 0, where both results are the plain sum.
        visits: the number of batches, in [1, 1e5].

    Returns:
        Epsilon from the sum of the Renyi curves (exact for `Gaussian`), and epsilon by advanced composition, which
        takes each batch at its own (epsilon_0, delta_0) and splits delta between batches and slack in the best of a few
        ways.

    Raises:
        ValueError, TypeError: `event` has no Renyi curve, or a number is out of range or of a wrong type.

    Example:
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
