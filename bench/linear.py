"""Measures agent-rounds per second of federated LinUCB: this library against NumPy and straightforward JAX.

One agent that plays one round is one agent-round (ar): K feature vectors are drawn or looked up and scored with their
bonus, the best one is played, the reward is drawn, the agent learns, and the regret is recorded. Every B rounds, all
agents are synchronised by one inverse. Mode A draws fresh contexts every round, mode B keeps them fixed. Our library is
timed through `fb.simulate`, all its work on the host included.

Compilation is timed separately, and a timed run that compiles is an error. The implementations take turns, so that
drift of the machine affects all of them; rates are medians over the turns, ratios are medians of the ratios within a
turn. `cores` is processor time over wall-clock time: in mode A JAX keeps all cores busy, unless something else was
running.

Every implementation also plays the same short run over several seeds. Their mean regrets per agent-round must agree
within 4 standard errors, or the exit code is 1: a baseline that does less work would be noticed.
"""

from __future__ import annotations

import dataclasses
import json as json_format
import os
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import baselines
import jax
import numpy as np
import tyro
from baselines import Problem

import fedbandit_jax as fb

MANY = 24  # seeds of the batched runs
MAX_Z = 4.0  # most standard errors between mean regrets
TARGETS = {"A": {1: 3.0, MANY: 4.0}, "B": {1: 5.0, MANY: 5.0}}  # mode -> seeds -> speed over numpy_vectorised

Run = Callable[[Problem, int, int], np.ndarray]  # (problem, seed, n_seeds) -> mean regret of a round, (n_seeds,)
Key = tuple[str, int]  # implementation, seeds


def numpy_loop(p: Problem, seed: int, n_seeds: int) -> np.ndarray:
    return np.array([baselines.numpy_loop(p, 1000 * seed + i).mean() for i in range(n_seeds)])


def numpy_vectorised(p: Problem, seed: int, n_seeds: int) -> np.ndarray:
    return np.array([baselines.numpy_vectorised(p, 1000 * seed + i).mean() for i in range(n_seeds)])


def jax_straightforward(p: Problem, seed: int, n_seeds: int) -> np.ndarray:
    regret = baselines.jax_straightforward(p, jax.random.split(jax.random.key(seed), n_seeds))
    return np.asarray(jax.block_until_ready(regret)).mean(axis=1)


def fedbandit_jax(p: Problem, seed: int, n_seeds: int) -> np.ndarray:
    horizon = len(p.beta)
    result = fb.simulate(
        p.env(),
        p.algo(),
        horizon=horizon,
        key=jax.random.key(seed),
        n_seeds=n_seeds,
        stride=horizon,
        progress=False,
    )
    return result.regret[:, -1] / horizon


IMPLEMENTATIONS: dict[str, Run] = {
    run.__name__: run for run in (numpy_loop, numpy_vectorised, jax_straightforward, fedbandit_jax)
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of a benchmark."""

    shape: dict[str, int]  # agents, arms, features, and rounds in a batch
    law_horizon: int  # rounds of the short run whose regrets are compared
    law_seeds: int  # seeds of that run
    repeats: int  # timed runs of everything
    batches: dict[Key, int]  # batches in a timed run

    def problem(self, mode: str, horizon: int) -> Problem:
        return baselines.problem(**self.shape, fixed=mode == "B", horizon=horizon)

    def rounds(self, key: Key) -> int:
        return self.shape["batch"] * self.batches[key]


REFERENCE = Plan(
    shape=dict(n_agents=100, n_arms=100, dim=10, batch=25),
    law_horizon=100,
    law_seeds=16,
    repeats=7,
    batches={
        ("numpy_loop", 1): 2,
        ("numpy_vectorised", 1): 10,
        ("jax_straightforward", 1): 10,
        ("jax_straightforward", MANY): 2,
        ("fedbandit_jax", 1): 200,
        ("fedbandit_jax", MANY): 20,
    },
)
SMOKE = Plan(
    shape=dict(n_agents=8, n_arms=10, dim=4, batch=5),
    law_horizon=20,
    law_seeds=MANY,  # as in the timed runs, so that no other program is compiled
    repeats=3,
    batches=dict.fromkeys(REFERENCE.batches, 4),
)


class Compilations:
    """Counts the programs that XLA compiles in this process."""

    def __init__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        self.count += event == "/jax/core/compile/backend_compile_duration"


def main(
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Compare the implementations, and print a table and ratios.

    Args:
        json: print JSON only: {"rows": [...], "ratios": {...}}.
        smoke: use tiny sizes, which take some 15 seconds and show that the benchmark works; the rates mean nothing.
    """
    plan = SMOKE if smoke else REFERENCE
    compilations = Compilations()
    rows: list[dict[str, Any]] = []
    ratios: dict[str, Any] = {}
    for mode in "AB":
        times, compiling = measure_times(plan, mode, compilations)
        laws = measure_laws(plan, mode)
        rows += [row(plan, mode, key, times[key], compiling[key], laws) for key in times]
        ratios |= compare(mode, times, judged=not smoke)
    if json:
        print(json_format.dumps({"rows": rows, "ratios": ratios}, indent=1))
    else:
        print(report(plan, rows, ratios))
    if any(abs(r["z"]) > MAX_Z for r in rows):
        sys.exit("the implementations do not play the same game: see regret/ar and z")


def measure_times(plan: Plan, mode: str, compilations: Compilations):
    """Returns seconds per agent-round by the wall-clock and of all processors, (2, repeats), and of compilation."""
    problems = {key: plan.problem(mode, plan.rounds(key)) for key in plan.batches}

    def seconds(key: Key, seed: int) -> np.ndarray:
        name, n_seeds = key
        started = np.array([time.perf_counter(), time.process_time()])
        IMPLEMENTATIONS[name](problems[key], seed, n_seeds)
        return np.array([time.perf_counter(), time.process_time()]) - started

    first = {key: seconds(key, 0) for key in problems}
    compiled = compilations.count
    turns = [{key: seconds(key, 1 + i) for key in problems} for i in range(plan.repeats)]
    if compilations.count > compiled:
        raise RuntimeError(f"mode {mode}: {compilations.count - compiled} programs were compiled in timed runs")
    times: dict[Key, np.ndarray] = {}
    compiling: dict[Key, float | None] = {}
    for (name, n_seeds), p in problems.items():
        per_run = np.stack([turn[name, n_seeds] for turn in turns], axis=1)
        times[name, n_seeds] = per_run / (len(p.beta) * p.n_agents * n_seeds)
        extra = float(first[name, n_seeds][0] - np.median(per_run[0]))
        compiling[name, n_seeds] = None if name.startswith("numpy") else extra
    return times, compiling


def measure_laws(plan: Plan, mode: str) -> dict[str, tuple[float, float]]:
    """Returns the mean regret per agent-round of a common short run, and its standard error, by implementation."""
    p = plan.problem(mode, plan.law_horizon)
    laws = {}
    for name, run in IMPLEMENTATIONS.items():
        regret = run(p, 0, plan.law_seeds) / p.n_agents
        laws[name] = float(regret.mean()), float(regret.std(ddof=1) / np.sqrt(len(regret)))
    return laws


def row(plan: Plan, mode: str, key: Key, times: np.ndarray, compiling: float | None, laws) -> dict[str, Any]:
    """Returns one row of the table."""
    name, n_seeds = key
    mean, error = laws[name]
    our_mean, our_error = laws["fedbandit_jax"]
    wall, processors = times
    rates = 1 / wall
    return {
        "mode": mode,
        "implementation": name,
        "seeds": n_seeds,
        "rounds": plan.rounds(key),
        "agent_rounds_per_second": float(np.median(rates)),
        "slowest": float(rates.min()),
        "fastest": float(rates.max()),
        "cores": float(processors.sum() / wall.sum()),
        "compile_seconds": compiling,
        "regret_per_agent_round": mean,
        "standard_error": error,
        "z": 0.0 if name == "fedbandit_jax" else (mean - our_mean) / float(np.hypot(error, our_error)),
    }


def compare(mode: str, times: dict[Key, np.ndarray], *, judged: bool) -> dict[str, Any]:
    """Returns how many times faster ours is than each of the others.

    NumPy plays seeds one after the other, so that its rate for many seeds is that of one.
    """
    ratios = {}
    for n_seeds in (1, MANY):
        for other in ("numpy_vectorised", "numpy_loop", "jax_straightforward"):
            theirs = times.get((other, n_seeds), times[other, 1])[0]
            value = float(np.median(theirs / times["fedbandit_jax", n_seeds][0]))
            target = TARGETS[mode][n_seeds] if judged and other == "numpy_vectorised" else None
            ratios[f"{mode}, {n_seeds} seed{'s'[: n_seeds > 1]}: fedbandit_jax / {other}"] = {
                "value": value,
                "target": target,
                "met": None if target is None else value >= target,
            }
    return ratios


def report(plan: Plan, rows: list[dict[str, Any]], ratios: dict[str, Any]) -> str:
    """Returns the table and the ratios as text."""
    columns = "{:4}  {:19}  {:>5}  {:>6}  {:>7}  {:>15}  {:>7}  {:>5}  {:>7}  {:>16}  {:>4}"
    head = "mode", "implementation", "seeds", "rounds", "M ar/s", "slowest-fastest", "ns/ar", "cores", "compile"
    lines = [
        ", ".join(f"{name}={value}" for name, value in plan.shape.items()) + ", Gaussian rewards",
        f"{os.cpu_count()} cores, device {jax.devices()[0].device_kind}, jax {jax.__version__}, "
        f"numpy {np.__version__}; medians of {plan.repeats} turns",
        f"regret/ar: {plan.law_horizon} rounds, mean and standard error of {plan.law_seeds} seeds; z: against ours",
        "",
        columns.format(*head, "regret/ar", "z"),
    ]
    for r in rows:
        rate = r["agent_rounds_per_second"]
        lines.append(
            columns.format(
                r["mode"],
                r["implementation"],
                r["seeds"],
                r["rounds"],
                f"{rate / 1e6:.3f}",
                f"{r['slowest'] / 1e6:.3f}-{r['fastest'] / 1e6:.3f}",
                f"{1e9 / rate:.0f}",
                f"{r['cores']:.1f}",
                "-" if r["compile_seconds"] is None else f"{r['compile_seconds']:.1f} s",
                f"{r['regret_per_agent_round']:.4f} ± {r['standard_error']:.4f}",
                f"{r['z']:+.1f}",
            )
        )
    lines += ["", f"Ratios. NumPy plays seeds one by one: with {MANY} seeds, ours is divided by NumPy's rate of one."]
    for name, ratio in ratios.items():
        verdict = {None: "", True: "met", False: "NOT MET"}[ratio["met"]]
        target = "" if ratio["target"] is None else f"   target {ratio['target']:.0f}x: {verdict}"
        lines.append(f"{name:51}  {ratio['value']:6.1f}x{target}")
    return "\n".join(lines)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
