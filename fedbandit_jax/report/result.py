"""Results: labelled curves with the configuration, certificates and provenance that make them mean something.

There is no JAX here: `Result.load` works where JAX is not installed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import validate
from fedbandit_jax.report import files, frames
from fedbandit_jax.report.files import CURVES, NAMED, OF_LABELS
from fedbandit_jax.report.tables import summary


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """What a simulation measured.

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
            each server finds by itself, and the number of "clusters".
        records: what `record=` asked for by name, (n_algorithms, n_seeds, its own rounds, ...), without the first axis
            as in `regret`; of a function that returns a pytree, every leaf by its path in the name. An algorithm that
            lacks one has NaN there, or 0 if it holds no floats. No certificate covers records.
        record_rounds: the rounds 1..T of every record.
    """

    rounds: np.ndarray
    regret: np.ndarray
    communication: Mapping[str, np.ndarray]
    status: np.ndarray
    certificates: Mapping[str, Certificate]
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    counts: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    gauges: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    records: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    record_rounds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """Returns the labels of the algorithms, in the order of the first axis."""
        return tuple(self.certificates)

    @property
    def certificate(self) -> Certificate:
        """Returns the certificate of a result with one algorithm.

        Raises:
            ValueError: there are several algorithms.
        """
        if len(self.certificates) != 1:
            raise ValueError(
                f"this result has {len(self.labels)} certificates: use result[label] with one of {self.labels}"
            )
        return next(iter(self.certificates.values()))

    @property
    def spec(self) -> Mapping[str, Any]:
        """Returns the `fb.Spec` of the environment, as a dictionary.

        Raises:
            ValueError: there are several.
        """
        first, *others = (self.config["environments"][label]["spec"] for label in self.labels)
        if any(other != first for other in others):
            raise ValueError("this result has several environments: use result[label].spec")
        return first

    @property
    def seeds(self) -> np.ndarray:
        """Returns the numbers of the seeds, (n_seeds,)."""
        return np.concatenate([np.arange(*span) for span in self.config["seeds"]])

    @property
    def coordinates(self) -> dict[str, dict[str, Any]]:
        """Returns label -> place in the sweep: the "algorithm" before the grid, and its parameters in the grid.

        If environments were given by name, "environment" is the name.
        """
        return {label: self.config["coordinates"][label] for label in self.labels}

    @property
    def time_average(self) -> np.ndarray:
        """Returns Reg(t) / t, the group regret per round as in the papers' figures, shaped like `regret`."""
        return self.regret / self.rounds

    def __getitem__(self, label: str) -> Result:
        """Returns the result of one algorithm of a sweep.

        Raises:
            KeyError: there is no such label.
        """
        if label not in self.certificates:
            raise KeyError(f"no algorithm {label!r}; have {', '.join(map(repr, self.labels))}")
        if self.regret.ndim == 2:
            return self
        one = self._of([label])
        curves: Any = {kind: {name: curve[0] for name, curve in getattr(one, kind).items()} for kind in NAMED}
        return dataclasses.replace(one, regret=one.regret[0], status=one.status[0], **curves)

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Result({', '.join(self.labels)}; regret {self.regret.shape}, rounds 1..{self.rounds[-1]})"

    def sel(self, **coordinates: Any) -> Result:
        """Returns the result of the algorithms at a place of the sweep, and of those that do not have its coordinates.

        A value may be a list of values; `seed` selects seeds. Example: `result.sel(epsilon=1, seed=[0, 1])`.

        Raises:
            KeyError: no algorithm has such a coordinate, or none is there; the message says what there is.
        """
        if "seed" in coordinates:
            return self._of_seeds(np.atleast_1d(coordinates.pop("seed"))).sel(**coordinates)
        points = self.coordinates
        chosen = list(self.labels)
        for name, value in coordinates.items():
            there = [point[name] for point in points.values() if name in point]
            if not there:
                names = dict.fromkeys(name for point in points.values() for name in point)
                raise KeyError(f"no algorithm has the coordinate {name!r}; have {', '.join(names)}")
            wanted = value if isinstance(value, (list, tuple)) else [value]
            if missing := [one for one in wanted if one not in there]:
                raise KeyError(f"no algorithm is at {name}={missing[0]!r}; have {list(dict.fromkeys(there))}")
            chosen = [label for label in chosen if points[label].get(name, wanted[0]) in wanted]
        if not chosen:
            raise KeyError(f"no algorithm is at {coordinates}")
        return self._of(chosen)

    def _of(self, labels: Sequence[str]) -> Result:
        if self.regret.ndim == 2:
            return self
        rows = [self.labels.index(label) for label in labels]
        of_labels = {kind: {label: self.config[kind][label] for label in labels} for kind in OF_LABELS}
        return dataclasses.replace(
            self,
            regret=self.regret[rows],
            **{kind: {name: curve[rows] for name, curve in getattr(self, kind).items()} for kind in NAMED},
            status=self.status[rows],
            certificates={label: self.certificates[label] for label in labels},
            config={**self.config, **of_labels},
        )

    def _of_seeds(self, seeds: np.ndarray) -> Result:
        there = {seed: i for i, seed in enumerate(self.seeds.tolist())}
        if absent := [seed for seed in seeds.tolist() if seed not in there]:
            raise KeyError(f"seed {absent[0]} was not run; have {self.config['seeds']}")
        rows = [there[seed] for seed in seeds.tolist()]
        axis = self.status.ndim - 1
        curves: Any = {kind: {n: x.take(rows, axis) for n, x in getattr(self, kind).items()} for kind in NAMED}
        return dataclasses.replace(
            self,
            regret=self.regret[..., rows, :],
            status=self.status[..., rows],
            config={**self.config, "seeds": spans(seeds)},
            **curves,
        )

    def summary(self) -> str:
        """Returns tables of final regret, communication and claims, and of differences in regret paired by seed.

        Differences are from the first label in the same environment, with a 95 % interval for their mean.
        """
        return summary(self)

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
    def load(cls, path: str | Path) -> Result:
        """Reads what `save` wrote, every bit of it; what only a newer version knows is left out, with a warning.

        Raises:
            ValueError: there is no such file, it is not as `save` wrote it, or its format is newer; the message names
                the file and says which.
        """
        return files.read(path, cls)

    def to_xarray(self) -> Any:
        """Returns an `xarray.Dataset` of all arrays, in which every parameter of the sweep that varies is a dimension.

        The dimensions are "algorithm", if there are several, the parameters, "seed" and "round"; so
        `data.regret.sel(epsilon=1).mean("seed")` is a curve of every algorithm. What an algorithm without a parameter
        did stands at all values of it. Where nothing was run, curves are NaN and `status` is -1. A record "x" is
        `record_x`, whose rounds are the dimension "record_x_round" if they are not those of the curves, and whose own
        axes are "record_x_0" and so on. It needs the extra `xarray`.
        """
        return frames.to_xarray(self)

    def to_pandas(self) -> Any:
        """Returns a `pandas.DataFrame` with a row for every algorithm, seed and recorded round.

        Its columns are "algorithm", "label", the parameters of the sweep (None where an algorithm does not have one),
        "seed", "round", "regret", "status", and counts of communication and other things; records are left out. It
        needs the extra `xarray`.
        """
        return frames.to_pandas(self)


def concat(results: Sequence[Result]) -> Result:
    """Joins results of one horizon and key: other algorithms under the same seeds, or other seeds of the same ones.

    The provenance is that of the first.

    Raises:
        TypeError: they are not results.
        ValueError: there are none; they differ in horizon, key or recorded rounds; or they share neither seeds, with
            distinct labels, nor labels, environments and algorithms, with distinct seeds.
    """
    if isinstance(results, Result) or not isinstance(results, Sequence):
        raise TypeError(f"results must be a list of results, got {validate.shown(results)}")
    if not results:
        raise ValueError("results must hold at least one result, got none")
    first = results[0]
    for result in results:
        if not isinstance(result, Result):
            raise TypeError(f"results must be a list of results, got {validate.shown(result)} in it")
        for name in ("horizon", "key", "stride"):
            if first.config[name] != result.config[name]:
                one, other = first.config[name], result.config[name]
                raise ValueError(f"results to concat must share the {name}, got {one!r} and {other!r}")
    if len(results) > 1 and all(result.labels == first.labels for result in results):
        return _along_seeds(results)
    for result in results:
        if not np.array_equal(first.seeds, result.seeds):
            one, other = first.config["seeds"], result.config["seeds"]
            raise ValueError(f"results to concat must share the seeds, or all labels, got seeds {one} and {other}")
    labels = [label for result in results for label in result.labels]
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels must be unique, got {labels}")

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
    for result in results:
        for kind in OF_LABELS:
            if first.config[kind] != result.config[kind]:
                where, one, other = difference(kind, first.config[kind], result.config[kind])
                raise ValueError(f"results of other seeds must share {where}, got {one!r} and {other!r}")
        if dict(first.certificates) != dict(result.certificates):
            raise ValueError("results of other seeds must share their certificates, which a newer version may change")
    seeds = np.concatenate([result.seeds for result in results])
    if len(np.unique(seeds)) < len(seeds):
        raise ValueError(
            f"results must have distinct labels or seeds, got seeds {[r.config['seeds'] for r in results]}"
        )
    axis = first.regret.ndim - 2
    joined = _joined(results, lambda parts: np.concatenate(parts, axis))
    return dataclasses.replace(first, **joined, config={**first.config, "seeds": spans(seeds)})


def _joined(results: Sequence[Result], join: Callable[[list[np.ndarray]], np.ndarray]) -> dict[str, Any]:
    """Returns the arrays of several results joined; who lacks a counter has 0 there, and who lacks a gauge NaN."""
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
                raise ValueError(f"results must share shape and rounds of the record {name!r}, got {one} and {two}")
    found["record_rounds"] = {name: rounds for name, (_, rounds) in kept.items()}
    found["records"] = {
        name: join([_record(result, name, first) for result in results]) for name, (first, _) in kept.items()
    }
    return found


def missing(array: np.ndarray) -> float:
    """Returns what stands in a record for an algorithm that has no such one: NaN, or 0 where it holds no floats."""
    return math.nan if array.dtype.kind in "fc" else 0


def _record(result: Result, name: str, other: Result) -> np.ndarray:
    """Returns a record of a result; if it has none, an empty one like that of another result."""
    like = other.records[name]
    empty = np.full((*result.status.shape, *like.shape[other.status.ndim :]), missing(like), like.dtype)
    return result.records.get(name, empty)


def spans(seeds: np.ndarray) -> list[list[int]]:
    """Returns the numbers of seeds as stretches of consecutive ones, from the first of each to one past its last.

    >>> spans(np.array([0, 1, 2, 7, 8]))
    [[0, 3], [7, 9]]
    """
    cuts = np.flatnonzero(np.diff(seeds.astype(np.int64)) != 1) + 1
    return [[int(part[0]), int(part[-1]) + 1] for part in np.split(seeds, cuts)]


def difference(name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """Returns where two accounts first differ, such as environment.n_agents, and what each says there."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        key = next(key for key in {**one, **other} if one.get(key) != other.get(key))
        return difference(f"{name}.{key}", one.get(key), other.get(key))
    return name, one, other
