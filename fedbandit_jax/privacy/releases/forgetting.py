"""Sums that forget as workloads A = R C: a discount or a window over batches, and the release that suits it.

For batch sums gamma_j a workload is (A gamma)_k = sum_{j <= k} a_{k-j} gamma_j, a_0 = 1. Prefix sums are the workload a
= 1. Each workload is a function of prefix sums, through their differences. So a release of prefix sums with noise R z
also releases A gamma with noise A C^-1 z. That is post-processing. The workload only decides which C is best. These
releases have the first columns

    Discounted(g): c_j = g^j binom(2j, j) / 4^j,   the square root of A, a_j = g^j
    Window(w):     c_j = binom(2j, j) / 4^j for j < w,   the square root of A within the window

cut off after p bands. As c does not increase, sensitivities are exact (see `participation`). As 1 = c_0 > c_1 > ...,
the noise C^-1 z of single batches does not build up.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array
from jaxtyping import Float
from typing_extensions import override

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.releases.matrices import MOST_KEPT
from fedbandit_jax.privacy.releases.release import Release
from fedbandit_jax.privacy.releases.toeplitz import MAX_BANDS, BandedToeplitz, sqrt_column


class Memory(abc.ABC):
    """A workload of sums that forget. Calling it with n_syncs makes the release with least noise on it."""

    @abc.abstractmethod
    def weights(self, n_syncs: int) -> Float[np.ndarray, " S"]:
        """Returns a_0, ..., a_{S-1}, the weight of a batch by its age."""

    @abc.abstractmethod
    def start(self, like: Any) -> Any:
        """Returns the state before the first batch, for arrays shaped like `like`."""

    @abc.abstractmethod
    def add(self, state: Any, batch: Array) -> tuple[Array, Any]:
        """Returns the weighted sum with one more batch (*shape), and the next state."""

    @abc.abstractmethod
    def __call__(self, n_syncs: int) -> BandedToeplitz:
        """Returns the release for S = `n_syncs` synchronisations."""

    def variance(self, release: Release) -> Float[np.ndarray, " S"]:
        """Computes the noise variance of every weighted sum under a release of prefix sums, for noise of variance 1.

        Raises:
            ValueError: if there are more than 2,048 synchronisations.
        """
        n = int(release.n_syncs)
        if n > MOST_KEPT:
            raise BadValue("n_syncs", f"must be <= {MOST_KEPT} for sums that forget", n)
        alone = np.diff(release.decoder(), axis=0, prepend=0)  # C^-1, or like it
        return ((scipy.linalg.toeplitz(self.weights(n), np.zeros(n)) @ alone) ** 2).sum(1)


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class Discounted(Memory):
    """Sums with weights that every later batch multiplies by `decay`; also the release that suits them.

    The release is the square-root Toeplitz matrix of the discounted workload. At equal privacy a discounted sum has 40
    % of its noise variance under "input_perturbation", at decay 0.9. At 0.95 it is 27 %. It is for policies that
    forget, `fb.algos.Forgetting`. Other policies read prefix sums from it, with more noise than under "blt".

    Args:
        decay: g in (0, 1), at most 0.998. A batch is forgotten after about 1 / (1 - g) later ones.

    Raises:
        ValueError, TypeError: if `decay` is not a number in (0, 0.998].

    Example:
        >>> from fedbandit_jax.privacy import RELEASES
        >>> memory = Discounted(0.9)
        >>> for release in (memory(400), RELEASES["input_perturbation"](400), RELEASES["blt"](400)):
        ...     print(round(memory.variance(release).max() * release.sensitivity_sq(), 2))
        2.11
        5.26
        3.82

    Reference: Bolot, Fawaz, Muthukrishnan, Nikolov & Taft (2013) for sums that decay. Kalinin & Lampert (2024) for the
    banded square root of this workload.
    """

    decay: float

    def __post_init__(self):
        validate.probability("decay", self.decay)
        validate.within("decay", self.decay, 0, 1 - 2 / MAX_BANDS)

    @override
    def weights(self, n_syncs: int) -> Float[np.ndarray, " S"]:
        return float(self.decay) ** np.arange(n_syncs)

    @override
    def start(self, like: Any) -> Any:
        return jnp.zeros(like.shape)

    @override
    def add(self, state: Any, batch: Array) -> tuple[Array, Any]:
        total = self.decay * state + batch
        return total, total

    @override
    def __call__(self, n_syncs: int) -> BandedToeplitz:
        column = sqrt_column(round(2 / (1 - self.decay)))  # beyond, little is left of c
        return BandedToeplitz(n_syncs, (column * self.weights(len(column))).astype(np.float32), "Discounted")


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class Window(Memory):
    """Sums over the last `batches` batches; also the release that suits them.

    The release is the square-root Toeplitz matrix with w bands. At equal privacy a sum over 10 batches has 41 % of the
    noise variance of ten single ones. It is for policies that forget, `fb.algos.Forgetting`.

    Args:
        batches: w, an integer in [1, 1024].

    Raises:
        ValueError, TypeError: if `batches` is not such an integer.

    Example:
        >>> from fedbandit_jax.privacy import RELEASES
        >>> memory = Window(10)
        >>> for release in (memory(400), RELEASES["input_perturbation"](400), RELEASES["blt"](400)):
        ...     print(round(memory.variance(release).max() * release.sensitivity_sq(), 2))
        4.06
        10.0
        8.08
    """

    batches: int = struct.static()

    def __post_init__(self):
        object.__setattr__(self, "batches", validate.count("batches", self.batches, MAX_BANDS))

    @override
    def weights(self, n_syncs: int) -> Float[np.ndarray, " S"]:
        return (np.arange(n_syncs) < self.batches).astype(float)

    @override
    def start(self, like: Any) -> Any:
        return jnp.zeros((self.batches - 1, *like.shape))

    @override
    def add(self, state: Any, batch: Array) -> tuple[Array, Any]:
        return batch + state.sum(0), jnp.concatenate([batch[None], state])[: len(state)]

    @override
    def __call__(self, n_syncs: int) -> BandedToeplitz:
        return BandedToeplitz(n_syncs, sqrt_column(self.batches).astype(np.float32), "Window")
