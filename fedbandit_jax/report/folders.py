"""Finds results in folders."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.result import Result

STORED = re.compile(r"[0-9a-f]{32}/seeds_(\d+)-(\d+)\.npz")  # a file of a store, see engine/store.py


class Section(NamedTuple):
    """A result and its file."""

    path: Path
    result: Result
    notes: list[str]  # warnings for readers, such as parts of a newer version


class Found(NamedTuple):
    """Results and refused files."""

    sections: list[Section]
    refused: list[tuple[Path, str]]  # files that are not intact results, with the reason


def find(paths: Sequence[str | Path]) -> Found:
    """Finds the results in files and folders, and the files that are not results.

    It reads every .npz file of a folder and its subfolders, without the pieces of a store, which `fb.sweep` gathers.

    Args:
        paths: files and folders.

    Raises:
        ValueError, TypeError: a path does not exist, or holds no .npz file; the message names it.
    """
    files: dict[Path, Path] = {}  # resolved path -> path as found
    for path in [validate.path("paths", path) for path in validate.sequence("paths", paths, "paths")]:
        if not path.exists():
            raise BadValue("paths", "must be files and folders", path, got=f"{str(path)!r}, which does not exist")
        inside = [path]
        if path.is_dir():
            every = sorted(path.rglob("*.npz"))
            inside = [one for one in every if not STORED.fullmatch(f"{one.resolve().parent.name}/{one.name}")]
        if not inside:
            got = f"{str(path)!r}, which has none"
            raise BadValue("paths", "must hold results, .npz files that are not pieces of a store", path, got=got)
        files |= {one.resolve(): one for one in inside if one.resolve() not in files}
    if not files:
        raise BadValue("paths", "must name at least one file or folder", None, got="none")
    sections, refused = [], []
    for path in files.values():
        if path.suffix != ".npz":
            refused.append((path, "its name does not end in .npz"))
            continue
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                result = Result.load(path)
        except ValueError as error:
            why = str(error).removeprefix("path must be a saved result, got ").removeprefix(f"{str(path)!r}: ")
            refused.append((path, why))
        else:
            sections.append(Section(path, result, [str(one.message) for one in said]))
    return Found(sections, refused)
