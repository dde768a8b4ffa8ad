"""Declares, documents and checks the run options shared by `simulate`, `sweep` and `rollout`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Required, TypedDict, TypeVar

import numpy as np
from jax import Array

from fedbandit_jax.core import backend, random, validate
from fedbandit_jax.core.files import check_writable
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.engine.record import Record, Recorder, recorder

RECORDS, LOG_RECORDS = 10_000, 400  # most recorded rounds by default, and with stride="log"
MAX_RECORDED = 10**8  # most numbers of one curve over all seeds, to bound memory
F = TypeVar("F", bound=Callable[..., Any])


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `simulate` and `sweep`.

    Args:
        horizon: number of rounds T. If the algorithm's batch B does not divide T, the last T mod B rounds are played
            and counted without a final synchronisation.
        key: typed PRNG key, `jax.random.key(seed)`. Seed i uses `fold_in(key, i)`, independent of the other seeds. Two
            algorithms under one key see the same users and reward noise. Their privacy noise is independent, unless
            they are the same algorithm with the same noise. Equal versions, device and shapes give equal bits.
        seeds: independent repetitions, which run together. An integer n means seeds 0, 1, ..., n - 1. A sequence such
            as range(100, 200) names them. `fb.concat` joins results of different seeds.
        stride: record the curves every `stride` rounds. It must divide the horizon. "log" records a few hundred
            rounds, evenly spaced on a logarithmic axis. Default: every round up to T = 10,000, otherwise at most
            10,000 evenly spaced rounds.
        record: extra records, name -> function of an `fb.record.Moment` that returns an array or a pytree of arrays,
            for instance {"arms": fb.record.arms}. They follow the rounds of the curves, unless `fb.record.every` or
            `fb.record.final` says otherwise. No certificate covers them. See docs/cookbook.md.
        progress: whether to show a progress bar on stderr. Default: only on a terminal. Elsewhere one line reports a
            long compilation.
        checkpoint: path of the checkpoint. The run writes `checkpoint`.0 (`checkpoint`.1, ... for further compiled
            programs) about every ten seconds. It also writes when it stops for any reason, including Ctrl-C and SIGTERM
            (exit code 143). The same call continues from it with equal bits. Delete it once the result is safe.
        store: folder of results. The run is split into pieces, and pieces that the folder holds are not computed again.
            More seeds or another grid compute only the missing pieces. If other processes compute, user-defined
            environments and algorithms must be picklable.
        throw: raise `SimulationError` if the status of a seed is not OK. The error carries the result.
    """

    horizon: Required[int]
    key: Required[Array]
    seeds: Required[int | Sequence[int]]
    stride: int | Literal["log"] | None
    record: Record | None
    progress: bool | None
    checkpoint: str | Path | None
    store: str | Path | None
    throw: bool


def documented(function: F) -> F:
    """Adds the run options to a function's docstring and signature, for `help` and editors."""
    arguments = inspect.cleandoc(RunOptions.__doc__ or "").partition("Args:\n")[2]
    function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("    **options: of the run.", arguments)
    its = inspect.signature(function)
    own = [one for one in its.parameters.values() if one.kind is not one.VAR_KEYWORD]
    kinds = typing.get_type_hints(RunOptions, include_extras=True)
    defaults = {field.name: field.default for field in dataclasses.fields(Run)}
    keyword = inspect.Parameter.KEYWORD_ONLY
    missing = {dataclasses.MISSING: inspect.Parameter.empty}
    options = [
        inspect.Parameter(name, keyword, default=missing.get(defaults[name], defaults[name]), annotation=kind)
        for name, kind in kinds.items()
    ]
    function.__signature__ = its.replace(parameters=[*own, *options])  # pyright: ignore[reportFunctionMemberAccess]
    return function


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Checked run options.

    Raises:
        ValueError, TypeError: an option is invalid; the message names it and its value.
    """

    horizon: int
    key: Array
    seeds: Any
    stride: int | str | None = None
    record: Any = None
    progress: bool | None = None
    checkpoint: Any = None
    store: Any = None
    throw: bool = True

    def __post_init__(self):
        backend.check()
        object.__setattr__(self, "horizon", validate.integer("horizon", self.horizon, at_least=1))
        object.__setattr__(self, "seeds", numbers(self.seeds, len(self.at)))
        random.check_key(self.key)
        if self.progress is not None:
            validate.boolean("progress", self.progress)
        validate.boolean("throw", self.throw)
        if self.store is not None and self.checkpoint is not None:
            raise BadValue("checkpoint", "must be None if there is a store", self.checkpoint)
        for name in ("checkpoint", "store"):
            if getattr(self, name) is not None:
                validate.path(name, getattr(self, name))

    @classmethod
    def of(cls, options: RunOptions) -> Run:
        """Builds checked options; an error names missing and unknown ones."""
        fields = dataclasses.fields(cls)
        known = [one.name for one in fields]
        for name in options:
            if name not in known:
                hint = validate.suggestion(name, known) or f": there are {', '.join(known)}"
                raise BadType(name, f"is not a run option{hint}", options[name], got="")
        missing = [one.name for one in fields if one.default is dataclasses.MISSING and one.name not in options]
        if missing:
            example = "horizon=1_000, key=jax.random.key(0), seeds=8"
            raise BadType(missing[0], f"must be given, as in {example}", None, got="")
        return cls(**options)

    @functools.cached_property
    def at(self) -> np.ndarray:
        """Rounds 1..T at which curves are recorded."""
        return self.rounds(self.stride)

    def rounds(self, stride: int | str | None) -> np.ndarray:
        """Returns the recorded rounds, 1..T, of a stride."""
        horizon = self.horizon
        if stride is None:
            thinned = np.arange(0, horizon, -(-horizon // RECORDS))[1:]
            return np.append(thinned, horizon)
        every = validate.stride(stride)
        if every == "log":
            return np.unique(np.geomspace(1, horizon, LOG_RECORDS).round().astype(int))
        if horizon % every:
            raise BadValue("stride", f"must divide the horizon {horizon}", every, got=f"{every}")
        if horizon // every > MAX_RECORDED:
            raise BadValue("stride", f"must leave at most {MAX_RECORDED:,} rounds to record", every, got=f"{every}")
        return np.arange(every, horizon + 1, every)

    def recorder(self, at: np.ndarray) -> Recorder | None:
        """Builds the recorder for `record`, at rounds `at` by default; None without records."""
        return recorder(self.record, at, self.rounds)

    def check_files(self) -> None:
        """Checks that checkpoint and store are writable, before anything is computed."""
        if self.checkpoint is not None:
            if Path(self.checkpoint).is_dir():
                got = f"the folder {str(self.checkpoint)!r}"
                raise BadValue("checkpoint", "must be a file", self.checkpoint, got=got)
            check_writable("checkpoint's folder", Path(self.checkpoint).resolve().parent)
        if self.store is not None:
            check_writable("store", Path(self.store))


def numbers(seeds: Any, n_records: int) -> np.ndarray:
    """Returns the checked seed numbers."""
    single = not (isinstance(seeds, Sequence) or np.ndim(seeds) == 1) or isinstance(seeds, (str, bytes))
    n = validate.integer("seeds", seeds, at_least=1) if single else len(seeds)
    if n > MAX_RECORDED // n_records:
        most = f"{MAX_RECORDED // n_records:,} for {n_records:,} recorded rounds, to fit into memory"
        raise BadValue("seeds", f"must be at most {most}", n, got=f"{n:,}")
    which = np.arange(n) if single else validate.integer_array("seeds", seeds)
    if not n or which.min() < 0 or which.max() >= 2**32 or len(np.unique(which)) < n:
        raise BadValue("seeds", "must be distinct integers in [0, 2^32), at least one", seeds)
    return which.astype(np.uint32)
