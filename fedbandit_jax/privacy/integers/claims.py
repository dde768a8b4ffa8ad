"""What is claimed of the noise on private sums of rewards: its certificate, for one user in one sum."""

from __future__ import annotations

import functools
from typing import Any

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.privacy.accounting import events, truncation
from fedbandit_jax.privacy.accounting.events import PureDP, Renyi

ORDERS = (2, 4, 8, 16, 32, 64)  # orders alpha at which a certificate lists the Renyi divergence
VISITS = (10, 100)  # numbers of visits, each in another sum, for which a certificate states epsilon
ROOM = 1e-9  # relative excess over the epsilon asked for that is put down to rounding in float64
NOT_COVERED = (
    "how many users there are, and which arms they were given (that follows from earlier sums)",
    "what only a simulator sees: regret curves, checkpoints",
    "floating-point attacks: noise is pseudo-random; rounding, coins and rejection sampling use float32",
)
UNPROVED = (ValueError, ArithmeticError, IndexError)  # what the accountants raise for numbers they refuse


def certify(event: PureDP | Renyi, *, at: float, missing: float, spent: float, **fields: Any) -> Certificate:
    """Returns the certificate of `event`, one visit: no claim if `spent` exceeds the epsilon asked for, or tails `at`.

    `missing` is the mass of the tails that are never drawn, which costs the more delta the larger epsilon is.
    """
    asked, notion, exact = fields["epsilon"], fields["notion"], fields["epsilon_exact"]
    smallest = truncation.smallest_delta(exact, missing)
    reason = ""
    if not spent <= asked * (1 + ROOM):
        reason = f"the noise is that of {notion} with epsilon = {spent:g}, more than the {asked:g} asked for"
    elif not smallest < at:
        reason = truncation.sentence(smallest, exact, at)

    def together(n: int) -> tuple[int, float, float, float]:
        known = functools.cache(lambda delta: events.returning(event, delta, n))  # tails may cost less than a digit

        def least(bound: int) -> float:
            return truncation.epsilon(lambda delta: known(delta)[bound], at, 0.0, n * missing)

        return n, at, least(0), least(1)

    return Certificate(
        claim="none" if reason else "certified",
        reason=reason or "noise of known law is on every sum that leaves the protocol, and each user is in one sum",
        adjacency="replace (one user's reward replaced by any other in [0, 1])",
        unit="one user, who comes once; for more see visits",
        releases_per_user=1.0,
        smallest_delta=smallest,
        renyi=tuple((float(alpha), event.rdp(alpha)) for alpha in ORDERS),
        visits=tuple(together(n) for n in VISITS),
        **fields,
    )


def nothing_released() -> Certificate:
    """Returns the certificate of a protocol that is never asked for a sum."""
    reason = "nothing is released: the horizon is reached before the first batch of all arms ends"
    return Certificate(claim="certified", reason=reason, not_covered=NOT_COVERED)


def unproved(error: Exception) -> Certificate:
    """Returns the certificate of noise that the accountants refuse, which says why."""
    return no_privacy(f"nothing is proved of this noise: {error}")
