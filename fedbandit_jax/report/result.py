"""Results that are printed, saved, loaded, converted and joined."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.report import files, tables
from fedbandit_jax.report.measured import CURVES, OF_LABELS, Measured, spans


class Result(Measured):
    """The result of a simulation: curves, certificates, configuration, provenance and records.

    n_records is the number of recorded rounds, n_algorithms that of configurations of a sweep.

    Attributes:
        rounds: (n_records,) the rounds 1..T at which the curves are recorded.
        regret: cumulative group pseudo-regret in units of reward, summed over agents: (n_seeds, n_records) from
            `fb.simulate`, (n_algorithms, n_seeds, n_records) from `fb.sweep`.
        communication: cumulative communication, shaped like `regret`: "rounds" of it, "floats" and "bits" sent up and
            down by all agents.
        status: (..., n_seeds) bits of `fb.Status`; 0 means fine.
        certificates: label -> `Certificate`, in the order of the first axis.
        config: label -> environment, algorithm and coordinates in the sweep; horizon, seeds and key: what it takes to
            run again.
        provenance: versions, git commit, device, dtype, date and seconds.
        counts: cumulative counts of other things by name, shaped like `regret`; for successive elimination
            "eliminations" of arms, "decodings" of sums and "decoding failures".
        gauges: values that hold at each recorded round by name, shaped like `regret`, NaN where there is none; for
            clustering the "adjusted Rand index" of the clusters found, the "adjusted Rand index on servers" of what
            each server finds by itself (1 for a server of one user), and the number of "clusters".
        records: what `record=` asked for by name, (n_algorithms, n_seeds, its own rounds, ...), without the first axis
            as in `regret`; of a function that returns a pytree, every leaf by its path in the name. An algorithm that
            lacks one has NaN there, or 0 if it holds no floats. No certificate covers records.
        record_rounds: the rounds 1..T of every record.
    """

    def summary(self) -> str:
        """Tables of final regret, communication and claims, and of differences in regret paired by seed.

        Differences are from the first label in the same environment, with a 95 % interval for their mean.
        """
        return tables.summary(self)

    def save(self, path: str | Path) -> Path:
        """Writes everything to one file, `path`.npz, and returns its path; `path` may end in .npz itself.

        Missing folders are made. The file is complete or absent, whatever happens, and is sealed by a digest.
        `np.load` opens it too: it finds the curves, and in result.json, a text, all the rest.

        Raises:
            ValueError: arrays, certificates and configuration do not fit together; the message says where.
            OSError: the file cannot be written; one that was there before stays.
        """
        return files.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a saved result, every bit of it; parts that only a newer version knows are left out, with a warning.

        Raises:
            ValueError: there is no such file, it is not as `save` wrote it, or its format is newer; the message names
                the file and says which.
        """
        return files.read(path, cls)

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` of all arrays, in which every parameter of the sweep that varies is a dimension.

        The dimensions are "algorithm", if there are several, the parameters, "seed" and "round"; so
        `data.regret.sel(epsilon=1).mean("seed")` is a curve of every algorithm. What an algorithm without a parameter
        did stands at all values of it. Where nothing was run, curves are NaN and `status` is -1. A record "x" is
        `record_x`, whose rounds are the dimension "record_x_round" if they are not those of the curves, and whose own
        axes are "record_x_0" and so on. It needs the extra `xarray`.
        """
        return tables.to_xarray(self)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row for every algorithm, seed and recorded round.

        Its columns are "algorithm", "label", the parameters of the sweep (None where an algorithm does not have one),
        "seed", "round", "regret", "status", and counts of communication and other things; records are left out. It
        needs the extra `xarray`.
        """
        return tables.to_pandas(self)


def concat(results: Sequence[Result]) -> Result:
    """Joins results of one horizon and key: other algorithms under the same seeds, or other seeds of the same ones.

    The provenance is that of the first.

    Raises:
        TypeError: they are not results.
        ValueError: there are none; they differ in horizon, key or recorded rounds; or they share neither seeds, with
            distinct labels, nor labels, environments and algorithms, with distinct seeds.
    """
    if isinstance(results, Result) or not isinstance(results, Sequence):
        raise BadType("results", "must be a list of results", results)
    if not results:
        raise BadValue("results", "must hold at least one result", None, got="none")
    first = results[0]
    for result in results:
        if not isinstance(result, Result):
            raise BadType("results", "must be a list of results", result, got=f"{validate.shown(result)} in it")
        for name in ("horizon", "key", "stride"):
            if first.config[name] != result.config[name]:
                one, other = first.config[name], result.config[name]
                raise BadValue("results", f"to concat must share the {name}", one, got=f"{one!r} and {other!r}")
    if len(results) > 1 and all(result.labels == first.labels for result in results):
        return _along_seeds(results)
    for result in results:
        if not np.array_equal(first.seeds, result.seeds):
            one, other = first.config["seeds"], result.config["seeds"]
            raise BadValue(
                "results", "to concat must share the seeds, or all labels", one, got=f"seeds {one} and {other}"
            )
    labels = [label for result in results for label in result.labels]
    if len(set(labels)) < len(labels):
        raise BadValue("labels", "must be unique", labels)

    def row(result: Result, array: np.ndarray) -> np.ndarray:
        return array if result.regret.ndim == 3 else array[None]

    of_labels = {kind: {k: v for r in results for k, v in r.config[kind].items()} for kind in OF_LABELS}
    return dataclasses.replace(
        first,
        **_joined(results, lambda parts: np.concatenate([row(*pair) for pair in zip(results, parts)])),
        certificates={label: c for result in results for label, c in result.certificates.items()},
        config={**first.config, **of_labels},
    )


def _along_seeds(results: Sequence[Result]) -> Result:
    first = results[0]
    if len({result.regret.ndim for result in results}) > 1:
        raise BadValue("results", "of other seeds must all be of simulate, or all of sweep", None, got="both")
    for result in results:
        for kind in OF_LABELS:
            if first.config[kind] != result.config[kind]:
                where, one, other = difference(kind, first.config[kind], result.config[kind])
                raise BadValue("results", f"of other seeds must share {where}", one, got=f"{one!r} and {other!r}")
        if dict(first.certificates) != dict(result.certificates):
            why = "of other seeds must share their certificates, which a newer version may change"
            raise BadValue("results", why, dict(result.certificates), got="")
    seeds = np.concatenate([result.seeds for result in results])
    if len(np.unique(seeds)) < len(seeds):
        raise BadValue(
            "results",
            "must have distinct labels or seeds",
            [r.config["seeds"] for r in results],
            got=f"seeds {[r.config['seeds'] for r in results]}",
        )
    axis = first.regret.ndim - 2
    joined = _joined(results, lambda parts: np.concatenate(parts, axis))
    return dataclasses.replace(first, **joined, config={**first.config, "seeds": spans(seeds)})


def _joined(results: Sequence[Result], join: Callable[[list[np.ndarray]], np.ndarray]) -> dict[str, Any]:
    """The arrays of several results joined, with 0 for missing counters, and NaN for missing gauges."""
    absent = {"communication": 0, "counts": 0, "gauges": math.nan}
    found: dict[str, Any] = {name: join([getattr(result, name) for result in results]) for name in ("regret", "status")}
    for kind in CURVES:
        names = dict.fromkeys(name for result in results for name in getattr(result, kind))
        nothing = [np.full(result.regret.shape, absent[kind]) for result in results]
        found[kind] = {
            name: join([getattr(r, kind).get(name, zeros) for r, zeros in zip(results, nothing)]) for name in names
        }
    kept: dict[str, tuple[Result, np.ndarray]] = {}  # who has a record, and its rounds
    for result in results:
        for name, rounds in result.record_rounds.items():
            first, known = kept.setdefault(name, (result, rounds))
            one, two = (r.records[name].shape[r.status.ndim :] for r in (first, result))
            if one != two or not np.array_equal(known, rounds):
                raise BadValue(
                    "results", f"must share shape and rounds of the record {name!r}", one, got=f"{one} and {two}"
                )
    found["record_rounds"] = {name: rounds for name, (_, rounds) in kept.items()}
    found["records"] = {
        name: join([_record(result, name, first) for result in results]) for name, (first, _) in kept.items()
    }
    return found


def _record(result: Result, name: str, other: Result) -> np.ndarray:
    """A record of a result, or an empty one like that of another: NaN, or 0 where it holds no floats."""
    like = other.records[name]
    nothing = math.nan if like.dtype.kind in "fc" else 0
    empty = np.full((*result.status.shape, *like.shape[other.status.ndim :]), nothing, like.dtype)
    return result.records.get(name, empty)


def difference(name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """The first path at which two accounts differ, such as environment.n_agents, and both values there."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        key = next(key for key in {**one, **other} if one.get(key) != other.get(key))
        return difference(f"{name}.{key}", one.get(key), other.get(key))
    return name, one, other
