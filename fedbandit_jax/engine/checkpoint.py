"""Checkpoints: files from which a run that was interrupted goes on, two for each compiled program of a sweep."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core.files import archive
from fedbandit_jax.core.files.atomic import remove_unfinished
from fedbandit_jax.core.files.lock import locked
from fedbandit_jax.engine.curves import Tally


class Progress(NamedTuple):
    """All that is needed to continue a run."""

    layout: str  # how the states of all runs are laid out
    k: int  # steps taken
    states: Any  # worlds and learners
    tally: Tally


class Checkpoints:
    """The files `stem`.0, `stem`.1, ... of the programs of a sweep, and `stem`.0.before, ... which they were before.

    Each is sealed by a digest. From the one before a run goes on if the newest has been damaged.

    Args:
        stem: their path, without the number of the program.
        fingerprint: of the configuration and the code; only a checkpoint with the same one is continued.
    """

    def __init__(self, stem: str | Path, fingerprint: str):
        self.stem, self.fingerprint = stem, fingerprint
        self._warned = False

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """A block in which no other process can write these files.

        Raises:
            ValueError: another process does; the message names it.
        """
        what = f"checkpoint must be that of one run at a time, got {str(self.stem)!r}"
        return locked(Path(f"{self.stem}.lock"), what, otherwise="give another path")

    def save(self, program: int, progress: Progress) -> bool:
        """Writes the checkpoint of a program, and returns whether that went well.

        The first time that it does not, this warns; the run goes on.
        """
        path = self._path(program)
        leaves = jax.tree.leaves(progress.states)
        arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        arrays |= {f"record_{name}": array for name, array in progress.tally.arrays.items()}
        about = {"run": self.fingerprint, "layout": progress.layout}
        about |= {"steps": progress.k, "names": progress.tally.names}
        try:
            archive.write(path, "checkpoint", about, arrays, compress=False, before=_before(path))
        except OSError as error:  # a full disk must not end a run that works otherwise
            if not self._warned:
                warnings.warn(
                    f"checkpoint {str(path)!r} could not be written: {error.strerror}; the run goes on, and tries "
                    "again without another warning",
                    stacklevel=3,
                )
            self._warned = True
            return False
        return True

    def restore(self, program: int, fresh: Progress) -> Progress:
        """Returns where the newest intact checkpoint of a program left off, or `fresh` if there is none at all.

        Raises:
            ValueError: it belongs to another run, or there are only damaged ones.
        """
        path = self._path(program)
        remove_unfinished(path)
        damaged: dict[Path, str] = {}
        for one in (path, _before(path)):
            try:
                about, arrays = archive.read(one, "checkpoint")
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                damaged[one] = str(error.strerror if isinstance(error, OSError) else error)
                continue
            self._check(one, about, fresh)
            if damaged:
                warnings.warn(
                    f"checkpoint {str(path)!r} cannot be continued: {damaged[path]}; the run goes on from the one "
                    f"before, {str(one)!r}, {about['steps']} steps after its beginning",
                    stacklevel=3,
                )
                with contextlib.suppress(OSError):
                    os.replace(one, path)  # lest the damaged one becomes the one before
            return _continued(about, arrays, fresh)
        if damaged:
            first, *others = damaged
            also = "".join(f"; nor can the one before, {str(one)!r}: {damaged[one]}" for one in others)
            raise ValueError(
                f"checkpoint {str(first)!r} cannot be continued, delete {'both' if also else 'it'} to begin anew or "
                f"give another path: {damaged[first]}{also}"
            )
        return fresh

    def _path(self, program: int) -> Path:
        return Path(f"{self.stem}.{program}")

    def _check(self, path: Path, about: dict[str, Any], fresh: Progress) -> None:
        """Raises a `ValueError` unless an intact checkpoint is one of this run."""
        there = " and ".join(repr(str(one)) for one in (path, _before(path)) if one.exists())
        if about.get("run") != self.fingerprint:
            raise ValueError(
                f"checkpoint {str(path)!r} belongs to another run, whose configuration, code or versions are not those "
                f"of this one: give another path, or delete {there} to begin anew"
            )
        if about.get("layout") != fresh.layout:
            raise ValueError(
                f"checkpoint {str(path)!r} has its runs in {about.get('layout')}, and here they would be in "
                f"{fresh.layout}: continue where there are as many processors and devices, give another path, or "
                f"delete {there} to begin anew"
            )


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def _continued(about: dict[str, Any], arrays: dict[str, np.ndarray], fresh: Progress) -> Progress:
    treedef = jax.tree.structure(fresh.states)
    leaves = [jnp.asarray(arrays[f"leaf_{i}"]) for i in range(treedef.num_leaves)]
    states = jax.tree.unflatten(treedef, leaves)
    recorded = {name.removeprefix("record_"): array for name, array in arrays.items() if name.startswith("record_")}
    tally = dataclasses.replace(fresh.tally, names=tuple(about["names"]), arrays=recorded)
    return Progress(fresh.layout, about["steps"], states, tally)
