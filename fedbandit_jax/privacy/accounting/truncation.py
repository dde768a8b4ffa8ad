"""What the far tails that a sampler never draws cost: they are added to delta.

Let P and P' be the laws of all that a mechanism releases from two neighbouring data sets, for noise of the ideal law,
and Q and Q' those for noise as it is drawn. A sampler that leaves out a mass c_i of draw i changes the probability of
an event by at most `missing` = sum of c_i over all draws that the user has a part in. If P(A) <= e^epsilon P'(A) +
delta for every event A, therefore

    Q(A) <= P(A) + missing <= e^epsilon P'(A) + delta + missing <= e^epsilon Q'(A) + delta + (1 + e^epsilon) missing.

The factor e^epsilon is needed: what only one of the two data sets can release has no bound but this.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_STEP = 1e-6  # relative step by which `epsilon` looks beyond itself
_TURNS = 100


def smallest_delta(epsilon: float, missing: float) -> float:
    """Computes the smallest delta that any noise of that sampler gives at `epsilon`: (1 + e^epsilon) missing, or 1.

    >>> f"{smallest_delta(1.0, 1e-30):.3g}", smallest_delta(800.0, 1e-30)
    ('3.72e-30', 1.0)
    """
    if missing <= 0:
        return 0.0
    return math.exp(min(0.0, max(0.0, epsilon) + math.log1p(math.exp(-max(0.0, epsilon))) + math.log(missing)))


def check_delta(delta: float, missing: float) -> None:
    """Raises a ValueError if noise whose tails lack a mass of `missing` gives `delta` at no epsilon.

    >>> check_delta(1e-40, 1e-36)
    Traceback (most recent call last):
    ValueError: delta must be larger than 2e-36, because the far tails of the noise are never drawn, got 1e-40
    """
    least = smallest_delta(0.0, missing)
    if not delta > least:
        raise ValueError(
            f"delta must be larger than {least:.3g}, because the far tails of the noise are never drawn, got {delta:g}"
        )


def sentence(smallest: float, epsilon: float, delta: float) -> str:
    """Returns why nothing is certified where `delta` is not above the smallest delta at that epsilon."""
    if math.isinf(epsilon):
        return f"the far tails of the noise are never drawn, which costs more than delta = {delta:g}"
    return (
        f"the far tails of the noise are never drawn, so that at epsilon = {epsilon:g} it gives no delta below "
        f"{smallest:.3g}, and {delta:g} was asked for"
    )


def epsilon(at: Callable[[float], float], delta: float, asked: float, missing: float) -> float:
    """Computes an epsilon that noise with missing tails gives at `delta`; infinite if there is none.

    Args:
        at: delta -> the smallest epsilon that is proved for the ideal law.
        delta: in (0, 1).
        asked: the epsilon that was asked for. If that much is proved, tails are charged at it; the result is then the
            `at` of what is left of delta.
        missing: mass of the tails that are never drawn, over all draws.
    """
    charged = asked
    for _ in range(_TURNS):
        left = delta - smallest_delta(charged, missing)
        if not left > 0:
            return math.inf
        found = at(left)
        if not found > charged:
            return found
        charged = found * (1 + _STEP)
    return math.inf
