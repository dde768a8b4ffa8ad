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
    levels: tuple[str, ...] | None = None  # distinct labels, in order; None for numbers
    unit: str = ""  # of dates

    def only(self, rows: np.ndarray) -> Column:
        """Restricts the column to these rows, and drops unused levels."""
        values = self.values[rows]
        if self.levels is None:
            return self._replace(values=values)
        there, values = np.unique(values, return_inverse=True)
        return self._replace(values=values.astype(np.int32), levels=tuple(self.levels[i] for i in there))


def levels_of(column: Column) -> tuple[str, ...]:
    """Returns the levels of a column of labels."""
    assert column.levels is not None
    return column.levels


class Wanted(NamedTuple):
    """A requested column."""

    name: str
    argument: str  # that requests it, for messages
    kind: Literal["labels", "numbers", "either", "times"]


class Columns(NamedTuple):
    """The requested columns of a table."""

    title: str  # of the table, for messages and figures
    found: dict[str, Column]  # by name
    rows: np.ndarray  # (N,) indices in the table of the kept rows
    first: int  # number of its first row
    left_out: int  # rows dropped for missing values

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.rows)

    def row(self, i: int) -> str:
        """Formats row i = 0, 1, ... as it is counted in the table."""
        return f"row {self.first + int(self.rows[i]):,}"

    def where(self, i: int, name: str) -> str:
        """Ends a message about row i = 0, 1, ... of a column."""
        return f"in {self.row(i)} of column {name!r}"

    def without_small(self, names: Sequence[str], least: int) -> Columns:
        """Drops the rows of levels with fewer than `least` rows, until there are none."""
        kept = np.arange(self.n_rows)
        few = np.ones(1, bool)
        while few.any():
            levels = [self.found[name].values[kept] for name in names]
            few = np.any([np.bincount(one, minlength=1)[one] < least for one in levels], axis=0)
            kept = kept[~few]
        if not len(kept):
            raise BadValue("min_rows", f"must leave rows of {self.title}", least)
        found = {name: one.only(kept) for name, one in self.found.items()}
        return self._replace(found=found, rows=self.rows[kept])


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
    found, written = values.tolist(), any(isinstance(value, str) for value in values)
    if {*map(type, found)} != {str}:
        found = [*map(text_of, found)]  # also since 1 == True
    texts = {text: text.strip() for text in dict.fromkeys(found)}
    places = {text: i for i, text in enumerate(dict.fromkeys(texts.values()))}
    codes = {text: places[stripped] for text, stripped in texts.items()}
    return Texts([*places], np.fromiter(map(codes.__getitem__, found), np.int32, len(found)), written)


def text_of(value: Any) -> str:
    """Formats a value as a label."""
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return "NaN"
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else str(float(value))
    return str(value).strip()


def read(
    source: Any, wanted: Sequence[Wanted], decimal: str | None = None, missing: Sequence[str] | None = None
) -> Columns:
    """Reads and checks columns of a table; `source`, `decimal` and `missing` are as in `fb.data.table`.

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
        got = f"no other in {table.title}"
        raise BadValue("missing", "must leave a row without missing values", missing, got=got)
    rows = np.flatnonzero(keep)
    columns = Columns(table.title, {}, rows, table.first, len(keep) - len(rows))
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
        if text == "" or spelling.NAN.fullmatch(text) or (not literal and text in spelling.MISSING):
            must = f"must have no missing values: fill them, or leave such rows out by missing=[{text!r}]"
            raise wrong(j, must, text or "nothing")
        if not text.isascii() and (strange := [one for one in text if "\udc80" <= one <= "\udcff"]):
            raise wrong(j, "must be in UTF-8", f"the byte 0x{ord(strange[0]) - 0xDC00:02x}")
    if kind in ("either", "times") and (days := spelling.dates(levels)) is not None:
        return Column(name, days[codes], unit="; days since 1970")
    if kind == "numbers" and all(text.lower() in spelling.ANSWERS for text in levels):
        return Column(name, np.array([spelling.ANSWERS[text.lower()] for text in levels])[codes])
    readings = [] if kind == "labels" else spelling.numbers(levels, decimal, pointed or not written)
    no = np.isnan(readings[0]) if readings else np.ones(len(levels), bool)
    if kind == "labels" or (kind == "either" and no.all()):
        if kind == "either" and any(map(spelling.SOME_DATE.fullmatch, levels)):
            j = next(j for j, text in enumerate(levels) if spelling.dates([text]) is None)
            raise wrong(j, "must have dates as 2025-01-31 in all rows, or in none")
        if kind == "either" and decimal and not (other := np.isnan(spelling.numbers(levels)[0])).all():
            raise wrong(int(np.argmin(other)), f"must be numbers with decimal={decimal!r}, or texts")
        order = spelling.ordered(levels)
        places = {text: i for i, text in enumerate(order)}
        return Column(name, np.array([places[text] for text in levels], np.int32)[codes], tuple(order))
    if no.any():
        odd = no if kind != "either" or no.sum() <= len(no) / 2 else ~no
        j, other = int(np.argmax(odd)), "" if odd.all() else f" beside {validate.shown(levels[int(np.argmin(odd))])}"
        raise wrong(j, MUST[kind], f"{validate.shown(levels[j])}{other}")
    values = readings[0]
    if len(readings) == 2:
        j = int(np.argmax(values != readings[1]))
        both = " or ".join(f"{one[j]:g}" for one in readings)
        raise wrong(j, "must have a decimal mark that is known: say decimal='.' or ','", f"{levels[j]!r}, {both},")
    largest, least = int(np.argmax(np.abs(values))), int(np.argmin(values))
    if abs(values[largest]) > LARGEST:
        must = "must be finite" if math.isinf(values[largest]) else f"must be at most {LARGEST:g}"
        raise wrong(largest, must, levels[largest])
    if not literal and values[least] in CODES and (np.delete(values, least) >= 0).all():
        must = f"must not have a lone negative number: missing=[{levels[least]!r}] leaves such rows out, [] reads it"
        raise wrong(least, must, levels[least])
    return Column(name, values[codes])
