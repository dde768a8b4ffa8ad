"""Sources of columns: a text file that pandas reads, a Parquet file, a frame, or a mapping of vectors.

Rows of a file are counted as in a spreadsheet, with the header as row 1, and others from 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.validate import BadType, BadValue

CHUNK = 65_536  # rows of a file read at a time with all columns
LISTED = 12  # most names in a message
SEPARATORS = ",;\t|"  # candidates; on ties the first counts
TEXTS: dict[str, Any] = dict(dtype=object, na_filter=False, skip_blank_lines=False, skipinitialspace=True, header=None)


class Source(NamedTuple):
    """A table with a title and columns by name."""

    title: str
    names: list[str]
    take: Callable[[Sequence[str]], list[np.ndarray]]
    first: int = 0  # number of the first row
    pointed: bool = True  # whether a point is always decimal

    def vectors(self, names: Sequence[str]) -> list[np.ndarray]:
        """Returns the vectors (N,) of these columns, N >= 1."""
        found = self.take(names)
        for name, one in zip(names, found):
            if len(one) != len(found[0]):
                got = f"{len(found[0]):,} rows in column {names[0]!r} and {len(one):,} in column {name!r}"
                raise BadValue("source", "must have columns of one length", len(found[0]), got=got)
        if not len(found[0]):
            got = f"none in {self.title}"
            raise BadValue("source", "must have at least one row below its header", self.title, got=got)
        return found

    def check(self, argument: str, name: str) -> None:
        """Raises `ValueError` unless a column has this name."""
        if name not in self.names:
            more = f" and {len(self.names) - LISTED} more" if len(self.names) > LISTED else ""
            near = validate.suggestion(name, self.names, cutoff=0.5)
            hint = near or f", but they are {', '.join(self.names[:LISTED])}{more}"
            raise BadValue(argument, f"must be a column of {self.title}", name, got=f"{validate.shown(name)}{hint}")


def opened(source: Any) -> Source:
    """Opens a path, a frame, a pyarrow table, or a mapping of names to vectors."""
    found = source if isinstance(source, Source) else _opened(source)
    if not any(found.names):
        raise BadValue("source", "must have a header and rows", found.title, got=f"{found.title}, which is empty")
    for i, name in enumerate(found.names):
        if name and name in found.names[:i]:
            got = f"column {name!r} twice in {found.title}"
            raise BadValue("source", "must have one column of each name", name, got=got)
    return found


def _opened(source: Any) -> Source:
    if isinstance(source, Mapping) or (hasattr(source, "columns") and hasattr(source, "__getitem__")):
        return framed(source, "the table" if isinstance(source, Mapping) else "the frame")
    if not isinstance(source, (str, Path)):
        raise BadType("source", "must be a path, a frame or a mapping of names to vectors", source)
    path = validate.path("source", source)
    if not path.is_file():
        there = "a folder" if path.is_dir() else "no such file"
        raise BadValue("source", "must be a file", there, got=f"{there} at {validate.shown(str(path))}")
    try:
        if path.suffix.lower() == ".parquet":
            return framed(require("pyarrow.parquet", "parquet").read_table(path), path.name)
        return _written(path)
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable(path, error) from error


def framed(frame: Any, title: str) -> Source:
    """Returns the columns of a frame, with any index, of a pyarrow table, or of a mapping."""
    names = frame if isinstance(frame, Mapping) else getattr(frame, "column_names", frame.columns)
    keys = {str(name): name for name in names}
    for name in frame if isinstance(frame, Mapping) else ():
        _vector(name, frame[name])
    return Source(title, [*map(str, names)], lambda wanted: [_vector(name, frame[keys[name]]) for name in wanted])


def _vector(name: Any, values: Any) -> np.ndarray:
    """Converts a column of a frame or mapping to a vector."""
    if np.ma.is_masked(values):
        values = np.where(values.mask, None, values.data.astype(object))  # masked values are missing
    try:
        if isinstance(values, (list, tuple)):
            found = np.array([*values, None], object)[:-1]
        else:
            found = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
        set(found.tolist() if found.dtype == object else ())  # nested lists are unhashable
    except (TypeError, ValueError):  # or ragged
        found = np.asarray(None)
    if found.ndim != 1 or found.dtype.kind in "cmV":
        got = f"shape {found.shape} and type {found.dtype} in column {name!r}"
        raise BadValue("source", "must have a vector of texts, numbers or dates for every column", found.shape, got=got)
    return found


def _written(path: Path) -> Source:
    """Opens a text file with a header, compressed or not, with the separator that splits the header most."""
    pandas = require("pandas", "data")
    with path.open("rb") as file:
        wide = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    options = dict(TEXTS, encoding="utf-16" if wide else "utf-8", encoding_errors="surrogateescape")
    headers = {sep: pandas.read_csv(path, sep=sep, nrows=1, **options) for sep in SEPARATORS}
    sep = max(headers, key=lambda sep: headers[sep].shape[1])
    names = [name.strip() for name in headers[sep].iloc[0]]
    if any("\0" in name or "\udc80" <= max(name, default="") <= "\udcff" for name in names):
        raise ValueError("row 1 is not in UTF-8")
    read = partial(pandas.read_csv, path, sep=sep, chunksize=CHUNK, **options)

    def take(wanted: Sequence[str]) -> list[np.ndarray]:
        places, parts, filled = [names.index(name) for name in wanted], [], []
        try:
            with read() as chunks:
                for chunk in chunks:
                    parts.append([chunk[place].to_numpy() for place in places])
                    filled.append((chunk.to_numpy() != "").any(axis=1))
        except (ValueError, OSError, EOFError) as error:
            raise _unreadable(path, error) from None
        end = int(np.flatnonzero(np.concatenate(filled))[-1]) + 1  # drops trailing blank lines
        return [np.concatenate(column)[1:end] for column in zip(*parts)]

    return Source(path.name, names, take, first=2, pointed=sep == ",")


def _unreadable(path: Path, error: Exception) -> BadValue:
    """Rewords an error of pandas or pyarrow. Here pandas counts rows of open quotes from 0."""
    said = re.sub(r"(?<=starting at row )\d+", lambda row: str(int(row[0]) + 1), " ".join(str(error).split()))
    said = said.removeprefix("Error tokenizing data. C error: ")
    return BadValue("source", "must be a table that can be read", path.name, got=f"{path.name}: {said[:200]}")
