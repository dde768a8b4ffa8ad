"""Where columns are: in a file of commas, in a Parquet file, in a frame, or in a mapping of names to vectors.

Rows of a file are counted as a spreadsheet does, with the header as row 1, and those of anything else from 0.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue

CHUNK = 256  # rows of a file that are held as text at a time; with many, much time goes to collecting garbage
LISTED = 12  # most names in a message


def check_column(argument: str, name: str, names: Sequence[str], title: str) -> None:
    """Raises a `ValueError` unless a column has this name."""
    if name not in names:
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        near = validate.suggestion(name, map(str, names), cutoff=0.5)
        hint = near or f", but they are {', '.join(map(str, names[:LISTED]))}{more}"
        raise BadValue(argument, f"must be a column of {title}", name, got=f"{validate.shown(name)}{hint}")


class CsvTable:
    """A file of values with commas between them, in UTF-8, whose first row is a header."""

    first = 2

    def __init__(self, path: Path):
        self.path, self.title = path, path.name
        with self._file() as file:
            self.names = [name.strip() for name in next(self._rows(file), [])]
        if not any(self.names):
            raise BadValue("source", "must have a header and rows", self.title, got=f"an empty file, {self.title}")
        if len(self.names) == 1 and (wrong := [c for c in (";", "\t") if c in self.names[0]]):
            between = {";": "semicolons", "\t": "tabs"}[wrong[0]]
            raise BadValue(
                "source", "must have commas between its columns", between, got=f"{between} in row 1 of {self.title}"
            )
        distinct(self.names, self.title)

    def chunks(self, names: Sequence[str]) -> Iterator[dict[str, Sequence[str]]]:
        """The values of these columns, so many rows at a time."""
        places = {name: self.names.index(name) for name in names}
        width, row = len(self.names), self.first
        with self._file() as file:
            rows = self._rows(file)
            next(rows)
            while chunk := list(islice(rows, CHUNK)):
                if {*map(len, chunk)} != {width}:
                    chunk += rows  # so that lines without anything are seen to be at the end
                    while chunk and not chunk[-1]:
                        chunk.pop()
                    self._check_widths(chunk, row)
                if chunk:
                    columns = list(zip(*chunk))
                    yield {name: columns[place] for name, place in places.items()}
                    row += len(chunk)

    def _file(self) -> Any:
        return self.path.open(encoding="utf-8-sig", newline="")

    def _rows(self, file: Any) -> Iterator[list[str]]:
        rows = csv.reader(file, strict=True, skipinitialspace=True)
        try:
            yield from rows
        except UnicodeDecodeError:
            raise ValueError(self._undecodable()) from None
        except csv.Error as error:
            raise BadValue(
                "source",
                "must have quotes in pairs and whole rows",
                error,
                got=f"{error} in line {rows.line_num:,} of {self.title}",
            ) from None

    def _check_widths(self, rows: Sequence[Sequence[str]], first: int) -> None:
        width = len(self.names)
        for i, one in enumerate(rows):
            if len(one) != width:
                lacks = f"none for column {self.names[len(one)]!r}" if len(one) < width else "more than columns"
                raise BadValue(
                    "source",
                    f"must have {width} values in every row, as its header has",
                    len(one),
                    got=f"{len(one)} in row {first + i:,} of {self.title}, {lacks}",
                )

    def _undecodable(self) -> str:
        """The message that says where the bytes are that are not UTF-8."""
        escaped = self.path.open(encoding="utf-8-sig", newline="", errors="surrogateescape")
        with escaped as file, contextlib.suppress(csv.Error):
            header: list[str] = []
            for i, line in enumerate(csv.reader(file)):
                header = header or line
                for j, value in enumerate(line):
                    if strange := [one for one in value if "\udc80" <= one <= "\udcff"]:
                        name = header[j] if i and j < len(header) else f"number {j + 1}"
                        byte = f"the byte 0x{ord(strange[0]) - 0xDC00:02x}"
                        where = f"in row {i + 1:,} of column {name!r} of {self.title}"
                        return f"source must be UTF-8, got {byte} {where}: save it as UTF-8"
        return f"source must be UTF-8, got other bytes in {self.title}"


class FrameTable:
    """Vectors by name, of one length."""

    first = 0

    def __init__(self, frame: Any, title: str):
        self.frame, self.title = frame, title
        self.names = list(frame) if isinstance(frame, Mapping) else names_of(frame)
        if not self.names:
            raise BadValue("source", "must have columns", title, got=f"none in {title}")
        distinct(self.names, title)

    def chunks(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The values of these columns."""
        found = {name: vector(name, self.frame[name]) for name in names}
        for name, one in found.items():
            if len(one) != len(found[names[0]]):
                raise BadValue(
                    "source",
                    "must have columns of one length",
                    len(found[names[0]]),
                    got=f"{len(found[names[0]]):,} rows in column {names[0]!r} and {len(one):,} in column {name!r}",
                )
        yield found


def opened(source: Any) -> CsvTable | FrameTable:
    """The reader of the columns of a source."""
    if isinstance(source, FrameTable):
        return source
    if isinstance(source, Mapping):
        for name, values in source.items():
            vector(name, values)
        return FrameTable(source, "the table")
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):
        return FrameTable(source, "the frame")
    path = validate.path("source", source) if isinstance(source, (str, Path)) else None
    if path is None:
        raise BadType("source", "must be a path, a frame or a mapping of names to vectors", source)
    ending = path.suffix.lower()
    if ending not in (".csv", ".parquet"):
        raise BadValue("source", "must end in .csv or .parquet", str(path))
    if not path.is_file():
        there = "a folder" if path.is_dir() else "no such file"
        raise BadValue("source", "must be a file", there, got=f"{there} at {validate.shown(str(path))}")
    return CsvTable(path) if ending == ".csv" else _parquet(path)


def _parquet(path: Path) -> FrameTable:
    try:
        frame = import_module("pyarrow.parquet").read_table(path)
    except ModuleNotFoundError:
        try:
            frame = import_module("pandas").read_parquet(path)
        except ImportError:
            raise ImportError(
                f"source must be a .csv unless pyarrow or pandas with fastparquet is installed, got {path.name}"
            ) from None
    except Exception as error:
        raise BadValue(
            "source", "must be a Parquet file", path.name, got=f"{path.name}: {validate.shown(str(error))}"
        ) from error
    return FrameTable(frame, path.name)


def names_of(frame: Any) -> list[Any]:
    """The names of the columns of a frame, or of a table of pyarrow."""
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def vector(name: str, values: Any) -> np.ndarray:
    """A column of a frame or mapping as a vector."""
    try:
        if np.ma.is_masked(values):
            values = np.where(values.mask, None, values.data.astype(object))  # what is masked is missing
        if isinstance(values, (list, tuple)):
            mixed = len({*map(type, values)}) > 1  # NumPy would make one of 1 and True
            found = np.array([*values, None], object)[:-1] if mixed else np.asarray(values)
        else:
            found = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    except (TypeError, ValueError):  # of unequal lengths
        found = np.asarray(None)
    if getattr(found, "ndim", 0) != 1:
        shape = getattr(found, "shape", ())
        raise BadValue("source", "must have a vector for every column", shape, got=f"shape {shape} in column {name!r}")
    return found


def distinct(names: Sequence[Any], title: str) -> None:
    """Raises a `ValueError` if two columns have one name."""
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise BadValue("source", "must have one column of each name", name, got=f"column {name!r} twice in {title}")
        seen.add(name)
