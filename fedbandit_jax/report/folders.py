"""Finds results in folders, and joins the pieces of stored sweeps."""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.measured import OF_LABELS
from fedbandit_jax.report.result import Result, concat

STORED = re.compile(r"[0-9a-f]{32}/seeds_(\d+)-(\d+)\.npz")  # a file of a store, see engine/store.py
_OWN = ("date", "seconds", "compiling", "command", "contexts")  # provenance that differs between runs of the same code


class Section(NamedTuple):
    """A result and its files."""

    name: str
    result: Result
    files: list[Path]
    notes: list[str]  # warnings for readers, such as parts of a newer version


class Found(NamedTuple):
    """Results and refused files."""

    sections: list[Section]
    refused: list[tuple[Path, str]]  # files that are not intact results, with the reason


def find(paths: Sequence[str | Path]) -> Found:
    """Finds the results in files and folders, and the files that are not results.

    It reads every .npz file of a folder and its subfolders. It joins the pieces of a configuration in a store, one
    file for each stretch of seeds, and configurations with the same seeds, horizon, key and code.

    Args:
        paths: files and folders.

    Raises:
        ValueError, TypeError: a path does not exist, or holds no .npz file; the message names it.
    """
    files: dict[Path, Path] = {}  # resolved path -> path as found
    for path in [validate.path("paths", path) for path in validate.sequence("paths", paths, "paths")]:
        if not path.exists():
            raise BadValue("paths", "must be files and folders", path, got=f"{str(path)!r}, which does not exist")
        inside = sorted(path.rglob("*.npz")) if path.is_dir() else [path]
        if not inside:
            got = f"{str(path)!r}, which has none"
            raise BadValue("paths", "must hold results, files that end in .npz", path, got=got)
        for one in inside:
            files.setdefault(one.resolve(), one)
    if not files:
        raise BadValue("paths", "must name at least one file or folder", None, got="none")
    sections, refused = [], []
    stores: dict[Path, dict[str, list[Section]]] = {}
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
            continue
        loaded = Section(str(path), result, [path], [str(one.message) for one in said])
        if STORED.fullmatch(f"{path.resolve().parent.name}/{path.name}") and len(result) == 1:
            stores.setdefault(path.parent.parent, {}).setdefault(path.parent.name, []).append(loaded)
        else:
            sections.append(loaded)
    for folder, configurations in stores.items():
        sections += _of_store(folder, [_along_seeds(parts) for parts in configurations.values()])
    return Found(sections, refused)


def _along_seeds(parts: list[Section]) -> Section:
    """Joins the pieces of one configuration of a store under the label of its first seeds. Drops duplicate seeds."""
    parts = sorted(parts, key=lambda part: int(part.result.seeds[0]))
    label, joined, seen = parts[0].result.labels[0], [], set()
    for part in parts:
        new = [seed for seed in part.result.seeds.tolist() if seed not in seen]
        seen.update(new)
        if new:
            one, config = part.result, parts[0].result.config
            its = {**one.config, **{kind: {label: config[kind][label]} for kind in OF_LABELS}}
            one = dataclasses.replace(one, certificates={label: one.certificate}, config=its)
            joined.append(one.sel(seed=new))
    result = concat(joined) if len(joined) > 1 else joined[0]
    return _joined(label, result, parts)


def _joined(name: str, result: Result, parts: Sequence[Section]) -> Section:
    files, notes = [path for one in parts for path in one.files], [note for one in parts for note in one.notes]
    return Section(name, result, files, notes)


def _of_store(folder: Path, ones: Iterable[Section]) -> list[Section]:
    groups: dict[tuple[str, int], list[Section]] = {}  # run, and number of the group, whose labels are unique
    for one in sorted(ones, key=_place):
        code = {name: value for name, value in one.result.provenance.items() if name not in _OWN}
        run = [one.result.config[name] for name in ("horizon", "stride", "key", "seeds")]
        same = json.dumps([run, one.result.rounds.tolist(), code], sort_keys=True)
        nth = sum(one.name == other.name for (key, _), group in groups.items() if key == same for other in group)
        groups.setdefault((same, nth), []).append(one)
    made = []
    for i, group in enumerate(groups.values()):
        name = f"store {folder}" + (f", part {i + 1} of {len(groups)}" if len(groups) > 1 else "")
        results = [one.result for one in group]
        made.append(_joined(name, concat(results) if len(results) > 1 else results[0], group))
    return made


def _place(one: Section) -> list[tuple[bool, Any]]:
    point = one.result.coordinates[one.name]
    return [(isinstance(value, str), value) if isinstance(value, (int, float, str)) else (True, json.dumps(value))
            for value in (point["algorithm"], *point.values())]  # fmt: skip
