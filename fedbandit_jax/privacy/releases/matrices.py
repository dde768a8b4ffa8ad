"""Releases given by their matrices, such as every user-defined release."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array
from jaxtyping import Bool, Float, Int
from typing_extensions import override

from fedbandit_jax.core import padding, struct, validate
from fedbandit_jax.core.programs import is_array, need, need_same, returned
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.releases.participation import Sensitivity, of_encoder
from fedbandit_jax.privacy.releases.release import Release, in_float64, outputs
from fedbandit_jax.privacy.users import ONCE, Users

MOST_KEPT = 2048  # most synchronisations S with (S, S) matrices
MAX_PARTS = 8192  # most parts of all messages together, S P
RANGE = 2.0**20  # a sensitivity, and standard deviations of noise, must be within [1 / RANGE, RANGE]: float32 ends
FRESH = 2.0**-12  # least share of a prefix's fresh noise in the largest noise, which float32 rounds to 2^-24 of it


Past = tuple[Float[Array, " NP *shape"], Float[Array, " N *shape"]]  # messages, or draws, so far


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True, eq=False)
class Explicit(Release):
    """A release that keeps C, R and L, L L' = R R', as float32 matrices, for P parts of a message.

    They are padded by zeros for N = `padding.room` (S) synchronisations. The states hold all batch sums, or all
    messages, so far. A run multiplies by the matrices, and calls no code that they came from.
    """

    c: Any = dataclasses.field(repr=False)  # (N, P, N) float32, the matrix C
    r: Any = dataclasses.field(repr=False)  # (N, N P) float32, the matrix R
    factor: Any = dataclasses.field(repr=False)  # (N, N) float32, lower triangular L with L L' = R R'
    of: str = struct.static()  # name of the class that the matrices came from
    parts: int = struct.static()  # P, parts of one message
    of_user: str = struct.static(default="")  # the same name, if the class is user-defined

    @classmethod
    def made_of(cls, name: str, c: np.ndarray, r: np.ndarray, factor: np.ndarray, of_user: str = "") -> Explicit:
        """Returns the release of the class `name` for C (S, P, S), R (S, S P) and L (S, S)."""
        n, parts, _ = c.shape
        more = padding.room(n) - n
        c, r, factor = (x.astype(np.float32) for x in (c, r, factor))
        return cls(
            n,
            c=np.pad(c, ((0, more), (0, 0), (0, more))),
            r=np.pad(r, ((0, more), (0, more * parts))),
            factor=np.pad(factor, (0, more)),
            of=name,
            parts=parts,
            of_user=of_user,
        )

    @property
    @override
    def n_parts(self) -> int:
        return self.parts

    @override
    def live(self, k: Int[Array, ""]) -> Bool[Array, " P"]:
        return (jnp.asarray(self.c)[k - 1] != 0).any(1)

    @override
    def encode_init(self, shape: tuple[int, ...]) -> Float[Array, " N *shape"]:
        return jnp.zeros((len(self.factor), *shape))

    @override
    def encode(self, state: Any, k: Array, gamma: Array) -> tuple[Array, Any]:
        state = state.at[k - 1].set(gamma)
        return _weigh(jnp.asarray(self.c)[k - 1], state), state

    @override
    def init(self, shape: tuple[int, ...]) -> Past:
        return jnp.zeros((self.r.shape[1], *shape)), jnp.zeros((len(self.factor), *shape))

    @override
    def decode(self, state: Any, k: Array, message: Array) -> tuple[Array, Any]:
        messages, draws = state
        messages = jax.lax.dynamic_update_slice_in_dim(messages, message, (k - 1) * self.parts, 0)
        return _weigh(jnp.asarray(self.r)[k - 1][None], messages)[0], (messages, draws)

    @override
    def step(self, state: Any, k: Array, z: Array) -> tuple[Array, Any]:
        messages, draws = state
        draws = draws.at[k - 1].set(z)
        return _weigh(jnp.asarray(self.factor)[k - 1][None], draws)[0], (messages, draws)

    @override
    def encoder(self) -> Float[np.ndarray, "messages S"]:
        rows = np.asarray(self.c, float)[: self.n_syncs, :, : self.n_syncs].reshape(-1, self.n_syncs)
        return rows[(rows != 0).any(1)]

    @override
    def sensitivity(self, users: Users = ONCE) -> Sensitivity:
        """Returns the larger sensitivity of C and L^-1 A, for the prefix-sum matrix A; infinite if noise is lost.

        Both count. A run may send messages (C), or add the noise of L to the exact prefix sums (L^-1 A). If parts of
        the noise are too different, float32 loses some. Beyond the matrices there is none.
        """
        if self.n_syncs > len(self.factor):
            return Sensitivity(math.inf, True)
        factor, sums = self.noise_factor(), np.tril(np.ones((self.n_syncs, self.n_syncs)))
        fresh, largest = np.abs(np.diag(factor)).min(), np.abs(factor).max()
        if not (fresh >= 1 / RANGE and largest <= RANGE and fresh >= FRESH * largest):
            return Sensitivity(math.inf, True)
        both = [self.encoder(), scipy.linalg.solve_triangular(factor, sums, lower=True)]
        squares = np.array([(c**2).sum(0).max() for c in both])
        held = ((squares >= RANGE**-2) & (squares <= RANGE**2)).all()
        return max(of_encoder(c, users) for c in both) if held else Sensitivity(math.inf, True)

    @override
    def noise_factor(self) -> Float[np.ndarray, "S S"]:
        return np.asarray(self.factor, float)[: self.n_syncs, : self.n_syncs]


def explicit(release: Release) -> Explicit:
    """Returns the matrices C and R of a user-defined release, from its `encode` and `decode` on unit vectors.

    Parts that are not live count as not sent.

    Raises:
        ValueError, TypeError: if there are more than `MOST_KEPT` synchronisations or `MAX_PARTS` parts in all. Also if
            a method returns another shape or kind than `Release` says, or R C is not the prefix sum. Also if float32
            would lose some of the noise.
    """
    name, n = type(release).__name__, release.n_syncs
    parts = validate.integer(f"{name}.n_parts", release.n_parts, at_least=1)
    if n > MOST_KEPT or n * parts > MAX_PARTS:
        most = f"must be <= {MOST_KEPT} and n_syncs * n_parts <= {MAX_PARTS} for a user-defined release"
        raise BadValue("n_syncs", most, n, got=f"{n} and {n * parts} with {name}")
    _check(release)

    def run(ks: Array, units: Array, impulses: Array) -> tuple[Array, Array, Array]:
        c = outputs(release.encode_init((n,)), release.encode, ks, units)
        return jax.vmap(release.live)(ks), c, outputs(release.init((n * parts,)), release.decode, ks, impulses)

    impulses = np.eye(n * parts).reshape(n, parts, n * parts)
    live, c, r = in_float64(run, np.arange(1, n + 1, dtype=np.int32), np.eye(n), impulses)
    c, r = np.where(live[..., None], c, 0), np.where(live.reshape(-1), r, 0)
    for method, matrix in (("encode", c), ("decode", r)):
        if not np.isfinite(matrix).all():
            wrong = matrix[~np.isfinite(matrix)][0]
            raise BadValue(f"{name}.{method}", "must return finite numbers for parts that are live", wrong, got=wrong)
    sums, prefixes = r @ c.reshape(n * parts, n), np.tril(np.ones((n, n)))
    if (wrong := ~np.isclose(sums, prefixes, atol=1e-3)).any():
        k, j = np.argwhere(wrong)[0]
        must = f"must return the sum of all batches from the live parts of {name}.encode"
        got = f"sum {k + 1} with {sums[k, j]:.6g} times batch {j + 1} in place of {prefixes[k, j]:g}"
        raise BadValue(f"{name}.decode", must, k + 1, got=got)
    with contextlib.suppress(np.linalg.LinAlgError):  # what float64 loses is lost
        made = Explicit.made_of(name, c, r, np.linalg.cholesky(r @ r.T), of_user=name)
        if math.isfinite(made.sensitivity_sq()):
            return made
    must = f"must have a sensitivity and standard deviations within a factor {RANGE:.0g} of 1, and in every prefix "
    raise BadValue(name, f"{must}fresh noise of at least {FRESH:.0e} of the largest, for float32", None, got="less")


def _check(release: Release) -> None:
    """Raises an error unless the methods of a release, traced for any k, return what `Release` says."""
    name, n, parts = type(release).__name__, release.n_syncs, release.n_parts
    k, size = jnp.int32(1), n * parts
    live = returned(release, "live", k)
    need(f"{name}.live", is_array(live, (parts,), jnp.bool_), f"bools of shape (n_parts,), {(parts,)}", live)
    for method, init, shape, given, what, wanted in (
        ("encode", "encode_init", (n,), (n,), "a message of shape (n_parts, ...)", (parts, n)),
        ("decode", "init", (size,), (parts, size), "a prefix sum of the shape of one part", (size,)),
    ):
        state = jax.eval_shape(functools.partial(getattr(release, init), shape))
        both = returned(release, method, state, k, jnp.zeros(given))
        need(f"{name}.{method}", type(both) is tuple and len(both) == 2, f"{what}, and the next state", both)
        need(f"{name}.{method}", is_array(both[0], wanted, jnp.floating), f"{what}, {wanted}", both[0])
        need_same(f"{name}.{method}", "a next state", state, both[1])


def _weigh(rows: Array, stacked: Array) -> Array:
    return jnp.tensordot(rows, stacked, axes=1, precision="highest")
