"""What the noise must cover: a budget, a release and its users, and the sensitivity of all messages to one user."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting import gaussian_mu
from fedbandit_jax.privacy.budget import Budget, matrix_sensitivity_sq, sensitivity_sq
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.samplers import LAPLACE_CUT
from fedbandit_jax.privacy.users import ONCE, Users

MOST_TESTS = 2.0**32  # the most noises in the tests of a silo's sums, at most two in each of 2^31 rounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requirement:
    """Requirement of a trust model: the budget, and everything that sensitivity depends on.

    The privacy unit is one user, with as many contributions as `users` allows. Distances are joint l2 norms of all
    messages, with equal noise on all entries.

    Attributes:
        budget: epsilon, delta and adjacency.
        release: the factors C and R of the prefix sums, for S synchronisations.
        users: how often, how close together and at how many silos one user may contribute.
        by_silo: whether the messages of every silo have independent noise. The moves of one user at several silos then
            add up in squares.
        joint_matrix: whether the noise, and the norm of distances, is on the joint matrix of (x, y).
        n_agents: M, the number of silos.
        batch: B, users of one silo in the largest batch. It is 1 if the proof does not depend on it.
        dim: d, the number of features.
        pure: epsilon that a private schedule spends on the same user.
        dropouts: f, silos that may be missing in a sum with their shares of the noise.
        held: the most rounds in one message of a silo that was away; 0: one batch.
        moves_sq: Delta_J^2, squared sensitivity of one batch's packed statistic to one visit; None: as the budget says.
        rounding: excess of one visit's move by rounding, see `BoundStatistic.rounding`.
    """

    budget: Budget
    release: Release
    users: Users = ONCE
    by_silo: bool = False
    joint_matrix: bool = False
    n_agents: int = 1
    batch: int = 1
    dim: int = 1
    pure: float = 0.0
    dropouts: int = 0
    held: int = 0
    moves_sq: float | None = None
    rounding: float = 0.0

    @property
    def largest(self) -> int:
        """Bounds an entry of a silo's sum in one message. Each visit adds 1 at most."""
        return max(self.batch, self.held)

    @property
    def visits(self) -> int:
        """r, the most contributions of one user, at all silos."""
        return self.users.together

    @property
    def draws(self) -> int:
        """Bounds the number of noises in all messages that one user affects: r S D."""
        return self.visits * self.release.n_syncs * packed_size(self.dim)

    @property
    def missing(self) -> float:
        """Bounds the mass of the tails that are never drawn, over all Gaussian noise and the tests of a private
        schedule.
        """
        return self.draws * tails.CUT + (MOST_TESTS * LAPLACE_CUT if self.pure else 0.0)

    @property
    def sensitivity(self) -> float:
        """The joint l2 sensitivity of all messages to one user: sqrt(kappa) Delta_J, and rounding.

        Delta_J is the joint sensitivity of one (x y, x x'), or of (x, y) (x, y)' with `joint_matrix`.
        """
        adjacency, moves_sq = self.budget.adjacency, self.moves_sq
        if self.joint_matrix:
            moves_sq = matrix_sensitivity_sq(adjacency)
        elif moves_sq is None:
            moves_sq = sensitivity_sq(adjacency)
        return math.sqrt(self.kappa) * (math.sqrt(moves_sq) + self.rounding)

    @functools.cached_property
    def kappa(self) -> float:
        """Computes the squared sensitivity of all messages to one user, for contributions that move a sum by 1 each.

        At k silos that count separately the user moves independent messages. If silos are added up, these are the same
        messages. If silos count together, k is 1 for both, see `participation`.
        """
        silos = self.users.counts
        return (silos if self.by_silo else silos**2) * self.release.sensitivity_sq(self.users)

    @property
    def points(self) -> list[int]:
        """Returns the users of one silo in a tree node of level 0, 1, ...: B, 2B, ..."""
        return [self.batch << level for level in range(self.release.touched())]

    @property
    def mu(self) -> float:
        """Returns the mu of the mu-GDP (Gaussian differential privacy) that the budget allows besides the schedule."""
        return allowed_mu(self.budget.epsilon, self.budget.delta, self.missing, self.pure)

    def epsilon(self, at: Callable[[float], float], missing: float) -> float:
        """Returns the epsilon proved at the budget's delta. `at` maps delta to epsilon for the ideal noise."""
        return tails.epsilon(at, self.budget.delta, self.budget.epsilon, missing)


def allowed_mu(epsilon: float, delta: float, missing: float, pure: float = 0.0) -> float:
    """Returns the mu of the mu-GDP that (epsilon, delta) allows with a `pure`-DP part, with the tails charged to delta.

    If tails of the mass `missing` cost more than delta, nothing is proved. The noise is then as for the ideal law.
    """
    left = delta - tails.smallest_delta(epsilon, missing)
    return gaussian_mu(epsilon, left if left > 0 else delta, pure)
