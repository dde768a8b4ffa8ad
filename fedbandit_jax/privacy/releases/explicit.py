"""A release given by its matrices: what becomes of a user's own `Release`, so that what is proved is what runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.releases.release import Release

MAX_SYNCS = 2048  # whose matrices are kept
MAX_PARTS = 8192  # S P, parts of all messages


@struct.sealed
@dataclasses.dataclass(frozen=True)
class Explicit(Release):
    """C (S, P, S) and R (S, S, P) as float32 matrices; states hold all batch sums, or all messages, so far.

    Whatever code they came from, the run multiplies by these matrices: it is linear, its sensitivity is the largest
    column norm of this C, and its noise has the covariance of this R.
    """

    of: str  # name of the class they came from
    parts: int
    c: bytes = dataclasses.field(repr=False)
    r: bytes = dataclasses.field(repr=False)
    factor: bytes = dataclasses.field(repr=False)  # (S, S) lower triangular L with L L' = R R'

    @property
    def n_parts(self) -> int:
        """P."""
        return self.parts

    def live(self, k: Array) -> Array:
        """Parts whose row of C is not 0."""
        return jnp.asarray((self._c != 0).any(2))[k - 1]

    def encode_init(self, shape: tuple[int, ...]) -> Array:
        """No batch sums yet, (S, *shape)."""
        return jnp.zeros((self.n_syncs, *shape))

    def encode(self, state: Array, k: Array, gamma: Array) -> tuple[Array, Array]:
        """Rows (k, p) of C."""
        state = state.at[k - 1].set(gamma)
        return _weigh(jnp.asarray(self._c)[k - 1], state), state

    def init(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """No messages and no draws yet: (S P, *shape) and (S, *shape)."""
        return jnp.zeros((self.n_syncs * self.parts, *shape)), jnp.zeros((self.n_syncs, *shape))

    def decode(self, state: tuple[Array, Array], k: Array, message: Array) -> tuple[Array, tuple[Array, Array]]:
        """Row k of R."""
        messages, draws = state
        messages = jax.lax.dynamic_update_slice_in_dim(messages, message, (k - 1) * self.parts, 0)
        return _weigh(jnp.asarray(self._r)[k - 1][None], messages)[0], (messages, draws)

    def step(self, state: tuple[Array, Array], k: Array, z: Array) -> tuple[Array, tuple[Array, Array]]:
        """Row k of L: the joint law of all prefixes is that of R."""
        messages, draws = state
        draws = draws.at[k - 1].set(z)
        return _weigh(jnp.asarray(self._factor)[k - 1][None], draws)[0], (messages, draws)

    def encoder(self) -> np.ndarray:
        """One row for every part that is sent, float64."""
        rows = self._c.reshape(-1, self.n_syncs).astype(float)
        return rows[(rows != 0).any(1)]

    def sensitivity_sq(self) -> float:
        """Of C, and of L^-1 A if that is more: the run may send messages, or add L's noise to the exact sums."""
        return self._sensitivity_sq

    def prefix_variance(self) -> np.ndarray:
        """Squared row norms of L."""
        return (self._factor.astype(float) ** 2).sum(1)

    @functools.cached_property
    def _sensitivity_sq(self) -> float:
        sums = np.tril(np.ones((self.n_syncs, self.n_syncs)))
        alone = scipy.linalg.solve_triangular(self._factor.astype(float), sums, lower=True)
        return max(super().sensitivity_sq(), float((alone**2).sum(0).max()))

    @functools.cached_property
    def _c(self) -> np.ndarray:
        return np.frombuffer(self.c, np.float32).reshape(self.n_syncs, self.parts, self.n_syncs)

    @functools.cached_property
    def _r(self) -> np.ndarray:
        return np.frombuffer(self.r, np.float32).reshape(self.n_syncs, -1)

    @functools.cached_property
    def _factor(self) -> np.ndarray:
        return np.frombuffer(self.factor, np.float32).reshape(self.n_syncs, self.n_syncs)


def explicit(release: Release) -> Explicit:
    """The matrices of a release of one's own, after checking what it declares against what it does, for all S.

    Parts that are not live are not sent, whatever is in them.

    Raises:
        ValueError: naming the method that is not linear, does not give the prefix sums, or declares another
            sensitivity or noise than the matrices have.
    """
    name, n, parts = type(release).__name__, release.n_syncs, release.n_parts
    if n > MAX_SYNCS or n * parts > MAX_PARTS:
        raise ValueError(
            f"n_syncs must be <= {MAX_SYNCS} and n_syncs * n_parts <= {MAX_PARTS} for a release of one's own, whose "
            f"matrices are kept, got {n} and {n * parts} with {name}"
        )
    ks = jnp.arange(1, n + 1, dtype=jnp.int32)
    live = np.asarray(jax.vmap(release.live)(ks))
    inputs = np.eye(n)[:, None]
    message = jax.eval_shape(release.encode, release.encode_init((n,)), ks[0], jnp.zeros(n))[0]
    if message.shape != (parts, n):
        raise ValueError(
            f"{name}.encode must return a message of shape (n_parts, ...), {parts, n}, got {message.shape}"
        )
    c = _matrix(release.encode_init, lambda s, k, x: release.encode(s, k, x[0]), inputs) * live[..., None]
    impulses = np.eye(n * parts).reshape(n, parts, n * parts)
    r = _matrix(release.init, release.decode, impulses)  # (S, S P)
    r = r * live.reshape(-1)
    probe = np.random.default_rng(0).standard_normal((n, 1, 3)) * np.array([1, 100, 1e-3])
    sent = _matrix(release.encode_init, lambda s, k, x: release.encode(s, k, x[0]), probe) * live[..., None]
    wanted = np.einsum("kpj,jx->kpx", c, probe[:, 0])
    if not np.allclose(sent, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max((0, 1))):
        raise ValueError(f"{name}.encode must be linear in the batch sums, got another message for the same sums")
    product = r @ c.reshape(n * parts, n)
    if not np.allclose(product, np.tril(np.ones((n, n))), atol=1e-3):
        raise ValueError(
            f"{name}.decode must return the sum of all batches from live messages without noise, got others"
        )
    covariance = r @ r.T
    if type(release).step is not Release.step:
        steps = _matrix(release.init, lambda s, k, x: release.step(s, k, x[0]), inputs)
        if not np.allclose(steps @ steps.T, covariance, rtol=1e-3, atol=1e-3):
            raise ValueError(f"{name}.step must draw noise with the law of decode, got another covariance")
    factor = np.linalg.cholesky(covariance)
    c32, r32 = c.astype(np.float32), r.astype(np.float32)
    made = Explicit(n, name, parts, c32.tobytes(), r32.tobytes(), factor.astype(np.float32).tobytes())
    for method in ("sensitivity_sq", "largest_variance"):
        declared, true = getattr(release, method)(), getattr(made, method)()
        if getattr(type(release), method) is not getattr(Release, method) and abs(declared - true) > 1e-3 * true:
            raise ValueError(f"{name}.{method} must be that of its matrices, {true:g}, got {declared:g}")
    return made


def _matrix(init: Callable[..., Any], recurrence: Callable[..., Any], inputs: np.ndarray) -> np.ndarray:
    """Outputs of a recurrence in float64, stacked over k = 1, ..., S, from inputs (S, parts, streams)."""

    def body(state, given):
        k, x = given
        row, new = recurrence(state, k, x)
        return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state, new), row

    with jax.enable_x64(True):
        ks = jnp.arange(1, len(inputs) + 1, dtype=jnp.int32)
        return np.asarray(jax.lax.scan(body, init(inputs.shape[2:]), (ks, jnp.asarray(inputs, float)))[1])


def _weigh(rows: Array, stacked: Array) -> Array:
    """(P, S) times (S, *shape)."""
    return jnp.tensordot(rows, stacked, axes=1, precision="highest")
