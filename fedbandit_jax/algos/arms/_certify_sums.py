"""The certificate of an algorithm that learns from noisy sums of users' rewards, each user being asked once."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.privacy.accounting.events import PureDP, Renyi, returning
from fedbandit_jax.privacy.integers.mechanisms import DiscreteGaussian, Mechanism

ORDERS = (2, 4, 8, 16, 32, 64)  # of the Renyi divergences listed
VISITS = (10, 100)
NOT_COVERED = (
    "how many users there are, and which arms they were given (that follows from earlier sums)",
    "what only a simulator sees: regret curves, checkpoints",
    "floating-point attacks: noise is pseudo-random; rounding, coins and rejection sampling use float32",
)


@functools.lru_cache
def certify(mechanism: Mechanism, sizes: tuple[int, ...], delta: float) -> Certificate:
    """Of integer noise, over batches of these sizes."""
    pure = mechanism.notion == "pure DP"
    exact = max(mechanism.pure_epsilon(n) if pure else mechanism.epsilon_at(n, delta) for n in sizes)
    curves = [mechanism.renyi(n) for n in sizes]
    zcdp = max(mechanism.zcdp(n) for n in sizes) if isinstance(mechanism, DiscreteGaussian) else None
    stds = [math.sqrt(mechanism.law(n).variance) / mechanism.steps(n) for n in sizes]
    moduli = [mechanism.bits(n) for n in sizes]
    return _certificate(
        Renyi(lambda alpha: max(curve(alpha) for curve in curves)),
        delta,
        trust=mechanism.trust,
        notion=mechanism.notion,
        epsilon=mechanism.epsilon,
        delta=0.0 if pure else delta,
        epsilon_exact=exact,
        accountant=f"exact law of the noise{' modulo m' if pure else ', smallest of several bounds'}",
        noise_std=max(std / math.sqrt(n) if mechanism.per_user else std for std, n in zip(stds, sizes)),
        noise_whose="of a user's message" if mechanism.per_user else "of an arm's sum of rewards",
        server_noise_std=max(stds),
        releases=len(sizes),
        zcdp=(zcdp.rho, zcdp.xi) if zcdp else None,
        bits_per_user=(float(min(moduli)), float(max(moduli))),
        wrap_probability=mechanism.wrapping + max(mechanism.lost(n) for n in sizes),
        not_covered=(*mechanism.assumes, *NOT_COVERED),
    )


def certify_laplace(epsilon: float, sizes: Sequence[int], delta: float) -> Certificate:
    """Of a trusted server's real-valued Laplace noise of scale 1 / epsilon."""
    std = math.sqrt(2) / epsilon
    return _certificate(
        PureDP(epsilon),
        delta,
        trust="central: the server is trusted and adds the noise to every sum",
        notion="pure DP",
        epsilon=epsilon,
        delta=0.0,
        epsilon_exact=epsilon,
        accountant="Laplace mechanism",
        noise_std=std,
        noise_whose="of an arm's sum of rewards",
        server_noise_std=std,
        releases=len(sizes),
        not_covered=NOT_COVERED,
    )


def nothing_asked(horizon: int, n_arms: int) -> Certificate:
    """No batch ends before the horizon, so no sum leaves the protocol."""
    reason = f"nothing is released: T = {horizon} users end before the first batch of {n_arms} arms does"
    return Certificate(claim="certified", reason=reason, not_covered=NOT_COVERED)


def _certificate(event: PureDP | Renyi, at: float, **fields: Any) -> Certificate:
    visits = ((n, at, *returning(event, at, n)) for n in VISITS)
    return Certificate(
        claim="certified",
        reason="noise of known law is on every sum that leaves the protocol, and each user is in one sum",
        adjacency="replace (one user's reward replaced by any other in [0, 1])",
        unit="one user, who comes once; for more see visits",
        releases_per_user=1.0,
        renyi=tuple((float(alpha), event.rdp(alpha)) for alpha in ORDERS),
        visits=tuple(visits),
        **fields,
    )
