"""Runs a sweep: compiled programs in sequence, seeds side by side, in chunks with progress and checkpoints."""

from __future__ import annotations

import collections
import contextlib
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import jax
import numpy as np
from jax import Array
from tqdm import tqdm

from fedbandit_jax.core import bars, random
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.padding import room
from fedbandit_jax.engine.batching import Pieces
from fedbandit_jax.engine.cache import keep_programs
from fedbandit_jax.engine.checkpoint import Checkpoints, Progress, terminable
from fedbandit_jax.engine.curves import Curves, RoundTally, StretchTally
from fedbandit_jax.engine.identity import provenance
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.prepare import Configuration, seeds_together, set_up
from fedbandit_jax.engine.runners import Runner
from fedbandit_jax.engine.runners.runner import ROWS
from fedbandit_jax.interfaces import certificate_of
from fedbandit_jax.report.result import Result, concat, end_to_end

AHEAD = 2  # programs compiled while another runs
PATIENCE = 5.0  # seconds of compilation before a message, if there is no progress bar
CHUNKS = 50  # approximate chunks of a run, each followed by a progress update
CHUNK_ROUNDS = 5_000  # most rounds of a chunk, so that buffers do not grow with T
CHUNK_WORK = 100_000  # agent-rounds of a run that are never split
CHUNK_SECONDS = 0.2  # shorter chunks grow, to amortise their overhead
LONG_SECONDS = 5.0  # longer chunks shrink, since Ctrl-C loses the current one
FIRST_WORK = 10**6  # agent-rounds of the first chunk, over all runs
CHECKPOINT_SECONDS = 10.0  # least time between two checkpoints
CHECKPOINT_SHARE = 0.05  # largest share of time spent on checkpoints


def execute(configurations: Mapping[str, Configuration], run: Run) -> Result:
    """Runs all configurations and returns a result with one row for each."""
    keep_programs()
    setup = set_up(configurations, run)
    runners, at, n_seeds = setup.runners, run.at, len(run.seeds)
    certificates = {label: certificate_of(one.algo, one.env.spec, run.horizon) for label, one in runners.items()}
    keys = random.of_seeds(run.key, run.seeds)
    checkpoints = None if run.checkpoint is None else Checkpoints(run.checkpoint, setup.fingerprint())
    started = time.monotonic()
    programs, together, waited, contexts = [], n_seeds, 0.0, set()
    for labels in setup.groups:
        group = [runners[label].sharing(len(labels)) for label in labels]
        _, capacity = _chunk(_with_most_steps(group), len(group) * n_seeds)
        most = min(n_seeds, seeds_together(group[0], len(group), len(runners) * n_seeds, len(at), capacity))
        together = min(together, most)
        contexts.add(group[0].hints.contexts)
        programs += [(labels, group, keys[first : first + most]) for first in range(0, n_seeds, most)]
    total = len(runners) * n_seeds * run.horizon
    bar = bars.bar(run.progress, total=total, unit=" rounds", unit_scale=True, desc="simulate")
    parts: dict[str, list[Curves]] = {}
    with (
        contextlib.nullcontext() if checkpoints is None else checkpoints.lock(),
        contextlib.nullcontext() if checkpoints is None else terminable(),
        bar,
        ThreadPoolExecutor(AHEAD) as pool,
    ):
        if together < n_seeds:
            bar.set_postfix_str(f"{together} seeds at a time, to fit into memory")
        coming = (pool.submit(_compiled, group, some) for _, group, some in programs)
        compiling = collections.deque(itertools.islice(coming, AHEAD))
        for i, (labels, group, _) in enumerate(programs):
            bar.set_description(what := f"compiling {i + 1} of {len(programs)}")
            silent, since = run.progress is None and bar.disable, time.monotonic()
            if silent and wait([compiling[0]], PATIENCE).not_done:
                print(f"fedbandit_jax: {what}", file=sys.stderr, flush=True)
            play = compiling.popleft().result()
            waited += time.monotonic() - since
            compiling.extend(itertools.islice(coming, 1))  # compiles while this one runs
            bar.set_description("simulate")
            curves = run_program(play, _with_most_steps(group), at=at, bar=bar, checkpoints=checkpoints, program=i)
            for j, label in enumerate(labels):
                parts.setdefault(label, []).append(jax.tree.map(lambda curve, j=j: curve[j], curves))
    by_label = {label: jax.tree.map(end_to_end, *found) for label, found in parts.items()}
    account = {
        **provenance(),
        "seconds": round(time.monotonic() - started, 3),
        "compiling": round(waited, 3),
        "devices": jax.local_device_count(),
        "seeds_together": together,
        "contexts": " and ".join(sorted(contexts - {""})),
    }
    return concat(
        [
            Result(
                rounds=at,
                **by_label[label]._asdict(),
                record_rounds={name: setup.record_rounds[name] for name in by_label[label].records},
                certificates={label: certificates[label]},
                config=setup.config_of(label),
                provenance=account,
            )
            for label in runners
        ]
    )


def _compiled(runners: Sequence[Runner], keys: Array) -> Pieces:
    play = Pieces(runners, keys)
    play.compile(_chunk(_with_most_steps(runners), len(runners) * len(keys))[1])
    return play


def _with_most_steps(runners: Sequence[Runner]) -> Runner:
    """Returns the runner with the most steps. Steps after a run's horizon have no effect."""
    return max(runners, key=lambda runner: runner.n_steps)


def run_program(
    play: Pieces,
    runner: Runner,
    *,
    at: np.ndarray,
    bar: tqdm,
    checkpoints: Checkpoints | None,
    program: int,
) -> Curves:
    """Runs the pieces of one program and returns curves at the rounds `at` (N,).

    `runner` is the one with the most steps. The run continues from a checkpoint of this program number. It writes one
    now and then, and when it stops for any reason, including Ctrl-C and SIGTERM.
    """
    kind, size = RoundTally if runner.rounds_per_step else StretchTally, runner.rounds_per_step
    layout = f"{len(play.pieces)} pieces of {play.n_configs} x {play.n_seeds} runs"  # determines the states' shapes
    length, capacity = _chunk(runner, play.n_configs * play.n_seeds)
    progress = Progress(layout, 0, play.init(), kind(at, play.n_configs, play.n_seeds))
    if checkpoints is not None:
        progress = checkpoints.restore(program, progress)
        bar.update(progress.tally.played)
    saved, pause, kept = time.monotonic(), CHECKPOINT_SECONDS, progress.k
    with ThreadPoolExecutor(play.workers) as pool:
        try:
            while progress.k < runner.n_steps:
                started = time.monotonic()
                steps = range(progress.k, min(progress.k + length, runner.n_steps))
                states, metrics = play.advance(pool, progress.states, steps, capacity)
                lengths = [min(size, runner.horizon - k * size) for k in steps]
                tally = progress.tally.add(metrics, lengths)
                bar.update(tally.played - progress.tally.played)
                progress = Progress(layout, steps.stop, states, tally)
                ended = time.monotonic()
                if on_cpu() and ended - started < CHUNK_SECONDS:
                    length = min(2 * length, capacity)
                elif on_cpu() and ended - started > LONG_SECONDS:
                    length = max(length // 2, 1)
                if checkpoints is not None and ended - saved > pause:
                    kept = progress.k if checkpoints.save(program, progress) else kept
                    saved = time.monotonic()
                    pause = max(CHECKPOINT_SECONDS, (saved - ended) / CHECKPOINT_SHARE)
        finally:  # before leaving the pool, which waits
            if checkpoints is not None and progress.k > kept:
                checkpoints.save(program, progress)
    return progress.tally.curves()._replace(records=play.records(progress.states))


def _chunk(runner: Runner, n_runs: int) -> tuple[int, int]:
    """Returns the number of steps in the first chunk, and the capacity of its program.

    On a CPU one program takes any number of steps up to its capacity. Elsewhere the number is fixed at compilation, so
    all chunks have equal length and the last one is nearly full.
    """
    size = min(runner.rounds_per_step, runner.horizon)
    if not size:  # the rounds of a step depend on the run
        return 1, room(runner.n_steps) if on_cpu() else 1
    rows = CHUNK_ROUNDS if runner.algo.source is None else max(1, ROWS // runner.algo.source.row_size)
    most = min(max(1, CHUNK_ROUNDS // size), rows)
    work = size * runner.env.spec.n_agents  # of a step
    longest = min(max(1, -(-runner.n_steps // CHUNKS), CHUNK_WORK // work), most)
    if on_cpu():
        return max(1, min(longest, FIRST_WORK // (work * n_runs))), most
    chunks = -(-runner.n_steps // longest)
    length = -(-runner.n_steps // chunks)
    return length, length
