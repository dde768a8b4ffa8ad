"""The data of a clustered bandit: users in clusters, and the items that they are offered."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


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
