"""The options of a run, which `simulate`, `sweep` and `rollout` share: declared, documented and checked here."""

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
from fedbandit_jax.engine.record import Record, recorder
from fedbandit_jax.engine.recorder import Recorder

RECORDS, LOG_RECORDS = 10_000, 400  # most rounds that a curve records by default, and with stride="log"
MAX_RECORDED = 10**8  # most numbers of one configuration's curve, over all seeds, so that it fits into memory
F = TypeVar("F", bound=Callable[..., Any])


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `simulate` and `sweep`.

    Args:
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
            for instance {"arms": fb.record.arms}. No certificate covers it. See docs/cookbook.md.
        devices: what the devices of this process share: "runs", each of which is on one device; or the "agents" of
            every run, for very many of them, whose number must be a multiple of that of devices. Then numbers are the
            same up to rounding.
        progress: whether to show a progress bar on stderr. Default: only on a terminal; elsewhere a line says so if
            compiling takes long.
        checkpoint: if given, the run writes the file `checkpoint`.0 (`checkpoint`.1, ... for further compiled programs)
            every ten seconds or so, and when it stops for any reason, Ctrl-C and SIGTERM included (which then ends the
            process with code 143). The same call continues from it, to the same bits. The file before it is kept as
            `checkpoint`.0.before, from which the run goes on if the newest was damaged. Delete them once the result is
            safe.
        store: if given, the run is cut into pieces, each of which is kept in this folder: what is there is not
            computed again, by whatever call, and more seeds or another grid compute what is missing. An environment or
            algorithm with code of its own must be picklable where other processes compute.
        throw: raise `SimulationError` if a seed's status is not OK (the error carries the result).
    """

    horizon: Required[int]
    key: Required[Array]
    seeds: Required[int | Sequence[int]]
    stride: int | Literal["log"] | None
    record: Record | None
    devices: Literal["runs", "agents"]
    progress: bool | None
    checkpoint: str | Path | None
    store: str | Path | None
    throw: bool


def documented(function: F) -> F:
    """Puts the options of a run into a function's docstring and signature, for `help` and editors."""
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
    """The options of a run, which have been checked.

    Raises:
        ValueError, TypeError: an option is wrong; the message names it and its value.
    """

    horizon: int
    key: Array
    seeds: Any
    stride: int | str | None = None
    record: Any = None
    devices: str = "runs"
    progress: bool | None = None
    checkpoint: Any = None
    store: Any = None
    throw: bool = True

    def __post_init__(self):
        backend.check()
        object.__setattr__(self, "horizon", validate.integer("horizon", self.horizon, at_least=1))
        object.__setattr__(self, "seeds", numbers(self.seeds, len(self.at)))
        random.check_key("key", self.key)
        validate.one_of("devices", self.devices, ("runs", "agents"))
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
        """The checked options; an error names those that are missing or unknown."""
        fields = dataclasses.fields(cls)
        known = [one.name for one in fields]
        for name in options:
            if name not in known:
                hint = validate.suggestion(name, known) or f": there are {', '.join(known)}"
                raise BadType(name, f"is no option of a run{hint}", options[name], got="")
        missing = [one.name for one in fields if one.default is dataclasses.MISSING and one.name not in options]
        if missing:
            example = "horizon=1_000, key=jax.random.key(0), seeds=8"
            raise BadType(missing[0], f"must be given, as in {example}", None, got="")
        return cls(**options)

    @functools.cached_property
    def at(self) -> np.ndarray:
        """The rounds 1..T at which curves are recorded."""
        return self.rounds(self.stride)

    def rounds(self, stride: int | str | None) -> np.ndarray:
        """The rounds 1..T of a stride."""
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
        """The recorder of the records, at these rounds unless they have rounds of their own; None if there are none."""
        return recorder(self.record, at, self.rounds)

    def check_files(self) -> None:
        """Checks, before anything is computed, that files can be written where they are asked for."""
        if self.checkpoint is not None:
            if Path(self.checkpoint).is_dir():
                raise BadValue(
                    "checkpoint", "must be a file", self.checkpoint, got=f"the folder {str(self.checkpoint)!r}"
                )
            check_writable("checkpoint's folder", Path(self.checkpoint).resolve().parent)
        if self.store is not None:
            check_writable("store", Path(self.store))


def numbers(seeds: Any, n_records: int) -> np.ndarray:
    """The numbers of the seeds, after checking them."""
    single = not (isinstance(seeds, Sequence) or np.ndim(seeds) == 1) or isinstance(seeds, (str, bytes))
    n = validate.integer("seeds", seeds, at_least=1) if single else len(seeds)
    if n > MAX_RECORDED // n_records:
        most = f"{MAX_RECORDED // n_records:,} where {n_records:,} rounds are recorded, so that curves fit into memory"
        raise BadValue("seeds", f"must be at most {most}", n, got=f"{n:,}")
    which = np.arange(n) if single else validate.integer_array("seeds", seeds)
    if not n or which.min() < 0 or which.max() >= 2**32 or len(np.unique(which)) < n:
        raise BadValue("seeds", "must be distinct integers in [0, 2^32), at least one", seeds)
    return which.astype(np.uint32)
