"""Runs processes: many configurations under many seeds, in chunks, with a progress bar and checkpoints."""

from __future__ import annotations

import dataclasses
import time
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.files import write_atomic
from fedbandit_jax.engine.layout import OneByOne, SideBySide
from fedbandit_jax.engine.process import Process
from fedbandit_jax.engine.recording import Curves, Record, RoundRecord, StretchRecord

CHUNKS = 50  # a run is cut into about so many chunks, with a progress update after each,
CHUNK_ROUNDS = 5_000  # but no chunk has more rounds than this, so that buffers do not grow with T
CHECKPOINT_SECONDS = 10.0  # the least time between two checkpoints, unless the run stops


def run(
    processes: Sequence[Process],
    keys: Array,
    *,
    at: np.ndarray,
    bar: tqdm,
    checkpoint: Path | None = None,
    fingerprint: str = "",
) -> Curves:
    """Runs processes that share one compiled program for every key, and returns their curves at the rounds `at`.

    Args:
        processes: C processes of equal `signature`, one for each configuration.
        keys: (S,) typed keys, one for each seed.
        at: (N,) rounds 1, 2, ... to record, increasing.
        bar: progress bar, advanced by the number of rounds played by all runs together.
        checkpoint: file to continue from if it exists, which is written now and then, and when the run stops for any
            reason; None: no checkpoint.
        fingerprint: of the configuration and the code; only a checkpoint with the same one is continued.

    Raises:
        ValueError: the checkpoint is damaged, or belongs to another run.
    """
    clock = processes[0]
    play = (OneByOne if clock.alone and on_cpu() else SideBySide)(processes, keys)
    worlds, states = play.init()
    fingerprint += type(play).__name__  # the two layouts have different states in a checkpoint
    kind = StretchRecord if clock.rounds_at(0) is None else RoundRecord
    progress = _Progress(0, worlds, states, kind(at, len(processes), len(keys)))
    if checkpoint is not None and checkpoint.exists():
        progress = _restore(checkpoint, fingerprint, progress)
        bar.update(progress.record.played)
    length = _chunk_length(clock)
    saved = time.monotonic()
    try:
        while progress.k < clock.n_steps:
            steps = range(progress.k, min(progress.k + length, clock.n_steps))
            ks = np.arange(steps.start, steps.stop, dtype=np.int32)
            worlds, states, metrics = play.advance(progress.worlds, progress.states, ks)
            covered = [clock.rounds_at(k) for k in steps]
            lengths = [None if rounds is None else len(rounds) for rounds in covered]
            record = progress.record.add(jax.tree.map(np.asarray, metrics), lengths)
            bar.update(record.played - progress.record.played)
            progress = _Progress(steps.stop, worlds, states, record)  # one assignment: Ctrl-C sees all of it or none
            if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                _save(checkpoint, fingerprint, progress)
                saved = time.monotonic()
    finally:
        if checkpoint is not None and progress.k > 0:
            _save(checkpoint, fingerprint, progress)
    return progress.record.curves()


def signature(process: Process) -> Any:
    """Returns a hashable value; processes for which it is equal run in one compiled program."""
    leaves, treedef = jax.tree.flatten(process)
    return treedef, tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)


def _chunk_length(clock: Process) -> int:
    """Returns the number of steps in a chunk.

    It is a divisor of n_steps where one is near, so that one program serves all chunks.
    """
    first = clock.rounds_at(0)
    if first is None:  # how many rounds a step covers depends on the run
        return 1
    longest = min(max(1, -(-clock.n_steps // CHUNKS)), max(1, CHUNK_ROUNDS // len(first)))
    for length in range(longest, longest // 2, -1):
        if clock.n_steps % length == 0:
            return length
    return longest


class _Progress(NamedTuple):
    """All that is needed to continue a run."""

    k: int  # steps taken
    worlds: Any
    states: Any
    record: Record


def _save(path: Path, fingerprint: str, progress: _Progress) -> None:
    """Writes a checkpoint; if that fails, warns and lets the run go on."""
    leaves = jax.tree.leaves((progress.worlds, progress.states))
    arrays: dict[str, Any] = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= {f"record_{name}": array for name, array in progress.record.arrays.items()}
    arrays |= {"k": progress.k, "fingerprint": fingerprint, "names": np.array(progress.record.names)}
    try:
        write_atomic(path, lambda file: np.savez(file, **arrays))
    except OSError as error:  # a full disk must not end a run that works otherwise
        warnings.warn(f"checkpoint {str(path)!r} could not be written: {error}", stacklevel=3)


def _restore(path: Path, fingerprint: str, fresh: _Progress) -> _Progress:
    """Reads a checkpoint of a run whose states have the structure of `fresh`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        found = str(arrays["fingerprint"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint {str(path)!r} is damaged, delete it: {error}") from error
    if found != fingerprint:
        raise ValueError(f"checkpoint {str(path)!r} belongs to another run: delete it or give another path")
    treedef = jax.tree.structure((fresh.worlds, fresh.states))
    leaves = [jnp.asarray(arrays[f"leaf_{i}"]) for i in range(treedef.num_leaves)]
    worlds, states = jax.tree.unflatten(treedef, leaves)
    recorded = {name.removeprefix("record_"): array for name, array in arrays.items() if name.startswith("record_")}
    record = dataclasses.replace(fresh.record, names=tuple(map(str, arrays["names"])), arrays=recorded)
    return _Progress(int(arrays["k"]), worlds, states, record)
