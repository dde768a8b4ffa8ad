"""Columns as feature vectors: numbers are standardised, and labels have one entry for each level.

A vector is (1, its entries), divided by the largest norm of the table. So norms are at most 1, and the first entry is
constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.columns import Column

DEVIATIONS = 3.0  # standard deviations from the mean at which numbers are clipped


class Encoded(NamedTuple):
    """Columns as vectors of norm at most 1."""

    rows: Float[np.ndarray, "N p"]  # float32, with a constant first entry
    names: tuple[str, ...]  # of the p entries
    how: tuple[str, ...]  # a sentence about every column


def width(columns: Sequence[Column]) -> int:
    """Returns the number p of entries of encoded columns."""
    return 1 + sum(1 if one.levels is None or len(one.levels) == 2 else len(one.levels) for one in columns)


def encoded(argument: str, columns: Sequence[Column], n_rows: int) -> Encoded:
    """Encodes the columns of a table with `n_rows` rows.

    A number z becomes (z - mean) / (3 standard deviations), clipped to [-1, 1]. A column with two levels is 0 for the
    first and 1 for the second; with more levels it is one-hot. `argument` is for messages.

    Raises:
        ValueError: a column is constant.
    """
    names, how = ["1"], []
    entries: list[np.ndarray] = [np.ones(n_rows)]
    for name, values, levels, written in columns:
        low, high = values[:1], values[1:]
        if not len(high) or (values == low).all():
            shown = f"{values[0]:g}" if levels is None else repr(levels[0])
            got = f"{shown} in all rows of column {name!r}"
            raise BadValue(argument, "must have columns that vary", shown, got=got)
        if levels is None:
            power = math.frexp(float(np.abs(values).max()))[1]
            unit = np.ldexp(values, -power)  # so that squares do not underflow
            mean, deviation = float(unit.mean()), float(unit.std())
            scaled = (unit - mean) / (DEVIATIONS * deviation)
            beyond = float((np.abs(scaled) > 1).mean())
            clipped = f", beyond which {100 * beyond:.2g} % were clipped" if beyond else ""
            entries.append(np.clip(scaled, -1, 1))
            names.append(name)
            mean, reach = (math.ldexp(one, power) for one in (mean, DEVIATIONS * deviation))
            how.append(f"{name}: ({name} - {mean:.6g}) / {reach:.6g}, in [-1, 1]{written}{clipped}")
        else:
            coded = range(1, 2) if len(levels) == 2 else range(len(levels))
            entries += [values == code for code in coded]
            names += [f"{name} = {levels[code]}" for code in coded]
            listed = ", ".join(levels[:6]) + (", ..." if len(levels) > 6 else "")
            how.append(f"{name}: 1 if it is {levels[1]}, 0 if it is {levels[0]}" if len(levels) == 2 else
                       f"{name}: one entry for each of {len(levels)} levels ({listed})")  # fmt: skip
    rows = np.stack([one.astype(np.float32) for one in entries], axis=1)
    longest = math.sqrt(
        max(float((rows[i : i + 65536].astype(float) ** 2).sum(1).max()) for i in range(0, n_rows, 65536))
    )
    return Encoded(rows / np.float32(longest), tuple(names), tuple(how))
