"""The interface of a continual release: two linear recurrences with the prefix sum as product."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import numpy as np
import scipy.linalg
from jax import Array
from jaxtyping import Float, Int

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.releases.participation import of_encoder
from fedbandit_jax.privacy.users import ONCE, Users

MAX_MATERIALISED = 10_000  # most synchronisations S for which an (S, S) matrix is built


@dataclasses.dataclass(frozen=True)
class Release(abc.ABC):
    """A factorisation A = R C of the (S, S) prefix-sum matrix, A_kj = 1 for j <= k and 0 otherwise.

    For batch sums gamma_1, ..., gamma_S a silo sends C gamma + z with fresh noise z ~ N(0, sigma^2) on every entry. The
    trust model decides which party draws z and which is trusted. The k-th private prefix sum is row k of R (C gamma +
    z) = A gamma + R z. One user is in one batch. So all messages together move by at most the largest column norm of C
    times the sensitivity of one batch sum. This holds also if the batches depend on earlier releases.

    A subclass says how both factors act, entry by entry and linearly, on arrays of any shape (*shape). `encode` is C
    and `decode` is R. Sensitivity and variance follow from C, unless a subclass has closed forms. Releases are pytrees
    with S and all coefficients as leaves. Their states have room for other S, and one compiled program serves many
    horizons.

    Args:
        n_syncs: S, the number of synchronisations.

    Reference: Li, Miklau, Hay, McGregor & Rastogi (2015); Denisov, McMahan, Rush, Smith & Thakurta (2022), Theorem 2.1.
    """

    n_syncs: int

    def __post_init__(self):
        object.__setattr__(self, "n_syncs", validate.integer("n_syncs", self.n_syncs, at_least=1))

    @abc.abstractmethod
    def encode_init(self, shape: tuple[int, ...]) -> Any:
        """Returns the state of a silo before its first message about arrays of this shape."""

    @abc.abstractmethod
    def encode(
        self, state: Any, k: Int[Array, ""], gamma: Float[Array, "*shape"]
    ) -> tuple[Float[Array, "*shape"], Any]:
        """Returns message k = 1, 2, ..., S without noise, from the sum gamma over batch k, and the next state."""

    @abc.abstractmethod
    def init(self, shape: tuple[int, ...]) -> Any:
        """Returns the state of `decode` before the first message about arrays of this shape."""

    @abc.abstractmethod
    def decode(
        self, state: Any, k: Int[Array, ""], message: Float[Array, "*shape"]
    ) -> tuple[Float[Array, "*shape"], Any]:
        """Returns prefix sum k from message k, and the next state."""

    @abc.abstractmethod
    def encoder(self) -> Float[np.ndarray, "S S"]:
        """Returns C as a float64 matrix."""

    def sensitivity_sq(self, users: Users = ONCE) -> float:
        """Returns the largest squared column norm of C; for trees, the number kappa of nodes that contain one batch.

        It is the squared l2 move of all messages together if one batch sum moves by 1. With `users`, the sum of every
        batch moves by 1 for each of the user's contributions to it. It is then an upper bound, see `participation`.
        """
        return of_encoder(self.encoder(), users)

    def touched(self) -> int:
        """Returns the most messages that one batch enters."""
        return int(np.count_nonzero(self.encoder(), axis=0).max())

    def message_bound(self) -> float:
        """Returns the largest absolute row sum of C. It bounds messages if the entries of batch sums are in [-1, 1]."""
        return float(np.abs(self.encoder()).sum(1).max())

    def decoder(self) -> Float[np.ndarray, "S S"]:
        """Returns R as a float64 matrix: all prefixes have the noise R z, with one fresh z at each synchronisation."""
        c = self.encoder()
        return scipy.linalg.solve_triangular(c, np.tril(np.ones(c.shape)).T, trans=1, lower=True).T

    def prefix_variance(self) -> Float[np.ndarray, " S"]:
        """Returns the noise variance of every prefix for noise of variance 1: the squared row norms of R."""
        return (self.decoder() ** 2).sum(1)

    def batch_variance(self) -> Float[np.ndarray, " S"]:
        """Returns the noise variance of every batch alone, the difference of two prefixes, for noise of variance 1."""
        return (np.diff(self.decoder(), axis=0, prepend=0) ** 2).sum(1)

    def largest_variance(self) -> float:
        """Returns the largest `prefix_variance`."""
        return float(self.prefix_variance().max())

    def _size(self) -> int:
        n, name = int(self.n_syncs), type(self).__name__
        if n > MAX_MATERIALISED:
            raise BadValue("n_syncs", f"must be <= {MAX_MATERIALISED} unless {name} has closed forms", n)
        return n
