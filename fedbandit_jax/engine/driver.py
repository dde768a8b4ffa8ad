"""Run processes: many configurations x many seeds, in chunks, with progress and checkpoints."""

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

CHUNKS = 50  # progress updates per run ...
CHUNK_ROUNDS = 5_000  # ... but never more rounds between two of them, so that buffers do not grow with T
CHECKPOINT_SECONDS = 10.0


def run(
    processes: Sequence[Process],
    keys: Array,
    *,
    at: np.ndarray,
    bar: tqdm,
    checkpoint: Path | None = None,
    fingerprint: str = "",
) -> Curves:
    """Run processes of one structure (see `signature`) for every key, and record the rounds `at`, 1, 2, ..., rising."""
    clock = processes[0]
    play = (OneByOne if clock.alone and on_cpu() else SideBySide)(processes, keys)
    worlds, states = play.init()
    fingerprint += type(play).__name__  # which states a checkpoint holds
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
    """Processes with equal signatures run in one compiled program."""
    leaves, treedef = jax.tree.flatten(process)
    return treedef, tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)


def _chunk_length(clock: Process) -> int:
    """Steps between progress updates; a divisor of n_steps where one is near, so that one program serves all chunks."""
    first = clock.rounds_at(0)
    if first is None:  # steps grow
        return 1
    longest = min(max(1, -(-clock.n_steps // CHUNKS)), max(1, CHUNK_ROUNDS // len(first)))
    for length in range(longest, longest // 2, -1):
        if clock.n_steps % length == 0:
            return length
    return longest


class _Progress(NamedTuple):
    """All there is to know about a run that has taken k steps."""

    k: int
    worlds: Any
    states: Any
    record: Record


def _save(path: Path, fingerprint: str, progress: _Progress) -> None:
    leaves = jax.tree.leaves((progress.worlds, progress.states))
    arrays: dict[str, Any] = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= {f"record_{name}": array for name, array in progress.record.arrays.items()}
    arrays |= {"k": progress.k, "fingerprint": fingerprint, "names": np.array(progress.record.names)}
    try:
        write_atomic(path, lambda file: np.savez(file, **arrays))
    except OSError as error:  # a full disk must not end a run that is fine
        warnings.warn(f"checkpoint {str(path)!r} could not be written: {error}", stacklevel=3)


def _restore(path: Path, fingerprint: str, fresh: _Progress) -> _Progress:
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
