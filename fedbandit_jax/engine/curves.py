"""Cumulative curves at N chosen rounds of C configurations and S seeds, in float64 on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from typing_extensions import override

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


class Tally:
    """Base class of tallies, which add up the metrics of steps.

    Args:
        at: rounds 1, 2, ... to record, (N,), increasing.
        n_configs: C.
        n_seeds: S.
    """

    def __init__(self, at: np.ndarray, n_configs: int, n_seeds: int):
        self.at, self.runs = at, (n_configs, n_seeds)
        self.names: tuple[str, ...] = ()  # of the counters, known after the first step
        self.regret = np.zeros((*self.runs, len(at)))
        self.total = np.zeros(self.runs)  # regret so far
        self.status = np.zeros(self.runs, int)

    def add(self, metrics: Metrics, lengths: Sequence[int]) -> int:
        """Adds steps with metrics (steps, S, C, ...); returns the rounds that all runs together played in them.

        `lengths` are the rounds of the steps, if they do not depend on the run.
        """
        raise NotImplementedError

    def curves(self) -> Curves:
        """Returns all curves recorded so far."""
        raise NotImplementedError

    def _curves(self, counts: Iterable[np.ndarray], gauges: dict[str, np.ndarray]) -> Curves:
        counters = {name: _exact(count) for name, count in zip(self.names, counts)}
        communication = {name: counters.pop(name) for name in COMMUNICATION}
        status = self.status | np.where(np.isfinite(self.total), 0, Status.NOT_FINITE)
        return Curves(self.regret, communication, counters, status, gauges, records={})


class RoundTally(Tally):
    """A tally of steps that cover the same rounds in every run, of equal lengths but perhaps the last."""

    def __init__(self, at: np.ndarray, n_configs: int, n_seeds: int):
        super().__init__(at, n_configs, n_seeds)
        self.played = 0  # rounds of each run
        self.gauges: tuple[str, ...] = ()
        self.last: list[np.ndarray] = []  # counters, then gauges, after the last step, each (C, S)
        self.recorded: list[np.ndarray] = []  # the same at the recorded rounds, each (C, S, N)

    @override
    def add(self, metrics: Metrics, lengths: Sequence[int]) -> int:
        self.names, counts = _counted(metrics.report)
        self.gauges, n = tuple(metrics.gauges), len(counts)
        values = [*counts, *(np.transpose(gauge, (2, 1, 0)) for gauge in metrics.gauges.values())]
        if not self.last:
            self.last = [np.full(self.runs, 0 if i < n else np.nan) for i in range(len(values))]
            self.recorded = [np.zeros(self.regret.shape) for _ in values]
        ends = self.played + np.cumsum(lengths)
        new = slice(*np.searchsorted(self.at, [self.played, ends[-1]], side="right"))
        gap = np.transpose(metrics.gap, (2, 1, 0, 3)).reshape(*self.runs, -1)[..., : sum(lengths)]
        regret = np.concatenate([self.total[..., None], gap], -1)
        np.cumsum(regret, -1, out=regret)  # in float64, and from the total on: equal bits for any chunks
        self.regret[..., new] = np.take(regret, self.at[new] - self.played, -1)
        finished = np.searchsorted(ends, self.at[new], side="right")  # steps of this chunk ended by each recorded round
        for i, steps in enumerate(values):
            after = np.concatenate([self.last[i][..., None], steps], -1)  # 0, 1, ... steps of this chunk
            after = np.cumsum(after, -1) if i < n else after
            self.recorded[i][..., new] = np.take(after, finished, -1)
            self.last[i] = after[..., -1]
        self.played, self.total = ends[-1], regret[..., -1].copy()
        self.status |= _status(metrics.report)
        return sum(lengths) * self.total.size

    @override
    def curves(self) -> Curves:
        return self._curves(self.recorded, dict(zip(self.gauges, self.recorded[len(self.names) :])))


class StretchTally(Tally):
    """A tally of steps with P stretches of rounds, of lengths that differ between runs.

    All rounds of a stretch have the same gap. So linear interpolation of regret is exact. Counters of a step are added
    when it ends.
    """

    def __init__(self, at: np.ndarray, n_configs: int, n_seeds: int):
        super().__init__(at, n_configs, n_seeds)
        self.steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # gaps and rounds (C, S, steps, P), counts

    @override
    def add(self, metrics: Metrics, lengths: Sequence[int]) -> int:
        gap, rounds = (np.moveaxis(np.asarray(x, np.float64), 0, 2).swapaxes(0, 1)
                       for x in (metrics.gap, metrics.rounds))  # fmt: skip
        self.names, counts = _counted(metrics.report)
        self.steps.append((gap, rounds, np.moveaxis(counts, 0, -1)))
        self.total = self.total + (gap * rounds).sum((2, 3))
        self.status |= _status(metrics.report)
        return int(rounds.sum())

    @override
    def curves(self) -> Curves:
        slopes, rounds, counts = (np.concatenate(parts, 2) for parts in zip(*self.steps))
        at, reached = self.at, int(rounds.sum((2, 3)).min())
        if reached < at[-1]:
            enough = f"must be enough for {at[-1]} users with one arm, a run ended after {reached}"
            raise BadValue("n_batches", enough, None, got="")
        counted = np.empty((*self.regret.shape, len(self.names)))
        for run in np.ndindex(self.runs):
            starts = np.concatenate([[0], np.cumsum(rounds[run])])
            self.regret[run] = np.interp(at, starts, np.concatenate([[0], np.cumsum(slopes[run] * rounds[run])]))
            finished = np.searchsorted(np.cumsum(rounds[run].sum(-1)), at, side="right")
            counted[run] = np.concatenate([np.zeros((1, len(self.names))), np.cumsum(counts[run], 0)])[finished]
        return self._curves(np.moveaxis(counted, -1, 0), {})


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
