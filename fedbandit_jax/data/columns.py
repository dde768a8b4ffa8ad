"""Columns of a table as checked arrays, of numbers or of labels; a fault names row, column and value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.sources import check_column, opened

LARGEST = 1e100  # so that squares and sums of numbers are finite
ANSWERS = frozenset(("true", "false", "yes", "no"))  # which may be meant as 1 and 0
MISSING = frozenset(("", "NA", "N/A", "n/a", "null", "NULL", "<NA>", "NaT", "#N/A"))  # beside NaN; "None" may be an arm
NUMBER = re.compile(r"[+-]?\s?[$€£]?\s?\d{1,3}([,.' ]?\d{3})*([.,]\d+)?\s?[%$€£]?")  # as spreadsheets write numbers

Kind = Literal["labels", "numbers", "either"]


class Column(NamedTuple):
    """A column without missing values."""

    name: str
    values: np.ndarray  # (N,) float64; of labels (N,) int32 numbers of levels
    levels: tuple[str, ...] | None = None  # distinct labels, in order; None: the column holds numbers

    def only(self, rows: np.ndarray) -> Column:
        """These rows, and the levels that are left."""
        values = self.values[rows]
        if self.levels is None:
            return self._replace(values=values)
        there, values = np.unique(values, return_inverse=True)
        return self._replace(values=values.astype(np.int32), levels=tuple(self.levels[i] for i in there))


def levels_of(column: Column) -> tuple[str, ...]:
    """The levels of a column of labels."""
    assert column.levels is not None
    return column.levels


class Wanted(NamedTuple):
    """A column that somebody asks for."""

    name: str
    argument: str  # of the caller, for messages
    kind: Kind


class Columns(NamedTuple):
    """The columns of a table that were asked for."""

    title: str  # of the table, for messages and figures
    found: dict[str, Column]  # by name
    n_rows: int  # N
    first: int  # number of the first row
    kept: np.ndarray | None = None  # (N,) places of these rows in the table, if others were left out

    def place(self, i: Any) -> Any:
        """The places in the table, from 0, of rows i = 0, 1, ... of a column."""
        return i if self.kept is None else self.kept[i]

    def where(self, i: int, name: str) -> str:
        """The end of a message about row i = 0, 1, ... of a column."""
        return f"in row {self.first + int(self.place(i)):,} of column {name!r}"

    def without_small(self, names: Sequence[str], least: int) -> Columns:
        """Leaves out the rows of levels of these columns that have fewer than `least` rows, until there is none."""
        kept = np.arange(self.n_rows)
        few = np.ones(1, bool)
        while few.any():
            levels = [self.found[name].values[kept] for name in names]
            few = np.any([np.bincount(one, minlength=1)[one] < least for one in levels], axis=0)
            kept = kept[~few]
        if not len(kept):
            raise BadValue("min_rows", f"must leave rows of {self.title}", least)
        found = {name: one.only(kept) for name, one in self.found.items()}
        return self._replace(found=found, n_rows=len(kept), kept=kept)


def read(source: Any, wanted: Sequence[Wanted]) -> Columns:
    """Reads and checks columns of a table.

    Args:
        source: path of a .csv or .parquet file; a frame, which has `columns` and gives one of them as `frame[name]`; or
            a mapping of names to vectors.
        wanted: the columns; "labels" are texts of any kind, "numbers" are finite, and "either" is what its first row
            is.

    Raises:
        ValueError, TypeError: naming the argument, and the row, column and value if there is one.
        ImportError: a Parquet file, and neither pandas with an engine nor pyarrow is installed.
    """
    table = opened(source)
    for one in wanted:
        check_column(one.argument, one.name, table.names, table.title)
    series = {one.name: _Series(one, table.first) for one in wanted}
    n = 0
    for chunk in table.chunks(list(series)):
        for name, values in chunk.items():
            series[name].add(values)
        n += len(next(iter(chunk.values())))
    if n == 0:
        raise BadValue(
            "source", "must have at least one row below its header", table.title, got=f"none in {table.title}"
        )
    return Columns(table.title, {name: one.column() for name, one in series.items()}, n, table.first)


class _Series:
    """A column that is being read."""

    def __init__(self, wanted: Wanted, first: int):
        self.name, self.argument, self.kind = wanted
        self.either = self.kind == "either"
        self.row = first  # of the first value to come
        self.parts: list[np.ndarray] = []
        self.codes: dict[tuple[type, Any], int] = {}  # of values as they stand
        self.levels: dict[str, int] = {}

    def add(self, values: Sequence[Any]) -> None:
        if self.kind == "either" and len(values):
            given = not is_missing(text_of(values[0]))  # what is not given is told of by either
            number = is_number(values[0]) and not isinstance(values[0], (bool, np.bool_))  # a file has True as a text
            self.kind = "numbers" if given and number else "labels"
        self.parts.append(self._numbers(values) if self.kind == "numbers" else self._labels(values))
        self.row += len(values)

    def column(self) -> Column:
        values = np.concatenate(self.parts) if len(self.parts) > 1 else self.parts[0]
        if self.kind == "numbers":
            return Column(self.name, values)
        levels = ordered(self.levels)
        written = [level for level in levels if NUMBER.fullmatch(level)]
        if self.either and len(written) > 0.9 * len(levels):
            raise ValueError(
                f"{self.argument} must be numbers as 1000 or 0.5, without marks of thousands, units or decimal commas, "
                f"or labels with a letter, got {written[0]!r} in column {self.name!r}"
            )
        places = np.empty(len(levels), np.int32)
        places[[self.levels[level] for level in levels]] = np.arange(len(levels))
        return Column(self.name, places[values], levels)

    def _numbers(self, values: Sequence[Any]) -> np.ndarray:
        kind = getattr(values, "dtype", np.dtype(object)).kind
        try:
            if kind in "mMc":
                raise TypeError
            numbers = np.asarray(values, float)
        except (TypeError, ValueError, OverflowError):
            i = next(i for i, value in enumerate(values) if not is_number(value))
            like = f"be numbers{' as in the first row' * self.either}"
            like += ", such as 1 and 0" * (text_of(values[i]).lower() in ANSWERS)
            raise self._wrong(i, values[i], like) from None
        with np.errstate(invalid="ignore"):
            fine = np.abs(numbers) <= LARGEST
        if not fine.all():
            i = int(np.argmin(fine))
            wanted = f"be at most {LARGEST:g}" if math.isfinite(numbers[i]) else "be finite"
            raise self._wrong(i, values[i], wanted)
        return numbers

    def _labels(self, values: Sequence[Any]) -> np.ndarray:
        if isinstance(values, np.ndarray):
            values = values.tolist() if values.dtype.kind not in "mM" else values.astype(str).tolist()
        typed = list(zip(map(type, values), values))  # as 1 == True
        try:
            new = [one for one in dict.fromkeys(typed) if one not in self.codes]
        except TypeError:
            i = next(i for i, value in enumerate(values) if not isinstance(value, (str, int, float)))
            raise self._wrong(i, values[i], "be texts or numbers") from None
        for one in new:
            text = text_of(one[1])
            if is_missing(text) or (self.either and is_number(text)):
                raise self._wrong(typed.index(one), one[1], "be texts as in the first row")
            self.codes[one] = self.levels.setdefault(text, len(self.levels))
        return np.fromiter(map(self.codes.__getitem__, typed), np.int32, len(typed))

    def _wrong(self, i: int, value: Any, wanted: str) -> ValueError:
        got = validate.shown(str(value) if isinstance(value, np.str_) else value)
        if is_missing(text := text_of(value)):
            wanted, got = "have no missing values: fill them or leave such rows out", text or "nothing"
        return ValueError(f"{self.argument} must {wanted}, got {got} in row {self.row + i:,} of column {self.name!r}")


def text_of(value: Any) -> str:
    """A value as a label."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "NaN" if value is None else str(value).strip()


def is_missing(text: str) -> bool:
    """Whether a label says that there is none.

    >>> [text for text in ("", "NA", "NAN", "-nan", "None", "n", "0") if is_missing(text)]
    ['', 'NA', 'NAN', '-nan']
    """
    return text in MISSING or (is_number(text) and math.isnan(float(text)))


def is_number(value: Any) -> bool:
    """Whether a value can be read as a real number, which need not be finite."""
    if isinstance(value, (complex, np.complexfloating, np.datetime64, np.timedelta64)):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def ordered(levels: Iterable[str]) -> tuple[str, ...]:
    """Labels in the order of their numbers if all are numbers, and otherwise of the alphabet.

    >>> ordered(["10", "9"]), ordered(["b10", "b9"])
    (('9', '10'), ('b10', 'b9'))
    """
    levels = list(levels)
    return tuple(sorted(levels, key=float) if all(map(is_number, levels)) else sorted(levels))
