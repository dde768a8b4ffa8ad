"""Common parts of the loaders: arrays, the lasso, and the scaling of parameters to rewards in [0, 1]."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.validate import BadValue

TOLERANCE, STEPS = 1e-10, 1_000_000  # duality gap of a lasso over |y|^2, and most sweeps over its coordinates


@dataclasses.dataclass(frozen=True, eq=False)
class Queries:
    """A linear contextual bandit as queries: every row is an arm, and the rows of a query are adjacent."""

    features: Float[np.ndarray, "N d"]  # feature vectors of arms, float32
    query_sizes: Int[np.ndarray, " Q"]  # number of rows of each query; they sum to N
    theta: Float[np.ndarray, " d"]  # float32: the mean reward of a row x is <x, theta>
    title: str  # for tables and figures

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `fb.envs.replay` that describe the data."""
        return {"features": self.features, "query_sizes": self.query_sizes, "theta": self.theta}

    def __repr__(self) -> str:
        n, d = self.features.shape
        return f"Queries({self.title!r}, {n} rows, {len(self.query_sizes)} queries, dim {d})"


@dataclasses.dataclass(frozen=True, eq=False)
class Community:
    """A clustered linear bandit as arrays: n users, each with a preference vector and a cluster, and N items."""

    items: np.ndarray  # (N, d) float32, feature vectors of items
    thetas: np.ndarray  # (n, d) float32: user i's mean reward of an item x is <x, thetas[i]>
    clusters: np.ndarray  # (n,) int32, the cluster of every user in 0, ..., m - 1, all of them used
    title: str  # for tables and figures

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `fb.envs.community` that describe the data."""
        return {"items": self.items, "thetas": self.thetas, "clusters": self.clusters}

    def __repr__(self) -> str:
        n, d = self.thetas.shape
        m = len(np.unique(self.clusters))
        return f"Community({self.title!r}, {n} users, {m} clusters, {len(self.items)} items, dim {d})"


def lasso(features: np.ndarray, labels: np.ndarray, *, penalty: float = 1e-4) -> np.ndarray:
    """Minimises |X w - y|^2 / (2 N) + penalty |w|_1, without intercept, over w (d,) in float32."""
    models, x, y = require("sklearn.linear_model", "data"), features.astype(float), labels.astype(float)
    options: Any = dict(precompute=True, copy_X=False, tol=TOLERANCE, max_iter=STEPS)
    return models.Lasso(penalty, fit_intercept=False, **options).fit(x, y).coef_.astype(np.float32)


def into_unit(features: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Maps a parameter to one with mean rewards in [0, 1] on these rows, in the same order.

    u, all entries of theta but the last, is multiplied by a factor c, and the last entry makes the smallest mean 0.
    Factor c is the largest with a range of means of at most 1, and a norm of the result of at most 1. So c multiplies
    regrets, but not the noise.

    Args:
        features: X, finite, (N, d); the last column has the same non-zero number in all rows.
        theta: (d,), such as the solution of least squares.

    Returns:
        The new theta, (d,) float32; zeros if u is 0 or all means are equal.

    Example:
        >>> import numpy as np, fedbandit_jax as fb
        >>> x = np.array([[0.0, 0.5], [0.6, 0.5]])
        >>> x @ fb.data.into_unit(x, np.array([10.0, -4.0]))
        array([0. , 0.6])
    """
    features = validate.finite_array("features", features, ndim=2)
    theta = validate.finite_array("theta", theta, ndim=1)
    if not features.size or theta.shape != features.shape[1:]:
        raise BadValue("theta", f"must have an entry for every column of features {features.shape}", theta.shape)
    last = features[:, -1]
    if last[0] == 0 or (last != last[0]).any():
        raise BadValue("features", "must have the same number, not 0, at the end of all rows", last)
    return scaled(features, theta, float(last[0]))


def scaled(features: np.ndarray, theta: np.ndarray, last: float) -> np.ndarray:
    """Implements `into_unit`; `last` is the last entry of all rows, perhaps more exact than in the table."""
    # With m = <x[:-1], u>, means are in [0, 1] if theta[-1] = -c min m / last and c <= 1 / (max m - min m).
    u = theta[:-1].astype(np.float64)
    means = features[:, :-1] @ u
    low, high = means.min(), means.max()
    if not u.any() or low == high:
        return np.zeros_like(theta)
    level = low / last
    c = min(1 / (high - low), 1 / math.sqrt(u @ u + level**2))
    return np.append(c * u, -c * level).astype(np.float32)
