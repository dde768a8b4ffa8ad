"""The data of a result: labelled curves with configuration, certificates and provenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core.validate import BadValue

CURVES = ("communication", "counts", "gauges")  # attributes of a result that map names to curves
NAMED = (*CURVES, "records")  # attributes that map names to arrays with axes of algorithms and seeds
NAMES = 4  # listed on a line, of more than one more
OF_LABELS = ("environments", "algorithms", "coordinates")  # parts of a configuration by label


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """Data of a `Result`, which documents the fields, and selections of it."""

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
        """Labels of the algorithms, in the order of the first axis."""
        return tuple(self.certificates)

    @property
    def certificate(self) -> Certificate:
        """Returns the certificate of a result with one algorithm. Several raise a `ValueError`."""
        if len(self.certificates) != 1:
            n = len(self.labels)
            raise ValueError(f"this result has {n} certificates: use result[label] with one of {self.labels}")
        return next(iter(self.certificates.values()))

    @property
    def spec(self) -> Mapping[str, Any]:
        """The `fb.Spec` of the environment, as a dictionary; a `ValueError` if there are several."""
        first, *others = (self.config["environments"][label]["spec"] for label in self.labels)
        if any(other != first for other in others):
            raise ValueError("this result has several environments: use result[label].spec")
        return first

    @property
    def seeds(self) -> np.ndarray:
        """Seeds, (n_seeds,)."""
        return np.concatenate([np.arange(*span) for span in self.config["seeds"]])

    @property
    def coordinates(self) -> dict[str, dict[str, Any]]:
        """Label -> point of the sweep: "algorithm" without the grid, its parameters, and "environment" if named."""
        return {label: self.config["coordinates"][label] for label in self.labels}

    @property
    def time_average(self) -> np.ndarray:
        """Reg(t) / t, the group regret per round as in the papers' figures, shaped like `regret`."""
        return self.regret / self.rounds

    def __getitem__(self, label: str) -> Self:
        """Selects one algorithm of a sweep."""
        if label not in self.labels:  # also if unhashable
            raise KeyError(f"no algorithm {label!r}; have {', '.join(map(repr, self.labels))}")
        if self.regret.ndim == 2:
            return self
        return self._of([label])._each(lambda array: array[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Result({listed(self.labels)}; regret {self.regret.shape}, rounds 1..{self.rounds[-1]})"

    def sel(self, **coordinates: Any) -> Self:
        """Selects runs by coordinate. Algorithms without that coordinate are kept.

        A value may be a list or an array. `seed` selects seeds, as in `result.sel(epsilon=1, seed=[0, 1])`.

        Raises:
            KeyError: no algorithm has such a coordinate or value; the message lists them.
            ValueError: a list is empty, or repeats a seed.
        """
        if "seed" in coordinates:
            seeds = np.atleast_1d(coordinates.pop("seed"))
            if not 0 < len(seeds) == len(np.unique(seeds)):
                raise BadValue("seed", "must be distinct numbers of seeds, at least one", seeds.tolist())
            return self._of_seeds(seeds).sel(**coordinates)
        points = self.coordinates
        chosen = list(self.labels)
        for name, value in coordinates.items():
            there = [point[name] for point in points.values() if name in point]
            if not there:
                names = dict.fromkeys(name for point in points.values() for name in point)
                raise KeyError(f"no algorithm has the coordinate {name!r}; have {', '.join(names)}")
            wanted = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value]
            if not wanted:
                raise BadValue(name, "must be a value or a list of at least one", value)
            if missing := [one for one in wanted if one not in there]:
                raise KeyError(f"no algorithm is at {name}={missing[0]!r}; have {list(dict.fromkeys(there))}")
            chosen = [label for label in chosen if points[label].get(name, wanted[0]) in wanted]
        if not chosen:
            raise KeyError(f"no algorithm is at {coordinates}")
        return self._of(chosen)

    def _each(self, take: Callable[[np.ndarray], np.ndarray], **changes: Any) -> Self:
        """Returns a copy with this part of every array that has axes of algorithms and seeds."""
        named: Any = {kind: {name: take(array) for name, array in getattr(self, kind).items()} for kind in NAMED}
        return dataclasses.replace(self, regret=take(self.regret), status=take(self.status), **named, **changes)

    def _of(self, labels: Sequence[str]) -> Self:
        if self.regret.ndim == 2:
            return self
        rows: Any = [self.labels.index(label) for label in labels]
        rows = slice(rows[0], rows[0] + 1) if len(rows) == 1 else rows  # a view, since curves may be large
        of_labels = {kind: {label: self.config[kind][label] for label in labels} for kind in OF_LABELS}
        certificates = {label: self.certificates[label] for label in labels}

        def selected(array: np.ndarray) -> np.ndarray:
            part = array[rows]
            part.flags.writeable = not isinstance(rows, slice)  # to write here would change this result, too
            return part

        return self._each(selected, certificates=certificates, config={**self.config, **of_labels})

    def _of_seeds(self, seeds: np.ndarray) -> Self:
        there = {seed: i for i, seed in enumerate(self.seeds.tolist())}
        if absent := [seed for seed in seeds.tolist() if seed not in there]:
            raise KeyError(f"seed {absent[0]} was not run; have {self.config['seeds']}")
        rows, axis = [there[seed] for seed in seeds.tolist()], self.status.ndim - 1
        return self._each(lambda array: array.take(rows, axis), config={**self.config, "seeds": spans(seeds)})


def spans(seeds: np.ndarray) -> list[list[int]]:
    """Returns stretches [first, end) of consecutive seeds.

    >>> spans(np.array([0, 1, 2, 7, 8]))
    [[0, 3], [7, 9]]
    """
    cuts = np.flatnonzero(np.diff(seeds.astype(np.int64)) != 1) + 1
    return [[int(part[0]), int(part[-1]) + 1] for part in np.split(seeds, cuts)]


def listed(names: Sequence[str]) -> str:
    """Returns names on a line: all of a few, or the first and the number of the others.

    >>> listed("abcde"), listed("abcdefgh")
    ('a, b, c, d, e', 'a, b, c, d and 4 more')
    """
    if len(names) <= NAMES + 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMES])} and {len(names) - NAMES} more"
