"""Discounted sums as a workload A = R C, and the release that suits it.

For batch sums gamma_j the workload is (A gamma)_k = sum_{j <= k} g^{k-j} gamma_j. Prefix sums are the workload g = 1.
Each workload is a function of prefix sums, through their differences. So a release of prefix sums with noise R z also
releases A gamma with noise A C^-1 z. That is post-processing. The workload only decides which C is best. Here C is the
square root of A, with the first column c_j = g^j binom(2j, j) / 4^j, cut off after p bands. As c does not increase,
the sensitivity is exact (see `participation`). As 1 = c_0 > c_1 > ..., the noise C^-1 z of single batches does not
build up.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
from jax import Array
from jaxtyping import Float

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.releases.matrices import MOST_KEPT
from fedbandit_jax.privacy.releases.release import Release
from fedbandit_jax.privacy.releases.toeplitz import MAX_BANDS, BandedToeplitz, sqrt_column


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class Discounted:
    """Sums with weights that every later batch multiplies by `decay`; also the release that suits them.

    At equal privacy and decay 0.9, a discounted sum has 40 % of the noise variance that "input_perturbation" gives it.
    At decay 0.95 it has 27 %. It is for policies that forget, `fb.algos.Forgetting`. Other policies read prefix sums
    from it, with more noise than under "blt".

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

    def weights(self, n_syncs: int) -> Float[np.ndarray, " S"]:
        """Returns 1, g, g^2, ..., the weight of a batch by its age."""
        return float(self.decay) ** np.arange(n_syncs)

    def add(self, total: Array, batch: Array) -> Array:
        """Returns the discounted sum (*shape) with one more batch."""
        return self.decay * total + batch

    def __call__(self, n_syncs: int) -> BandedToeplitz:
        """Returns the release for S = `n_syncs` synchronisations."""
        column = sqrt_column(round(2 / (1 - self.decay)))  # beyond, little is left of c
        return BandedToeplitz(n_syncs, (column * self.weights(len(column))).astype(np.float32), "Discounted")

    def variance(self, release: Release) -> Float[np.ndarray, " S"]:
        """Computes the noise variance of every discounted sum under a release of prefix sums, for noise of variance 1.

        Raises:
            ValueError: if there are more than 2,048 synchronisations.
        """
        n = int(release.n_syncs)
        if n > MOST_KEPT:
            raise BadValue("n_syncs", f"must be <= {MOST_KEPT} for sums that forget", n)
        alone = np.diff(release.decoder(), axis=0, prepend=0)  # C^-1, or like it
        return ((scipy.linalg.toeplitz(self.weights(n), np.zeros(n)) @ alone) ** 2).sum(1)
