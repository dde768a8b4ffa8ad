"""Features of a user and an arm: columns become vectors, and a block for each arm or products with the arm's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.columns import Column, Table

DEVIATIONS = 3.0  # standard deviations from the mean at which numbers are clipped
MOST_FEATURES = 128  # d
HALF = math.sqrt(0.5)
CHUNK = 65536  # rows in float64 at a time


class Encoded(NamedTuple):
    """Columns as vectors (1, their entries), divided by the largest norm of the table."""

    rows: Float[np.ndarray, "N p"]  # float32
    names: tuple[str, ...]  # of the p entries
    how: tuple[str, ...]  # a sentence about every column


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


def make(table: Table, arm: Column, listed: Mapping[str, Sequence[str]]) -> JointFeatures:
    """Builds the features of users and arms from the columns `listed` by argument, at most `MOST_FEATURES`."""
    n, k = len(table.rows), len(arm.levels)
    mine, its = ([table.found[name] for name in listed[argument]] for argument in ("features", "arm_features"))
    p, q = (1 + sum(map(_width, some)) for some in (mine, its))
    dim = p * q if its else 1 + k * p
    if dim > MOST_FEATURES:
        made = f"{p} of the user (1 and {p - 1} of features) times {q} of the arm" if its else f"1 + {k} arms times {p}"
        widest, argument = max((*mine, *its), key=_width, default=arm), "arm"
        drop = "give arm_features, or merge arms"
        if widest is not arm and (its or 1 + k <= MOST_FEATURES):
            drop = f"leave out {widest.name!r} ({_width(widest)})"
            argument = "arm_features" if widest.name in listed["arm_features"] else "features"
        got = f"d = {dim:,} = {made}: {drop}"
        raise BadValue(argument, f"must give at most d = {MOST_FEATURES} features", dim, got=got)
    users = encoded("features", mine, n)
    if not its:
        arms, intercept = np.eye(k, dtype=np.float32), float(np.float32(HALF))
        users = users._replace(rows=users.rows * np.float32(HALF))
        how = f"{k} arms with an entry for each of ({', '.join(users.names)}), and a constant: d = {dim}"
        return JointFeatures(users, arms, intercept, (*users.how, how))
    first = _first_rows(table, arm, its)
    described = encoded("arm_features", [one._replace(values=one.values[first]) for one in its], k)
    how = f"{p} entries of users ({', '.join(users.names)}) times {q} of arms ({', '.join(described.names)}): d = {dim}"
    return JointFeatures(users, described.rows, None, (*users.how, *described.how, how))


def _width(column: Column) -> int:
    """Returns the number of entries of an encoded column."""
    return 1 if len(column.levels) in (0, 2) else len(column.levels)


def _first_rows(table: Table, arm: Column, its: Sequence[Column]) -> np.ndarray:
    """Returns the first row of every arm, (K,), after checking that all rows of an arm agree."""
    _, first = np.unique(arm.values, return_index=True)
    for one in its:
        wrong = one.values != one.values[first][arm.values]
        if wrong.any():
            i = int(np.argmax(wrong))
            j = int(first[arm.values[i]])
            got = f"{one.shown(i)} {table.where(i, one.name)} and {one.shown(j)} in {table.row(j)}"
            must = f"must be the same in all rows of an arm, such as {arm.shown(i)}"
            raise BadValue("arm_features", must, one.shown(i), got=got)
    return first


def encoded(argument: str, columns: Sequence[Column], n_rows: int) -> Encoded:
    """Encodes the columns of a table with `n_rows` rows, requested by `argument`.

    A number z becomes (z - mean) / (3 standard deviations), clipped to [-1, 1]. A column with two levels is 0 for the
    first and 1 for the second; with more levels it is one-hot.

    Raises:
        ValueError: a column is constant.
    """
    names, how = ["1"], []
    entries: list[np.ndarray] = [np.ones(n_rows)]
    for one in columns:
        name, values, levels, written = one
        if (values == values[0]).all():
            got = f"{one.shown(0)} in all rows of column {name!r}"
            raise BadValue(argument, "must have columns that vary", one.shown(0), got=got)
        if levels:
            coded = range(1, 2) if len(levels) == 2 else range(len(levels))
            entries += [values == code for code in coded]
            names += [f"{name} = {levels[code]}" for code in coded]
            listed = ", ".join(levels[:6]) + (", ..." if len(levels) > 6 else "")
            how.append(f"{name}: 1 if it is {levels[1]}, 0 if it is {levels[0]}" if len(levels) == 2 else
                       f"{name}: one entry for each of {len(levels)} levels ({listed})")  # fmt: skip
            continue
        power = math.frexp(float(np.abs(values).max()))[1]
        unit = np.ldexp(values, -power)  # so that squares do not underflow
        mean, reach = float(unit.mean()), DEVIATIONS * float(unit.std())
        scaled = (unit - mean) / reach
        beyond = float((np.abs(scaled) > 1).mean())
        clipped = f", beyond which {100 * beyond:.2g} % were clipped" if beyond else ""
        entries.append(np.clip(scaled, -1, 1))
        names.append(name)
        mean, reach = (math.ldexp(one, power) for one in (mean, reach))
        how.append(f"{name}: ({name} - {mean:.6g}) / {reach:.6g}, in [-1, 1]{written}{clipped}")
    rows = np.stack([one.astype(np.float32) for one in entries], axis=1)
    pieces = (rows[i : i + CHUNK].astype(float) for i in range(0, n_rows, CHUNK))
    longest = math.sqrt(max(float((piece**2).sum(1).max()) for piece in pieces))
    return Encoded(rows / np.float32(longest), tuple(names), tuple(how))
