"""The noise and the confidence width of the code of Zhou & Chowdhury (2024).

Each function maps a `Requirement` of a trust model to a standard deviation for `fb.privacy.Mechanism(std=...)`. Most of
it is too little noise. Certificates state what it gives.
"""

import dataclasses
import math
from typing import Any

import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.algos.policies.widths import Width
from fedbandit_jax.privacy.trust import Requirement, VectorSum


def silo_local(need: Requirement) -> float:
    """Returns sqrt(kappa (epsilon + ln(1/delta))) / epsilon: Theorem 5.1 without its constants."""
    epsilon = need.budget.epsilon - need.pure
    return math.sqrt(need.kappa * (epsilon - math.log(need.budget.delta))) / epsilon


def shuffle_amplified(need: Requirement) -> float:
    """Returns the noise of Theorem 5.3 without its constant and its condition.

    It is sqrt(kappa ln(1/delta) ln(1 + kappa / (T delta)) ln(M kappa / delta) / M) / epsilon.
    """
    kappa, m, delta = len(need.points), need.n_agents, need.budget.delta
    horizon, log_delta = need.batch * need.release.n_syncs, math.log(delta)
    ratio = math.log1p(kappa / horizon / delta)
    return math.sqrt(kappa * -log_delta * ratio * (math.log(m * kappa) - log_delta) / m) / need.budget.epsilon


def shuffle_vector_sum(need: Requirement) -> float:
    """Returns sqrt(3) / 4 ln(d^2 / delta) / epsilon, the noise in every node for bits with p = 1/2."""
    return math.sqrt(3) / 4 * math.log(need.dim**2 / need.budget.delta) / need.budget.epsilon


NOISE = {noise.__name__: noise for noise in (silo_local, shuffle_amplified, shuffle_vector_sum)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCB(fb.algos.UCB):
    """LinUCB with the regulariser and the width of the code: S = sqrt d, and lambda = sqrt M without noise."""

    def bind(self, law: fb.NoiseLaw) -> Any:
        """Returns the policy with these constants, for a tree's sums over all batches."""
        lam, log_term = math.sqrt(law.n_agents), math.log(1 / self.failure)
        if law.stds.any():
            levels, noise = released_noise(law.mechanism, law.dim)
            lam = noise * (math.sqrt(levels + log_term) + math.sqrt(law.dim))
        scale, growth = self.exploration_scale, law.n_agents / (law.dim * lam)
        width = scale * math.sqrt(lam * law.dim), scale * self.subgaussian, log_term, law.dim, growth
        return dataclasses.replace(
            super().bind(law),
            first_regularization=np.float32(lam),
            regularization=np.float32(lam),
            width=Width(*map(np.float32, width)),
            rho=(lam / law.n_agents, lam / law.n_agents),
        )


def released_noise(mechanism: Any, dim: int) -> tuple[int, float]:
    """Returns the number L of levels, and the noise scale of a released sum.

    With Gaussian noise the scale is sqrt(L) times the standard deviation of a node. For the vector sum it is L
    sqrt(ln(1/delta)) ln(L d^2/delta) / epsilon, for any real noise in its bits.
    """
    levels, trust = mechanism.release.n_levels, mechanism.trust
    if type(trust) is not VectorSum:
        return levels, math.sqrt(levels) * trust.sum_std()
    epsilon, delta = float(mechanism.epsilon[0]), float(mechanism.delta)
    return levels, levels * math.sqrt(math.log(1 / delta)) * math.log(levels * dim**2 / delta) / epsilon
