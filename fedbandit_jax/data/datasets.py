"""What loaders share: the arrays that they return, and imports of scikit-learn, which is optional."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Int


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A linear contextual bandit as a table: every row is an arm, and the rows of a query stand together.

    Example:
        >>> import numpy as np, fedbandit_jax as fb
        >>> table = fb.data.Table(np.eye(3, dtype=np.float32), np.array([1, 2]), np.full(3, 0.5), "toy")
        >>> table
        Table('toy', 3 rows, 2 queries, dim 3)
        >>> fb.envs.replay(**table.replay_arguments(), n_agents=2).spec.n_arms
        2
    """

    features: Float[np.ndarray, "N d"]  # feature vectors of arms, float32
    query_sizes: Int[np.ndarray, " Q"]  # number of rows of each query; they sum to N
    theta: Float[np.ndarray, " d"]  # float32: the mean reward of a row x is <x, theta>
    title: str  # what the data are, for tables and figures

    def replay_arguments(self) -> dict[str, Any]:
        """Returns the arguments of `fb.envs.replay` that describe the data."""
        return {"features": self.features, "query_sizes": self.query_sizes, "theta": self.theta}

    def __repr__(self) -> str:
        n, d = self.features.shape
        return f"Table({self.title!r}, {n} rows, {len(self.query_sizes)} queries, dim {d})"


@dataclasses.dataclass(frozen=True, eq=False)
class Community:
    """A clustered linear bandit as arrays: n users with a preference vector and a cluster each, and N items.

    Example:
        >>> import numpy as np, fedbandit_jax as fb
        >>> eye = np.eye(2, dtype=np.float32)
        >>> fb.data.Community(items=eye, thetas=eye[[0, 1, 0]], clusters=np.array([0, 1, 0]), title="toy")
        Community('toy', 3 users, 2 clusters, 2 items, dim 2)
    """

    items: np.ndarray  # (N, d) float32, feature vectors of items
    thetas: np.ndarray  # (n, d) float32: user i's mean reward of an item x is <x, thetas[i]>
    clusters: np.ndarray  # (n,) int32, the cluster of every user in 0, ..., m - 1, where every number is used
    title: str  # what the data are, for tables and figures

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `fb.envs.community` that describe the data."""
        return {"items": self.items, "thetas": self.thetas, "clusters": self.clusters}

    def __repr__(self) -> str:
        n, d = self.thetas.shape
        m = len(np.unique(self.clusters))
        return f"Community({self.title!r}, {n} users, {m} clusters, {len(self.items)} items, dim {d})"


def require(module: str) -> ModuleType:
    """Imports a module of scikit-learn, or raises an `ImportError` that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"this loader needs {module}, which is not installed: pip install 'fedbandit_jax[data]'"
        ) from error
