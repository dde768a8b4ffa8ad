"""A continual release: two linear recurrences that multiply to the prefix sum."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import validate

MAX_MATERIALISED = 10_000


@dataclasses.dataclass(frozen=True)
class Release(abc.ABC):
    """A factorisation A = R C of the (S, S) prefix-sum matrix, A_kj = 1 for j <= k.

    For batch sums gamma_1, ..., gamma_S a silo sends C gamma + z with fresh noise z ~ N(0, sigma^2); the k-th private
    prefix sum is row k of R (C gamma + z) = A gamma + R z. One user is in one batch, so all messages together move by
    at most the largest column norm of C times the sensitivity of one batch sum, adaptive choices included.

    A subclass says how both factors act, entry by entry on arrays of any shape and linearly: `encode` is C, `decode`
    is R. Sensitivity and variance follow from the matrices of these two; a subclass may know closed forms. Hashable:
    a release is part of the compiled program.

    Args:
        n_syncs: S, the number of synchronisations.

    Example:
        >>> class Prefixes(Release):  # send every prefix sum itself: one user is in all S messages
        ...     def encode_init(self, shape):
        ...         return jnp.zeros(shape)
        ...     def encode(self, state, k, gamma):
        ...         return (state + gamma)[None], state + gamma
        ...     def init(self, shape):
        ...         return ()
        ...     def decode(self, state, k, message):
        ...         return message[0], state
        >>> release = Prefixes(3)
        >>> release.sensitivity_sq(), release.touched(), release.prefix_variance()
        (3.0, 3, array([1., 1., 1.]))

    Reference: Li, Miklau, Hay, McGregor & Rastogi (2015); Denisov, McMahan, Rush, Smith & Thakurta (2022), Theorem 2.1.
    """

    n_syncs: int

    prefix_at_silo: ClassVar[bool] = False
    """Does the silo decode its own messages and send the private prefix sum?"""

    def __post_init__(self):
        validate.integer("n_syncs", self.n_syncs, at_least=1)

    @property
    def n_parts(self) -> int:
        """P, parts of one message, each with noise of its own."""
        return 1

    def live(self, k: Array) -> Array:
        """Which parts are really sent at synchronisation k, (P,) bool."""
        return jnp.ones(self.n_parts, bool)

    @abc.abstractmethod
    def encode_init(self, shape: tuple[int, ...]) -> Any:
        """What a silo remembers before its first message about arrays of this shape."""

    @abc.abstractmethod
    def encode(self, state: Any, k: Array, gamma: Array) -> tuple[Array, Any]:
        """Message k = 1, 2, ..., S without noise, (P, *shape), from batch sum k, and the next state."""

    @abc.abstractmethod
    def init(self, shape: tuple[int, ...]) -> Any:
        """What `decode`, and `step`, remember before the first message."""

    @abc.abstractmethod
    def decode(self, state: Any, k: Array, message: Array) -> tuple[Array, Any]:
        """Prefix sum k from message k, and the next state. Parts that are not live do not count."""

    def step(self, state: Any, k: Array, z: Array) -> tuple[Array, Any]:
        """Noise of prefix k from one fresh draw z of the array's shape, and the next state (`init` before the first).

        The law is that of `decode` on messages of iid noise with the variance of z.
        """
        if self.n_parts != 1:
            raise NotImplementedError(f"{type(self).__name__} sends {self.n_parts} parts at once and must define step")
        return self.decode(state, k, z[None])

    def encoder(self) -> np.ndarray:
        """C, (messages, S): one row for every part that is sent, float64."""
        rows = self._materialise(self.encode_init, self.encode)
        return rows[np.asarray(jax.vmap(self.live)(jnp.arange(1, self.n_syncs + 1)))]

    def sensitivity_sq(self) -> float:
        """Largest squared column norm of C: by how much more than one batch sum all messages move, squared."""
        return float((self.encoder() ** 2).sum(0).max())

    def touched(self) -> int:
        """Largest number of messages that one batch enters."""
        return int(np.count_nonzero(self.encoder(), axis=0).max())

    def message_bound(self) -> float:
        """Largest absolute row sum of C: no entry of a message is larger when those of batch sums are in [-1, 1]."""
        return float(np.abs(self.encoder()).sum(1).max())

    def prefix_variance(self) -> np.ndarray:
        """Variance of the noise of every prefix for noise of variance 1: squared row norms of R, (S,)."""
        return (self._materialise(self.init, self.step) ** 2).sum(1)

    def largest_variance(self) -> float:
        """Of all prefixes; the trees know it without listing them."""
        return float(self.prefix_variance().max())

    def _materialise(self, init: Callable[..., Any], recurrence: Callable[..., Any]) -> np.ndarray:
        """Matrix of a linear recurrence in float64: its outputs when input k is unit vector k, stacked over k."""
        n = self.n_syncs
        if n > MAX_MATERIALISED:
            raise ValueError(
                f"n_syncs must be <= {MAX_MATERIALISED} unless {type(self).__name__} has closed forms, got {n}"
            )

        def body(state, k):
            row, new = recurrence(state, k, (jnp.arange(1, n + 1) == k).astype(float))
            return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state, new), row

        with jax.enable_x64(True):
            return np.asarray(jax.lax.scan(body, init((n,)), jnp.arange(1, n + 1, dtype=jnp.int32))[1])
