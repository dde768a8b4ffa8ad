"""Run processes: many configurations x many seeds in one compiled program, in chunks, with progress and checkpoints.

Leaves that all configurations share (the environment) are shared on the device too: users are drawn once per seed,
not once per configuration.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from tqdm import tqdm

from fedbandit_jax._core.files import write_atomic
from fedbandit_jax.interfaces import Report
from fedbandit_jax.process import Process

CHUNKS = 50  # progress updates per run ...
CHUNK_ROUNDS = 5_000  # ... but never more rounds between two of them, so that buffers do not grow with T
CHECKPOINT_SECONDS = 10.0


class Curves(NamedTuple):
    """Recorded cumulative curves of C configurations and S seeds, on the host."""

    regret: np.ndarray  # (C, S, n_records) float64
    communication: dict[str, np.ndarray]  # rounds, floats, bits: (C, S, n_records) int64
    status: np.ndarray  # (C, S)


def run(
    processes: Sequence[Process],
    keys: Array,
    *,
    stride: int,
    bar: tqdm,
    checkpoint: Path | None = None,
    fingerprint: str = "",
) -> Curves:
    """Run processes of one structure (see `signature`) for every key, and record every `stride` rounds."""
    leaves, treedef, axes = _stack(processes)
    leaves = jax.device_put(leaves)
    n_steps = processes[0].n_steps
    recorder = _Recorder(len(processes), len(keys), stride)
    static = {"treedef": treedef, "axes": axes, "n_configs": len(processes)}
    worlds, states = _init()(leaves, keys, **static)
    k = 0
    runs = len(processes) * len(keys)
    if checkpoint is not None and checkpoint.exists():
        k, worlds, states = _restore(checkpoint, fingerprint, worlds, states, recorder)
        bar.update(runs * recorder.rounds)
    chunk = _chunk_length(n_steps, processes[0].rounds_at(0).stop)
    saved = time.monotonic()
    try:
        while k < n_steps:
            steps = range(k, min(k + chunk, n_steps))
            carried = _advance()(leaves, keys, worlds, states, jnp.arange(steps.start, steps.stop), **static)
            worlds, states, (regret, report) = jax.block_until_ready(carried)
            lengths = [len(processes[0].rounds_at(i)) for i in steps]
            recorder.add(np.asarray(regret), jax.tree.map(np.asarray, report), lengths)
            k = steps.stop
            bar.update(runs * sum(lengths))
            if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                _save(checkpoint, fingerprint, k, worlds, states, recorder)
                saved = time.monotonic()
    finally:
        if checkpoint is not None and recorder.rounds > 0:
            _save(checkpoint, fingerprint, k, worlds, states, recorder)
    return recorder.curves()


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


def _chunk_length(n_steps: int, rounds_per_step: int) -> int:
    """Steps between progress updates; a divisor of n_steps where one is near, so that one program serves all chunks."""
    longest = min(max(1, -(-n_steps // CHUNKS)), max(1, CHUNK_ROUNDS // rounds_per_step))
    for length in range(longest, longest // 2, -1):
        if n_steps % length == 0:
            return length
    return longest


def _options() -> dict[str, Any] | None:
    """XLA:CPU splits 512-bit registers in half by default; fused float loops gain a factor of two from whole ones."""
    return {"xla_cpu_prefer_vector_width": 512} if jax.default_backend() == "cpu" else None


@functools.cache
def _init():
    def init(leaves, keys, *, treedef, axes, n_configs):
        def one(leaves, key):
            return jax.tree.unflatten(treedef, leaves).init(key)

        over_seeds = jax.vmap(one, in_axes=(None, 0))
        return jax.vmap(over_seeds, in_axes=(list(axes), None), out_axes=(None, 0), axis_size=n_configs)(
            leaves, keys
        )

    return jax.jit(init, static_argnames=("treedef", "axes", "n_configs"), compiler_options=_options())


@functools.cache
def _advance():
    def advance(leaves, keys, worlds, states, ks, *, treedef, axes, n_configs):
        def one(leaves, key, world, state, k):
            return jax.tree.unflatten(treedef, leaves).step(key, world, state, k)

        over_seeds = jax.vmap(one, in_axes=(None, 0, 0, 0, None))
        over_configs = jax.vmap(
            over_seeds,
            in_axes=(list(axes), None, None, 0, None),
            out_axes=(None, 0, 0),
            axis_size=n_configs,
        )

        def body(carry, k):
            worlds, states, metrics = over_configs(leaves, keys, *carry, k)
            return (worlds, states), metrics

        (worlds, states), metrics = lax.scan(body, (worlds, states), ks)
        return worlds, states, metrics

    return jax.jit(
        advance,
        static_argnames=("treedef", "axes", "n_configs"),
        donate_argnames=("worlds", "states"),
        compiler_options=_options(),
    )


class _Recorder:
    """Turns per-step metrics into cumulative curves at rounds stride, 2 stride, ..., in float64 on the host."""

    def __init__(self, n_configs: int, n_seeds: int, stride: int):
        self.stride = stride
        self.rounds = 0
        self.total = np.zeros((n_configs, n_seeds))
        self.sent = np.zeros((n_configs, n_seeds, 3), np.int64)
        self.status = np.zeros((n_configs, n_seeds), np.int32)
        self.pieces = [(np.zeros((n_configs, n_seeds, 0)), np.zeros((n_configs, n_seeds, 0, 3), np.int64))]

    def add(self, regret: np.ndarray, report: Report, lengths: list[int]) -> None:
        """Metrics of consecutive steps: regret (steps, C, S, B), report fields (steps, C, S)."""
        keep = (np.arange(regret.shape[-1]) < np.array(lengths)[:, None]).ravel()  # (steps * B,)
        steps, configs, seeds, width = regret.shape
        per_round = np.moveaxis(regret, 0, 2).reshape(configs, seeds, steps * width)[..., keep]
        curve = self.total[..., None] + np.cumsum(per_round, axis=-1, dtype=np.float64)
        counts = np.stack([report.rounds, report.floats, report.bits], -1).astype(np.int64)
        sent = np.cumsum(np.moveaxis(counts, 0, 2), axis=2)  # (C, S, steps, 3)
        sent = self.sent[:, :, None] + np.pad(sent, ((0, 0), (0, 0), (1, 0), (0, 0)))
        ends = self.rounds + np.cumsum(lengths)
        at = np.arange(self.rounds // self.stride + 1, ends[-1] // self.stride + 1) * self.stride
        finished = np.searchsorted(ends, at, side="right")  # steps of this chunk that end by each recorded round
        self.pieces.append((curve[..., at - self.rounds - 1], sent[:, :, finished]))
        self.total, self.sent, self.rounds = curve[..., -1], sent[:, :, -1], int(ends[-1])
        self.status = self.status | np.bitwise_or.reduce(np.asarray(report.status), axis=0)

    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        """Regret (C, S, n_records) and communication (C, S, n_records, 3) so far."""
        regret, communication = zip(*self.pieces)
        return np.concatenate(regret, axis=2), np.concatenate(communication, axis=2)

    def curves(self) -> Curves:
        """Everything recorded so far."""
        regret, communication = self.joined()
        names = ("rounds", "floats", "bits")
        return Curves(regret, {name: communication[..., i] for i, name in enumerate(names)}, self.status)


def _save(path: Path, fingerprint: str, k: int, worlds: Any, states: Any, recorder: _Recorder) -> None:
    leaves = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves((worlds, states)))}
    regret, communication = recorder.joined()
    record = {name: getattr(recorder, name) for name in ("rounds", "total", "sent", "status")}
    record |= {"regret": regret, "communication": communication}
    write_atomic(path, lambda file: np.savez(file, k=k, fingerprint=fingerprint, **leaves, **record))


def _restore(path: Path, fingerprint: str, worlds: Any, states: Any, recorder: _Recorder) -> tuple[int, Any, Any]:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    if str(arrays["fingerprint"]) != fingerprint:
        raise ValueError(f"checkpoint {str(path)!r} belongs to another run: delete it or give another path")
    recorder.rounds = int(arrays["rounds"])
    recorder.total, recorder.sent, recorder.status = arrays["total"], arrays["sent"], arrays["status"]
    recorder.pieces = [(arrays["regret"], arrays["communication"])]
    treedef = jax.tree.structure((worlds, states))
    leaves = [jnp.asarray(arrays[f"leaf_{i}"]) for i in range(treedef.num_leaves)]
    worlds, states = jax.tree.unflatten(treedef, leaves)
    return int(arrays["k"]), worlds, states
