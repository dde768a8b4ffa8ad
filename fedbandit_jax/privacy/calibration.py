"""Calibration: the noise that a budget needs, and the epsilon that a given noise is proved to give.

All of this is computed on the host in double precision. A proved epsilon is never optimistic.

Letters: kappa is the squared sensitivity of a release to one user. Delta_J is the joint l2 sensitivity of one batch
sum. Gaussian differential privacy has the parameter mu, sensitivity over standard deviation.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.privacy import compatibility, releases
from fedbandit_jax.privacy import trust as models
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.printed import Std, check_std, std_of
from fedbandit_jax.privacy.trust.model import Proof, Trust
from fedbandit_jax.privacy.trust.requirement import Requirement
from fedbandit_jax.privacy.users import ONCE, Users


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Noise for one continual release, and its proof, read from the bound trust model that draws it.

    Attributes:
        requirement: the budget, and everything that the sensitivity of the messages to one user depends on.
        model: the bound trust model, which holds the noise.
    """

    requirement: Requirement
    model: Trust = dataclasses.field(compare=False)

    @property
    def proof(self) -> Proof:
        """Returns the proof of this noise under the budget's delta and adjacency."""
        return self.model.proof(self.requirement)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on x y and on the diagonal of x x'. Off the diagonal it is sigma / sqrt 2.

        `model.whose` names the message or sum. On the joint matrix sigma is for x y and off the diagonal of x x'. It is
        sqrt 2 sigma on the diagonal.
        """
        return self.proof.sigma

    @property
    def epsilon_exact(self) -> float:
        """The smallest epsilon that this noise is proved to give at the budget's delta."""
        return self.proof.epsilon

    @property
    def releases_per_user(self) -> float:
        """kappa, the squared sensitivity to one user, relative to one message. For trees and one visit, their nodes."""
        return self.requirement.kappa

    @property
    def sound(self) -> bool:
        """Whether this noise is proved to give the budget that was asked for."""
        return self.epsilon_exact <= self.requirement.budget.epsilon


def calibrate(
    budget: Budget,
    *,
    n_syncs: int,
    release: str | releases.Make = "tree",
    std: Std = None,
    trust: models.Model = "silo_local",
    users: Users = ONCE,
    n_agents: int | None = None,
    batch: int | None = None,
    dim: int | None = None,
) -> Calibration:
    """Finds the noise that a continual release of (bias, covariance) sums needs for a budget.

    Users have ||x|| <= 1 and y in [0, 1]. One of them moves a batch's (sum x y, sum x x') by at most Delta_J in joint
    l2 norm. Delta_J^2 is 4.5 under "replace" and 2 under "zero_out". All messages together move by at most sqrt(kappa)
    Delta_J. Here kappa is the squared sensitivity of the release (for trees the number of a user's nodes).

    Args:
        budget: the epsilon, delta and adjacency asked for.
        n_syncs: S = floor(T / B), the number of synchronisations.
        release: a key of `fb.privacy.RELEASES`, or a function of S that returns the matrix C of your own; "blt" has the
            least noise for its memory.
        std: the standard deviation of the noise, as in `Calibration.sigma`. It is a number or a key of
            `fb.privacy.PRINTED` (noise as a paper prints it). It may also be a function from the `Requirement` (budget,
            release and sizes) to a number. None is the least noise that is proved to give the budget. Gaussian noise
            then has sigma^2 = kappa Delta_J^2 / mu*^2. Here mu* is the largest mu that the budget allows:
            delta(epsilon; mu*) = delta. That is exact for one visit and Gaussian noise, and an upper bound on epsilon
            otherwise.
        trust: the party that adds the noise, and the trusted parties. It is a key of `fb.privacy.TRUST`, or an
            `fb.privacy.GaussianTrust`.
        users: how often one user may contribute, see `fb.privacy.Users`; by default once.
        n_agents: M, which only some trust models need.
        batch: B, which only some trust models need.
        dim: d, which only some trust models need. It also gives the count of noisy numbers. The mass that their far
            tails lack is charged to delta.

    Returns:
        A `Calibration`: its `sigma` is the noise, and its `epsilon_exact` says what that noise gives.

    Raises:
        TypeError: if an argument has the wrong type, or the trust model needs one that is None.
        ValueError: if an argument is out of range, or the condition of a printed theorem does not hold.

    Example:
        >>> c = calibrate(Budget(1.0, 0.1), n_syncs=400)
        >>> round(c.sigma ** 2, 1), c.releases_per_user, c.sound
        (47.8, 9.0, True)
        >>> round(calibrate(Budget(1.0, 0.1), n_syncs=400, release="blt").sigma ** 2, 1)
        15.8
        >>> c = calibrate(Budget(5.0, 0.1), n_syncs=400, std=1.62)
        >>> round(c.epsilon_exact, 1), c.sound
        (11.9, False)

    Reference: Zhou & Chowdhury (2024), Theorems 5.1, 5.3, 5.5. Dong, Roth & Su (2022), Corollary 3.3. McMahan, Xu &
    Zhang (2024) for "blt".
    """
    validate.instance("budget", budget, Budget, "an fb.privacy.Budget")
    model = models.find(trust)
    check_std(std)
    n_syncs = validate.integer("n_syncs", n_syncs, at_least=1)
    validate.instance("users", users, Users, "fb.privacy.Users(...)")
    sizes: dict[str, Any] = dict(n_agents=n_agents, batch=batch, dim=dim)
    for name, value in sizes.items():
        if value is not None:
            validate.integer(name, value, at_least=1)
        elif name in model.needs:
            raise BadType(name, f"must be an integer >= 1 with trust={trust!r}", None, others=("trust",))
    compatibility.check(models.tags(trust, release))
    need = Requirement(
        budget=budget,
        release=releases.make(release, n_syncs),
        users=users,
        by_silo=model.per_silo,
        joint_matrix=model.joint_matrix,
        **{name: value or 1 for name, value in sizes.items()},
    )
    return Calibration(requirement=need, model=models.calibrate(need, trust, std_of(std, need)))
