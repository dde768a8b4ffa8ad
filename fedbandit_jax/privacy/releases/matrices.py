"""Releases given by their matrices, such as every user-defined release."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array
from jaxtyping import Float
from typing_extensions import override

from fedbandit_jax.core import padding, struct
from fedbandit_jax.core.programs import is_array, need, need_same, returned
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.releases.participation import of_encoder
from fedbandit_jax.privacy.releases.release import Release, in_float64, outputs
from fedbandit_jax.privacy.users import ONCE, Users

MOST_KEPT = 2048  # most synchronisations S with (S, S) matrices
RANGE = 2.0**20  # a sensitivity, and standard deviations of noise, must be within [1 / RANGE, RANGE]: float32 ends
FRESH = 2.0**-12  # least share of a prefix's fresh noise in the largest noise, which float32 rounds to 2^-24 of it


@struct.sealed
@struct.node
@dataclasses.dataclass(frozen=True, eq=False)
class Explicit(Release):
    """A release that keeps C and R as float32 matrices.

    They are padded by zeros for N = `padding.room` (S) synchronisations. The states hold all batch sums, or all
    messages, so far. A run multiplies by the matrices, and calls no code that they came from.
    """

    c: Any = dataclasses.field(repr=False)  # (N, N) float32, the lower triangular matrix C
    r: Any = dataclasses.field(repr=False)  # (N, N) float32, the lower triangular matrix R
    of: str = struct.static()  # name of the class that the matrices came from
    of_user: str = struct.static(default="")  # the same name, if the class is user-defined

    @classmethod
    def made_of(cls, name: str, c: np.ndarray, r: np.ndarray, of_user: str = "") -> Explicit:
        """Returns the release of the class `name` for C and R, both (S, S)."""
        more = padding.room(len(c)) - len(c)
        c, r = (np.pad(x.astype(np.float32), (0, more)) for x in (c, r))
        return cls(len(c) - more, c=c, r=r, of=name, of_user=of_user)

    @override
    def encode_init(self, shape: tuple[int, ...]) -> Float[Array, " N *shape"]:
        return jnp.zeros((len(self.c), *shape))

    @override
    def encode(self, state: Any, k: Array, gamma: Array) -> tuple[Array, Any]:
        return _row(self.c, state, k, gamma)

    init = encode_init

    @override
    def decode(self, state: Any, k: Array, message: Array) -> tuple[Array, Any]:
        return _row(self.r, state, k, message)

    @override
    def encoder(self) -> Float[np.ndarray, "S S"]:
        return np.asarray(self.c, float)[: self.n_syncs, : self.n_syncs]

    @override
    def decoder(self) -> Float[np.ndarray, "S S"]:
        return np.asarray(self.r, float)[: self.n_syncs, : self.n_syncs]

    @override
    def sensitivity_sq(self, users: Users = ONCE) -> float:
        """Returns the larger sensitivity of C and R^-1 A, for the prefix-sum matrix A; infinite if noise is lost.

        Both count, as float32 rounds C and R. A run may send messages (C), or add the noise of R to the exact prefix
        sums (R^-1 A). If parts of the noise are too different, float32 loses some. Beyond the matrices there is none.
        """
        if self.n_syncs > len(self.r):
            return math.inf
        r, sums = self.decoder(), np.tril(np.ones((self.n_syncs, self.n_syncs)))
        fresh, largest = np.abs(np.diag(r)).min(), np.abs(r).max()
        if not (fresh >= 1 / RANGE and largest <= RANGE and fresh >= FRESH * largest):
            return math.inf
        both = [self.encoder(), scipy.linalg.solve_triangular(r, sums, lower=True)]
        squares = np.array([(c**2).sum(0).max() for c in both])
        held = ((squares >= RANGE**-2) & (squares <= RANGE**2)).all()
        return max(of_encoder(c, users) for c in both) if held else math.inf


def explicit(release: Release) -> Explicit:
    """Returns the matrices C and R of a user-defined release, from its `encode` and `decode` on unit vectors.

    Raises:
        ValueError, TypeError: if there are more than `MOST_KEPT` synchronisations. Also if a method returns another
            shape or kind than `Release` says, or is not linear, or R C is not the prefix sum. Also if float32 would
            lose some of the noise.
    """
    name, n = type(release).__name__, release.n_syncs
    if n > MOST_KEPT:
        raise BadValue("n_syncs", f"must be <= {MOST_KEPT} for a user-defined release", n, got=f"{n} with {name}")
    _check(release)

    def run(ks: Array, *batches: Array) -> list[tuple[Array, Array]]:
        pairs = (release.encode_init, release.encode), (release.init, release.decode)
        return [tuple(outputs(start(x.shape[1:]), step, ks, x) for start, step in pairs) for x in batches]

    probes = np.random.default_rng(0).normal(size=(n, 2)) * [1, 1e6]  # small for rounding, large for clipping
    (c, r), found = in_float64(run, np.arange(1, n + 1, dtype=np.int32), np.eye(n), probes)
    for method, matrix, of_probes in (("encode", c, found[0]), ("decode", r, found[1])):
        if not np.isfinite(matrix).all():
            wrong = matrix[~np.isfinite(matrix)][0]
            raise BadValue(f"{name}.{method}", "must return finite numbers", wrong, got=wrong)
        linear = matrix @ probes
        wrong = ~(np.abs(of_probes - linear) <= 1e-3 * np.abs(linear).max(0))
        if wrong.any():
            k, column = np.argwhere(wrong)[0]
            got = f"{of_probes[k, column]:.6g} in place of {linear[k, column]:.6g} at k = {k + 1}"
            raise BadValue(f"{name}.{method}", "must be linear", of_probes[k, column], got=got)
    sums, prefixes = r @ c, np.tril(np.ones((n, n)))
    if (wrong := ~np.isclose(sums, prefixes, atol=1e-3)).any():
        k, j = np.argwhere(wrong)[0]
        must = f"must return the sum of all batches from the messages of {name}.encode"
        got = f"sum {k + 1} with {sums[k, j]:.6g} times batch {j + 1} in place of {prefixes[k, j]:g}"
        raise BadValue(f"{name}.decode", must, k + 1, got=got)
    made = Explicit.made_of(name, c, r, of_user=name)
    if math.isfinite(made.sensitivity_sq()):
        return made
    must = f"must have a sensitivity and standard deviations within a factor {RANGE:.0g} of 1, and in every prefix "
    raise BadValue(name, f"{must}fresh noise of at least {FRESH:.0e} of the largest, for float32", None, got="less")


def _check(release: Release) -> None:
    """Raises an error unless the methods of a release, traced for any k, return what `Release` says."""
    name, n = type(release).__name__, release.n_syncs
    for method, init, what in (("encode", "encode_init", "a message"), ("decode", "init", "a prefix sum")):
        state = jax.eval_shape(functools.partial(getattr(release, init), (n,)))
        both = returned(release, method, state, jnp.int32(1), jnp.zeros(n))
        need(f"{name}.{method}", type(both) is tuple and len(both) == 2, f"{what}, and the next state", both)
        shape = f"{what} of the shape of the batch, {(n,)}"
        need(f"{name}.{method}", is_array(both[0], (n,), jnp.floating), shape, both[0])
        need_same(f"{name}.{method}", "a next state", state, both[1])


def _row(matrix: Any, given: Array, k: Array, new: Array) -> tuple[Array, Array]:
    """Returns row k of the product with all arrays so far, of which `new` is the k-th, and these arrays."""
    given = given.at[k - 1].set(new)
    return jnp.tensordot(jnp.asarray(matrix)[k - 1], given, axes=1, precision="highest"), given
