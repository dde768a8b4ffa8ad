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
from typing_extensions import override

from fedbandit_jax.core import padding, struct, validate
from fedbandit_jax.privacy.releases.participation import Sensitivity, of_column
from fedbandit_jax.privacy.releases.release import Release
from fedbandit_jax.privacy.users import ONCE, Users

MAX_SYNCS = 10**7  # most synchronisations S with a list of coefficients c_j
MAX_OPTIMISED = 2**16  # most synchronisations S for which coefficients are optimised


@dataclasses.dataclass(frozen=True)
class Toeplitz(Release):
    """Base class of lower triangular Toeplitz factors, with S at most `MAX_SYNCS`.

    Everything about C follows from its first column, and everything about the noise from the first column of R.
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

    @override
    def encoder(self) -> Float[np.ndarray, "S S"]:
        return scipy.linalg.toeplitz(self.column(), np.zeros(self._size()))

    @override
    def sensitivity(self, users: Users = ONCE) -> Sensitivity:
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


Buffers = tuple[Float[Array, " n_buffers *shape"] | tuple[()], Float[Array, "*shape"]]  # the server's; the prefix sum


@dataclasses.dataclass(frozen=True)
class Buffered(Toeplitz):
    """Base class of factors that keep the past in buffers, with the tail c_1 gamma_{k-1} + c_2 gamma_{k-2} + ...

    The silo keeps buffers of the batch sums gamma. Its message is m = gamma + tail. The server keeps buffers of the
    batch sums with noise, g = m - tail, and adds g to the prefix sum.
    """

    @abc.abstractmethod
    def tail(self, buffers: Any) -> Any:
        """Returns the part of a message that comes from earlier batches, (*shape), from (n_buffers, *shape)."""

    @abc.abstractmethod
    def push(self, buffers: Any, new: Float[Array, "*shape"]) -> Any:
        """Returns the buffers after one more batch."""

    @override
    def encode(self, state: Any, k: Array, gamma: Array) -> tuple[Array, Any]:
        return (gamma + self.tail(state))[None], self.push(state, gamma)

    @override
    def init(self, shape: tuple[int, ...]) -> Buffers:
        return self.encode_init(shape), jnp.zeros(shape)

    @override
    def decode(self, state: Any, k: Array, message: Array) -> tuple[Array, Any]:
        buffers, prefix = state
        gamma = message[0] - self.tail(buffers)
        return prefix + gamma, (self.push(buffers, gamma), prefix + gamma)


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class InputPerturbation(Buffered):
    """The release that sends every batch sum once: C = I, and prefix k carries k noises.

    At equal privacy it has the least noise on a batch alone, the difference of two prefixes. So it suits algorithms
    that forget older batches, such as elimination in phases and AdaC-UCB.
    """

    @override
    def column(self) -> Float[np.ndarray, " S"]:
        return (np.arange(self.n_syncs) == 0).astype(float)

    @override
    def response(self) -> Float[np.ndarray, " S"]:
        return np.ones(self.n_syncs)

    @override
    def encode_init(self, shape: tuple[int, ...]) -> tuple[()]:
        return ()

    @override
    def tail(self, buffers: Any) -> float:
        return 0.0

    @override
    def push(self, buffers: Any, new: Float[Array, "*shape"]) -> tuple[()]:
        return ()


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True)
class SqrtToeplitz(Toeplitz):
    """The release by the square root of the prefix-sum matrix, R = C: c_j = binom(2j, j) / 4^j.

    It has nearly the least noise of all factorisations. Both states hold all batch sums or messages, padded to (size,
    *shape).

    Args:
        n_syncs: S, the number of synchronisations.

    Reference: Fichtenberger, Henzinger & Upadhyay (2023); Henzinger, Upadhyay & Upadhyay (2023).
    """

    size: int = struct.static(init=False, repr=False, compare=False)  # `padding.room` of S

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "size", padding.room(self.n_syncs))

    @override
    def column(self) -> Float[np.ndarray, " S"]:
        return sqrt_column(int(self.n_syncs))

    @override
    def response(self) -> Float[np.ndarray, " S"]:
        return self.column()

    @override
    def encode_init(self, shape: tuple[int, ...]) -> Float[Array, " size *shape"]:
        return jnp.zeros((self.size, *shape))

    @override
    def encode(self, state: Any, k: Array, gamma: Array) -> tuple[Array, Any]:
        message, state = self._row(state, k, gamma)
        return message[None], state

    init = encode_init  # the server keeps the same number of messages

    @override
    def decode(self, state: Any, k: Array, message: Array) -> tuple[Array, Any]:
        return self._row(state, k, message[0])

    def _row(self, inputs: Array, k: Array, new: Array) -> tuple[Array, Array]:
        inputs = inputs.at[k - 1].set(new)
        age = k - 1 - jnp.arange(self.size)
        weights = jnp.where(age >= 0, jnp.asarray(sqrt_column(self.size))[age], 0)
        return (weights.reshape(-1, *(1,) * new.ndim) * inputs).sum(0), inputs


def sqrt_column(n: int) -> Float[np.ndarray, " n"]:
    """Returns c_0, ..., c_{n-1} with c_j = binom(2j, j) / 4^j."""
    j = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])
