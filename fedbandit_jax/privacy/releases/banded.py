"""Toeplitz releases of few bands, for rare visits: each message has the last batches only.

With p bands c_0, ..., c_{p-1} the columns of two batches are orthogonal if these are at least p apart. So r
contributions that far apart move all messages sqrt(r) times as far as one does, not r times.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.signal import lfilter
from scipy.special import expit, logit
from typing_extensions import override

from fedbandit_jax.core import struct, validate
from fedbandit_jax.privacy.releases.participation import of_column, shifted
from fedbandit_jax.privacy.releases.release import Release
from fedbandit_jax.privacy.releases.toeplitz import MAX_OPTIMISED, Buffered, sqrt_column
from fedbandit_jax.privacy.users import Users

MAX_BANDS = 1024  # the states hold that number of batch sums


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True, eq=False)
class BandedToeplitz(Buffered):
    """The release with messages m_k = gamma_k + c_1 gamma_{k-1} + ... + c_{p-1} gamma_{k-p+1}, 1 >= c_1 >= ... >= 0.

    The server finds the noisy batch sum g_k = m_k - c_1 g_{k-1} - ... - c_{p-1} g_{k-p+1}, and adds it to the prefix.
    Noise does not build up in g, because such a polynomial c has no root inside the unit circle. The states hold the
    last p - 1 batch sums, (bands - 1, *shape), for any S. The server's state also holds the prefix.
    """

    coefficients: Any = dataclasses.field(repr=False)  # (bands,) float32, 1 = c_0 >= c_1 >= ... >= 0
    of: str = struct.static()  # name of the recipe

    @override
    def column(self) -> Float[np.ndarray, " S"]:
        n = int(self.n_syncs)
        kept = self._exact[:n]
        return np.pad(kept, (0, n - len(kept)))

    @override
    def response(self) -> Float[np.ndarray, " S"]:
        return _divided(np.ones(int(self.n_syncs)), self._exact)

    @property
    def _exact(self) -> np.ndarray:
        return np.append(1.0, np.asarray(self.coefficients, float)[1:])  # messages do not read c_0

    @override
    def encode_init(self, shape: tuple[int, ...]) -> Float[Array, " recent *shape"]:
        return jnp.zeros((len(self.coefficients) - 1, *shape))

    @override
    def tail(self, buffers: Array) -> Array:
        return jnp.tensordot(jnp.asarray(self.coefficients, buffers.dtype)[1:], buffers, axes=1, precision="highest")

    @override
    def push(self, buffers: Array, new: Array) -> Array:
        return jnp.concatenate([jnp.asarray(new, buffers.dtype)[None], buffers])[: len(buffers)]


@dataclasses.dataclass(frozen=True)
class Banded:
    """The square-root Toeplitz release cut off after p bands: c_j = binom(2j, j) / 4^j for j < p.

    Args:
        bands: p, about the distance of one user's batches. One band is "input_perturbation".

    Raises:
        ValueError, TypeError: if `bands` is not an integer in [1, 1024].

    Example:
        >>> apart = Users(visits=16, per_batch=1, apart=5)
        >>> for release in (Banded(10)(80), Banded(80)(80)):
        ...     print(round(release.largest_variance() * release.sensitivity_sq(apart)))
        338
        442

    Reference: Kalinin & Lampert (2024), banded square root factorisation.
    """

    bands: int

    def __post_init__(self):
        object.__setattr__(self, "bands", validate.count("bands", self.bands, MAX_BANDS))

    def __call__(self, n_syncs: int) -> Release:
        """Returns the release for S = `n_syncs` synchronisations."""
        return BandedToeplitz(n_syncs, np.asarray(sqrt_column(self.bands), np.float32), "Banded")


@dataclasses.dataclass(frozen=True)
class BandMF:
    """The banded Toeplitz release of least largest prefix variance times squared sensitivity, for a pattern of visits.

    Its coefficients do not increase, which makes the sensitivity exact. They are a local optimum, found from the
    coefficients of `Banded`.

    Args:
        bands: p. With more than `users.apart` bands the columns of one user overlap, and the search accounts for it.
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
        validate.instance("users", self.users, Users, "an fb.privacy.Users")

    def __call__(self, n_syncs: int) -> Release:
        """Returns the release for S = `n_syncs` synchronisations, at most 65,536."""
        n = validate.count("n_syncs", n_syncs, MAX_OPTIMISED)
        return BandedToeplitz(n, np.array(_optimised(n, self.bands, self.users), np.float32), "BandMF")


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
    is the energy of t = sum_i n_i shift^{b i} c, the columns of the worst pattern, see `participation`.
    """
    r = _divided(np.ones(n_syncs), c)
    back = _divided(r[::-1], c)[::-1]
    noise = np.array([-2 * back[j:] @ r[: n_syncs - j] for j in range(len(c))])
    column, counts = np.pad(c, (0, n_syncs - len(c))), users.counts(n_syncs)
    added = shifted(column, counts, users.apart)
    moved = np.zeros(len(c))
    for i, count in enumerate(counts):
        seen = added[i * users.apart :][: len(c)]
        moved[: len(seen)] += 2 * count * seen
    variance, squared = (r**2).sum(), of_column(column, users).squared
    return float(np.log(variance * squared)), noise / variance + moved / squared


def _divided(series: np.ndarray, c: np.ndarray) -> np.ndarray:  # power series
    return np.asarray(lfilter([1.0], c, series))
