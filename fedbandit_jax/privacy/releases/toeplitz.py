"""Releases with lower triangular Toeplitz factors: C_kj = c_{k-j} and R_kj = r_{k-j} for j <= k.

C (S, S) makes the messages from the batch sums. R (S, S) makes the prefix sums from the messages, see `Release`.
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
from scipy.signal import lfilter
from typing_extensions import override

from fedbandit_jax.core import padding, struct, validate
from fedbandit_jax.privacy.releases.participation import of_column
from fedbandit_jax.privacy.releases.release import Release
from fedbandit_jax.privacy.users import ONCE, Users

MAX_SYNCS = 10**7  # most synchronisations S with a list of coefficients c_j
MAX_BANDS = 1024  # most bands p of a recipe: the states hold p - 1 batch sums


@dataclasses.dataclass(frozen=True)
class Toeplitz(Release):
    """Base class of lower triangular Toeplitz factors, with S at most `MAX_SYNCS`.

    The silo keeps buffers of the batch sums gamma. Its message is m = gamma + tail, with the tail c_1 gamma_{k-1} + c_2
    gamma_{k-2} + ... The server keeps buffers of the batch sums with noise, g = m - tail. It adds g to the prefix sum.
    Sensitivity follows from the first column of C. Noise follows from the first column of R.
    """

    def __post_init__(self):
        super().__post_init__()
        validate.within("n_syncs", self.n_syncs, 1, MAX_SYNCS)

    @abc.abstractmethod
    def column(self) -> Float[np.ndarray, " S"]:
        """Returns c, the first column of C."""

    @abc.abstractmethod
    def response(self) -> Float[np.ndarray, " S"]:
        """Returns r, the first column of R: the weight of the first message's noise in every prefix."""

    @abc.abstractmethod
    def tail(self, buffers: Array) -> Array:
        """Returns the part of a message that comes from earlier batches, (*shape), from (n_buffers, *shape)."""

    @abc.abstractmethod
    def push(self, buffers: Array, new: Float[Array, "*shape"]) -> Array:
        """Returns the buffers after one more batch."""

    @override
    def encode(self, state: Any, k: Array, gamma: Array) -> tuple[Array, Any]:
        return gamma + self.tail(state), self.push(state, gamma)

    @override
    def init(self, shape: tuple[int, ...]) -> tuple[Float[Array, " n_buffers *shape"], Float[Array, "*shape"]]:
        return self.encode_init(shape), jnp.zeros(shape)

    @override
    def decode(self, state: Any, k: Array, message: Array) -> tuple[Array, Any]:
        buffers, prefix = state
        gamma = message - self.tail(buffers)
        return prefix + gamma, (self.push(buffers, gamma), prefix + gamma)

    @override
    def encoder(self) -> Float[np.ndarray, "S S"]:
        return scipy.linalg.toeplitz(self.column(), np.zeros(self._size()))

    @override
    def sensitivity_sq(self, users: Users = ONCE) -> float:
        return of_column(self.column(), users)

    @override
    def touched(self) -> int:
        return int(np.count_nonzero(self.column()))

    @override
    def message_bound(self) -> float:
        return float(np.abs(self.column()).sum())

    @override
    def prefix_variance(self) -> Float[np.ndarray, " S"]:
        return np.cumsum(self.response() ** 2)

    @override
    def batch_variance(self) -> Float[np.ndarray, " S"]:
        return np.cumsum(np.diff(self.response(), prepend=0) ** 2)


class Bands(Toeplitz):
    """Base class of factors with p bands: m_k = gamma_k + c_1 gamma_{k-1} + ... + c_{p-1} gamma_{k-p+1}.

    The buffers are the last p - 1 batch sums, (p - 1, *shape), for any S. As c does not increase, its polynomial has no
    root inside the unit circle. So noise does not build up in g.
    """

    coefficients: Any  # (p,) float32, 1 = c_0 >= c_1 >= ... >= 0

    @override
    def column(self) -> Float[np.ndarray, " S"]:
        kept = self._exact[: self.n_syncs]
        return np.pad(kept, (0, int(self.n_syncs) - len(kept)))

    @override
    def response(self) -> Float[np.ndarray, " S"]:
        return divided(np.ones(int(self.n_syncs)), self._exact)

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


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True, eq=False)
class BandedToeplitz(Bands):
    """The release with given coefficients that do not increase."""

    coefficients: Any = dataclasses.field(repr=False)
    of: str = struct.static()  # name of the recipe


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True, eq=False)
class BandedInverse(Bands):
    """The release with given coefficients of C^-1: 1 = c_0, and the others <= 0 with a sum >= -1.

    m_k = gamma_k - c_1 m_{k-1} - ... - c_{p-1} m_{k-p+1}. The buffers are the last p - 1 messages.
    """

    coefficients: Any = dataclasses.field(repr=False)
    of: str = struct.static()  # name of the recipe

    @override
    def column(self) -> Float[np.ndarray, " S"]:
        return divided(np.eye(1, int(self.n_syncs))[0], self._exact)

    @override
    def response(self) -> Float[np.ndarray, " S"]:
        return np.cumsum(super().column())

    @override
    def encode(self, state: Any, k: Array, gamma: Array) -> tuple[Array, Any]:
        message = gamma - self.tail(state)
        return message, self.push(state, message)

    @override
    def decode(self, state: Any, k: Array, message: Array) -> tuple[Array, Any]:
        buffers, prefix = state
        prefix = prefix + message + self.tail(buffers)
        return prefix, (self.push(buffers, message), prefix)


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class InputPerturbation(Bands):
    """The release that sends every batch sum once: C = I, and prefix k carries k noises.

    At equal privacy it has the least noise on a batch alone, the difference of two prefixes. So it suits algorithms
    that forget older batches, such as elimination in phases and AdaC-UCB.
    """

    coefficients = np.ones(1, np.float32)


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class SqrtToeplitz(Bands):
    """The release by the square root of the prefix-sum matrix, R = C: c_j = binom(2j, j) / 4^j.

    It has nearly the least noise of all factorisations. Buffers are padded to (size - 1, *shape).

    Args:
        n_syncs: S, the number of synchronisations.

    Reference: Fichtenberger, Henzinger & Upadhyay (2023); Henzinger, Upadhyay & Upadhyay (2023).
    """

    size: int = struct.static(init=False, repr=False, compare=False)  # `padding.room` of S

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "size", padding.room(self.n_syncs))

    @property
    @override
    def coefficients(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sqrt_column(self.size)

    @override
    def column(self) -> Float[np.ndarray, " S"]:
        return sqrt_column(int(self.n_syncs))

    response = column


def sqrt_column(n: int) -> Float[np.ndarray, " n"]:
    """Returns c_0, ..., c_{n-1} with c_j = binom(2j, j) / 4^j."""
    j = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])


def divided(series: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns the power series `series` / `c`, with as many terms as `series`."""
    return np.asarray(lfilter([1.0], c, series))
