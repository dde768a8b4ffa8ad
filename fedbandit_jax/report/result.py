"""Results that are printed, saved, loaded, converted and joined."""

from __future__ import annotations

import dataclasses
import html
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
    """Simulation result: curves, certificates, configuration, provenance and records.

    n_records is the number of recorded rounds, n_algorithms the number of configurations of a sweep.

    Attributes:
        rounds: (n_records,) recorded rounds of the curves, 1..T.
        regret: cumulative group pseudo-regret in units of reward, summed over agents: (n_seeds, n_records) from
            `fb.simulate`, (n_algorithms, n_seeds, n_records) from `fb.sweep`.
        communication: cumulative communication, shaped like `regret`: its "rounds", and the "floats" and "bits" sent
            up and down by all agents.
        status: (..., n_seeds) bits of `fb.Status`; 0 is OK.
        certificates: label -> `Certificate`, in the order of the first axis.
        config: label -> environment, algorithm and coordinates in the sweep; horizon, seeds and key: what a rerun
            needs.
        provenance: versions, git commit, device, dtype, date and seconds.
        counts: other cumulative counters by name, shaped like `regret`; for successive elimination "eliminations" of
            arms, "decodings" of sums and "decoding failures".
        gauges: values at each recorded round by name, shaped like `regret`, NaN if absent. For clustering: the
            "adjusted Rand index" of the clusters, and the number of "clusters".
        records: extra records of `record=` by name, (n_algorithms, n_seeds, recorded rounds, ...), without the first
            axis as in `regret`. Pytrees have a record for every leaf, with its path in the name. Algorithms that lack a
            record have NaN, or 0 for integers. No certificate covers records.
        record_rounds: recorded rounds of every record, 1..T.
    """

    summary = tables.summary
    compare = tables.compare
    report = tables.report
    to_pandas = tables.to_pandas
    save = files.save

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary())}</pre>"

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Loads a saved result exactly. Parts of a newer version are skipped with a warning.

        Raises:
            ValueError: the file is missing or damaged, or its format is newer. The message names it.
        """
        return files.read(path, cls)


def concat(results: Sequence[Result]) -> Result:
    """Joins results with one horizon and key: other algorithms with the same seeds, or the same ones with other seeds.

    The provenance is the first result's.

    Raises:
        TypeError: an element is not a result.
        ValueError: there are no results; they differ in horizon, key or recorded rounds; or they share neither seeds
            (with distinct labels) nor labels, environments and algorithms (with distinct seeds).
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
            got = f"seeds {one} and {other}"
            raise BadValue("results", "to concat must share the seeds, or all labels", one, got=got)
    labels = [label for result in results for label in result.labels]
    if len(set(labels)) < len(labels):
        raise BadValue("labels", "must be unique", labels)

    def rows(parts: Sequence[np.ndarray]) -> np.ndarray:
        pairs = zip(results, parts)
        return end_to_end(*(array if result.regret.ndim == 3 else array[None] for result, array in pairs))

    of_labels = {kind: {k: v for r in results for k, v in r.config[kind].items()} for kind in OF_LABELS}
    return dataclasses.replace(
        first,
        **_joined(results, rows),
        certificates={label: c for result in results for label, c in result.certificates.items()},
        config={**first.config, **of_labels},
    )


def _along_seeds(results: Sequence[Result]) -> Result:
    first = results[0]
    if len({result.regret.ndim for result in results}) > 1:
        raise BadValue("results", "of other seeds must all come from simulate, or all from sweep", None, got="both")
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
        given = [r.config["seeds"] for r in results]
        raise BadValue("results", "must have distinct labels or seeds", given, got=f"seeds {given}")
    axis = first.regret.ndim - 2
    joined = _joined(results, lambda parts: np.concatenate(parts, axis))
    return dataclasses.replace(first, **joined, config={**first.config, "seeds": spans(seeds)})


def end_to_end(*arrays: np.ndarray) -> np.ndarray:
    """Joins arrays along their first axis. A single array is not copied, since curves of many seeds are large."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined(results: Sequence[Result], join: Callable[[list[np.ndarray]], np.ndarray]) -> dict[str, Any]:
    """Joins the arrays of several results, with 0 for missing counters, and NaN for missing gauges."""
    absent = {"communication": 0, "counts": 0, "gauges": math.nan}
    found: dict[str, Any] = {name: join([getattr(result, name) for result in results]) for name in ("regret", "status")}
    for kind in CURVES:
        names = dict.fromkeys(name for result in results for name in getattr(result, kind))
        held = [(getattr(result, kind), np.broadcast_to(absent[kind], result.regret.shape)) for result in results]
        found[kind] = {name: join([own.get(name, nothing) for own, nothing in held]) for name in names}
    kept: dict[str, tuple[Result, np.ndarray]] = {}  # name -> first result with the record, and its rounds
    for result in results:
        for name, rounds in result.record_rounds.items():
            first, known = kept.setdefault(name, (result, rounds))
            one, two = (r.records[name].shape[r.status.ndim :] for r in (first, result))
            if one != two or not np.array_equal(known, rounds):
                must = f"must share shape and rounds of the record {name!r}"
                raise BadValue("results", must, one, got=f"{one} and {two}")
    found["record_rounds"] = {name: rounds for name, (_, rounds) in kept.items()}
    found["records"] = {
        name: join([_record(result, name, first) for result in results]) for name, (first, _) in kept.items()
    }
    return found


def _record(result: Result, name: str, other: Result) -> np.ndarray:
    """Returns a record of a result, or an empty one shaped like another result's: NaN, or 0 for integers."""
    like = other.records[name]
    nothing = math.nan if like.dtype.kind in "fc" else 0
    empty = np.full((*result.status.shape, *like.shape[other.status.ndim :]), nothing, like.dtype)
    return result.records.get(name, empty)


def difference(name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """Returns the first path at which two accounts differ, such as environment.n_agents, and both values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        key = next(key for key in {**one, **other} if one.get(key) != other.get(key))
        return difference(f"{name}.{key}", one.get(key), other.get(key))
    return name, one, other
