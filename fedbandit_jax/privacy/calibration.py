"""How much noise a budget needs, and what a given noise really proves. Host-side, never optimistic."""

from __future__ import annotations

import dataclasses
import math

from fedbandit_jax._core import validate
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.budget import Budget

METHODS = ("tight", "theorem", "released")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Noise of one silo's releases.

    Attributes:
        budget: the privacy asked for.
        method: how sigma was found.
        release: name of the continual-release mechanism.
        n_syncs: S, the number of releases.
        releases_per_user: squared sensitivity of the release, kappa for trees.
        sigma: standard deviation of every entry of the noise added to (bias, covariance) in one release.
        epsilon_exact: the smallest epsilon this sigma gives at budget.delta, by exact Gaussian accounting.
    """

    budget: Budget
    method: str
    release: str
    n_syncs: int
    releases_per_user: float
    sigma: float
    epsilon_exact: float

    @property
    def sound(self) -> bool:
        """Does this noise really give the budget?"""
        return self.epsilon_exact <= self.budget.epsilon


def calibrate(budget: Budget, *, n_syncs: int, release: str = "tree", method: str = "tight") -> Calibration:
    """Noise of one silo for a continual release of (bias, covariance) sums under silo-level local DP.

    A user with ||x|| <= 1 and y in [0, 1] moves one batch's (sum x y, sum x x') by Delta_J in joint l2 norm,
    Delta_J^2 = 4.5 under "replace" and 2 under "add_remove", and is in `releases_per_user` releases.

    Args:
        budget: epsilon, delta and adjacency.
        n_syncs: S = floor(T / B), the number of synchronisations.
        release: "tree" or "prefix_tree" (the same noise).
        method: "tight" (default), exact Gaussian DP: sigma^2 = kappa Delta_J^2 / mu*^2 with delta(epsilon; mu*) =
            delta, exact for the worst user, adaptive choices included; "theorem", as printed in Theorem 5.1:
            sigma^2 = 8 kappa (ln(2/delta) + epsilon) / epsilon^2 on each of the two streams; "released", what the
            authors' code does: kappa (ln(1/delta) + epsilon) / epsilon^2, which is unsound.

    Returns:
        A `Calibration`; its `epsilon_exact` says what the noise really gives.

    Raises:
        ValueError, TypeError: naming the argument and its value.

    Example:
        >>> c = calibrate(Budget(1.0, 0.1), n_syncs=400)
        >>> round(c.sigma ** 2, 1), c.releases_per_user, c.sound
        (47.8, 9.0, True)
        >>> c = calibrate(Budget(5.0, 0.1), n_syncs=400, method="released")
        >>> round(c.epsilon_exact, 1), c.sound
        (11.9, False)

    Reference: Zhou & Chowdhury (2024), Theorem 5.1; Dong, Roth & Su (2022), Corollary 3.3.
    """
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a fb.privacy.Budget, got {budget!r}")
    n_syncs = validate.integer("n_syncs", n_syncs, at_least=1)
    validate.one_of("method", method, METHODS)
    kappa = releases.make(release, n_syncs).sensitivity_sq()
    epsilon, delta = budget.epsilon, budget.delta
    sensitivity_sq = kappa * budget.joint_sensitivity_sq
    if method == "tight":
        variance = sensitivity_sq / gaussian_mu(epsilon, delta) ** 2
    elif method == "theorem":
        variance = 8 * kappa * (math.log(2 / delta) + epsilon) / epsilon**2
    else:
        variance = kappa * (math.log(1 / delta) + epsilon) / epsilon**2
    sigma = math.sqrt(variance)
    exact = epsilon if method == "tight" else gaussian_epsilon(math.sqrt(sensitivity_sq) / sigma, delta)
    return Calibration(
        budget=budget,
        method=method,
        release=release,
        n_syncs=n_syncs,
        releases_per_user=kappa,
        sigma=sigma,
        epsilon_exact=exact,
    )
