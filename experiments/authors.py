"""The noise of the code of Zhou & Chowdhury (2024), as `fb.privacy.Mechanism(std=...)`; most of it is too little.

Each function maps an `Ask`, the use of a trust model, to a standard deviation. Certificates state what it gives.
"""

import math

from fedbandit_jax.privacy.trust import Ask


def silo_local(use: Ask) -> float:
    """Returns sqrt(kappa (epsilon + ln(1/delta))) / epsilon: Theorem 5.1 without its constants."""
    epsilon = use.budget.epsilon - use.pure
    return math.sqrt(use.kappa * (epsilon - math.log(use.budget.delta))) / epsilon


def shuffle_amplified(use: Ask) -> float:
    """Returns the noise of Theorem 5.3 without its constant and its condition.

    It is sqrt(kappa ln(1/delta) ln(1 + kappa / (T delta)) ln(M kappa / delta) / M) / epsilon.
    """
    kappa, m, delta = len(use.points), use.n_agents, use.budget.delta
    horizon, log_delta = use.batch * use.release.n_syncs, math.log(delta)
    ratio = math.log1p(kappa / horizon / delta)
    return math.sqrt(kappa * -log_delta * ratio * (math.log(m * kappa) - log_delta) / m) / use.budget.epsilon


def shuffle_vector_sum(use: Ask) -> float:
    """Returns sqrt(3) / 4 ln(d^2 / delta) / epsilon, the noise in every node for bits with p = 1/2."""
    return math.sqrt(3) / 4 * math.log(use.dim**2 / use.budget.delta) / use.budget.epsilon


NOISE = {
    "silo_local": silo_local,
    "shuffle_amplified": shuffle_amplified,
    "shuffle_vector_sum": shuffle_vector_sum,
}
