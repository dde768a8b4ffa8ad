"""Common parts of the loaders: arrays, the lasso, and the scaling of parameters to rewards in [0, 1]."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

CHUNK = 65536  # rows in float64 at a time
TOLERANCE = 1e-9  # largest entry of the last proximal gradient, as a share of that of the gradient at w = 0
STEPS = 1_000_000  # most steps


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
    """Minimises |X w - y|^2 / (2 N) + penalty |w|_1, without intercept, over w in R^d.

    The method works in float64 on X'X / N and X'y / N, so a step costs d^2 for any N. Internally columns are scaled to
    unit root mean square, and each penalty with its column, so different scales do not slow it down.

    Args:
        features: X, finite, (N, d).
        labels: y, finite, (N,).
        penalty: weight of |w|_1, > 0, `alpha` in scikit-learn. If it is at least max |X'y| / N, w is 0.

    Returns:
        w, (d,) float32.

    Raises:
        RuntimeError: no convergence in a million steps.

    Example:
        >>> import numpy as np, fedbandit_jax as fb
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> print(fb.data.lasso(x, x @ [3.0, 0.5], penalty=0.5))
        [2. 0.]

    Reference: Beck & Teboulle (2009), FISTA; restarts as in O'Donoghue & Candès (2015), gradient scheme.
    """
    features = validate.finite_array("features", features, ndim=2)
    labels = validate.finite_array("labels", labels, ndim=1)
    if len(features) == 0 or len(labels) != len(features):
        raise BadValue("labels", f"must have one entry per row of features {features.shape}", len(labels))
    penalty = validate.positive("penalty", penalty)

    n, d = features.shape
    gram, target = np.zeros((d, d)), np.zeros(d)
    for start in range(0, n, CHUNK):
        x = features[start : start + CHUNK].astype(np.float64)
        gram += x.T @ x / n
        target += x.T @ labels[start : start + CHUNK] / n
    scale = np.sqrt(np.diag(gram))
    scale[scale == 0] = 1  # coefficients of zero columns stay 0
    gram, target = gram / np.outer(scale, scale), target / scale
    return (_minimise(gram, target, penalty / scale) / scale).astype(np.float32)


def _minimise(gram: np.ndarray, target: np.ndarray, penalties: np.ndarray) -> np.ndarray:
    """Minimises w'G w / 2 - w'c + sum_j p_j |w_j|."""
    stop = TOLERANCE * np.abs(target).max()
    step = 1 / max(np.linalg.eigvalsh(gram)[-1], 1e-12)
    w = point = np.zeros_like(target)  # `point` extrapolates w; the gradient is taken there
    momentum = 1.0
    for _ in range(STEPS):
        free = point - step * (gram @ point - target)
        before, w = w, np.sign(free) * np.maximum(np.abs(free) - step * penalties, 0)
        if np.abs(w - point).max() <= step * stop:
            return w
        momentum = 1.0 if (point - w) @ (w - before) > 0 else momentum  # restarts uphill
        after = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point, momentum = w + (momentum - 1) / after * (w - before), after
    raise RuntimeError(f"lasso does not converge in {STEPS:,} steps: raise the penalty")


def into_unit(features: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Maps a parameter to one with mean rewards in [0, 1] on these rows, in the same order.

    u, all entries of theta but the last, is multiplied by a factor c, and the last entry makes the smallest mean 0.
    Factor c is the largest with a range of means of at most 1, and a norm of the result of at most 1. So c multiplies
    regrets, but not the noise.

    Args:
        features: X, finite, (N, d); the last column has the same non-zero number in all rows.
        theta: (d,), such as the result of `lasso`.

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
