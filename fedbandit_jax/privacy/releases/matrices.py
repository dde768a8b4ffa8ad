"""Releases given by the matrix of their messages, such as every user-defined release."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array
from jaxtyping import Float
from typing_extensions import override

from fedbandit_jax.core import padding, struct
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.releases.participation import of_encoder
from fedbandit_jax.privacy.releases.release import Release
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
    messages, so far.
    """

    c: Any = dataclasses.field(repr=False)  # (N, N) float32, the lower triangular matrix C
    r: Any = dataclasses.field(repr=False)  # (N, N) float32, the lower triangular matrix R
    of: str = struct.static()  # name of what made the matrices
    of_user: str = struct.static(default="")  # the same name, if that is user-defined

    @classmethod
    def made_of(cls, name: str, c: np.ndarray, of_user: str = "") -> Explicit:
        """Returns the release of this name with a lower triangular C, (S, S)."""
        n = len(c)
        r = np.linalg.solve(c.T, np.tril(np.ones((n, n))).T).T
        more = padding.room(n) - n
        c, r = (np.pad(x.astype(np.float32), (0, more)) for x in (c, r))
        return cls(n, c=c, r=r, of=name, of_user=of_user)

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


def explicit(matrix: Any, n: int, name: str) -> Explicit:
    """Returns the release of a user-defined matrix C for S = `n` synchronisations.

    Raises:
        ValueError, TypeError: if there are more than `MOST_KEPT` synchronisations, or C is not a lower triangular
            matrix (S, S) with an inverse, or float32 would lose some of the noise.
    """
    if n > MOST_KEPT:
        raise BadValue("n_syncs", f"must be <= {MOST_KEPT} for a user-defined release", n, got=f"{n} with {name}")
    try:
        c = np.asarray(matrix).astype(float, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise BadType(name, f"must return a matrix ({n}, {n})", matrix) from error
    if not (c.shape == (n, n) and np.isfinite(c).all() and np.diag(c).all() and not np.triu(c, 1).any()):
        must = f"must return a lower triangular matrix ({n}, {n}) of finite numbers, without zeros on the diagonal"
        raise BadValue(name, must, matrix, got="another")
    with np.errstate(all="ignore"):  # what is too large is refused below
        made = Explicit.made_of(name, c, of_user=name)
    if math.isfinite(made.sensitivity_sq()):
        return made
    must = f"must have a sensitivity and standard deviations within a factor {RANGE:.0g} of 1, and in every prefix "
    raise BadValue(name, f"{must}fresh noise of at least {FRESH:.0e} of the largest, for float32", None, got="less")


def _row(matrix: Any, given: Array, k: Array, new: Array) -> tuple[Array, Array]:
    """Returns row k of the product with all arrays so far, of which `new` is the k-th, and these arrays."""
    given = given.at[k - 1].set(new)
    return jnp.tensordot(jnp.asarray(matrix)[k - 1], given, axes=1, precision="highest"), given
