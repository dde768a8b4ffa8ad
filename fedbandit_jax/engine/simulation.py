"""`simulate` and `sweep` take an environment, algorithms, a horizon and seeds to a `Result`.

All checks of arguments happen before anything is compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax import Array
from tqdm import tqdm

from fedbandit_jax.core import random, validate
from fedbandit_jax.core.files.atomic import check_writable
from fedbandit_jax.engine import driver, memory
from fedbandit_jax.engine.checkpoint import Checkpoints
from fedbandit_jax.engine.curves import Curves
from fedbandit_jax.engine.grid import Configuration, Environments, check_environment, expand
from fedbandit_jax.engine.provenance import provenance
from fedbandit_jax.engine.records import Record
from fedbandit_jax.engine.setup import Setup, set_up
from fedbandit_jax.engine.store import pieces
from fedbandit_jax.engine.store.pieces import Executor, SweepPiece
from fedbandit_jax.interfaces import Algorithm, Environment, Status, certify
from fedbandit_jax.report.measured import OF_LABELS
from fedbandit_jax.report.result import Result, concat, missing


class SimulationError(RuntimeError):
    """Raised when some seeds of a run must not be trusted. Nothing is lost: `.result` holds everything computed."""

    def __init__(self, message: str, result: Result):
        super().__init__(message)
        self.result = result


def simulate(
    env: Environment,
    algo: Algorithm,
    *,
    horizon: int,
    key: Array,
    seeds: int | Sequence[int],
    stride: int | Literal["log"] | None = None,
    record: Record | None = None,
    devices: Literal["runs", "agents"] = "runs",
    progress: bool | None = None,
    checkpoint: str | Path | None = None,
    store: str | Path | None = None,
    throw: bool = True,
) -> Result:
    """Runs one algorithm for `horizon` rounds under several seeds.

    Args:
        env: environment, for instance `fb.envs.sphere(...)`.
        algo: algorithm, for instance `fb.algos.fed_lin_ucb()`.
        horizon: T, the number of rounds. If the algorithm's batch B does not divide T, the last T mod B rounds are
            played and counted, and no synchronisation follows them.
        key: typed PRNG key, `jax.random.key(seed)`. Seed i uses `fold_in(key, i)` whatever others run, and two
            algorithms under one key see the same users and the same reward noise. Their privacy noise is independent,
            unless they are the same algorithm with the same noise. The same versions, device and shapes give the same
            bits.
        seeds: independent repetitions, which run together: n for seeds 0, 1, ..., n - 1, or which ones, for instance
            range(100, 200). Results of other seeds are joined by `fb.concat`.
        stride: record the curves every `stride` rounds, which must divide the horizon; or "log": at a few hundred
            rounds 1..T, evenly spaced on a logarithmic axis. Default: every round; if T > 10,000, at most 10,000
            rounds, evenly spaced.
        record: what to keep beside the curves: name -> function of an `fb.record.Moment` that returns an array or a
            pytree of arrays, at the rounds of the curves unless `fb.record.every` or `fb.record.final` says otherwise;
            for instance {"arms": fb.record.arms}. No certificate covers it. See docs/records.md.
        devices: what the devices of this process share: "runs", each of which is on one device; or the "agents" of
            every run, for very many of them, whose number must be a multiple of that of devices. Then numbers are the
            same up to rounding.
        progress: whether to show a progress bar on stderr. Default: only on a terminal.
        checkpoint: if given, the run writes the file `checkpoint`.0 every ten seconds or so, and when it stops for any
            reason, Ctrl-C and SIGTERM included (which then ends the process with code 143). The same call continues
            from it, to the same bits. The file before it is kept as `checkpoint`.0.before, from which the run goes on
            if the newest was damaged. Delete them once the result is safe.
        store: if given, what is computed is kept in this folder, and what is there is not computed again; see `sweep`.
        throw: raise `SimulationError` if a seed's status is not OK (the error carries the result).

    Returns:
        A `fb.Result` with regret of shape (n_seeds, n_records), cumulative over rounds and summed over agents.

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it and its value.
        SimulationError: see `throw`.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(epsilon=1.0, delta=0.1))
        >>> result = fb.simulate(env, algo, horizon=200, key=jax.random.key(0), seeds=4)
        >>> result.regret.shape, result.certificate.claim
        ((4, 200), 'certified')
    """
    validate.instance("algo", algo, Algorithm, "an fb.Algorithm")
    validate.boolean("throw", throw)
    one = {algo.name: Configuration(check_environment("env", env), algo, {"algorithm": algo.name})}
    options: dict[str, Any] = dict(horizon=horizon, key=key, seeds=seeds, stride=stride, record=record, devices=devices)
    return raise_if_bad(_run_or_read(one, options, progress, checkpoint, store)[algo.name], throw)


def sweep(
    env: Environments,
    algos: Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    horizon: int,
    key: Array,
    seeds: int | Sequence[int],
    stride: int | Literal["log"] | None = None,
    record: Record | None = None,
    devices: Literal["runs", "agents"] = "runs",
    progress: bool | None = None,
    checkpoint: str | Path | None = None,
    store: str | Path | None = None,
    executor: Executor | None = None,
    throw: bool = True,
) -> Result:
    """Runs several algorithms, each over a grid of parameters, on the same users and reward noise.

    Configurations that differ only in numbers are stacked and run in one compiled program that draws the users once;
    the rest are compiled separately.

    Args:
        env: environment, for instance `fb.envs.sphere(...)`; name -> environment; or a function that makes
            environments, for instance `fb.envs.sphere` itself, whose parameters are then in the grid.
        algos: label -> algorithm, or algorithms with distinct names.
        grid: parameter -> distinct values, for instance {"epsilon": [0.2, 1, 5], "n_agents": [10, 100]}. A parameter of
            a part is a path such as "policy.theta_norm", or the end of one where only one path ends in it, see
            `algo.parameters()`; "env.n_agents" is that of `env`. An algorithm without the parameter is run once, in
            every environment.
        horizon, key, seeds, stride, record, devices, progress, throw: as in `simulate`.
        checkpoint: as in `simulate`, with one file for each compiled program: `checkpoint`.0, `checkpoint`.1, ...
        store: if given, the sweep is cut into pieces, each of which is kept in this folder: what is there is not
            computed again, by whatever sweep, and more seeds or another grid compute what is missing. An environment
            or algorithm with code of its own must be picklable.
        executor: who computes the pieces, other processes or machines that see the same folder: whatever has the method
            `submit` of `concurrent.futures.Executor`, for instance a `ProcessPoolExecutor` that spawns its workers, or
            the client of Dask, mpi4py.futures, submitit or Ray. It needs `store`. Default: this process; in a job of
            several processes that have called `jax.distributed.initialize`, each computes its part of the pieces, and
            all return the whole result.

    Returns:
        A `fb.Result` with regret of shape (n_configurations, n_seeds, n_records); `result[label]` selects one, and
        `result.sel(epsilon=1)` those at a place of the grid.

    Raises:
        ValueError, TypeError, SimulationError: as in `simulate`.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
        >>> algos = [fb.algos.fed_lin_ucb(), fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1))]
        >>> result = fb.sweep(env, algos, grid={"epsilon": [1, 5]}, horizon=200, key=jax.random.key(0), seeds=4)
        >>> result.labels
        ('FedLinUCB', 'Private-FedLinUCB(epsilon=1)', 'Private-FedLinUCB(epsilon=5)')
    """
    validate.boolean("throw", throw)
    configurations = expand(env, algos, {} if grid is None else grid)
    options: dict[str, Any] = dict(horizon=horizon, key=key, seeds=seeds, stride=stride, record=record, devices=devices)
    return raise_if_bad(_run_or_read(configurations, options, progress, checkpoint, store, executor), throw)


def _run_or_read(
    configurations: dict[str, Configuration],
    options: dict[str, Any],
    progress: Any,
    checkpoint: Any,
    store: Any,
    executor: Any = None,
) -> Result:
    if store is None:
        if executor is not None:
            raise ValueError(f"executor must be None unless there is a store, got {validate.shown(executor)}")
        return run(configurations, progress=progress, checkpoint=checkpoint, **options)
    if checkpoint is not None:
        raise ValueError(f"checkpoint must be None if there is a store, got {validate.shown(checkpoint)}")
    return _in_pieces(_cut(configurations, options, store, executor, progress), executor, progress)


def sweep_part(
    env: Environments,
    algos: Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    part: tuple[int, int],
    store: str | Path,
    grid: Mapping[str, Iterable[Any]] | None = None,
    horizon: int,
    key: Array,
    seeds: int | Sequence[int],
    stride: int | Literal["log"] | None = None,
    record: Record | None = None,
    progress: bool | None = None,
    executor: Executor | None = None,
) -> int:
    """Computes one part of a sweep into its store, for jobs whose tasks do not know of each other.

    Task i of n computes every n-th of the pieces that the sweep is cut into, whatever the others do; pieces that are in
    the store already are not computed again. When all tasks have ended, `fb.sweep` with the same arguments gathers the
    result, and computes what is missing because a task was lost.

    Args:
        part: (i, n), this task and their number, 0 <= i < n: in a job array of SLURM that was submitted with
            `--array=0-19`, the environment's variables SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT.
        env, algos, store, grid, horizon, key, seeds, stride, record, progress, executor: as in `sweep`.

    Returns:
        How many runs, configurations times seeds, were computed.

    Raises:
        ValueError, TypeError: as in `sweep`.

    Example:
        >>> import tempfile, jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
        >>> one = dict(horizon=200, key=jax.random.key(0), seeds=16, store=tempfile.mkdtemp())
        >>> [fb.sweep_part(env, [fb.algos.fed_lin_ucb()], part=(i, 2), **one) for i in range(2)]
        [8, 8]
        >>> fb.sweep(env, [fb.algos.fed_lin_ucb()], **one).provenance["computed"]  # pieces
        0
    """
    pair = validate.sequence("part", part, "two integers (i, n)")
    if len(pair) != 2:
        raise ValueError(f"part must be two integers (i, n), got {validate.shown(part)}")
    i, n = (validate.integer("part", one, at_least=least) for one, least in zip(pair, (0, 1)))
    if i >= n:
        raise ValueError(f"part must be (i, n) with 0 <= i < n, got {validate.shown(part)}")
    configurations = expand(env, algos, {} if grid is None else grid)
    options: dict[str, Any] = dict(horizon=horizon, key=key, seeds=seeds, stride=stride, record=record, devices="runs")
    return pieces.n_runs(_cut(configurations, options, store, executor, progress).compute((i, n), executor, progress))


def run(configurations: dict[str, Configuration], *, progress=None, checkpoint=None, **options: Any) -> Result:
    """Checks the arguments, runs all configurations, and returns the result with one row for each."""
    if progress is not None:
        validate.boolean("progress", progress)
    if checkpoint is not None:
        if validate.path("checkpoint", checkpoint).is_dir():
            raise ValueError(f"checkpoint must be a file, got the folder {str(checkpoint)!r}")
        check_writable("checkpoint's folder", Path(checkpoint).resolve().parent)
    setup = set_up(configurations, **options)
    processes, at, seeds, config = setup.processes, setup.at, setup.seeds, setup.config
    certificates = {
        label: certify(process.algo).among(process.env.spec.visits(config["horizon"]))
        for label, process in processes.items()
    }
    keys = random.of_seeds(setup.key, seeds)
    checkpoints = None if checkpoint is None else Checkpoints(checkpoint, setup.fingerprint())
    started = time.monotonic()
    by_label: dict[str, Curves] = {}
    programs, together = 0, len(seeds)
    bar = tqdm(
        total=len(processes) * len(seeds) * config["horizon"],
        unit=" rounds",
        unit_scale=True,
        desc="simulate",
        disable=None if progress is None else not progress,
    )
    with contextlib.nullcontext() if checkpoints is None else checkpoints.alone(), bar:
        for labels in setup.groups:
            group = [processes[label].beside(len(labels)) for label in labels]
            most = memory.seeds_together(group[0], len(group), len(seeds), len(at))
            together = min(together, most)
            if most < len(seeds):
                bar.set_postfix_str(f"{most} seeds at a time, to fit into memory")
            parts = []
            for first in range(0, len(seeds), most):
                few = keys[first : first + most]
                parts.append(driver.run(group, few, at=at, bar=bar, checkpoints=checkpoints, program=programs))
                programs += 1
            curves = parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: np.concatenate(x, 1), *parts)
            by_label |= {label: jax.tree.map(lambda curve, j=j: curve[j], curves) for j, label in enumerate(labels)}

    absent = {}  # an algorithm that lacks a counter has 0 there, one that lacks a gauge NaN
    for kind, value in (("counts", 0), ("gauges", math.nan)):
        names = (name for curves in by_label.values() for name in getattr(curves, kind))
        absent[kind] = {name: np.full((len(seeds), len(at)), value) for name in names}
    absent["records"] = {
        name: np.full_like(array, missing(array))
        for curves in by_label.values()
        for name, array in curves.records.items()
    }
    uniform = (
        curves._replace(**{kind: {**nothing, **getattr(curves, kind)} for kind, nothing in absent.items()})
        for curves in map(by_label.__getitem__, processes)
    )
    stacked = jax.tree.map(lambda *curves: np.stack(curves), *uniform)
    return Result(
        rounds=at,
        regret=stacked.regret,
        communication=stacked.communication,
        counts=stacked.counts,
        gauges=stacked.gauges,
        status=stacked.status,
        records=stacked.records,
        record_rounds=setup.record_rounds,
        certificates=certificates,
        config=config,
        provenance={
            **provenance(),
            "seconds": round(time.monotonic() - started, 3),
            "devices": jax.local_device_count(),
            "seeds_together": together,
        },
    )


class _Cut(NamedTuple):
    """A sweep in pieces."""

    setup: Setup
    names: dict[str, str]  # label -> name in the folder
    folder: Path
    pieces: list[SweepPiece]

    def compute(self, part: tuple[int, int], executor: Executor | None, progress: bool | None) -> list[SweepPiece]:
        """Computes what the folder lacks of a part, this process's (i, n), and returns that."""
        missing = pieces.lacking(pieces.share(self.pieces, *part))
        pieces.compute_all(missing, executor, progress=progress)
        return missing

    def gather(self) -> Result:
        """Returns the result of the sweep, all of which is in the folder."""
        found = []
        for label, name in self.names.items():
            config = self.setup.config | {kind: {label: self.setup.config[kind][label]} for kind in OF_LABELS}
            found.append(pieces.gather(self.folder, name, label, config, self.setup.seeds))
        return concat(found)


def _cut(
    configurations: dict[str, Configuration], options: dict[str, Any], store: Any, executor: Any, progress: Any
) -> _Cut:
    if progress is not None:
        validate.boolean("progress", progress)
    if not (executor is None or callable(getattr(executor, "submit", None))):
        raise TypeError(f"executor must have the method submit, or be None, got {validate.shown(executor)}")
    folder = validate.path("store", store)
    setup = set_up(configurations, **options)
    check_writable("store", folder)
    names = {
        label: pieces.name(setup.marks[label], process, at=setup.at, key=setup.key)
        for label, process in setup.processes.items()
    }
    found = pieces.cut(
        run,
        configurations,
        names,
        setup.groups,
        key=setup.key,
        seeds=setup.seeds,
        folder=folder.resolve(),
        options={name: options[name] for name in ("horizon", "stride", "record", "devices")},
    )
    return _Cut(setup, names, folder, found)


def _in_pieces(cut: _Cut, executor: Executor | None, progress: bool | None) -> Result:
    """Computes what is not in the store yet, and returns the result of what is there then.

    Of a job of several processes (`jax.distributed`) each computes its part, and waits for the others.
    """
    started = time.monotonic()
    computed = cut.compute((jax.process_index(), jax.process_count()), executor, progress)
    if jax.process_count() > 1:
        pieces.wait(cut.pieces)
    found = cut.gather()
    account = {"pieces": len(cut.pieces), "computed": len(computed), "seconds": round(time.monotonic() - started, 3)}
    return dataclasses.replace(found, provenance={**found.provenance, **account})


def raise_if_bad(result: Result, throw: bool) -> Result:
    """Returns the result, or raises `SimulationError` if any seed has a status bit and `throw` is set."""
    if not (throw and result.status.any()):
        return result
    where = [f"{label}: seeds {', '.join(map(str, result.seeds[result[label].status != 0]))}" for label in result
             if result[label].status.any()]  # fmt: skip
    flags = Status(int(np.bitwise_or.reduce(result.status, axis=None)))
    raise SimulationError(
        f"{flags.name} in {'; '.join(where)}. Regrets of these seeds are not the algorithm's. "
        f"{' '.join(flags.sentences())} The exception's .result holds all curves; throw=False returns them.",
        result,
    )
