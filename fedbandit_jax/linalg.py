"""Linear algebra for policies on released statistics: projections, and Gaussian beliefs from precision matrices.

A `TypeError` names an argument that is no array of floats, or of the wrong shape.
"""

from __future__ import annotations

from numbers import Number
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import ArrayLike, Float, Key, Real

from fedbandit_jax.core import lapack, random, ridge, validate


def project(gram: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Projects a symmetric matrix to the nearest positive semidefinite one: negative eigenvalues become 0.

    Example:
        >>> project(jnp.array([[1.0, 0.0], [0.0, -2.0]])).round(3).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    _check("gram", gram, _rows(gram), _rows(gram))
    values, vectors = lapack.eigh(gram)
    return ridge.with_spectrum(jnp.maximum(values, 0), vectors)


class GaussianBelief(NamedTuple):
    """The Gaussian belief N(mean, P^-1) about a parameter, as its mean and a root of its covariance.

    The root comes from the Cholesky factor of P = L L', so agents multiply by it instead of solving with L.
    """

    mean: Float[Array, " d"]  # P^-1 b
    root: Float[Array, "d d"]  # R = L^-T, upper triangular, P^-1 = R R'

    @classmethod
    def solve(cls, precision: Float[Array, "d d"], bias: Float[Array, " d"]) -> GaussianBelief:
        """Makes the belief with precision P, symmetric, and mean P^-1 b; not finite if P is not positive definite.

        Example:
            >>> GaussianBelief.solve(4 * jnp.eye(2), jnp.ones(2)).mean.tolist()
            [0.25, 0.25]
        """
        _check("precision", precision, _rows(precision), _rows(precision))
        _check("bias", bias, len(precision))
        root = lapack.factor(precision)[1].T
        return cls(_times(root, _times(bias, root)), root)

    def sample(self, key: Key[Array, ""], scale: Real[ArrayLike, ""] = 1.0) -> Float[Array, " d"]:
        """Draws one parameter from N(mean, scale^2 P^-1).

        Args:
            key: key of the draw.
            scale: factor >= 0 on all standard deviations; may be traced.

        Example:
            >>> belief = GaussianBelief(jnp.ones(2), jnp.eye(2))
            >>> belief.sample(jax.random.key(0), scale=0).tolist()
            [1.0, 1.0]
        """
        random.check_key(key)
        if isinstance(scale, Number):
            scale = validate.single("scale", validate.non_negative("scale", scale))
        else:
            _check("scale", scale)
        z = jax.random.normal(key, self.mean.shape)
        return self.mean + scale * _times(self.root, z)

    def std(self, contexts: Float[Array, "K d"]) -> Float[Array, " K"]:
        """Returns standard deviations sqrt(x' P^-1 x) of <x, theta> for every feature vector x."""
        _check("contexts", contexts, _rows(contexts), len(self.mean))
        half = _times(contexts, self.root)
        return jnp.sqrt((half * half).sum(-1))


def _times(a: Array, b: Array) -> Array:
    """Multiplies in full float32, which accelerators would shorten."""
    return jnp.matmul(a, b, precision="highest")


def _rows(value: Any) -> int:
    return value.shape[0] if getattr(value, "shape", ()) else 0


def _check(name: str, value: Any, *shape: int) -> None:
    dtype, found = getattr(value, "dtype", None), getattr(value, "shape", None)  # the numbers may be traced
    if dtype is None or found != shape or not jnp.issubdtype(dtype, jnp.floating):
        got = validate.shown(value) if dtype is None else f"{dtype} of shape {found}"
        raise validate.BadType(name, f"must be an array of floats of shape {shape}", got, got=got)
