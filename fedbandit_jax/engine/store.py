"""Sweeps in pieces: each is computed once, by whoever is free, and kept in a folder.

A piece is some configurations that share a compiled program, under some seeds. What a configuration did under a stretch
of consecutive seeds becomes a file of the folder, which is complete or absent, and a result like any other:

    FOLDER/<name of the configuration>/seeds_<first>-<end>.npz

The name is a digest of all that decides the numbers, so that a second call computes what is missing.
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

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import bars
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine.clocks import Clock
from fedbandit_jax.engine.driver import execute
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.identity import code, digest, versions
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.setup import set_up
from fedbandit_jax.interfaces import certificate_of, certify
from fedbandit_jax.report.result import Result, concat, spans

SEEDS = 8  # most seeds of a piece
CONFIGURATIONS = 16  # most configurations of a piece
POLL = 0.05  # seconds between two looks at what an executor has done
LOOK = 1.0  # seconds between two looks at what other processes have written
FILE = re.compile(r"seeds_(\d+)-(\d+)\.npz")


class Future(Protocol):
    """The future of a call, as an executor returns it."""

    def done(self) -> bool:
        """Whether the call has ended."""
        ...

    def result(self) -> Any:
        """The value of the call, or its exception, raised again."""
        ...


class Executor(Protocol):
    """An executor, with the one method of `concurrent.futures.Executor` that is needed."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future:
        """Begins a call somewhere, and returns at once."""
        ...


class SweepPiece(NamedTuple):
    """The task of one worker, to which it is sent."""

    configurations: Mapping[str, Configuration]
    names: Mapping[str, str]  # label -> name of the configuration
    seeds: np.ndarray
    options: Mapping[str, Any]  # of the run: horizon, stride, record and devices
    words: np.ndarray  # of the key
    folder: Path
    made_by: str  # what decides the numbers beside the configuration: see `made_by`

    def of(self, labels: Sequence[str], seeds: np.ndarray) -> SweepPiece:
        """The part of these configurations under these seeds."""
        its = {label: self.configurations[label] for label in labels}
        return self._replace(configurations=its, names={label: self.names[label] for label in labels}, seeds=seeds)


class Stored:
    """A sweep in pieces, which are the same in every process that cuts it, whatever is in the folder."""

    def __init__(self, configurations: Mapping[str, Configuration], run: Run):
        self.run, self.setup = run, set_up(configurations, run)
        folder = Path(run.store).resolve()
        names = {label: name_of(self.setup.marks[label], clock, run) for label, clock in self.setup.clocks.items()}
        words = np.asarray(jax.random.key_data(run.key))
        options = {option: getattr(run, option) for option in ("horizon", "stride", "record", "devices")}
        self.whole = SweepPiece(configurations, names, run.seeds, options, words, folder, made_by(run.devices))
        self.pieces = [
            self.whole.of(some, few)
            for labels in self.setup.groups
            for some in _runs(labels, CONFIGURATIONS)
            for few in _runs(run.seeds, SEEDS)
        ]

    def compute(self, i: int, n: int, executor: Executor | None) -> tuple[int, int]:
        """Computes what the folder lacks of part i of n, every n-th piece; returns the numbers of pieces and of runs.

        Raises:
            RuntimeError: a piece failed at a worker; all others are finished first, and what they found is kept.
        """
        missing, progress = lacking(self.pieces[i::n]), self.run.progress
        n_runs = sum(len(piece.configurations) * len(piece.seeds) for piece in missing)
        with bars.bar(progress, total=n_runs, unit=" runs", desc="sweep") as bar:
            if executor is not None:
                submit_all(missing, executor, bar)
            else:
                for piece in missing:
                    bar.update(compute(piece))
        return len(missing), n_runs

    def result(self, executor: Executor | None) -> Result:
        """The result, after computing what is not in the folder yet.

        Of a job of several processes (`jax.distributed`) each computes its part, and waits for the others.
        """
        started = time.monotonic()
        computed, _ = self.compute(jax.process_index(), jax.process_count(), executor)
        while jax.process_count() > 1 and lacking(self.pieces):
            time.sleep(LOOK)
        parts = []
        for label, name in self.whole.names.items():
            clock = self.setup.clocks[label]
            proved = certificate_of(clock.algo, clock.env.spec, self.run.horizon)  # not as a file says
            parts.append(gather(self.whole.folder, name, label, self.setup.config_of(label), proved, self.run.seeds))
        whole = concat(parts)
        account = {"pieces": len(self.pieces), "computed": computed, "seconds": round(time.monotonic() - started, 3)}
        return dataclasses.replace(whole, provenance={**whole.provenance, **account})


def name_of(mark: bytes, clock: Clock, run: Run) -> str:
    """The name of a configuration, a digest of all that its files depend on; `mark` is that of the configuration."""
    proved = certify(clock.algo).to_json() if clock.program else None  # may be by code that is in no program
    return digest(mark.hex(), run.at.astype(np.int64), run.key, clock.recorder, proved, made_by(run.devices)).hex()[:32]


def made_by(devices: str) -> str:
    """The digest of code, versions, platform, and number of this process's devices if agents are spread over them."""
    spread = jax.local_device_count() if devices == "agents" else 1
    return digest(versions(), code(), jax.devices()[0].platform, spread).hex()


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
        found += [piece.of(labels, np.array(seeds, np.uint32)) for seeds, labels in absent.items() if seeds]
    return found


def compute(piece: SweepPiece) -> int:
    """Runs a piece and writes its files; returns the number of its runs. Called in a worker, or here."""
    if made_by(piece.options["devices"]) != piece.made_by:
        raise RuntimeError(
            "a worker must have the code, the versions and the devices of the call that it works for: restart it"
        )
    key = jax.random.wrap_key_data(jax.numpy.asarray(piece.words))
    result = execute(piece.configurations, Run(key=key, seeds=piece.seeds, progress=False, **piece.options))
    for label in result:
        for first, end in spans(piece.seeds):
            part = result[label].sel(seed=np.arange(first, end))
            part.save(_file(piece.folder, piece.names[label], first, end))
    return len(result) * len(piece.seeds)


def submit_all(pieces: Sequence[SweepPiece], executor: Executor, bar: tqdm) -> None:
    """Has all pieces computed by an executor, and raises a RuntimeError in the end if some failed."""
    waiting: list[Future] = []
    failures: list[Exception] = []
    for piece in pieces:
        try:
            waiting.append(executor.submit(compute, piece))
        except Exception as error:  # a pool refuses calls once a worker has died
            failures.append(error)
    while waiting:
        looked = [(future, future.done()) for future in waiting]
        waiting = [future for future, done in looked if not done]
        for future in (future for future, done in looked if done):
            try:
                bar.update(future.result())
            except Exception as error:  # whatever a worker, or the way to it, fails with
                failures.append(error)
        if len(waiting) == len(looked):
            time.sleep(POLL)
    if failures:
        first = failures[0]
        raise RuntimeError(
            f"{len(failures)} of {len(pieces)} pieces failed at a worker, the first with {type(first).__name__}: "
            f"{first}. The others are in the store: the same call computes what is missing"
        ) from first


def gather(
    folder: Path, name: str, label: str, config: Mapping[str, Any], proved: Certificate, seeds: np.ndarray
) -> Result:
    """The result of a configuration under these seeds, read from its files, with its `config` and what is `proved`.

    Raises:
        ValueError: a seed is missing, or a file is damaged; the message names it.
    """
    wanted, parts = seeds.tolist(), []
    for path, (first, end) in _files(folder, name):
        here = [seed for seed in wanted if first <= seed < end]
        wanted = [seed for seed in wanted if not first <= seed < end]
        if not here:
            continue
        try:
            loaded = Result.load(path)
        except ValueError as error:
            raise ValueError(f"{error} (in a store: delete it, and the same call computes it again)") from error
        its = {**config, "seeds": loaded.config["seeds"]}
        parts.append(dataclasses.replace(loaded, certificates={label: proved}, config=its).sel(seed=here))
    if wanted:
        raise BadValue(
            "store", f"must have all seeds of {label!r}", wanted, got=f"none of {wanted} in {str(folder / name)!r}"
        )
    return (concat(parts) if len(parts) > 1 else parts[0]).sel(seed=seeds)


def _file(folder: Path, name: str, first: int, end: int) -> Path:
    return folder / name / f"seeds_{first}-{end}.npz"


def _files(folder: Path, name: str) -> list[tuple[Path, tuple[int, int]]]:
    found = ((path, FILE.fullmatch(path.name)) for path in sorted((folder / name).glob("seeds_*.npz")))
    return [(path, (int(match[1]), int(match[2]))) for path, match in found if match]


def _runs(sequence: Sequence[Any] | np.ndarray, most: int) -> Iterator[Any]:
    """A sequence cut into equal stretches of at most so many."""
    count = -(-len(sequence) // most)
    edges = [len(sequence) * i // count for i in range(count + 1)]
    yield from (sequence[first:end] for first, end in itertools.pairwise(edges))
