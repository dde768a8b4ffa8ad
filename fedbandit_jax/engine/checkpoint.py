"""Checkpoints and signal handling for interrupted runs.

There are two files for each compiled program of a sweep. Ctrl-C and SIGTERM wait until the present chunk has been
played.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core.files import LOCK, check_free, locked, read_archive, remove_unfinished, write_archive
from fedbandit_jax.engine.curves import Tally

STOPS = (signal.SIGINT, signal.SIGTERM)


class Progress(NamedTuple):
    """The state needed to continue a run."""

    layout: str  # describes the shapes of the states
    k: int  # steps taken
    states: Any  # worlds and learners
    tally: Tally


class Checkpoints:
    """Checkpoint files `stem`.0, `stem`.1, ... of the programs of a sweep, and their predecessors `stem`.0.before, ...

    A run continues only from files with its `fingerprint`, and from the predecessor if the newest is damaged.
    """

    def __init__(self, stem: str | Path, fingerprint: str):
        self.stem, self.fingerprint = stem, fingerprint
        self._warned = False

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Locks the files against other processes; raises `ValueError` if one holds them."""
        what = f"checkpoint must be that of one run at a time, got {str(self.stem)!r}"
        return locked(Path(f"{self.stem}{LOCK}"), what, otherwise="give another path")

    def save(self, program: int, progress: Progress) -> bool:
        """Writes a checkpoint; returns False, with one warning in all, if that fails."""
        path = self._path(program)
        leaves = jax.tree.leaves(progress.states)
        arrays = {f"leaf_{i}": np.asarray(_words(leaf)) for i, leaf in enumerate(leaves)}
        arrays |= {f"record_{name}": array for name, array in progress.tally.arrays.items()}
        about = {"run": self.fingerprint, "layout": progress.layout}
        about |= {"steps": progress.k, "names": progress.tally.names}
        try:
            if path.exists():
                os.replace(path, _before(path))
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
        """Returns the progress in the newest intact checkpoint of a program, or `fresh` without any.

        Raises:
            ValueError: it belongs to another run, or all are damaged.
        """
        path, damaged = self._path(program), {}
        check_free("checkpoint", path, _before(path))
        remove_unfinished(path)
        for one in (path, _before(path)):
            try:
                about, arrays = read_archive(one, "checkpoint")
                break
            except FileNotFoundError:
                continue
            except ValueError as error:
                damaged[one] = f"checkpoint {str(one)!r} is unusable: {error}"
        else:
            if damaged:
                raise ValueError(f"{'; '.join(damaged.values())}: delete it to start anew, or give another path")
            return fresh
        there = " and ".join(repr(str(one)) for one in (path, _before(path)) if one.exists())
        otherwise = f"give another path, or delete {there} to start anew"
        if about.get("run") != self.fingerprint:
            raise ValueError(
                f"checkpoint {str(one)!r} belongs to a run with another configuration, code or versions: {otherwise}"
            )
        if about.get("layout") != fresh.layout:
            raise ValueError(
                f"checkpoint {str(one)!r} has its runs in {about.get('layout')}, not {fresh.layout}: continue with "
                f"the same numbers of processors and devices and the same memory, {otherwise}"
            )
        if damaged:
            warnings.warn(f"{damaged[path]}; the run continues from {str(one)!r}", stacklevel=3)
            path.unlink()  # or it would become the predecessor
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


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


class Interruption:
    """A block in which signals wait for `deliver`, or for its end.

    Signals keep their handlers, but a SIGTERM that would end the process raises `SystemExit` with code 143. Once one
    has raised an exception, others of the block are ignored. Outside the main thread, which Python's handlers need,
    nothing changes.
    """

    def __init__(self, signals: Sequence[signal.Signals] = STOPS):
        self._signals = signals
        self._handlers: dict[int, Any] = {}
        self._arrived: list[int] = []

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            found = {number: signal.getsignal(number) for number in self._signals}
            self._handlers = {n: handler for n, handler in found.items() if handler not in (signal.SIG_IGN, None)}
        for number in self._handlers:
            signal.signal(number, lambda number, _: self._arrived.append(number))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if not (kind and issubclass(kind, (KeyboardInterrupt, SystemExit))):
            self.deliver()

    def deliver(self) -> None:
        """Calls the handlers of the signals that have arrived."""
        while self._arrived:
            number = self._arrived.pop(0)
            if not callable(handler := self._handlers[number]):
                raise SystemExit(128 + number)
            handler(number, None)
