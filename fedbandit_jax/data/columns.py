"""Columns of a table, which pandas reads, as checked numbers or labels. Errors name row, column and value.

Rows of a file are counted as in a spreadsheet, with the header as row 1, and others from 0.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.validate import BadType, BadValue

LARGEST = 1e100  # keeps squares and sums finite
CODES = (-99.0, -999.0, -9999.0, -99999.0)  # common codes of missing values
GAPS = ("", "-", "?", "NA", "N/A", "nan", "NaN", "null")  # texts of missing values, also in a frame
NO_GAPS = "must have no missing values: set `missing` to {} to leave out such rows, or to nothing to read all as text"
MUST = dict(
    numbers="numbers, or yes and no",
    times="numbers or dates as 2025-01-31",
    either="all numbers, all texts or all dates as 2025-01-31",
)
ANSWERS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")
NUMBER_LIKE = re.compile(DATE.pattern + r"|[+-]?\s*[$€£]?\s*\d[\d.,'’\s]*[%$€£]?")  # to people; to pandas a text
UNIT = re.compile(r"[+-]?\d[\d.,]*\s*([^\W\d_]{2,})")  # a number with a unit
DAYS = "; days since 1970"
SEPARATORS = ",;\t|"  # candidates; on ties the first counts
LISTED = 12  # most names in a message


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


class Table(NamedTuple):
    """A table as a frame of pandas, and the columns that were requested of it."""

    title: str  # for messages and figures
    frame: Any  # a pandas.DataFrame of the kept rows, whose index counts all rows from 0
    first: int = 0  # number of the first row, for messages
    found: Mapping[str, Column] = MappingProxyType({})  # by name
    left_out: tuple[str, ...] = ()  # sentences about the other rows

    @property
    def rows(self) -> np.ndarray:
        """Returns the indices (N,) of the kept rows."""
        return self.frame.index.to_numpy()

    def row(self, i: int) -> str:
        """Formats row i = 0, 1, ... as it is counted in the table."""
        return f"row {self.first + int(self.frame.index[i]):,}"

    def where(self, i: int, name: str) -> str:
        """Ends a message about row i = 0, 1, ... of a column."""
        return f"in {self.row(i)} of column {name!r}"

    def check(self, argument: str, name: str) -> None:
        """Raises `ValueError` unless a column has this name."""
        names = [*self.frame.columns]
        if name not in names:
            more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            near = validate.suggestion(name, names, cutoff=0.5)
            hint = near or f", but they are {', '.join(names[:LISTED])}{more}"
            raise BadValue(argument, f"must be a column of {self.title}", name, got=f"{validate.shown(name)}{hint}")


def opened(source: Any, decimal: str | None = None, missing: Sequence[str] | None = None) -> Table:
    """Reads a path, a frame, a pyarrow table, a mapping of names to vectors, or a `Table` of a frame.

    Arguments are as in `fb.data.table`. Texts are stripped, and `missing` ones become NaN.
    """
    pandas = require("pandas", "data")
    path = validate.file("source", source) if isinstance(source, (str, Path)) else None
    found: Any = source.frame if isinstance(source, Table) else source
    title = source.title if isinstance(source, Table) else "the table"
    if path:
        title = path.name
    elif not isinstance(found, Mapping) and not hasattr(found, "columns"):
        raise BadType("source", "must be a path, a frame or a mapping of names to vectors", source)
    try:
        to_pandas = getattr(found, "to_pandas", None)  # of polars and pyarrow
        frame = _file(path, decimal, missing) if path else pandas.DataFrame(to_pandas() if to_pandas else found)
    except BadValue:
        raise
    except (ValueError, TypeError, OSError, EOFError, Warning) as error:
        must, said = "must be a table that can be read", " ".join(str(error).split())[:200]
        if isinstance(error, UnicodeError):
            must, said = "must be a text file in UTF-8 (a spreadsheet's CSV UTF-8)", "another encoding"
        elif isinstance(error, pandas.errors.ParserWarning):
            must, said = "must have a name for each column in its first line", "longer rows below"
        raise BadValue("source", must, title, got=f"{title}: {said}") from error
    frame = frame.reset_index(drop=True).set_axis([*map(str, frame.columns)], axis=1)
    if not frame.columns.is_unique:
        name = frame.columns[frame.columns.duplicated()][0]
        got = f"column {name!r} twice in {title}"
        raise BadValue("source", "must have one column of each name", name, got=got)
    if not frame.size:
        raise BadValue("source", "must have a header and at least one row below it", title, got=f"none in {title}")
    texts = [name for name, kind in frame.dtypes.items() if kind.kind == "O"]
    frame[texts] = frame[texts].map(lambda value: value.strip() if isinstance(value, str) else value)
    if missing:
        numbers = pandas.to_numeric(pandas.Series(missing), errors="coerce").dropna()
        frame = frame.mask(frame.isin([*missing, *numbers]))
    return Table(title, frame, first=2 if path else 0)


def _file(path: Path, decimal: str | None, missing: Sequence[str] | None) -> Any:
    """Reads a Parquet file, or a text file with a header, with the separator that splits the header most."""
    if path.suffix.lower() == ".parquet":
        return require("pyarrow.parquet", "parquet").read_table(path).to_pandas()
    pandas = require("pandas", "data")
    with path.open("rb") as file:
        wide = file.read(2) in (b"\xff\xfe", b"\xfe\xff")  # as Excel writes "Unicode text"
    options: Any = dict(encoding="utf-16" if wide else "utf-8", skipinitialspace=True)
    texts: Any = options | dict(header=None, nrows=1, dtype=str, keep_default_na=False)
    headers = {sep: pandas.read_csv(path, sep=sep, **texts).iloc[0] for sep in SEPARATORS}
    sep = max(headers, key=lambda sep: len(headers[sep]))
    if sep == ";" and decimal is None:
        raise BadValue("decimal", f"must be '.' or ',' for {path.name}, which has semicolons between columns", None)
    names = [name.strip() or f"column {i}" for i, name in enumerate(headers[sep], 1)]
    options |= dict(sep=sep, decimal=decimal or ".", low_memory=False)
    gaps = dict(na_values=missing, keep_default_na=missing is None or len(missing) > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)  # a first row that is longer than the header
        return pandas.read_csv(path, names=names, header=0, index_col=False, **options, **gaps)


def read(
    source: Any, wanted: Sequence[Wanted], decimal: str | None = None, missing: Sequence[str] | None = None
) -> Table:
    """Reads and checks columns of a table; arguments are as in `fb.data.table`.

    Raises:
        ValueError, TypeError: the input is invalid; the message names the argument, and row, column and value if any.
        ImportError: pandas, or for a Parquet file pyarrow, is missing.
    """
    table = opened(source, decimal, missing)
    for one in wanted:
        table.check(one.argument, one.name)
    whole = table.frame[[one.name for one in wanted]]
    frame = whole.dropna() if missing else whole
    if not len(frame):
        got = f"no other in {table.title}"
        raise BadValue("missing", "must leave a row without missing values", missing, got=got)
    left = len(whole) - len(frame)
    left_out = (f"left out: {left:,} rows with missing values",) if left else ()
    table = table._replace(frame=frame, left_out=left_out)
    return table._replace(found={one.name: column(one, table, missing) for one in wanted})


def column(wanted: Wanted, table: Table, missing: Sequence[str] | None = None) -> Column:
    """Converts a column of a frame, or raises `ValueError` with the first invalid row."""
    pandas = require("pandas", "data")
    series = table.frame[wanted.name]
    (name, argument, kind), dtype = wanted, series.dtype.kind
    literal = missing is not None and not len(missing)

    def wrong(odd: Any, must: str) -> BadValue:
        i = int(np.argmax(odd))  # the first such row
        value = series.iloc[i]
        empty = series.isna().iloc[i] or (isinstance(value, str) and not value)
        seen = "nothing" if empty else validate.shown(value)
        must = must.format("NA" if empty else value)
        return BadValue(argument, must, value, got=f"{seen} {table.where(i, name)}", others=("missing", "decimal"))

    gap = series.isna() | (series.isin(GAPS) if dtype == "O" and not literal else False)
    if gap.any():
        raise wrong(gap, NO_GAPS)
    if kind != "labels" and dtype in "iuf":
        values = series.to_numpy(float)
    elif kind != "labels" and dtype == "M":
        return Column(name, _days(series), unit=DAYS)
    else:
        try:
            texts, codes = _distinct(series)
        except TypeError:
            raise wrong(0, "must hold texts, numbers or dates") from None
        if kind == "labels" or (kind == "either" and dtype == "b"):
            return _labels(name, texts, codes)
        if dated := kind != "numbers" and all(map(DATE.fullmatch, texts)):
            distinct = _days(pandas.to_datetime(pandas.Series(texts), format="ISO8601", utc=True, errors="coerce"))
        else:
            answers = [ANSWERS.get(text.lower()) for text in texts]
            numbers = texts if kind != "numbers" or None in answers else answers  # not 3 beside yes
            distinct = pandas.to_numeric(pandas.Series(numbers), errors="coerce").to_numpy(float)
        no = np.isnan(distinct)
        if kind == "either" and no.all() and not dated:
            units = [unit and unit[1] for unit in map(UNIT.fullmatch, texts)]
            alike = len(units) > 1 and units[0] and len(set(units)) == 1
            no = np.array([bool(alike or NUMBER_LIKE.fullmatch(text)) for text in texts])
            if not no.any():
                return _labels(name, texts, codes)
        if no.any():
            odd = no if no.sum() <= len(no) / 2 or no.all() or kind != "either" else ~no
            raise wrong(odd[codes], f"must be {MUST[kind]}: convert it, or set `decimal` or `missing`")
        values = distinct[codes]
        if dated:
            return Column(name, values, unit=DAYS)
    if (large := ~(np.abs(values) <= LARGEST)).any():
        raise wrong(large, f"must be finite and at most {LARGEST:g}")
    least = values.min()
    if not literal and least in CODES and (values[values != least] >= 0).all():
        must = f"must not have a lone negative number: set `missing` to {least:g} if it is no answer, or leave it empty"
        raise wrong(values == least, must)
    return Column(name, values)


def _distinct(series: Any) -> tuple[list[str], np.ndarray]:
    """Returns the distinct values of a column as texts, and their indices (N,)."""
    if series.dtype.kind == "f" and not (series % 1).any():
        series = series.astype("int64")  # numbers in a column that had gaps
    codes, found = require("pandas", "data").factorize(series)
    return [str(one) for one in found.tolist()], codes


def _labels(name: str, texts: Sequence[str], codes: np.ndarray) -> Column:
    """Makes a column of labels, sorted by number if all are numbers, otherwise alphabetically."""
    try:
        levels = sorted({*texts}, key=float)
    except ValueError:
        levels = sorted({*texts})
    place = {text: i for i, text in enumerate(levels)}
    return Column(name, np.array([place[text] for text in texts], np.int32)[codes], tuple(levels))


def _days(times: Any) -> np.ndarray:
    """Returns times as days since 1970 in UTC, NaN if there is none."""
    pandas = require("pandas", "data")
    since = pandas.to_datetime(times, utc=True) - pandas.Timestamp("1970-01-01", tz="UTC")
    return (since / pandas.Timedelta(days=1)).to_numpy(float)
