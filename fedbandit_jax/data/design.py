"""Joint features of a user and an arm: a block of the user's features for each arm, or products with the arm's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.columns import Column, Columns, levels_of
from fedbandit_jax.data.encoding import Encoded, encoded, width

MOST_FEATURES = 128  # d
HALF = math.sqrt(0.5)


class JointFeatures(NamedTuple):
    """Features of all rows of a table for any arm: an optional constant, and w kron z."""

    users: Encoded  # z, one for each row
    arms: np.ndarray  # w (K, q) float32
    intercept: float | None
    how: tuple[str, ...]  # sentences about the encoding

    @property
    def dim(self) -> int:
        """Number of features d."""
        return self.users.rows.shape[1] * self.arms.shape[1] + (self.intercept is not None)

    def of(self, rows: np.ndarray, arm: np.ndarray) -> np.ndarray:
        """Returns the features (n, d), float64, of rows (n,) with their played arms (n,)."""
        pairs = self.arms[arm].astype(float)[:, :, None] * self.users.rows[rows].astype(float)[:, None, :]
        found = pairs.reshape(len(rows), -1)
        return found if self.intercept is None else np.insert(found, 0, self.intercept, axis=1)

    def scores(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Returns <x, theta> of rows (n,) and all arms, (n, K)."""
        level, blocks = (0.0, theta) if self.intercept is None else (self.intercept * theta[0], theta[1:])
        blocks = blocks.reshape(self.arms.shape[1], -1)
        return level + self.users.rows[rows].astype(float) @ (self.arms.astype(float) @ blocks).T


def make(columns: Columns, arm: Column, listed: Mapping[str, Sequence[str]]) -> JointFeatures:
    """Builds the features of users and arms from the columns `listed` by argument, at most `MOST_FEATURES`."""
    n, k = columns.n_rows, len(levels_of(arm))
    mine, its = ([columns.found[name] for name in listed[argument]] for argument in ("features", "arm_features"))
    p, q = width(mine), width(its)
    dim = p * q if its else 1 + k * p
    if dim > MOST_FEATURES:
        made = f"{p} of the user (1 and {p - 1} of features) times {q} of the arm" if its else f"1 + {k} arms times {p}"
        alone = not its and 1 + k > MOST_FEATURES
        widest = arm if alone else max((*mine, *its), key=lambda one: width([one]), default=arm)
        drop = (
            "give arm_features, or merge arms"
            if widest is arm
            else f"leave out {widest.name!r} ({width([widest]) - 1})"
        )
        argument = "arm" if widest is arm else "arm_features" if widest.name in listed["arm_features"] else "features"
        got = f"d = {dim:,} = {made}: {drop}"
        raise BadValue(argument, f"must give at most d = {MOST_FEATURES} features", dim, got=got)
    users = encoded("features", mine, n)
    if not its:
        arms, intercept = np.eye(k, dtype=np.float32), float(np.float32(HALF))
        users = users._replace(rows=users.rows * np.float32(HALF))
        how = f"{k} arms with an entry for each of ({', '.join(users.names)}), and a constant: d = {dim}"
        return JointFeatures(users, arms, intercept, (*users.how, how))
    first = _first_rows(columns, arm, its)
    described = encoded("arm_features", [one._replace(values=one.values[first]) for one in its], k)
    how = f"{p} entries of users ({', '.join(users.names)}) times {q} of arms ({', '.join(described.names)}): d = {dim}"
    return JointFeatures(users, described.rows, None, (*users.how, *described.how, how))


def _first_rows(columns: Columns, arm: Column, its: Sequence[Column]) -> np.ndarray:
    """Returns the first row of every arm, (K,), after checking that all rows of an arm agree."""
    _, first = np.unique(arm.values, return_index=True)
    for one in its:
        wrong = one.values != one.values[first][arm.values]
        if wrong.any():
            i = int(np.argmax(wrong))
            level = levels_of(arm)[arm.values[i]]
            got, other = (
                one.values[j] if one.levels is None else one.levels[one.values[j]] for j in (i, first[arm.values[i]])
            )
            both = f"{columns.where(i, one.name)} and {other!s} in {columns.row(int(first[arm.values[i]]))}"
            must = "must be the same in all rows of an arm"
            raise BadValue("arm_features", must, got, got=f"{got!s} {both}, of {level!r} both")
    return first
