"""The data of a linear contextual bandit, as the loaders return it."""

from __future__ import annotations

import dataclasses
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
