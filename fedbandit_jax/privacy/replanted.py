"""Noise of trees that are planted again in every phase, on sums that go on: Algorithm 5 of Liu et al. (2022), composed.

A local cluster's tree of phase s has one leaf for all that came before it, and one for each upload until the next tree.
A datum is in the first leaf of every tree that is planted after it came, and so in b = 1 + floor(log2(leaves)) nodes of
each, and in a later leaf of the tree before, of whose nodes prefix sums use at most b - 1 (of two brothers they use the
first). Nobody came before the first tree. So all releases of all phases move by sqrt(kappa) times what one release
moves, with kappa = sum over phases of b, minus 1.

This bounds trees that go on over several phases, too, beside the one leaf that is then released when a phase begins:
f(r_1 + r_2) + 1 <= f(r_1) + f(r_2) with f(r) = 1 + floor(log2(1 + r)) and r_s >= 1 uploads in phase s.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.trust._calibrators import GAUSSIAN, noise_std

METHODS = ("tight", "theorem")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replanted:
    """Noise of one local cluster's trees, and what it proves.

    Attributes:
        budget: the privacy asked for.
        method: how sigma was found.
        leaves: of the tree of every phase.
        visits: rounds of one user that are protected together.
        sigma: standard deviation of a node's noise on x y and off the diagonal of x x', sqrt 2 of it on the diagonal.
        epsilon_exact: the smallest epsilon that this sigma is proved to give at budget.delta, for all phases together.
        accountant: by what proof.
    """

    budget: Budget
    method: str
    leaves: tuple[int, ...]
    visits: int
    sigma: float
    epsilon_exact: float
    accountant: str = f"{GAUSSIAN}; all trees of all phases composed"

    @property
    def releases_per_user(self) -> float:
        """kappa."""
        return float(_kappa(self.leaves))

    @property
    def nodes(self) -> int:
        """Most nodes in one prefix sum of a tree that lives for all phases."""
        return (sum(self.leaves) + 1).bit_length() - 1

    @property
    def std(self) -> np.float32:
        """sigma, with room for what float32 makes of unit vectors."""
        return noise_std(self.sigma)

    @property
    def sound(self) -> bool:
        """Does this noise really give the budget?"""
        return self.epsilon_exact <= self.budget.epsilon


def replant(budget: Budget, *, leaves: tuple[int, ...], method: str = "tight", visits: int = 1) -> Replanted:
    """Noise for trees of so many leaves, one after the other.

    Args:
        budget: epsilon, delta and adjacency.
        leaves: of every phase's tree, >= 1.
        method: "tight", sigma^2 = visits^2 kappa Delta^2 / mu*^2, exact for all phases together; "theorem", sigma^2 =
            64 nu ln(2/delta) / epsilon^2 as printed in Algorithm 5, nu = 1 + ceil(log2(leaves)) of the largest tree,
            which is meant for one tree.
        visits: r, rounds of one user that are protected together: group privacy.

    Example:
        >>> noise = replant(Budget(1.0, 0.1), leaves=(3, 5, 9))
        >>> noise.releases_per_user, round(noise.sigma, 2)
        (8.0, 6.14)
        >>> round(replant(Budget(1.0, 0.1), leaves=(3, 5, 9), method="theorem").sigma, 2)
        30.96

    Reference: Liu et al. (2022), Algorithm 5; its text has ln(2/delta)^2 instead, which is more noise.
    """
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a fb.privacy.Budget, got {budget!r}")
    validate.one_of("method", method, METHODS)
    for count in leaves:
        validate.integer("leaves", count, at_least=1)
    visits = validate.integer("visits", visits, at_least=1)
    sensitivity = visits * math.sqrt(_kappa(leaves) * budget.matrix_sensitivity_sq)
    if method == "tight":
        sigma, epsilon = sensitivity / gaussian_mu(budget.epsilon, budget.delta), budget.epsilon
    else:
        nu = 1 + math.ceil(math.log2(max(leaves)))
        sigma = 8 * math.sqrt(nu * math.log(2 / budget.delta)) / budget.epsilon
        epsilon = gaussian_epsilon(sensitivity / sigma, budget.delta)
    return Replanted(
        budget=budget, method=method, leaves=tuple(leaves), visits=visits, sigma=sigma, epsilon_exact=epsilon
    )


def _kappa(leaves: tuple[int, ...]) -> int:
    """Squared sensitivity of all releases to one datum, relative to one release."""
    return max(1, sum(map(int.bit_length, leaves)) - 1)
