"""Checkpoints of interrupted runs, one file for each compiled program of a sweep."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core.files import locked, read_archive, remove_unfinished, write_archive
from fedbandit_jax.engine.curves import Tally


class Progress(NamedTuple):
    """The state needed to continue a run. It is immutable, so an interruption sees all of a chunk or none of it."""

    layout: str  # describes the shapes of the states
    k: int  # steps taken
    states: Any  # worlds and learners
    tally: Tally


class Checkpoints:
    """Checkpoint files `stem`.0, `stem`.1, ... of the programs of a sweep, continued by runs of their `fingerprint`."""

    def __init__(self, stem: str | Path, fingerprint: str):
        self.stem, self.fingerprint = stem, fingerprint
        self._warned = False

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Locks the files against other processes; raises `ValueError` if one holds them."""
        return locked(Path(self.stem), "checkpoint", str(self.stem))

    def save(self, program: int, progress: Progress) -> bool:
        """Writes a checkpoint; returns False, with one warning in all, if that fails."""
        path = self._path(program)
        leaves = jax.tree.leaves(progress.states)
        arrays = {f"leaf_{i}": np.asarray(_words(leaf)) for i, leaf in enumerate(leaves)}
        arrays |= {f"record_{name}": array for name, array in progress.tally.arrays.items()}
        about = {"run": self.fingerprint, "layout": progress.layout}
        about |= {"steps": progress.k, "names": progress.tally.names}
        try:
            write_archive(path, "checkpoint", about, arrays, compress=False)
        except OSError as error:  # a full disk must not end the run
            if not self._warned:
                warnings.warn(
                    f"checkpoint {str(path)!r} could not be written: {error.strerror}; the run continues, and retries "
                    "without further warnings",
                    stacklevel=3,
                )
            self._warned = True
            return False
        return True

    def restore(self, program: int, fresh: Progress) -> Progress:
        """Returns the progress in the checkpoint of a program, or `fresh` without one.

        Raises:
            ValueError: it belongs to another run, or is damaged.
        """
        path = self._path(program)
        remove_unfinished(path)
        if not path.exists():
            return fresh
        otherwise = f"give another path, or delete {str(path)!r} to start anew"
        try:
            about, arrays = read_archive(path, "checkpoint")
        except ValueError as error:
            raise ValueError(f"checkpoint {str(path)!r} is unusable: {error}: {otherwise}") from error
        if about.get("run") != self.fingerprint:
            raise ValueError(
                f"checkpoint {str(path)!r} belongs to a run with another configuration, code or versions: {otherwise}"
            )
        if about.get("layout") != fresh.layout:
            raise ValueError(
                f"checkpoint {str(path)!r} has its runs in {about.get('layout')}, not {fresh.layout}: continue with "
                f"the same numbers of processors and devices and the same memory, {otherwise}"
            )
        old, treedef = jax.tree.flatten(fresh.states)
        there = [jax.device_put(arrays[f"leaf_{i}"], _words(leaf).sharding) for i, leaf in enumerate(old)]
        leaves = [  # with their sharding, or the program would compile again
            jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else words
            for leaf, words in zip(old, there)
        ]
        recorded = {name.removeprefix("record_"): array for name, array in arrays.items() if name.startswith("record_")}
        tally = dataclasses.replace(fresh.tally, names=tuple(about["names"]), arrays=recorded)
        return Progress(fresh.layout, about["steps"], jax.tree.unflatten(treedef, leaves), tally)

    def _path(self, program: int) -> Path:
        return Path(f"{self.stem}.{program}")


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Lets SIGTERM raise `SystemExit` with code 143 in the block, as Ctrl-C raises `KeyboardInterrupt`.

    A handler of the program stays. Outside the main thread, which Python's handlers need, nothing changes.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
