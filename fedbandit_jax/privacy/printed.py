"""Noise as papers print it: standard deviations for `Mechanism(std=)`; certificates state the epsilon of each.

Each function maps the `Requirement` of a trust model to a standard deviation of noise. `PRINTED` has them by name.
Theorems and lemmas are from Zhou & Chowdhury (2024), unless another paper is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.trust.requirement import Requirement
from fedbandit_jax.privacy.trust.shuffle import lemma_std

Std = float | str | Callable[[Requirement], float] | None
RANGE = 1e-30, 1e30  # of standard deviations, as float32 has them


def theorem_5_1(need: Requirement) -> float:
    """Computes sqrt(8 kappa (ln(2/delta) + epsilon)) / epsilon, for "silo_local" and one visit of a user."""
    epsilon, delta = need.budget.epsilon - need.pure, need.budget.delta
    return math.sqrt(8 * need.kappa * (math.log(2) - math.log(delta) + epsilon)) / epsilon


def theorem_5_5(need: Requirement) -> float:
    """Computes the noise of "shuffle_vector_sum", through Cheu et al. (2021).

    Each of both streams has half of the budget. Each tree node has (epsilon_0, delta_0) of that. The noise bits have p
    = 1/2 in place of the printed 1/4. Their count is 3/4 of the printed one, for the same variance in every node:

        3/4 * 60,000 ln(4 (E^2 + 1) / delta_0)^2 / epsilon_0^2,   E = d (d + 1) / 2 entries of the covariance.

    Raises:
        ValueError: epsilon is too large for the theorem, which needs epsilon_0 <= 15.
    """
    epsilon, delta, kappa = need.budget.epsilon / 2, need.budget.delta / 2, len(need.points)
    epsilon_0 = epsilon / (2 * math.sqrt(2 * kappa * math.log(2 / delta)))
    if epsilon_0 > 15:
        got = f"{need.budget.epsilon:g}, with epsilon_0 = {epsilon_0:g}"
        bound = "60 sqrt(2 kappa ln(4/delta)), that is epsilon_0 <= 15 in every node (Theorem 5.5)"
        raise BadValue("epsilon", f"must be <= {bound}", need.budget.epsilon, got=got)
    entries = need.dim * (need.dim + 1) // 2
    return math.sqrt(0.75 * 60_000) * math.log(4 * (entries**2 + 1) * 2 * kappa / delta) / epsilon_0


def dubey2020(need: Requirement) -> float:
    """Computes 4 sqrt(m) (L^2 + 1) ln(2/delta) / epsilon, for "silo_local_matrix" and the norm bound L = 1.

    The tree has the depth m = 1 + ceil(log2 S).

    Reference: Dubey & Pentland (2020), PRIVATIZER (Algorithm 2), lines 5-6.
    """
    m = 1 + math.ceil(math.log2(need.release.n_syncs))
    return 8 * math.sqrt(m) * math.log(2 / need.budget.delta) / (need.budget.epsilon - need.pure)


PRINTED: dict[str, Callable[[Requirement], float]] = {
    "theorem_5_1": theorem_5_1,
    "theorem_5_3": lemma_std,
    "theorem_5_5": theorem_5_5,
    "dubey2020": dubey2020,
}


def check_std(std: Std) -> None:
    """Raises an error unless this is a standard deviation, a key of `PRINTED`, a function or None."""
    if isinstance(std, str):
        validate.one_of("std", std, PRINTED)
    elif std is not None and (isinstance(std, type) or not callable(std)):
        validate.within("std", validate.positive("std", std), *RANGE)


def std_of(std: Std, need: Requirement) -> float | None:
    """Returns the standard deviation that `std` is for this use, or None for the least noise; checks `need.pure`."""
    if not 0 <= need.pure < need.budget.epsilon:
        raise BadValue("pure", f"must leave some of epsilon = {need.budget.epsilon:g} for the releases", need.pure)
    rule = PRINTED[std] if isinstance(std, str) else std
    number = rule(need) if callable(rule) else rule
    return None if number is None else validate.within("std", validate.positive("std", number), *RANGE)
