"""What the loaders return."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A linear contextual bandit as a table: one row per arm, the rows of a query together.

    Example:
        >>> import numpy as np, fedbandit_jax as fb
        >>> table = fb.data.Table(np.eye(3, dtype=np.float32), np.array([1, 2]), np.full(3, 0.5), "toy")
        >>> table
        Table('toy', 3 rows, 2 queries, dim 3)
        >>> fb.envs.replay(**table.replay_arguments(), n_agents=2).spec.n_arms
        2
    """

    features: np.ndarray  # (N, d) float32
    query_sizes: np.ndarray  # (Q,) rows of each query; they sum to N
    theta: np.ndarray  # (d,) float32: the mean reward of a row x is <x, theta>
    title: str

    def replay_arguments(self) -> dict[str, Any]:
        """The arguments of `fb.envs.replay` that describe the data."""
        return {"features": self.features, "query_sizes": self.query_sizes, "theta": self.theta}

    def __repr__(self) -> str:
        n, d = self.features.shape
        return f"Table({self.title!r}, {n} rows, {len(self.query_sizes)} queries, dim {d})"
