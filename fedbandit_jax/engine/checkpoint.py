"""Checkpoints, from which a run goes on that was interrupted, and the signals that interrupt it.

There are two files for each compiled program of a sweep. Ctrl-C and SIGTERM are held back while one is written.
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
    """All that is needed to continue a run."""

    layout: str  # how the states of all runs are laid out
    k: int  # steps taken
    states: Any  # worlds and learners
    tally: Tally


class Checkpoints:
    """The files `stem`.0, `stem`.1, ... of the programs of a sweep, and `stem`.0.before, ... which they were before.

    A run goes on only from files with its `fingerprint`, from the one before if the newest has been damaged.
    """

    def __init__(self, stem: str | Path, fingerprint: str):
        self.stem, self.fingerprint = stem, fingerprint
        self._warned = False

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """A block in which no other process can write these files; a ValueError names one that does."""
        what = f"checkpoint must be that of one run at a time, got {str(self.stem)!r}"
        return locked(Path(f"{self.stem}{LOCK}"), what, otherwise="give another path")

    def save(self, program: int, progress: Progress) -> bool:
        """Whether a checkpoint could be written; the first time that it could not, this warns."""
        path = self._path(program)
        leaves = jax.tree.leaves(progress.states)
        arrays = {f"leaf_{i}": np.asarray(_words(leaf)) for i, leaf in enumerate(leaves)}
        arrays |= {f"record_{name}": array for name, array in progress.tally.arrays.items()}
        about = {"run": self.fingerprint, "layout": progress.layout}
        about |= {"steps": progress.k, "names": progress.tally.names}
        try:
            write_archive(path, "checkpoint", about, arrays, compress=False, before=_before(path))
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
        """The progress in the newest intact checkpoint of a program, or `fresh` if there is none at all.

        Raises:
            ValueError: it belongs to another run, or there are only damaged ones.
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
        there = " and ".join(repr(str(one)) for one in (path, _before(path)) if one.exists())
        if about.get("run") != self.fingerprint:
            raise ValueError(
                f"checkpoint {str(path)!r} belongs to another run, whose configuration, code or versions are not those "
                f"of this one: give another path, or delete {there} to begin anew"
            )
        if about.get("layout") != fresh.layout:
            raise ValueError(
                f"checkpoint {str(path)!r} has its runs in {about.get('layout')}, and here they would be in "
                f"{fresh.layout}: continue where there are as many processors and devices and as much memory, give "
                f"another path, or delete {there} to begin anew"
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
    leaves = list(map(_like, old, there))  # where they were, or else the program would be compiled once more
    states = jax.tree.unflatten(treedef, leaves)
    recorded = {name.removeprefix("record_"): array for name, array in arrays.items() if name.startswith("record_")}
    tally = dataclasses.replace(fresh.tally, names=tuple(about["names"]), arrays=recorded)
    return Progress(fresh.layout, about["steps"], states, tally)


class Interruption:
    """A block in which signals take effect only inside `allowed`, and only once.

    A signal that comes elsewhere waits for the next such stretch, or for the end of the block. Once one has ended a
    stretch, by raising an exception, others are ignored to the end of the block, which can finish what it was doing.
    A signal does what it did before, but SIGTERM, if it would end the process on the spot, raises `SystemExit` with the
    customary code 143. Outside of the main thread, where Python has no handlers, nothing changes.
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
        """A stretch of the block in which signals take effect, those that have been waiting as well."""
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
        self._open = False  # before anything is raised, so that no other one disturbs what this one leads to
        self._take_effect(number, frame)
        self._open = True  # a handler of the user's took note, and goes on

    def _take_effect(self, number: int, frame: FrameType | None) -> None:
        handler = self._before[number]
        if callable(handler):
            handler(number, frame)
        else:
            raise SystemExit(128 + number)
