"""MovieLens files of ratings, in all formats; errors name file, line and column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_jax.core.extras import require

FILES = ("ratings.csv", "ratings.dat", "u.data")
HEADER = "userId,movieId,rating,timestamp"  # first line of ratings.csv
LARGEST_ID = 2**31 - 1  # of a user or a movie, an int32
RATINGS = (0.5, 5.0)  # lowest and highest
FIELDS = {  # pattern, range, and words for messages
    "user": (r"\d{1,10}", 1, LARGEST_ID, f"an integer in 1, ..., {LARGEST_ID}"),
    "movie": (r"\d{1,10}", 1, LARGEST_ID, f"an integer in 1, ..., {LARGEST_ID}"),
    "rating": (r"\d+(\.\d*)?|\.\d+", *RATINGS, f"a number in [{RATINGS[0]:g}, {RATINGS[1]:g}]"),
    "timestamp": (r"-?\d{1,18}", -np.inf, np.inf, "an integer"),
}
TYPES = dict(user="int32", movie="int32", rating="float64", timestamp="int64")


def found(path: Path) -> Path:
    """Returns the file of ratings at a path, or in the folder at a path."""
    for file in (path, *(path / name for name in FILES)):
        if file.is_file():
            return file
    raise FileNotFoundError(f"path must be one of {', '.join(FILES)} or hold one of them, got {str(path)!r}")


def read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads the ids (N,) of users and movies of all ratings; a `ValueError` says where the file is damaged."""
    pandas = require("pandas", "data")
    with file.open("rb") as data:
        first = data.readline(1000).removeprefix(b"\xef\xbb\xbf").decode(errors="replace").strip()
        data.seek(-min(1, file.stat().st_size), 2)
        whole = data.read() in b"\r\n"
    separator = "," if first == HEADER else next((one for one in ("::", "\t") if one in first), None)
    if separator is None:
        got = f"an empty file, {file}" if not first else f"{first[:60]!r}"
        wanted = "at least one rating" if not first else f"{HEADER} or fields separated by '::' or tabs"
        raise ValueError(f"{file}, line 1: must be {wanted}, got {got}")
    # The fast parser splits at single characters, so "::" gives an empty field between two others.
    names = [*TYPES] if len(separator) == 1 else ["user", "a", "movie", "b", "rating", "c", "timestamp"]
    options: Any = dict(sep=separator[0], names=names, header=0 if separator == "," else None, na_filter=False)
    try:
        table = pandas.read_csv(file, dtype=TYPES | dict.fromkeys("abc", "str"), index_col=False, quoting=3, **options)
    except (ValueError, OverflowError) as error:
        raise ValueError(_fault(file, separator) or f"{file} must be in a format of MovieLens: {error}") from error
    ids = table[["user", "movie"]]
    sound = all(table[name].between(low, high).all() for name, (_, low, high, _) in FIELDS.items())
    gaps = names[1:-1:2] if len(names) == 7 else []
    if not (sound and whole and len(table)) or any((table[gap] != "").any() for gap in gaps):
        raise ValueError(_fault(file, separator) or f"{file} must be in a format of MovieLens")
    again = ids.duplicated().to_numpy()
    if again.any():
        row = int(np.argmax(again))
        user, movie = ids.iloc[row]
        first = int(np.argmax(((ids.user == user) & (ids.movie == movie)).to_numpy()))
        lines = [number for number, _ in _lines(file, separator)]
        got = f"user {user} and movie {movie} again, first in line {lines[first]}"
        raise ValueError(f"{file}, line {lines[row]}: a user must rate a movie once, got {got}")
    return ids.user.to_numpy(), ids.movie.to_numpy()


def _lines(file: Path, separator: str) -> Any:
    """Yields numbers and texts of the non-blank lines, without the header."""
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        yield from ((i, line) for i, line in enumerate(lines, 1) if line.strip() and (i > 1 or separator != ","))


def _fault(file: Path, separator: str) -> str | None:
    """Finds the first error in a damaged file, slowly."""
    number, line = 0, ""
    for number, line in _lines(file, separator):
        fields = [field.strip() for field in line.rstrip("\n").split(separator)]
        if len(fields) != 4:
            wanted, got = f"4 fields separated by {separator!r}", line.rstrip()[:60]
            return f"{file}, line {number}: must be {wanted}, got {len(fields)} in {got!r}"
        for column, (field, (name, (pattern, low, high, wanted))) in enumerate(zip(fields, FIELDS.items()), 1):
            if not (re.fullmatch(pattern, field) and low <= float(field) <= high):
                return f"{file}, line {number}, column {column}: {name} must be {wanted}, got {field[:60]!r}"
    if not line.endswith("\n"):
        wanted = f"a line end (cut short?), got {line!r}" if number else "at least one rating, got none"
        return f"{file}, line {number}: must have {wanted}"
    return None
