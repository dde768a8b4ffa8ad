"""Checkpoints: files from which a run that was interrupted goes on, one for each compiled program of a sweep."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core import archive
from fedbandit_jax.engine.recording import Record


class Progress(NamedTuple):
    """All that is needed to continue a run."""

    layout: str  # how the states of all runs are laid out
    k: int  # steps taken
    states: Any  # worlds and learners
    record: Record


class Checkpoints:
    """The files `stem`.0, `stem`.1, ... of a sweep.

    Args:
        stem: their path, without the number of the program.
        fingerprint: of the configuration and the code; only a checkpoint with the same one is continued.
    """

    def __init__(self, stem: str | Path, fingerprint: str):
        self.stem, self.fingerprint = stem, fingerprint
        self._warned = False

    def save(self, program: int, progress: Progress) -> None:
        """Writes the checkpoint of a program; the first time that this fails it warns, and the run goes on."""
        path = self._path(program)
        leaves = jax.tree.leaves(progress.states)
        arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        arrays |= {f"record_{name}": array for name, array in progress.record.arrays.items()}
        about = {"run": self._run(progress), "steps": progress.k, "names": progress.record.names}
        try:
            archive.write(path, "checkpoint", about, arrays, compress=False)
        except OSError as error:  # a full disk must not end a run that works otherwise
            if not self._warned:
                warnings.warn(
                    f"checkpoint {str(path)!r} could not be written: {error.strerror}; the run goes on, and tries "
                    "again without another warning",
                    stacklevel=3,
                )
            self._warned = True

    def restore(self, program: int, fresh: Progress) -> Progress:
        """Returns where the checkpoint of a program left off, or `fresh` if there is none.

        Raises:
            ValueError: the file is damaged, or belongs to another run.
        """
        path = self._path(program)
        try:
            about, arrays = archive.read(path, "checkpoint")
        except FileNotFoundError:
            return fresh
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ValueError(
                f"checkpoint {str(path)!r} cannot be continued, delete it to begin anew or give another path: {why}"
            ) from error
        if about.get("run") != self._run(fresh):
            raise ValueError(f"checkpoint {str(path)!r} belongs to another run: delete it or give another path")
        treedef = jax.tree.structure(fresh.states)
        leaves = [jnp.asarray(arrays[f"leaf_{i}"]) for i in range(treedef.num_leaves)]
        states = jax.tree.unflatten(treedef, leaves)
        recorded = {name.removeprefix("record_"): array for name, array in arrays.items() if name.startswith("record_")}
        record = dataclasses.replace(fresh.record, names=tuple(about["names"]), arrays=recorded)
        return Progress(fresh.layout, about["steps"], states, record)

    def _path(self, program: int) -> Path:
        return Path(f"{self.stem}.{program}")

    def _run(self, progress: Progress) -> str:
        """Returns what identifies the run, and the layout of what it has saved."""
        return f"{self.fingerprint} {progress.layout}"
