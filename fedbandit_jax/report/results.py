"""Results: labelled curves with the configuration, certificates and provenance that make them mean something.

There is no JAX here: `Result.load` works where JAX is not installed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import validate
from fedbandit_jax.report import saved
from fedbandit_jax.report.saved import CURVES
from fedbandit_jax.status import Status


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
        config: environment, algorithms, their coordinates in the sweep, horizon and key: what it takes to run again.
        provenance: versions, git commit, device, dtype, date and seconds.
        counts: cumulative counts of other things by name, shaped like `regret`; for successive elimination
            "eliminations" of arms, "decodings" of sums and "decoding failures".
        gauges: values that hold at each recorded round by name, shaped like `regret`, NaN where there is none; for
            clustering the "adjusted Rand index" of the clusters found, the "adjusted Rand index on servers" of what
            each server finds by itself, and the number of "clusters".
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
    def coordinates(self) -> dict[str, dict[str, Any]]:
        """Returns label -> place in the sweep: the "algorithm" before the grid, and its grid parameters."""
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
        i = self.labels.index(label)
        return dataclasses.replace(
            self,
            regret=self.regret[i],
            **{kind: {name: curve[i] for name, curve in getattr(self, kind).items()} for kind in CURVES},
            status=self.status[i],
            certificates={label: self.certificates[label]},
            config={
                **self.config,
                "algorithms": {label: self.config["algorithms"][label]},
                "coordinates": {label: self.coordinates[label]},
            },
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Result({', '.join(self.labels)}; regret {self.regret.shape}, rounds 1..{self.rounds[-1]})"

    def summary(self) -> str:
        """Returns tables of final regret, communication and claims, and of differences in regret paired by seed.

        Differences are from the first label, with a 95 % interval for their mean.
        """
        one = [self[label] for label in self.labels]
        spec = self.config["environment"]["spec"]
        agents = spec["n_agents"]
        horizon, seeds = int(self.rounds[-1]), self.status.shape[-1]
        rows = [("algorithm", "regret at T", "s.e.", "per round", "syncs", "MB sent", "claim", "epsilon", "delta")]
        for label, result in zip(self.labels, one):
            mean, error = _mean_error(result.regret[:, -1])
            certificate = result.certificate
            rows.append(
                (
                    label + ("" if (result.status == 0).all() else " (!)"),
                    f"{mean:.1f}",
                    _one_digit(error),
                    f"{mean / (agents * horizon):.5f}",
                    f"{result.communication['rounds'][:, -1].mean():g}",
                    f"{result.communication['bits'][:, -1].mean() / 8e6:.2f}",
                    certificate.claim,
                    "-" if certificate.epsilon_exact is None else f"{certificate.epsilon_exact:.4g}",
                    "-" if certificate.epsilon_exact is None else f"{certificate.delta:g}",
                )
            )
        who = f"{agents} agent{'s' * (agents > 1)}"
        if spec.get("n_users"):
            who = f"{spec['n_users']:,} users on {spec['n_servers']} server{'s' * (spec['n_servers'] > 1)}"
        text = [f"{who}, T = {horizon:,} rounds, {seeds} seed{'s' * (seeds != 1)}", _table(rows)]
        if self.counts:
            wraps = any(result.certificate.wrap_probability is not None for result in one)
            rows = [("counted, mean", *self.counts, *(["allowed per decoding"] if wraps else []))]
            for label, result in zip(self.labels, one):
                counts = (f"{curve[:, -1].mean():g}" for curve in result.counts.values())
                bound = result.certificate.wrap_probability
                rows.append((label, *counts, *(["-" if bound is None else f"{bound:.3g}"] if wraps else [])))
            text += ["", _table(rows)]
        if self.gauges:
            rows = [("at T, mean", *self.gauges)]
            for label, result in zip(self.labels, one):
                stood = (curve[:, -1].mean() for curve in result.gauges.values())
                rows.append((label, *("-" if math.isnan(value) else f"{value:.3g}" for value in stood)))
            text += ["", _table(rows)]
        if len(one) > 1:
            rows = [(f"minus {self.labels[0]}, seed by seed", "mean", "s.e.", "95 % interval")]
            for label, result in zip(self.labels[1:], one[1:]):
                mean, error = _mean_error(result.regret[:, -1] - one[0].regret[:, -1])
                half = _t_quantile(seeds) * error
                interval = "-" if math.isnan(half) else f"[{mean - half:+.1f}, {mean + half:+.1f}]"
                rows.append((label, f"{mean:+.1f}", _one_digit(error), interval))
            text += ["", "Final regret, paired (all saw the same users and reward noise):", _table(rows)]
        failed = np.argwhere(self.status != 0)
        if len(failed):
            flags = Status(int(np.bitwise_or.reduce(self.status, axis=None)))
            text += ["", f"(!) {len(failed)} runs have status bits set; do not trust their regret.", *flags.sentences()]
        return "\n".join(text)

    def save(self, path: str | Path) -> Path:
        """Writes everything to one file, `path`.npz, and returns its path; `path` may end in .npz itself.

        Missing folders are made. The file is complete or absent, whatever happens, and is sealed by a digest.
        `np.load` opens it too: it finds the curves, and in result.json, a text, all the rest.

        Raises:
            ValueError: arrays, certificates and configuration do not fit together; the message says where.
            OSError: the file cannot be written; one that was there before stays.
        """
        return saved.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Reads what `save` wrote, every bit of it; what only a newer version knows is left out, with a warning.

        Raises:
            ValueError: there is no such file, it is not as `save` wrote it, or its format is newer; the message names
                the file and says which.
        """
        return saved.read(path, cls)

    def to_xarray(self):
        """Returns an `xarray.Dataset` with dimensions (algorithm,) seed, round. It needs the extra `xarray`."""
        import xarray

        dims = ("algorithm", "seed", "round")[-self.regret.ndim :]
        data = {"regret": (dims, self.regret), "status": (dims[:-1], self.status)}
        for kind in CURVES:
            data |= {f"{kind}_{name}": (dims, curve) for name, curve in getattr(self, kind).items()}
        coords: dict[str, Any] = {"round": self.rounds, "seed": np.arange(self.status.shape[-1])}
        if self.regret.ndim == 3:
            coords["algorithm"] = list(self.labels)
            points = list(self.coordinates.values())
            varied = dict.fromkeys(name for point in points for name in point if name != "algorithm")
            coords |= {name: ("algorithm", [point.get(name) for point in points]) for name in varied}
        return xarray.Dataset(data, coords, attrs={"config": json.dumps(self.config)})


def concat(results: Sequence[Result]) -> Result:
    """Joins results of the same environment, horizon and key to one, so that they are compared seed by seed.

    The provenance is that of the first.

    Raises:
        TypeError: they are not results.
        ValueError: there are none, they differ in environment, horizon, key, seeds or recorded rounds, or share a
            label.
    """
    if isinstance(results, Result) or not isinstance(results, Sequence):
        raise TypeError(f"results must be a list of results, got {validate.shown(results)}")
    if not results:
        raise ValueError("results must hold at least one result, got none")
    first = results[0]
    for result in results:
        if not isinstance(result, Result):
            raise TypeError(f"results must be a list of results, got {validate.shown(result)} in it")
        for name in ("environment", "horizon", "key", "n_seeds", "stride"):
            if first.config[name] != result.config[name]:
                where, one, other = _difference(name, first.config[name], result.config[name])
                raise ValueError(f"results to concat must share {where}, got {one!r} and {other!r}")
    labels = [label for result in results for label in result.labels]
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels must be unique, got {labels}")

    def stack(get):
        parts = [np.asarray(get(result)) for result in results]
        return np.concatenate([p if r.regret.ndim == 3 else p[None] for p, r in zip(parts, results)])

    def either(kind, absent):
        names = dict.fromkeys(name for result in results for name in getattr(result, kind))
        return {name: stack(lambda r, n=name: getattr(r, kind).get(n, absent(r))) for name in names}

    return Result(
        rounds=first.rounds,
        regret=stack(lambda r: r.regret),
        communication={name: stack(lambda r, n=name: r.communication[n]) for name in first.communication},
        counts=either("counts", lambda result: np.zeros_like(result.regret, np.int64)),
        gauges=either("gauges", lambda result: np.full_like(result.regret, math.nan)),
        status=stack(lambda r: r.status),
        certificates={label: c for result in results for label, c in result.certificates.items()},
        config={
            **first.config,
            "algorithms": {k: v for r in results for k, v in r.config["algorithms"].items()},
            "coordinates": {k: v for r in results for k, v in r.coordinates.items()},
        },
        provenance=first.provenance,
    )


def _mean_error(values: np.ndarray) -> tuple[float, float]:
    """Returns the mean and its standard error, NaN for a single value."""
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(error)


def _t_quantile(n: int) -> float:
    """Returns the 97.5 % quantile of Student's t for a mean of n values, NaN for n = 1."""
    from scipy.stats import t

    return float(t.ppf(0.975, n - 1)) if n > 1 else math.nan


def _one_digit(value: float) -> str:
    """Returns the value as text, "-" for NaN."""
    return "-" if math.isnan(value) else f"{value:.1f}"


def _table(rows: list[tuple[str, ...]]) -> str:
    """Returns rows as text with aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:]))]) for row in rows
    )


def _difference(name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """Returns where two accounts first differ, such as environment.n_agents, and what each says there."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        key = next(key for key in {**one, **other} if one.get(key) != other.get(key))
        return _difference(f"{name}.{key}", one.get(key), other.get(key))
    return name, one, other
