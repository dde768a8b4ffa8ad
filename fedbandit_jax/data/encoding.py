"""Columns as feature vectors: what is a number is standardised, and what is not has a column of its own for each level.

A vector is (1, its entries), divided by the largest norm of the table, so that norms are at most 1 and the first entry
is the same in all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.columns import Column

DEVIATIONS = 3.0  # a number that is further from the mean counts as so far


class Encoded(NamedTuple):
    """Columns as vectors of norm at most 1."""

    rows: Float[np.ndarray, "N p"]  # float32, whose first entry is constant
    names: tuple[str, ...]  # of the p entries
    how: tuple[str, ...]  # a sentence about every column


def width(columns: Sequence[Column]) -> int:
    """The number p of entries of encoded columns."""
    return 1 + sum(1 if one.levels is None or len(one.levels) == 2 else len(one.levels) for one in columns)


def encoded(argument: str, columns: Sequence[Column], n_rows: int) -> Encoded:
    """Encodes the columns of a table of so many rows.

    A number z is (z - mean) / (3 standard deviations), clipped to [-1, 1]. A column of two levels is 1 at the second
    of them and 0 at the first; one of more levels is as many columns, of which one is 1. `argument` is for messages.

    Raises:
        ValueError: a column is the same in all rows.
    """
    names, how = ["1"], []
    entries: list[np.ndarray] = [np.ones(n_rows)]
    for name, values, levels, written in columns:
        low, high = values[:1], values[1:]
        if not len(high) or (values == low).all():
            shown = f"{values[0]:g}" if levels is None else repr(levels[0])
            raise BadValue(
                argument, "must have columns that vary", shown, got=f"{shown} in all rows of column {name!r}"
            )
        if levels is None:
            power = math.frexp(float(np.abs(values).max()))[1]
            unit = np.ldexp(values, -power)  # whose squares are not too small for a float
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
