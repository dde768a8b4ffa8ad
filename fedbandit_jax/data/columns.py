"""Columns of a table as checked arrays of numbers or labels; errors name row, column and value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data import spelling
from fedbandit_jax.data.sources import opened

LARGEST = 1e100  # keeps squares and sums finite
CODES = frozenset((-99.0, -999.0, -9999.0, -99999.0))  # common codes of missing values
MUST = dict(
    numbers="must be numbers", times="must be numbers or dates as 2025-01-31", either="must be all numbers or all texts"
)


class Column(NamedTuple):
    """A column without missing values."""

    name: str
    values: np.ndarray  # (N,) float64; for labels (N,) int32 indices of levels
    levels: tuple[str, ...] = ()  # distinct labels, in order; empty for numbers
    unit: str = ""  # of dates

    def shown(self, i: int) -> str:
        """Formats the value of row i for a message."""
        return repr(self.levels[self.values[i]]) if self.levels else f"{self.values[i]:g}"


class Wanted(NamedTuple):
    """A requested column."""

    name: str
    argument: str  # that requests it, for messages
    kind: Literal["labels", "numbers", "either", "times"]


class Columns(NamedTuple):
    """Requested columns of a table."""

    title: str  # of the table, for messages and figures
    found: dict[str, Column]  # by name
    rows: np.ndarray  # (N,) indices in the table of the kept rows
    first: int  # number of its first row
    left_out: tuple[str, ...] = ()  # sentences about the other rows

    def row(self, i: int) -> str:
        """Formats row i = 0, 1, ... as it is counted in the table."""
        return f"row {self.first + int(self.rows[i]):,}"

    def where(self, i: int, name: str) -> str:
        """Ends a message about row i = 0, 1, ... of a column."""
        return f"in {self.row(i)} of column {name!r}"


class Texts(NamedTuple):
    """A column as its distinct texts."""

    levels: list[str]
    codes: np.ndarray  # (N,) indices of levels
    written: bool  # whether some values were strings

    def those(self, rows: np.ndarray) -> Texts:
        """Restricts the column to these rows and their levels."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return Texts([self.levels[i] for i in used], codes, self.written)


def texts(values: np.ndarray) -> Texts:
    """Returns the distinct texts of a column, stripped."""
    if values.dtype.kind in "biufM":
        there, codes = np.unique(values, return_inverse=True)
        there = there.astype(str) if there.dtype.kind == "M" else there
        return Texts([*map(text_of, there.tolist())], codes, written=False)
    found = values.tolist()
    kinds = {*map(type, found)}
    if kinds != {str}:
        found = [*map(text_of, found)]  # also since 1 == True
    stripped = {text: text.strip() for text in dict.fromkeys(found)}
    places = {text: i for i, text in enumerate(dict.fromkeys(stripped.values()))}
    codes = {text: places[short] for text, short in stripped.items()}
    codes = np.fromiter(map(codes.__getitem__, found), np.int32, len(found))
    return Texts([*places], codes, any(issubclass(kind, str) for kind in kinds))


def text_of(value: Any) -> str:
    """Formats a value as a label."""
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return "NaN"
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else str(float(value))
    return str(value).strip()


def read(
    source: Any,
    wanted: Sequence[Wanted],
    decimal: str | None = None,
    missing: Sequence[str] | None = None,
    min_rows: int = 1,
) -> Columns:
    """Reads and checks columns of a table; arguments are as in `fb.data.table`.

    `min_rows` is for the levels of silos and arms.

    Raises:
        ValueError, TypeError: the input is invalid; the message names the argument, and row, column and value if any.
        ImportError: pandas, or for a Parquet file pyarrow, is missing.
    """
    table = opened(source)
    for one in wanted:
        table.check(one.argument, one.name)
    found = [texts(values) for values in table.vectors([one.name for one in wanted])]
    keep = np.ones(len(found[0].codes), bool)
    for one in found:
        keep &= ~np.isin(one.codes, [i for i, text in enumerate(one.levels) if text in (missing or ())])
    if not keep.any():
        raise BadValue("missing", "must leave a row without missing values", missing, got=f"no other in {table.title}")
    whole = rows = np.flatnonzero(keep)
    gaps = [f"left out: {len(keep) - len(rows):,} rows with missing values"] if not keep.all() else []
    sized = {one.name: spelled.codes for one, spelled in zip(wanted, found) if one.argument in ("silo", "arm")}
    few = np.array(min_rows > 1)
    while few.any():
        few = np.any([np.bincount(codes[rows])[codes[rows]] < min_rows for codes in sized.values()], axis=0)
        rows = rows[~few]
        if not len(rows):
            raise BadValue("min_rows", f"must leave rows of {table.title}", min_rows)
    if len(rows) < len(whole):
        counts = {name: [len(np.unique(codes[some])) for some in (whole, rows)] for name, codes in sized.items()}
        of = " and ".join(f"{all_ - left:,} of {all_:,} levels of {name}" for name, (all_, left) in counts.items())
        lost = f"{len(whole) - len(rows):,} of {len(whole):,} rows"
        gaps.append(f"left out, with fewer than {min_rows} rows: {of}, {lost}")
    columns = Columns(table.title, {}, rows, table.first, tuple(gaps))
    for one, spelled in zip(wanted, found):
        columns.found[one.name] = column(one, spelled.those(rows), columns, decimal, missing, table.pointed)
    return columns


def column(
    wanted: Wanted,
    spelled: Texts,
    columns: Columns,
    decimal: str | None = None,
    missing: Sequence[str] | None = None,
    pointed: bool = True,
) -> Column:
    """Converts texts to a column, or raises `ValueError` with the first invalid row."""
    (name, argument, kind), (levels, codes, written) = wanted, spelled
    literal, decimal = missing is not None and not len(missing), decimal if written else "."

    def wrong(j: int, condition: str, got: str = "") -> BadValue:
        where = columns.where(int(np.argmax(codes == j)), name)
        return BadValue(argument, condition, levels[j], got=f"{got or validate.shown(levels[j])} {where}")

    for j, text in enumerate(levels):
        if spelling.is_missing(text) and not (literal and text and text in spelling.MISSING):
            must = f"must have no missing values: fill them, or leave such rows out by missing=[{text!r}]"
            raise wrong(j, must, text or "nothing")
        if not text.isascii() and (strange := [one for one in text if "\udc80" <= one <= "\udcff"]):
            raise wrong(j, "must be in UTF-8", f"the byte 0x{ord(strange[0]) - 0xDC00:02x}")
    if kind in ("either", "times") and (days := spelling.dates(levels)) is not None:
        return Column(name, days[codes], unit="; days since 1970")
    if kind == "numbers" and all(text.lower() in spelling.ANSWERS for text in levels):
        return Column(name, np.array([spelling.ANSWERS[text.lower()] for text in levels])[codes])
    values = other = np.full(len(levels), np.nan)
    if kind != "labels":
        values, other = spelling.numbers(levels, decimal, pointed or not written)
    no = np.isnan(values)
    if kind == "labels" or (kind == "either" and no.all()):
        if kind == "either" and any(map(spelling.SOME_DATE.fullmatch, levels)):
            j = next(j for j, text in enumerate(levels) if spelling.dates([text]) is None)
            raise wrong(j, "must have dates as 2025-01-31 in all rows, or in none")
        if kind == "either" and decimal and not (alike := np.isnan(spelling.numbers(levels)[0])).all():
            raise wrong(int(np.argmin(alike)), f"must be numbers with decimal={decimal!r}, or texts")
        order = spelling.ordered(levels)
        places = {text: i for i, text in enumerate(order)}
        return Column(name, np.array([places[text] for text in levels], np.int32)[codes], tuple(order))
    if no.any():
        odd = no if kind != "either" or no.sum() <= len(no) / 2 else ~no
        j, beside = int(np.argmax(odd)), "" if odd.all() else f" beside {validate.shown(levels[int(np.argmin(odd))])}"
        gap = "" if any(map(str.isdigit, levels[j])) else f": missing=[{levels[j]!r}] leaves such rows out"
        raise wrong(j, MUST[kind] + gap, f"{validate.shown(levels[j])}{beside}")
    if (values != other).any():
        j = int(np.argmax(values != other))
        both = f"{levels[j]!r}, {values[j]:g} or {other[j]:g},"
        raise wrong(j, "must have a decimal mark that is known: say decimal='.' or ','", both)
    largest, least = int(np.argmax(np.abs(values))), int(np.argmin(values))
    if not abs(values[largest]) <= LARGEST:
        raise wrong(largest, f"must be finite and at most {LARGEST:g}", levels[largest])
    if not literal and values[least] in CODES and (np.delete(values, least) >= 0).all():
        must = f"must not have a lone negative number: missing=[{levels[least]!r}] leaves such rows out, [] reads it"
        raise wrong(least, must, levels[least])
    return Column(name, values[codes])
