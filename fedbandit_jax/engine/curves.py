"""Cumulative curves at N chosen rounds of C configurations and S seeds, in float64 on the host.

Tallies are immutable, so an interruption sees all of a chunk or none of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Metrics, Report, Status

COMMUNICATION = ("rounds", "floats", "bits")


class Curves(NamedTuple):
    """Recorded curves, cumulative except for gauges. Counters are int64, or float64 from 2^53 on."""

    regret: np.ndarray  # (C, S, N) float64, summed over agents
    communication: dict[str, np.ndarray]  # rounds, floats and bits sent, each (C, S, N)
    counts: dict[str, np.ndarray]  # other counters, each (C, S, N)
    status: np.ndarray  # (C, S) bits of `Status`
    gauges: dict[str, np.ndarray]  # values after the last finished step, each (C, S, N); NaN before the first
    records: dict[str, np.ndarray]  # extra records, each (C, S, its N, ...)


@dataclasses.dataclass(frozen=True)
class _Tally:
    at: np.ndarray  # (N,) rounds 1, 2, ... to record, increasing
    n_configs: int  # C
    n_seeds: int  # S
    names: tuple[str, ...] = ()  # of the counters and then of the gauges, known after the first step
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)  # the mutable state, for checkpoints

    def _curves(self, regret: np.ndarray, counts: np.ndarray, gauges: Iterable[np.ndarray] = ()) -> Curves:
        counters = {name: _exact(count) for name, count in zip(self.names, counts)}
        communication = {name: counters.pop(name) for name in COMMUNICATION}
        status = self.arrays["status"] | np.where(np.isfinite(self.arrays["total"]), 0, Status.NOT_FINITE)
        return Curves(regret, communication, counters, status, dict(zip(self.names[len(counts) :], gauges)), records={})


class RoundTally(_Tally):
    """The curves recorded so far, of steps that cover the same rounds in every run.

    Tallies of one run share their curves. Each tally reads only the rounds that it has played.
    """

    @property
    def played(self) -> int:
        """Rounds played by all runs together."""
        return int(self.arrays.get("rounds", 0)) * self.n_configs * self.n_seeds

    def add(self, metrics: Metrics, lengths: Sequence[int]) -> RoundTally:
        """Adds steps with metrics (steps, S, C, ...) and their lengths in rounds, all equal but perhaps the last."""
        names, counts = _counted(metrics.report)
        gauges = [np.transpose(gauge, (2, 1, 0)) for gauge in metrics.gauges.values()]
        runs, n, m = (self.n_configs, self.n_seeds), len(names), len(gauges)
        old = self.arrays or {
            "rounds": np.asarray(0),
            "total": np.zeros(runs),
            "last": np.zeros((n + m, *runs)) + np.repeat([0, np.nan], [n, m])[:, None, None],
            "status": np.zeros(runs, int),
            "regret": np.zeros((*runs, len(self.at))),
            "counts": np.zeros((n, *runs, len(self.at))),
            "gauges": np.zeros((m, *runs, len(self.at))),
        }
        played = int(old["rounds"])
        ends = played + np.cumsum(lengths)
        new = slice(*np.searchsorted(self.at, [played, ends[-1]], side="right"))
        gap = np.transpose(metrics.gap, (2, 1, 0, 3)).reshape(*runs, -1)[..., : sum(lengths)]
        regret = np.concatenate([old["total"][..., None], gap], -1)
        np.cumsum(regret, -1, out=regret)  # in float64, and from the total on: equal bits for any chunks
        old["regret"][..., new] = np.take(regret, self.at[new] - played, -1)
        finished = np.searchsorted(ends, self.at[new], side="right")  # steps of this chunk ended by each recorded round
        last = []
        for i, (curve, steps) in enumerate(zip([*old["counts"], *old["gauges"]], [*counts, *gauges])):
            after = np.concatenate([old["last"][i, ..., None], steps], -1)  # 0, 1, ... steps of this chunk
            after = np.cumsum(after, -1) if i < n else after
            curve[..., new] = np.take(after, finished, -1)
            last.append(after[..., -1])
        return dataclasses.replace(self, names=(*names, *metrics.gauges), arrays={
            **old,
            "rounds": ends[-1],
            "total": regret[..., -1].copy(),
            "last": np.array(last).reshape(n + m, *runs),
            "status": old["status"] | _status(metrics.report),
        })  # fmt: skip

    def curves(self) -> Curves:
        """Returns all curves recorded so far."""
        return self._curves(*(self.arrays[name] for name in ("regret", "counts", "gauges")))


class StretchTally(_Tally):
    """The curves recorded so far, of steps with P stretches of rounds, of lengths that differ between runs.

    All rounds of a stretch have the same gap. So linear interpolation of regret is exact. Counters of a step are added
    when it ends.
    """

    @property
    def played(self) -> int:
        """Rounds played by all runs together."""
        return int(self.arrays["rounds"].sum()) if self.arrays else 0

    def add(self, metrics: Metrics, lengths: Sequence[int]) -> StretchTally:
        """Adds steps with metrics (steps, S, C, ...), which hold their lengths."""
        gap, rounds = (np.moveaxis(np.asarray(x, np.float64), 0, 2).swapaxes(0, 1)
                       for x in (metrics.gap, metrics.rounds))  # fmt: skip
        names, counts = _counted(metrics.report)

        def joined(name: str, piece: np.ndarray) -> np.ndarray:
            return np.concatenate([self.arrays.get(name, piece[:, :, :0]), piece], 2)

        total = self.arrays.get("total", 0) + (gap * rounds).sum((2, 3))
        return dataclasses.replace(self, names=names, arrays={
            "total": total,
            "status": self.arrays.get("status", 0) | _status(metrics.report),
            "gap": joined("gap", gap),
            "rounds": joined("rounds", rounds),
            "counts": joined("counts", np.moveaxis(counts, 0, -1)),
        })  # fmt: skip

    def curves(self) -> Curves:
        """Returns all curves recorded so far."""
        slopes, rounds, counts = (self.arrays[name] for name in ("gap", "rounds", "counts"))
        at, reached = self.at, int(rounds.sum((2, 3)).min())
        if reached < at[-1]:
            enough = f"must be enough for {at[-1]} users with one arm, a run ended after {reached}"
            raise BadValue("n_batches", enough, None, got="")
        regret = np.empty((self.n_configs, self.n_seeds, len(at)))
        counted = np.empty((*regret.shape, len(self.names)))
        for run in np.ndindex(regret.shape[:2]):
            starts = np.concatenate([[0], np.cumsum(rounds[run])])
            regret[run] = np.interp(at, starts, np.concatenate([[0], np.cumsum(slopes[run] * rounds[run])]))
            finished = np.searchsorted(np.cumsum(rounds[run].sum(-1)), at, side="right")
            counted[run] = np.concatenate([np.zeros((1, len(self.names))), np.cumsum(counts[run], 0)])[finished]
        return self._curves(regret, np.moveaxis(counted, -1, 0))


Tally = RoundTally | StretchTally


def _counted(report: Report) -> tuple[tuple[str, ...], np.ndarray]:
    steps, seeds, configs = np.shape(report.rounds)
    floats, bits = (np.asarray(x, float).reshape(steps, seeds, configs, -1) for x in (report.floats, report.float_bits))
    sent = [np.asarray(report.rounds, float), floats.sum(-1), (floats * bits).sum(-1)]
    counts = np.stack([*sent, *(np.asarray(count, float) for count in report.counts.values())])
    return (*COMMUNICATION, *report.counts), np.transpose(counts, (0, 3, 2, 1))  # (n, C, S, steps)


def _status(report: Report) -> np.ndarray:
    return np.bitwise_or.reduce(np.asarray(report.status), axis=0).T


def _exact(count: np.ndarray) -> np.ndarray:
    """Converts counts to int64, unless float64 no longer holds every integer."""
    return count.astype(np.int64) if count.max(initial=0) < 2**53 else count
