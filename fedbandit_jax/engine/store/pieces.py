"""Sweeps in pieces: each is computed once, by whoever is free, and kept in a folder.

A piece is some configurations that share a compiled program, under some seeds. What a configuration did under a stretch
of consecutive seeds becomes a file of the folder, which is a result like any other:

    FOLDER/<name of the configuration>/seeds_<first>-<end>.npz

The name is a digest of all that decides the numbers: the environment, the algorithm, the horizon, the recorded rounds,
the key, the versions, the code of this package, and the traced program where a part is not of it. So a second call
computes what is missing, two sweeps share what they have in common, more seeds are added to those that are there, and a
worker that dies costs the piece that it was at. Files are complete or absent, and sealed.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from tqdm import tqdm

from fedbandit_jax.engine.clocks import Clock
from fedbandit_jax.engine.execution import execute
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.identity import code, digest
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.provenance import versions
from fedbandit_jax.interfaces import certify
from fedbandit_jax.report.result import Result, concat, spans

SEEDS = 8  # most seeds of a piece
CONFIGURATIONS = 16  # most configurations of a piece
POLL = 0.05  # seconds between two looks at what an executor has done
LOOK = 1.0  # seconds between two looks at what other processes have written
FILE = re.compile(r"seeds_(\d+)-(\d+)\.npz")


class Future(Protocol):
    """What an executor returns for a call that it was given."""

    def done(self) -> bool:
        """Whether the call has ended."""
        ...

    def result(self) -> Any:
        """The value of the call, or its exception, raised again."""
        ...


class Executor(Protocol):
    """Whatever has the one method of `concurrent.futures.Executor` that is needed."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future:
        """Begins a call somewhere, and returns at once."""
        ...


class SweepPiece(NamedTuple):
    """What one worker computes at a time; it is sent to the worker."""

    configurations: Mapping[str, Configuration]
    names: Mapping[str, str]  # label -> name of the configuration
    seeds: np.ndarray
    options: Mapping[str, Any]  # of the run: horizon, stride, record and devices
    words: np.ndarray  # of the key
    folder: Path


def name(mark: bytes, clock: Clock, *, at: np.ndarray, key: jax.Array) -> str:
    """The name of a configuration, a digest of all that its files depend on.

    Args:
        mark: the digest of the configuration itself.
        clock: what runs it.
        at: the rounds that are recorded, the last of which is the horizon.
        key: of the sweep.
    """
    proved = certify(clock.algo).to_json() if clock.program else None  # may be by code that is in no program
    parts = mark.hex(), at.astype(np.int64), key, clock.recorder, proved, versions(), code()
    return digest(*parts, jax.devices()[0].platform).hex()[:32]


def compute(piece: SweepPiece) -> int:
    """Runs a piece and writes its files; returns how many runs it had. Called in a worker, or here."""
    key = jax.random.wrap_key_data(jax.numpy.asarray(piece.words))
    result = execute(piece.configurations, Run(key=key, seeds=piece.seeds, progress=False, **piece.options))
    for label in result:
        for first, end in spans(piece.seeds):
            part = result[label].sel(seed=np.arange(first, end))
            part.save(_file(piece.folder, piece.names[label], first, end))
    return len(result) * len(piece.seeds)


def gather(folder: Path, name: str, label: str, config: Mapping[str, Any], seeds: np.ndarray) -> Result:
    """The result of a configuration under these seeds, read from its files as one of this sweep, with its `config`.

    Raises:
        ValueError: a seed is missing, or a file is damaged; the message names it.
    """
    wanted, parts = seeds.tolist(), []
    for path, (first, end) in _files(folder, name):
        here = [seed for seed in wanted if first <= seed < end]
        wanted = [seed for seed in wanted if not first <= seed < end]
        if here:
            loaded = _whole(path)
            its = {**config, "seeds": loaded.config["seeds"]}
            mine = dataclasses.replace(loaded, certificates={label: loaded.certificate}, config=its)
            parts.append(mine.sel(seed=here))
    if wanted:
        raise ValueError(f"store must have all seeds of {label!r}, got none of {wanted} in {str(folder / name)!r}")
    return (concat(parts) if len(parts) > 1 else parts[0]).sel(seed=seeds)


def _whole(path: Path) -> Result:
    """Returns the result in a file of a store, or says how to go on without it."""
    try:
        return Result.load(path)
    except ValueError as error:
        raise ValueError(f"{error} (in a store: delete it, and the same call computes it again)") from error


def cut(
    configurations: Mapping[str, Configuration], names: Mapping[str, str], groups: Sequence[Sequence[str]], run: Run
) -> list[SweepPiece]:
    """All pieces of a sweep, whatever is in the folder: the same ones in every process that cuts it.

    Args:
        configurations, names: as in `SweepPiece`.
        groups: labels whose configurations share a program.
        run: of the sweep, with a store.
    """
    words, folder = np.asarray(jax.random.key_data(run.key)), Path(run.store).resolve()
    options = {name: getattr(run, name) for name in ("horizon", "stride", "record", "devices")}
    return [
        _of(some, SweepPiece(configurations, names, few, options, words, folder))
        for labels in groups
        for some in _runs(labels, CONFIGURATIONS)
        for few in _runs(run.seeds, SEEDS)
    ]


def lacking(pieces: Sequence[SweepPiece]) -> list[SweepPiece]:
    """The pieces that are not in the folder yet, or the missing parts of them."""
    there: dict[str, list[tuple[int, int]]] = {}
    found = []
    for piece in pieces:
        absent: dict[tuple[int, ...], list[str]] = {}
        for label, name in piece.names.items():
            if name not in there:
                there[name] = [span for _, span in _files(piece.folder, name)]
            missing = (seed for seed in piece.seeds.tolist() if not any(i <= seed < end for i, end in there[name]))
            absent.setdefault(tuple(missing), []).append(label)
        rest = {seeds: labels for seeds, labels in absent.items() if seeds}
        found += [_of(labels, piece._replace(seeds=np.array(seeds, np.uint32))) for seeds, labels in rest.items()]
    return found


def share(pieces: Sequence[SweepPiece], i: int, n: int) -> Sequence[SweepPiece]:
    """The share of task i = 0, 1, ..., n - 1 of n: every n-th piece, some of every program."""
    return pieces[i::n]


def n_runs(pieces: Sequence[SweepPiece]) -> int:
    """The number of runs, configurations times seeds, of the pieces."""
    return sum(len(piece.configurations) * len(piece.seeds) for piece in pieces)


def wait(pieces: Sequence[SweepPiece]) -> None:
    """Returns when other processes have put all pieces into the folder."""
    while pieces := lacking(pieces):
        time.sleep(LOOK)


def compute_all(pieces: Sequence[SweepPiece], executor: Executor | None, *, progress: bool | None) -> None:
    """Computes pieces, here or by an executor, with a progress bar.

    Raises:
        RuntimeError: a piece failed at a worker; all others are finished first, and what they found is kept.
    """
    bar = tqdm(total=n_runs(pieces), unit=" runs", desc="sweep", disable=None if progress is None else not progress)
    with bar:
        if executor is None:
            for piece in pieces:
                bar.update(compute(piece))
            return
        waiting: list[Future] = []
        failures: list[Exception] = []
        for piece in pieces:
            try:
                waiting.append(executor.submit(compute, piece))
            except Exception as error:  # a pool refuses calls once a worker has died
                failures.append(error)
        while waiting:
            rest = []
            for future in waiting:
                if not future.done():
                    rest.append(future)
                    continue
                try:
                    bar.update(future.result())
                except Exception as error:  # whatever a worker, or the way to it, fails with
                    failures.append(error)
            if len(rest) == len(waiting):
                time.sleep(POLL)
            waiting = rest
    if failures:
        first = failures[0]
        raise RuntimeError(
            f"{len(failures)} of {len(pieces)} pieces failed at a worker, the first with {type(first).__name__}: "
            f"{first}. The others are in the store: the same call computes what is missing"
        ) from first


def _of(labels: Sequence[str], piece: SweepPiece) -> SweepPiece:
    its = {label: piece.configurations[label] for label in labels}
    return piece._replace(configurations=its, names={label: piece.names[label] for label in labels})


def _file(folder: Path, name: str, first: int, end: int) -> Path:
    return folder / name / f"seeds_{first}-{end}.npz"


def _files(folder: Path, name: str) -> list[tuple[Path, tuple[int, int]]]:
    found = ((path, FILE.fullmatch(path.name)) for path in sorted((folder / name).glob("seeds_*.npz")))
    return [(path, (int(match[1]), int(match[2]))) for path, match in found if match]


def _runs(sequence: Sequence[Any] | np.ndarray, most: int) -> Iterator[Any]:
    count = -(-len(sequence) // most)
    edges = [len(sequence) * i // count for i in range(count + 1)]
    yield from (sequence[first:end] for first, end in itertools.pairwise(edges))
