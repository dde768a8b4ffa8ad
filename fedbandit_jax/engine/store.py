"""Sweeps in pieces, each computed once by any free worker and kept in a folder.

A piece is a set of configurations that share a compiled program, with some of the seeds. The result of a configuration
for consecutive seeds becomes one file, which is complete or absent:

    FOLDER/<name of the configuration>/seeds_<first>-<end>.npz

The name is a digest of everything that determines the numbers, so a second call computes only what is missing.
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
from fedbandit_jax.engine.driver import execute
from fedbandit_jax.engine.identity import code, digest, versions
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.prepare import Configuration, set_up
from fedbandit_jax.engine.runners import Runner
from fedbandit_jax.interfaces import certificate_of, certify
from fedbandit_jax.report.result import Result, concat, spans

SEEDS = 8  # most seeds of a piece
CONFIGURATIONS = 16  # most configurations of a piece
FILE = re.compile(r"seeds_(\d+)-(\d+)\.npz")


class Executor(Protocol):
    """An executor with the `submit` of `concurrent.futures.Executor`."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Starts a call; returns a future, with the method `result`, at once."""
        ...


class SweepPiece(NamedTuple):
    """Task for one worker, which is pickled."""

    configurations: Mapping[str, Configuration]
    names: Mapping[str, str]  # label -> name of the configuration
    seeds: np.ndarray
    options: Mapping[str, Any]  # horizon, stride and record
    words: np.ndarray  # of the key
    folder: Path
    build: str  # its `build_digest`

    def of(self, labels: Sequence[str], seeds: np.ndarray) -> SweepPiece:
        """Restricts the piece to these configurations and seeds."""
        its = {label: self.configurations[label] for label in labels}
        return self._replace(configurations=its, names={label: self.names[label] for label in labels}, seeds=seeds)


class Stored:
    """A sweep in pieces, split the same way in every process."""

    def __init__(self, configurations: Mapping[str, Configuration], run: Run):
        self.run, self.setup = run, set_up(configurations, run)
        folder = Path(run.store).resolve()
        names = {label: name_of(self.setup.digests[label], runner, run) for label, runner in self.setup.runners.items()}
        words = np.asarray(jax.random.key_data(run.key))
        options = {option: getattr(run, option) for option in ("horizon", "stride", "record")}
        self.whole = SweepPiece(configurations, names, run.seeds, options, words, folder, build_digest())
        self.pieces = [
            self.whole.of(some, few)
            for labels in self.setup.groups
            for some in _runs(labels, CONFIGURATIONS)
            for few in _runs(run.seeds, SEEDS)
        ]

    def compute(self, i: int, n: int, executor: Executor | None) -> tuple[int, int]:
        """Computes what the folder lacks of part i of n, every n-th piece; returns the numbers of pieces and of runs.

        Raises:
            RuntimeError: a piece failed at a worker. The others are finished first and kept.
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
        """Computes what the folder lacks, and returns the result."""
        started = time.monotonic()
        computed, _ = self.compute(0, 1, executor)
        parts = []
        for label, name in self.whole.names.items():
            runner = self.setup.runners[label]
            proved = certificate_of(runner.algo, runner.env.spec, self.run.horizon)  # not trusted from a file
            parts.append(gather(self.whole.folder, name, label, self.setup.config_of(label), proved, self.run.seeds))
        whole = concat(parts)
        counts = {"pieces": len(self.pieces), "computed": computed, "seconds": round(time.monotonic() - started, 3)}
        return dataclasses.replace(whole, provenance={**whole.provenance, **counts})


def name_of(config_digest: bytes, runner: Runner, run: Run) -> str:
    """Returns the name of a configuration, a digest of all that determines its files."""
    proved = certify(runner.algo).to_json() if runner.program else None  # user code in no program may decide it
    at = run.at.astype(np.int64)
    return digest(config_digest.hex(), at, run.key, runner.recorder, proved, build_digest()).hex()[:32]


def build_digest() -> str:
    """Returns the digest of code, versions and platform."""
    return digest(versions(), code(), jax.devices()[0].platform).hex()


def lacking(pieces: Sequence[SweepPiece]) -> list[SweepPiece]:
    """Returns the pieces, or parts of pieces, that the folder lacks."""
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
    """Runs a piece, writes its files and returns the number of runs. Called in a worker or in this process."""
    if build_digest() != piece.build:
        raise RuntimeError("a worker must have the code, versions and platform of its caller: restart the worker")
    key = jax.random.wrap_key_data(jax.numpy.asarray(piece.words))
    result = execute(piece.configurations, Run(key=key, seeds=piece.seeds, progress=False, **piece.options))
    for label in result:
        for first, end in spans(piece.seeds):
            part = result[label].sel(seed=np.arange(first, end))
            part.save(piece.folder / piece.names[label] / f"seeds_{first}-{end}.npz")
    return len(result) * len(piece.seeds)


def submit_all(pieces: Sequence[SweepPiece], executor: Executor, bar: tqdm) -> None:
    """Submits all pieces to an executor, and raises `RuntimeError` at the end if some failed."""
    futures, failures = [], []
    for piece in pieces:
        try:
            futures.append(executor.submit(compute, piece))
        except Exception as error:  # a pool refuses calls once a worker has died
            failures.append(error)
    for future in futures:
        try:
            bar.update(future.result())
        except Exception as error:  # of the worker, or of the connection
            failures.append(error)
    if failures:
        first = failures[0]
        raise RuntimeError(
            f"{len(failures)} of {len(pieces)} pieces failed at a worker, the first with {type(first).__name__}: "
            f"{first}. The others are stored. The same call computes the missing pieces"
        ) from first


def gather(
    folder: Path, name: str, label: str, config: Mapping[str, Any], proved: Certificate, seeds: np.ndarray
) -> Result:
    """Loads the stored result of one configuration for the given seeds, with its `config` and proved certificate.

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
        got = f"none of {wanted} in {str(folder / name)!r}"
        raise BadValue("store", f"must have all seeds of {label!r}", wanted, got=got)
    return (concat(parts) if len(parts) > 1 else parts[0]).sel(seed=seeds)


def _files(folder: Path, name: str) -> list[tuple[Path, tuple[int, int]]]:
    found = ((path, FILE.fullmatch(path.name)) for path in sorted((folder / name).glob("seeds_*.npz")))
    return [(path, (int(match[1]), int(match[2]))) for path, match in found if match]


def _runs(sequence: Sequence[Any] | np.ndarray, most: int) -> Iterator[Any]:
    """Splits a sequence into stretches of about equal length, at most `most`."""
    count = -(-len(sequence) // most)
    edges = [len(sequence) * i // count for i in range(count + 1)]
    yield from (sequence[first:end] for first, end in itertools.pairwise(edges))
