"""Measures steps per second of the clustering family by number of users: this library, NumPy and the authors' code.

A step is one round of one seed, in which one user is served. Our library is timed through `fb.simulate`, all its work
on the host included; every seed is a run of its own, and as many run at a time as there are cores. A phase begins in
rounds 0, 2, 6, 14, ..., and its cost grows with the number of all users, so that short runs have more phases per round.

Compilation is timed separately, and a timed run that compiles is an error. A program counts as compiled for the
algorithm that needs it first: FCLUB shares its program with FCLUB-DC and Homo-DC, and ten seeds run the program of one.
All take turns, so that drift of the machine affects all of them; numbers are medians over the turns. NumPy plays the
first rounds of the same horizon with the same constants, and its mean regret after them must agree with ours within 5
standard errors, or the exit code is 1.

Letters: n users, L servers, m clusters, K arms, d features, T rounds.
"""

from __future__ import annotations

import json as json_format
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import clustering_numpy
import jax
import numpy as np
import tyro
from linear import Compilations

import fedbandit_jax as fb

SEEDS = (1, 10)  # numbers of seeds that are timed
BUDGET = fb.privacy.Budget(1.0, 0.1)
AUTHORS = {  # n -> algorithm -> steps per second of the authors' code on 2 cores
    40: {"LinUCB": 19e3, "CLUB": 12e3, "SCLUB": 5.5e3, "FCLUB": 340.0, "CDP-FCLUB-DC": 7.8e3},
    1000: {"CDP-FCLUB-DC": 1.3e3},
}
# targets: speed over the authors'; time of a step, second n over first; bytes per user, third n over second
OVER_AUTHORS, OVER_SMALL, MEMORY = 20.0, 4.0, 1.1
BITS = 1.1  # target: bits of the graph over the pairs of users of a server, third n
MAX_Z = 5.0  # most standard errors between our regret and NumPy's

Run = tuple[int, str, int]  # users, algorithm, number of seeds, which is 0 for NumPy


class Size(NamedTuple):
    """What is run with one number of users."""

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
    sizes: tuple[Size, ...]  # by growing n; the time of a step is compared between the first and the second


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

    def seconds(self, run: Run, turn: int) -> np.ndarray:
        """Runs once; returns the seconds by the wall-clock and of all processors, (2,)."""
        n, name, n_seeds = run
        size, regret = self.sizes[n], self.regret.setdefault((n, name, n_seeds == 0), [])
        started = np.array([time.perf_counter(), time.process_time()])
        if n_seeds:
            result = fb.simulate(
                self.envs[n],
                self.algos[name],
                horizon=size.horizon,
                key=jax.random.key(1000 * turn + n_seeds),
                n_seeds=n_seeds,
                stride=size.numpy_rounds or size.horizon,
                progress=False,
            )
            regret += result.regret[:, 0].tolist()
        else:
            play, rounds = clustering_numpy.play, size.numpy_rounds
            bound, env = self.bound[n, name], self.envs[n]
            regret += [play(env, bound, horizon=rounds, seed=[turn, i]) for i in range(size.numpy_seeds)]
        return np.array([time.perf_counter(), time.process_time()]) - started

    def steps(self, run: Run) -> int:
        """Returns the number of steps in a run."""
        size = self.sizes[run[0]]
        return run[2] * size.horizon or size.numpy_rounds * size.numpy_seeds

    def law(self, n: int, name: str) -> dict[str, float | None]:
        """Returns the mean regret per round, ours and NumPy's, and z, how many standard errors lie between them."""
        ours, theirs = (np.array(self.regret.get((n, name, numpy), [])) for numpy in (False, True))
        rounds = self.sizes[n].numpy_rounds
        if not len(theirs):
            return {"regret": None, "numpy_regret": None, "z": None}
        freedom = len(ours) + len(theirs) - 2
        variance = (len(ours) * ours.var() + len(theirs) * theirs.var()) / freedom
        error = math.sqrt(variance * (1 / len(ours) + 1 / len(theirs)))
        z = float((ours.mean() - theirs.mean()) / error)
        return {"regret": float(ours.mean()) / rounds, "numpy_regret": float(theirs.mean()) / rounds, "z": z}


def measure(bench: Bench, compilations: Compilations) -> tuple[dict[Run, np.ndarray], dict[Run, float]]:
    """Returns the seconds of every run, (turns, 2), and by how many the first run of one seed took longer."""
    first = {run: bench.seconds(run, 0)[0] for run in bench.runs if run[2] == 1}
    bench.seconds((min(bench.sizes), "LinUCB", SEEDS[-1]), 0)  # compiles the keys of so many seeds
    bench.regret.clear()
    compiled = compilations.count
    times: dict[Run, list[np.ndarray]] = {run: [] for run in bench.runs}
    for turn in range(1, 1 + max(size.turns for size in bench.sizes.values())):
        for run in bench.runs:
            if turn <= bench.sizes[run[0]].turns:
                times[run].append(bench.seconds(run, turn))
    if compilations.count > compiled:
        raise RuntimeError(f"{compilations.count - compiled} programs were compiled in timed runs")
    done = {run: np.array(taken) for run, taken in times.items()}
    return done, {run: float(first[run] - np.median(done[run][:, 0])) for run in first}


def table(bench: Bench, times: dict[Run, np.ndarray], compiling: dict[Run, float]) -> list[dict[str, Any]]:
    """Returns a row for every run of ours; the speeds of NumPy and of the authors are columns."""
    speed = {run: bench.steps(run) / np.median(taken, axis=0) for run, taken in times.items()}
    rows = []
    for n, name, n_seeds in (run for run in bench.runs if run[2]):
        wall, processors = map(float, speed[n, name, n_seeds])
        numpy = float(speed[n, name, 0][0]) if (n, name, 0) in speed else None
        authors = AUTHORS.get(n, {}).get(name)
        rows.append(
            {
                "algorithm": name,
                "n_users": n,
                "seeds": n_seeds,
                "steps_per_second": wall,
                "steps_per_processor_second": processors,
                "compile_seconds": compiling.get((n, name, n_seeds)),
                "numpy": numpy,
                "over_numpy": numpy and wall / numpy,
                "authors": authors,
                "over_authors": authors and wall / authors,
                **bench.law(n, name),
            }
        )
    return rows


def memory(bench: Bench, n: int, name: str) -> dict[str, float]:
    """Returns the bytes per user of an algorithm's state without its graph, and how many bits the graph has."""
    state = jax.eval_shape(lambda key: bench.bound[n, name].init(key, bench.envs[n].spec), jax.random.key(0))
    graph = getattr(state, "linked", None)
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    size = graph.size * graph.dtype.itemsize if graph is not None else 0
    return {"bytes": (total - size) / n, "edges": 8 * size}


def judge(bench: Bench, plan: Plan, rows: list[dict[str, Any]], *, judged: bool) -> dict[str, Any]:
    """Returns the targets: name -> value, target, and whether it is met (None unless `judged`)."""
    many = {(row["n_users"], row["algorithm"]): row for row in rows if row["seeds"] == SEEDS[-1]}
    small, middle, large = (list(bench.sizes)[min(i, len(bench.sizes) - 1)] for i in range(3))
    targets = {}

    def add(name: str, value: float, target: float, met: Callable[[float, float], bool]) -> None:
        targets[name] = {"value": value, "target": target, "met": met(value, target) if judged else None}

    for name, authors in AUTHORS[40].items():
        value = many[small, name]["steps_per_second"] / authors
        add(f"{name}, n = {small}: times the authors' speed", value, OVER_AUTHORS, float.__ge__)
    for name in bench.algos:
        value = many[small, name]["steps_per_second"] / many[middle, name]["steps_per_second"]
        add(f"{name}: a step at n = {middle:,} over one at n = {small}", value, OVER_SMALL, float.__le__)
    for name in bench.algos:
        less, more = (memory(bench, n, name) for n in (middle, large))
        value = more["bytes"] / less["bytes"]
        what = f"{name}: bytes a user at n = {large:,} ({more['bytes']:,.0f}) over n = {middle:,}"
        add(what, value, MEMORY, lambda value, target: 1 / target <= value <= target)
        if more["edges"]:
            edges = plan.n_servers * math.ceil(large / plan.n_servers) ** 2
            add(f"{name}: bits of the graph over {edges:,}", more["edges"] / edges, BITS, float.__le__)
    return targets


def report(rows: list[dict[str, Any]], targets: dict[str, Any]) -> str:
    """Returns the table and the targets as text."""
    forms = {
        "algorithm": ("algorithm", "{}"),
        "n_users": ("n", "{:,}"),
        "seeds": ("seeds", "{}"),
        "steps_per_second": ("steps/s", "{:,.0f}"),
        "steps_per_processor_second": ("/cpu s", "{:,.0f}"),
        "compile_seconds": ("compile", "{:.1f} s"),
        "numpy": ("numpy/s", "{:,.0f}"),
        "over_numpy": ("x numpy", "{:.1f}"),
        "authors": ("authors/s", "{:,.0f}"),
        "over_authors": ("x authors", "{:.1f}"),
        "regret": ("regret/t", "{:.4f}"),
        "numpy_regret": ("numpy's", "{:.4f}"),
        "z": ("z", "{:+.1f}"),
    }
    cells = [[head for head, _ in forms.values()]]
    cells += [["-" if row[key] is None else form.format(row[key]) for key, (_, form) in forms.items()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in cells] + [""]
    for name, found in targets.items():
        verdict = {None: "", True: ": met", False: ": NOT MET"}[found["met"]]
        lines.append(f"{name:72} {found['value']:6.2f}   (target {found['target']:g}{verdict})")
    return "\n".join(lines)


def main(
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Compare algorithms, numbers of users and implementations, and print a table.

    Args:
        json: print JSON only: {"rows": [...], "targets": {...}}.
        smoke: use tiny sizes, which take some 20 seconds to compile and show that the benchmark works; the numbers mean
            nothing.
    """
    plan, compilations, started = SMOKE if smoke else REFERENCE, Compilations(), time.perf_counter()
    bench = Bench(plan)
    rows = table(bench, *measure(bench, compilations))
    targets = judge(bench, plan, rows, judged=not smoke)
    if json:
        print(json_format.dumps({"rows": rows, "targets": targets}, indent=1))
    else:
        print(f"L = {plan.n_servers}, m = {plan.n_clusters}, K = {plan.n_arms}, d = {plan.dim}; " + "; ".join(
            f"n = {s.n_users:,}: T = {s.horizon:,}, {s.turns} turns" for s in plan.sizes))  # fmt: skip
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, device {jax.devices()[0].device_kind}, "
              f"jax {jax.__version__}, numpy {np.__version__}, {time.perf_counter() - started:.0f} s\n")  # fmt: skip
        print(report(rows, targets))
    if any(row["z"] is not None and abs(row["z"]) > MAX_Z for row in rows):
        sys.exit("the implementations do not play the same game: see regret and z")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
