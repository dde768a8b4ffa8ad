"""Run processes: many configurations x many seeds in one compiled program, in chunks, with progress and checkpoints.

Leaves that all configurations share (the environment) are shared on the device too: users are drawn once per seed,
not once per configuration.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from tqdm import tqdm

from fedbandit_jax._core.files import write_atomic
from fedbandit_jax.process import Process
from fedbandit_jax.recording import Curves, Record, RoundRecord, StretchRecord

CHUNKS = 50  # progress updates per run ...
CHUNK_ROUNDS = 5_000  # ... but never more rounds between two of them, so that buffers do not grow with T
CHECKPOINT_SECONDS = 10.0
CACHE_BYTES = 2**20  # of a usual second-level cache


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
    leaves, treedef, axes = _stack(processes)
    leaves = jax.device_put(leaves)
    layout = _Layout(treedef, axes, len(processes))
    clock = processes[0]
    worlds, states = _init()(leaves, keys, layout=layout)
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
            worlds, states, metrics = _advance()(leaves, keys, progress.worlds, progress.states, ks, layout=layout)
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


def _stack(processes: Sequence[Process]) -> tuple[list[Any], Any, tuple[int | None, ...]]:
    """Leaves with a leading axis of configurations, except where all configurations hold the same object."""
    flat = [jax.tree.leaves(process) for process in processes]
    leaves, axes = [], []
    for column in zip(*flat):
        shared = all(leaf is column[0] for leaf in column)
        leaves.append(column[0] if shared else np.stack([np.asarray(leaf) for leaf in column]))
        axes.append(None if shared else 0)
    return leaves, jax.tree.structure(processes[0]), tuple(axes)


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


def _options() -> dict[str, Any] | None:
    """XLA:CPU splits 512-bit registers in half by default; fused float loops gain a factor of two from whole ones."""
    return {"xla_cpu_prefer_vector_width": 512} if jax.default_backend() == "cpu" else None


class _Layout(NamedTuple):
    """How configurations and seeds are laid out in one compiled program. Hashable."""

    treedef: Any  # of a process
    axes: tuple[int | None, ...]  # which of its leaves are stacked over configurations
    n_configs: int

    def over_configs(self, method: str, keep: bool) -> Any:
        """A method of all configurations: (leaves, key, ...) -> world, results with a leading axis C."""

        def one(leaves, *args):
            return getattr(jax.tree.unflatten(self.treedef, leaves), method)(*args)

        arguments = (None, None, 0, None) if keep else (None,)
        results = (None, 0, 0) if keep else (None, 0)
        return jax.vmap(one, (list(self.axes), *arguments), results, axis_size=self.n_configs)


@functools.cache
def _init():
    def init(leaves, keys, *, layout):
        return jax.vmap(layout.over_configs("init", keep=False), (None, 0))(leaves, keys)

    return jax.jit(init, static_argnames="layout", compiler_options=_options())


@functools.cache
def _advance():
    def advance(leaves, keys, worlds, states, ks, *, layout):
        step = layout.over_configs("step", keep=True)
        workspace = jax.tree.unflatten(layout.treedef, leaves).workspace
        group = _seeds_together(len(keys), worlds, states, workspace)

        def one(seed):  # all steps of some seeds before those of others: their states stay in the cache
            key, *start = seed

            def body(carry, k):
                world, state, metrics = step(leaves, key, *carry, k)
                return (world, state), metrics

            (world, state), metrics = lax.scan(body, tuple(start), ks)
            return world, state, metrics

        worlds, states, metrics = lax.map(one, (keys, worlds, states), batch_size=group)
        return worlds, states, jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), metrics)  # (steps, S, C, ...)

    return jax.jit(advance, static_argnames="layout", compiler_options=_options())


def _seeds_together(n_seeds: int, worlds: Any, states: Any, workspace: int) -> int:
    """Seeds that advance side by side: all of them, but on a CPU no more than keep their state in the cache.

    A divisor of their number, so that nothing remains: XLA:CPU would compile the remainder again, and run it beside the
    rest, where two batched LAPACK calls wait for each other's threads for ever (jaxlib 0.10.2, two cores).
    """
    if jax.default_backend() != "cpu":
        return n_seeds
    bytes_per_seed = sum(leaf.nbytes for leaf in jax.tree.leaves((worlds, states))) / n_seeds + workspace
    most = max(1, min(n_seeds, int(CACHE_BYTES / max(1, bytes_per_seed))))
    return max(group for group in range(1, most + 1) if n_seeds % group == 0)


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
