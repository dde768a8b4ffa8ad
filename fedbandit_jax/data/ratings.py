"""The files of ratings of MovieLens, in all of its formats; a fault names file, line and column."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

FILES = ("ratings.csv", "ratings.dat", "u.data")  # names of files of ratings
HEADER = "userId,movieId,rating,timestamp"  # first line of ratings.csv
LARGEST_ID = 2**31 - 1  # of a user or a movie, so that it fits in int32
RATINGS = (0.5, 5.0)  # lowest and highest rating


def found(path: Path) -> Path:
    """The file of ratings that a path names, or that is in the folder that it names."""
    for file in (path, *(path / name for name in FILES)):
        if file.is_file():
            return file
    raise FileNotFoundError(f"path must be one of {', '.join(FILES)} or hold one of them, got {str(path)!r}")


def read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """The ids (N,) of users and of movies of all ratings, or a `ValueError` that says where the file is damaged."""
    separator = _separator(file)
    fields = [("user", "i4"), ("movie", "i4"), ("rating", "f8"), ("timestamp", "i8")]
    # loadtxt can only split at a single ":", so that "::" leaves an empty field between two others.
    gaps = [(f"gap{i}", "S1") for i in range(3)] if separator == "::" else []
    for i, gap in enumerate(gaps):
        fields.insert(2 * i + 1, gap)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # loadtxt only warns of files without lines, and of an integer like 1.5
            options: Any = dict(comments=None, delimiter=separator[0], ndmin=1, encoding="utf-8-sig")
            table = np.loadtxt(file, np.dtype(fields), skiprows=int(separator == ","), **options)
    except (ValueError, UserWarning, DeprecationWarning) as error:
        raise ValueError(_fault(file, separator) or f"{file} must be in a format of MovieLens: {error}") from error
    users, movies, ratings = (table[name].copy() for name in ("user", "movie", "rating"))
    with file.open("rb") as data:
        data.seek(-1, 2)
        whole = data.read() in b"\r\n"
    sound = (
        whole
        and not any(table[name].any() for name, _ in gaps)
        and users.min() > 0
        and movies.min() > 0
        and RATINGS[0] <= ratings.min()  # False for NaN
        and ratings.max() <= RATINGS[1]
    )
    if not sound:
        raise ValueError(_fault(file, separator) or f"{file} must be in a format of MovieLens")
    del table, ratings
    pairs = users.astype(np.int64) << 32 | movies
    in_order = np.sort(pairs)
    again = in_order[1:][in_order[1:] == in_order[:-1]]
    if len(again):
        row = _second(pairs, again)
        first = int(np.flatnonzero(pairs == pairs[row])[0])
        again = f"user {users[row]} and movie {movies[row]} again, first in line {_line_number(file, first)}"
        raise ValueError(f"{file}, line {_line_number(file, row)}: a user must rate a movie once, got {again}")
    return users, movies


def _second(pairs: np.ndarray, again: np.ndarray) -> int:
    """The first row whose pair was in an earlier row; `again` has all pairs that occur more than once."""
    rows = np.flatnonzero(np.isin(pairs, again))
    earlier = np.unique(pairs[rows], return_index=True)[1]
    return int(np.delete(rows, earlier)[0])


def _separator(file: Path) -> str:
    """The separator of fields, by the first line of a file; "," if that is the header."""
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        line = lines.readline(1000)
    if line.strip() == HEADER:
        return ","
    for separator in ("::", "\t"):
        if separator in line:
            return separator
    if not line:
        raise ValueError(f"{file} must have at least one rating, got an empty file")
    wanted = f"{HEADER} or fields separated by '::' or tabs"
    raise ValueError(f"{file}, line 1: must be {wanted}, got {_shown(line.rstrip())}")


def _ratings(file: Path) -> Iterator[tuple[int, str]]:
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip() and not (number == 1 and line.strip() == HEADER):
                yield number, line


def _line_number(file: Path, row: int) -> int:
    return next(islice(_ratings(file), row, None))[0]


def _fault(file: Path, separator: str) -> str | None:
    """The first thing that is wrong in a damaged file, by a slow search."""
    number, line = 0, "\n"
    for number, line in _ratings(file):
        fields = line.rstrip("\n").split(separator)
        if len(fields) != 4:
            wanted = f"4 fields separated by {separator!r}"
            return f"{file}, line {number}: must be {wanted}, got {len(fields)} in {_shown(line.rstrip())}"
        fault = _field_fault([field.strip() for field in fields])
        if fault is not None:
            return f"{file}, line {number}, column {fault[0]}: {fault[1]}"
    if number == 0:
        return f"{file} must have at least one rating, got none"
    if not line.endswith("\n"):
        return f"{file}, line {number}: must have a line end (cut short?), got {_shown(line)}"
    return None


def _field_fault(fields: list[str]) -> tuple[int, str] | None:
    for column, name in enumerate(("user", "movie"), 1):
        text = fields[column - 1]
        if not (re.fullmatch(r"[0-9]{1,18}", text) and 1 <= int(text) <= LARGEST_ID):
            return column, f"{name} must be an integer in 1, ..., {LARGEST_ID}, got {_shown(text)}"
    low, high = RATINGS
    number = re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", fields[2])
    if not (number and low <= float(fields[2]) <= high):
        return 3, f"rating must be a number in [{low:g}, {high:g}], got {_shown(fields[2])}"
    if not re.fullmatch(r"-?[0-9]{1,18}", fields[3]):
        return 4, f"timestamp must be an integer, got {_shown(fields[3])}"
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
