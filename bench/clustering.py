"""Measures steps per second of clusterings by number of users, for `run.py`: ours, NumPy and the authors' code.

A step is one round of one seed, in which one user is served. Our library is timed through `fb.simulate`, all its work
on the host included; every seed is a run of its own, and as many run at a time as there are cores. A phase begins in
rounds 0, 2, 6, 14, ..., and its cost grows with the number of all users, so that short runs have more phases per round.

All take turns; numbers are medians over the turns. A program counts as compiled for the algorithm that needs it first:
FCLUB shares its program with FCLUB-DC and Homo-DC, and ten seeds run the program of one. NumPy plays the first rounds
of the same horizon with the same constants, and its mean regret after them must agree with ours within 5 standard
errors. The speed of the authors' code was measured once, on another machine.

Letters: n users, L servers, m clusters, K arms, d features, T rounds.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import clustering_numpy
import jax
import measure
import numpy as np
from measure import Compilations, Row, Times, verdict

import fedbandit_jax as fb

SEEDS = (1, 10)  # numbers of seeds that are timed
BUDGET = fb.privacy.Budget(1.0, 0.1)
AUTHORS = {  # n -> algorithm -> steps per second of the authors' code on 2 cores
    40: {"LinUCB": 19e3, "CLUB": 12e3, "SCLUB": 5.5e3, "FCLUB": 340.0, "CDP-FCLUB-DC": 7.8e3},
    1000: {"CDP-FCLUB-DC": 1.3e3},
}
OVER_AUTHORS, STEPS = 25.0, {1000: 100e3, 10_000: 10e3}  # targets; steps per second of many seeds are by n

Run = tuple[int, str, int]  # users, algorithm, number of seeds, which is 0 for NumPy


class Size(NamedTuple):
    """The sizes of runs with one number of users."""

    n_users: int  # n
    horizon: int  # T
    turns: int  # timed runs
    numpy_rounds: int  # rounds that NumPy plays, a divisor of the horizon
    numpy_seeds: int  # seeds that NumPy plays in a turn


class Plan(NamedTuple):
    """Sizes of a benchmark."""

    n_servers: int  # L
    n_clusters: int  # m
    n_arms: int  # K
    dim: int  # d
    sizes: tuple[Size, ...]  # by growing n


REFERENCE = Plan(
    5, 2, 10, 10, (Size(40, 102_400, 2, 2048, 4), Size(1000, 20_480, 3, 2048, 2), Size(10_000, 1024, 1, 0, 0))
)
SMOKE = Plan(2, 2, 4, 3, (Size(8, 512, 2, 256, 2),))


def algorithms() -> dict[str, fb.Algorithm]:
    """Returns the algorithms that are timed, by name."""
    made = (
        fb.algos.LinUCB(),
        fb.algos.CLUB(),
        fb.algos.SCLUB(),
        fb.algos.FCLUB(upload=1.0, download=1.0),
        fb.algos.FCLUB(),
        fb.algos.FCLUB(BUDGET),
        fb.algos.homo_dc(),
    )
    return {str(algo.name): algo for algo in made}


class Bench:
    """Runs and times everything, and keeps all regrets after as many rounds as NumPy plays."""

    def __init__(self, plan: Plan):
        self.sizes = {size.n_users: size for size in plan.sizes}
        servers, m, k, d, _ = plan
        self.envs = {n: fb.envs.clustered(n, servers, m, n_arms=k, dim=d) for n in self.sizes}
        self.algos = algorithms()
        self.bound: dict[Any, Any] = {
            (n, name): algo.bind(self.envs[n].spec, self.sizes[n].horizon)
            for n in self.sizes
            for name, algo in self.algos.items()
        }
        seeds = {n: (*SEEDS, 0) if size.numpy_seeds else SEEDS for n, size in self.sizes.items()}
        self.runs: list[Run] = [(n, name, s) for n in self.sizes for name in self.algos for s in seeds[n]]
        self.regret: dict[tuple[int, str, bool], list[float]] = {}

    def play(self, run: Run, turn: int) -> None:
        """Runs once, and keeps the regrets of timed runs."""
        n, name, n_seeds = run
        size = self.sizes[n]
        if n_seeds:
            result = fb.simulate(
                self.envs[n],
                self.algos[name],
                horizon=size.horizon,
                key=jax.random.key(1000 * turn + n_seeds),
                seeds=n_seeds,
                stride=size.numpy_rounds or size.horizon,
                progress=False,
            )
            regret = result.regret[:, 0].tolist()
        elif turn:
            play, rounds = clustering_numpy.play, size.numpy_rounds
            bound, env = self.bound[n, name], self.envs[n]
            regret = [play(env, bound, horizon=rounds, seed=[turn, i]) for i in range(size.numpy_seeds)]
        else:
            return  # NumPy has nothing to compile
        if turn:
            self.regret.setdefault((n, name, n_seeds == 0), []).extend(regret)

    def steps(self, run: Run) -> int:
        """Returns the number of steps in a run."""
        size = self.sizes[run[0]]
        return run[2] * size.horizon or size.numpy_rounds * size.numpy_seeds

    def law(self, n: int, name: str) -> dict[str, float | None]:
        """Returns the mean regret per round, ours and NumPy's, and z, their difference in standard errors."""
        ours, theirs = (np.array(self.regret.get((n, name, numpy), [])) for numpy in (False, True))
        rounds = self.sizes[n].numpy_rounds
        if not len(theirs):
            return {"regret": None, "numpy_regret": None, "z": None}
        freedom = len(ours) + len(theirs) - 2
        variance = (len(ours) * ours.var() + len(theirs) * theirs.var()) / freedom
        error = math.sqrt(variance * (1 / len(ours) + 1 / len(theirs)))
        z = float((ours.mean() - theirs.mean()) / error)
        return {"regret": float(ours.mean()) / rounds, "numpy_regret": float(theirs.mean()) / rounds, "z": z}


def table(bench: Bench) -> list[Row]:
    """Times everything; returns a row for every run of ours. The speeds of NumPy and of the authors are columns."""
    turns = {run: bench.sizes[run[0]].turns for run in bench.runs}
    times = measure.in_turns({run: partial(bench.play, run) for run in bench.runs}, turns, Compilations())
    each = {run: taken.each(bench.steps(run)) for run, taken in times.items()}
    return [row(bench, run, each) for run in bench.runs if run[2]]


def row(bench: Bench, run: Run, times: dict[Run, Times]) -> Row:
    """Returns one row of the table, given seconds per step."""
    n, name, n_seeds = run
    wall, processors = (1 / float(np.median(taken)) for taken in (times[run].wall, times[run].processors))
    numpy = 1 / float(np.median(times[n, name, 0].wall)) if (n, name, 0) in times else None
    authors = AUTHORS.get(n, {}).get(name)
    return {
        "algorithm": name,
        "n_users": n,
        "seeds": n_seeds,
        "steps_per_second": wall,
        "steps_per_processor_second": processors,
        "compile_seconds": times[run].compiling if n_seeds == SEEDS[0] else None,
        "numpy": numpy,
        "over_numpy": numpy and wall / numpy,
        "authors": authors,
        "over_authors": authors and wall / authors,
        **bench.law(n, name),
    }


def judge(rows: list[Row], *, judged: bool) -> dict[str, Row]:
    """Returns the ratios that have targets, for runs of many seeds."""
    found = {}
    for row in (row for row in rows if row["seeds"] == SEEDS[-1]):
        n, name = row["n_users"], row["algorithm"]
        if row["over_authors"] is not None and n == min(AUTHORS):
            value, least = row["over_authors"], OVER_AUTHORS
            found[f"n = {n:,}, {name}: over the authors' code"] = verdict(value, least=least, judged=judged)
        elif n in STEPS:
            value, least = row["steps_per_second"], STEPS[n]
            found[f"n = {n:,}, {name}: steps per second"] = verdict(value, least=least, judged=judged)
    return found
