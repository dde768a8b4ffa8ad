"""Checkpoints and signal handling for interrupted runs.

There are two files for each compiled program of a sweep. Ctrl-C and SIGTERM wait while one is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
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
            write_archive(path, "checkpoint", about, arrays, compress=False, before=_before(path))
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
        path = self._path(program)
        check_free("checkpoint", path, _before(path))
        remove_unfinished(path)
        damaged: dict[Path, str] = {}
        for one in (path, _before(path)):
            try:
                about, arrays = read_archive(one, "checkpoint")
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                damaged[one] = str(error.strerror if isinstance(error, OSError) else error)
                continue
            self._check(one, about, fresh)
            if damaged:
                warnings.warn(
                    f"checkpoint {str(path)!r} is unusable: {damaged[path]}; the run continues from "
                    f"{str(one)!r}, {about['steps']} steps after its start",
                    stacklevel=3,
                )
                with contextlib.suppress(OSError):
                    os.replace(one, path)  # or the damaged one would become the predecessor
            return _continued(about, arrays, fresh)
        if damaged:
            first, *others = damaged
            also = "".join(f"; its predecessor {str(one)!r}: {damaged[one]}" for one in others)
            raise ValueError(
                f"checkpoint {str(first)!r} is unusable: delete {'both files' if also else 'it'} to start anew, or "
                f"give another path: {damaged[first]}{also}"
            )
        return fresh

    def _path(self, program: int) -> Path:
        return Path(f"{self.stem}.{program}")

    def _check(self, path: Path, about: dict[str, Any], fresh: Progress) -> None:
        there = " and ".join(repr(str(one)) for one in (path, _before(path)) if one.exists())
        if about.get("run") != self.fingerprint:
            raise ValueError(
                f"checkpoint {str(path)!r} belongs to a run with another configuration, code or versions: give another "
                f"path, or delete {there} to start anew"
            )
        if about.get("layout") != fresh.layout:
            raise ValueError(
                f"checkpoint {str(path)!r} has its runs in {about.get('layout')}, not {fresh.layout}: continue with "
                "the same numbers of processors and devices and the same memory, give another path, or delete "
                f"{there} to start anew"
            )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _like(leaf: Any, words: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else words


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def _continued(about: dict[str, Any], arrays: dict[str, np.ndarray], fresh: Progress) -> Progress:
    old, treedef = jax.tree.flatten(fresh.states)
    there = [jax.device_put(arrays[f"leaf_{i}"], _words(leaf).sharding) for i, leaf in enumerate(old)]
    leaves = list(map(_like, old, there))  # with their sharding, or the program would compile again
    states = jax.tree.unflatten(treedef, leaves)
    recorded = {name.removeprefix("record_"): array for name, array in arrays.items() if name.startswith("record_")}
    tally = dataclasses.replace(fresh.tally, names=tuple(about["names"]), arrays=recorded)
    return Progress(fresh.layout, about["steps"], states, tally)


class Interruption:
    """A block in which signals take effect only inside `allowed`, and only once.

    Other signals wait for the next `allowed` section, or for the end of the block. Once a signal has raised an
    exception, later ones are ignored until the block has ended. Signals keep their handlers, but a SIGTERM that would
    end the process raises `SystemExit` with code 143. Outside the main thread, which Python's handlers need, nothing
    changes.
    """

    def __init__(self, signals: Sequence[signal.Signals] = STOPS):
        self._signals = signals
        self._before: dict[int, Any] = {}  # handlers
        self._open, self._waiting = False, 0  # 0: none

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            found = {number: signal.getsignal(number) for number in self._signals}
            self._before = {n: handler for n, handler in found.items() if handler not in (signal.SIG_IGN, None)}
        for number in self._before:
            signal.signal(number, self._arrived)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._waiting and not (kind and issubclass(kind, (KeyboardInterrupt, SystemExit))):
            self._take_effect(self._waiting, None)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Lets signals take effect in this section, including those that wait."""
        try:
            self._open = True
            if self._waiting:
                number, self._waiting = self._waiting, 0
                self._arrived(number, None)
            yield
        finally:
            self._open = False

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if not self._open:
            self._waiting = self._waiting or number
            return
        self._open = False  # first, so that no other signal interrupts the handling of this one
        self._take_effect(number, frame)
        self._open = True  # the user's handler returned

    def _take_effect(self, number: int, frame: FrameType | None) -> None:
        handler = self._before[number]
        if callable(handler):
            handler(number, frame)
        else:
            raise SystemExit(128 + number)
