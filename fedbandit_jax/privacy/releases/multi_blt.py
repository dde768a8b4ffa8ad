"""Buffered linear Toeplitz releases with the best coefficients for a user who returns."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from typing_extensions import override

from fedbandit_jax.core import struct, validate
from fedbandit_jax.privacy.releases.blt import Blt, blt_column, blt_loss, optimise
from fedbandit_jax.privacy.releases.participation import of_column
from fedbandit_jax.privacy.releases.toeplitz import MAX_OPTIMISED
from fedbandit_jax.privacy.users import Users

GAP = 1e-6  # least distance of every decay from 1, and of the sum of weights: float32 has both below 1


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class PatternBlt(Blt):
    """The `Blt` with the coefficients of `MultiBlt`, whose sum of omega is below 1: c does not increase."""

    of: ClassVar[str] = "MultiBlt"  # the recipe's name, for certificates
    users: Users = struct.static(default=Users())

    @override
    def _coefficients(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        n = validate.count("n_syncs", self.n_syncs, MAX_OPTIMISED)
        return _optimised(n, self.n_buffers, self.users)


@dataclasses.dataclass(frozen=True)
class MultiBlt:
    """The BLT release of least largest prefix variance times squared sensitivity, for a pattern of visits.

    It needs as little memory as "blt", and no choice of bands.

    Args:
        users: how often and how close together a user contributes.
        n_buffers: number of buffers.

    Raises:
        ValueError, TypeError: if `n_buffers` is not an integer >= 1, or `users` is no `Users`.

    Example:
        >>> from fedbandit_jax.privacy import RELEASES
        >>> apart = Users(visits=16, per_batch=1, apart=5)
        >>> for release in (MultiBlt(apart)(80), RELEASES["blt"](80)):
        ...     print(round(release.largest_variance() * release.sensitivity_sq(apart)))
        337
        442

    Reference: McMahan, Xu & Zhang (2024), "A hassle-free algorithm for strong differential privacy in federated
    learning systems".
    """

    users: Users
    n_buffers: int = 3

    def __post_init__(self):
        validate.instance("users", self.users, Users, "an fb.privacy.Users")
        object.__setattr__(self, "n_buffers", validate.integer("n_buffers", self.n_buffers, at_least=1))

    def __call__(self, n_syncs: int) -> PatternBlt:
        """Returns the release for S = `n_syncs` synchronisations, at most 65,536."""
        return PatternBlt(n_syncs, self.n_buffers, self.users)


@functools.lru_cache
def _optimised(n_syncs: int, n_buffers: int, users: Users) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns (theta, omega), theta decreasing, in float32. The search starts from the optimum for one contribution."""
    theta, omega = optimise(n_syncs, n_buffers)
    omega = omega * min(1, 0.9 / omega.sum())

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (1 - GAP) * expit(x[:n_buffers]), (1 - GAP) * softmax(np.append(x[n_buffers:], 0.0))[:-1]

    def log_loss(x: np.ndarray) -> float:
        theta, omega = parts(x)
        once = blt_column(theta, omega, n_syncs)
        return np.log(blt_loss(theta, omega, n_syncs) / (once**2).sum() * of_column(once, users).squared)

    start = np.concatenate([logit(theta.clip(1e-6, 1 - 1e-6)), np.log(omega / (1 - omega.sum()))])
    x = minimize(log_loss, start, method="BFGS", jac="3-point", options={"gtol": 1e-6}).x
    theta, omega = parts(x)
    best = np.argsort(-theta)
    return tuple(float(np.float32(t)) for t in theta[best]), tuple(float(np.float32(w)) for w in omega[best])
