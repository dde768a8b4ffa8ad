"""Banded Toeplitz releases for users who return: C has few bands, or its inverse has.

With p bands c_0, ..., c_{p-1} the columns of two batches are orthogonal if these are at least p apart. So r
contributions that far apart move all messages sqrt(r) times as far as one does, not r times.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import expit, logit

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.releases.participation import checked, shifted
from fedbandit_jax.privacy.releases.release import Release
from fedbandit_jax.privacy.releases.toeplitz import MAX_BANDS, BandedInverse, BandedToeplitz, divided, sqrt_column
from fedbandit_jax.privacy.users import Users

MAX_OPTIMISED = 2**16  # most synchronisations S for which coefficients are optimised


@dataclasses.dataclass(frozen=True)
class BandMF:
    """The banded Toeplitz release of least largest prefix variance times squared sensitivity, for a pattern of visits.

    Its coefficients do not increase, which makes the sensitivity exact. They are a local optimum, found from the first
    bands of the square root of the prefix-sum matrix.

    Args:
        bands: p. With more than `users.apart` bands the columns of one user overlap. The search accounts for it.
        users: how often and how close together a user contributes.

    Raises:
        ValueError, TypeError: if `bands` is not an integer in [1, 1024], or `users` is no `Users`.

    Example:
        >>> apart = Users(visits=16, per_batch=1, apart=5)
        >>> release = BandMF(10, apart)(80)
        >>> round(release.largest_variance() * release.sensitivity_sq(apart))
        311

    Reference: Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu (2023); McKenna (2024) for Toeplitz.
    """

    bands: int
    users: Users

    def __post_init__(self):
        object.__setattr__(self, "bands", validate.count("bands", self.bands, MAX_BANDS))
        checked(self.users)

    def __call__(self, n_syncs: int) -> Release:
        """Returns the release for S = `n_syncs` synchronisations, at most 65,536."""
        n = validate.count("n_syncs", n_syncs, MAX_OPTIMISED)
        return BandedToeplitz(n, np.array(_optimised(n, self.bands, self.users), np.float32), "BandMF")


@dataclasses.dataclass(frozen=True)
class BISR:
    """The banded inverse square root: C^-1 has the first p coefficients of the series (1 - x)^(1/2).

    With 1 band it is input perturbation, and with S bands the square root of the prefix-sum matrix. Nothing is
    optimised, so S may be large.

    The coefficients are -binom(2j, j) / (4^j (2j - 1)). Those from j = 1 on are -w_j with w_j > 0. So the first column
    of C has c_k = w_1 c_{k-1} + ... + w_{p-1} c_{k-p+1}. Its first p entries are those of the square root, which fall.
    For k >= p, c_k - c_{k-1} is the sum of w_j (c_{k-j} - c_{k-j-1}). By induction the column does not increase, which
    makes the sensitivity exact.

    Args:
        bands: p.

    Raises:
        ValueError, TypeError: if `bands` is not an integer in [1, 1024].

    Example:
        >>> apart = Users(visits=16, per_batch=1, apart=5)
        >>> release = BISR(5)(80)
        >>> round(release.largest_variance() * release.sensitivity_sq(apart))
        349

    Reference: Kalinin, McKenna, Upadhyay & Lampert (2025), arXiv:2505.12128. We derived the recurrences and the
    monotone column.
    """

    bands: int

    def __post_init__(self):
        object.__setattr__(self, "bands", validate.count("bands", self.bands, MAX_BANDS))

    def __call__(self, n_syncs: int) -> Release:
        """Returns the release for S = `n_syncs` synchronisations."""
        j = np.arange(self.bands)
        return BandedInverse(n_syncs, (-sqrt_column(self.bands) / (2 * j - 1)).astype(np.float32), "BISR")


@functools.lru_cache
def _optimised(n_syncs: int, bands: int, users: Users) -> tuple[float, ...]:
    """Returns the coefficients c_0, ..., c_{p-1} of least `banded_loss`; c_j / c_{j-1} is in (0, 1)."""
    few = min(bands, n_syncs)
    if few == 1:
        return (1.0,) + (0.0,) * (bands - 1)

    def log_loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        ratios = expit(x)
        c = np.cumprod(np.append(1.0, ratios))
        loss, slope = banded_loss(c, n_syncs, users)
        return loss, (1 - ratios) * np.cumsum((c * slope)[:0:-1])[::-1]

    start = logit(sqrt_column(few)[1:] / sqrt_column(few)[:-1])
    x = minimize(log_loss, start, method="L-BFGS-B", jac=True, options={"maxiter": 2000, "ftol": 1e-13}).x
    return (*np.cumprod(np.append(1.0, expit(x))), *[0.0] * (bands - few))


def banded_loss(
    c: Float[np.ndarray, " bands"], n_syncs: int, users: Users
) -> tuple[float, Float[np.ndarray, " bands"]]:
    """Computes log (the last prefix's variance times the squared sensitivity) of nonincreasing c, and its gradient.

    R = A C^-1 has the first column r with C r = 1. Hence d|r|^2 = -2 lambda' dC r with C' lambda = r. The sensitivity
    is v^2 times the energy of sum_i shift^{b i} c, the columns of the worst pattern, see `participation`.
    """
    r = divided(np.ones(n_syncs), c)
    back = divided(r[::-1], c)[::-1]
    noise = np.array([-2 * back[j:] @ r[: n_syncs - j] for j in range(len(c))])
    m, moved = users.batches(n_syncs), np.zeros(len(c))
    added = shifted(np.pad(c, (0, n_syncs - len(c))), m, users.apart)
    for i in range(m):
        seen = added[i * users.apart :][: len(c)]
        moved[: len(seen)] += 2 * seen
    variance, squared = (r**2).sum(), (added**2).sum()
    return float(np.log(variance * squared * users.most**2)), noise / variance + moved / squared
