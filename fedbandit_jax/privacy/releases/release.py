"""The interface of a continual release, two linear recurrences with the prefix sum as product, and its least noise."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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
    and `decode` is R. Sensitivity and variance follow from their matrices, unless a subclass has closed forms. The
    package's own releases are pytrees with S and all coefficients as leaves. Their states have room for other S, and
    one compiled program serves many horizons.

    Args:
        n_syncs: S, the number of synchronisations.

    Example:
        >>> class Prefixes(Release):  # send every prefix sum itself: one user is in all S messages
        ...     def encode_init(self, shape):
        ...         return jnp.zeros(shape)
        ...     def encode(self, state, k, gamma):
        ...         return state + gamma, state + gamma
        ...     def init(self, shape):
        ...         return ()
        ...     def decode(self, state, k, message):
        ...         return message, state
        >>> release = Prefixes(3)
        >>> release.sensitivity_sq(), release.touched(), release.prefix_variance()
        (3.0, 3, array([1., 1., 1.]))

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

    def encoder(self) -> Float[np.ndarray, "S S"]:
        """Returns C as a float64 matrix."""
        return self._materialise(self.encode_init, self.encode)

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
        return self._materialise(self.init, self.decode)

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

    def _materialise(self, init: Callable[..., Any], recurrence: Callable[..., Any]) -> Any:
        n = self._size()

        def unit(state, k):
            return recurrence(state, k, (jnp.arange(1, n + 1) == k).astype(float))

        return in_float64(lambda ks: outputs(init((n,)), unit, ks), np.arange(1, n + 1, dtype=np.int32))


def outputs(init: Any, recurrence: Callable[..., Any], *inputs: Array) -> Any:
    """Returns all outputs of a recurrence from this state, stacked over its inputs. States keep their types."""

    def body(state, given):
        output, new = recurrence(state, *given)
        return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state, new), output

    return jax.lax.scan(body, init, inputs)[1]


def in_float64(function: Callable[..., Any], *inputs: np.ndarray) -> Any:
    """Returns the value of a function, compiled as one program with 64-bit floats."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(function)(*inputs))


def least_std(n_syncs: int) -> float:
    """Computes a lower bound on the largest std of a private prefix sum, for any release with sensitivity 1.

    Let A = R C be any factorisation, r the largest row norm of R and c the largest column norm of C. Then r c compares
    releases at equal privacy. Let |X|_* be the sum of singular values and |X|_F the Frobenius norm. Then |R C|_* <=
    |R|_F |C|_F (Cauchy-Schwarz for singular values), |R|_F <= sqrt(S) r and |C|_F <= sqrt(S) c. Hence

        r c >= |A|_* / S = (1 / S) sum_{j = 1..S} 1 / (2 sin((2 j - 1) pi / (4 S + 2))).

    These are the singular values. A^-1 takes differences. So (A A')^-1 is tridiagonal with 2 on the diagonal, 1 as its
    last entry, and -1 next to it. Its eigenvectors are v_k = sin(k t) with t = (2 j - 1) pi / (2 S + 1). They have v_0
    = 0, v_{S+1} = v_S and 2 v_k - v_{k-1} - v_{k+1} = (2 sin(t / 2))^2 v_k.

    The bound is (ln S) / pi + O(1). So is the best r c, the gamma_2 norm of A (Matousek, Nikolov & Talwar 2020). It
    also holds for releases that look into the future.

    >>> round(least_std(400), 3)
    2.612
    """
    s = validate.integer("n_syncs", n_syncs, at_least=1)
    j = np.arange(1, s + 1)
    return float((0.5 / np.sin((2 * j - 1) * (math.pi / (4 * s + 2)))).sum()) / s


def relative_std(release: Release) -> float:
    """Computes the largest std of a private prefix sum at equal privacy, relative to `least_std`.

    It is at least 1. The bound may be below the least possible. At S = 16, 64 and 400 the best releases have 1.047,
    1.035 and 1.022.

    Example:
        >>> from fedbandit_jax.privacy.releases import RELEASES
        >>> for name, make in RELEASES.items():
        ...     print(f"{name:18} {relative_std(make(400)):.3f}")
        tree               3.248
        sqrt_toeplitz      1.138
        blt                1.139
        input_perturbation 7.657

    Raises:
        TypeError: if `release` is not a `Release`.
    """
    validate.instance("release", release, Release, "an fb.privacy.Release")
    return math.sqrt(release.largest_variance() * release.sensitivity_sq()) / least_std(release.n_syncs)
