"""Agent-rounds per second of federated LinUCB: this library against NumPy and straightforward JAX.

One agent playing one round is one agent-round (ar): draw or look up K feature vectors, score them with their bonus, play
the best, draw the reward, learn, record the regret; every B rounds, synchronise all agents with one inverse. Mode A draws
fresh contexts every round, mode B keeps them fixed. Ours is timed through `fb.simulate`, all host work included.

Compilation is timed apart, and a timed run that compiles is an error. The implementations take turns, so that drift of
the machine hits all of them; rates are medians over the turns, ratios are medians of the ratios within a turn.

Before that, every implementation plays the same short run over several seeds. Their mean regrets per agent-round must
agree within 4 standard errors, or the exit code is 1: a baseline that does less work would be noticed.
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
MAX_Z = 4.0
TARGETS = {  # mode -> seeds -> times numpy_vectorised
    "A": {1: 3.0, MANY: 4.0},
    "B": {1: 5.0, MANY: 5.0},
}


def numpy_loop(p: Problem, seed: int, n_seeds: int) -> np.ndarray:
    return np.stack([baselines.numpy_loop(p, 1000 * seed + i).mean() for i in range(n_seeds)])


def numpy_vectorised(p: Problem, seed: int, n_seeds: int) -> np.ndarray:
    return np.stack([baselines.numpy_vectorised(p, 1000 * seed + i).mean() for i in range(n_seeds)])


def jax_straightforward(p: Problem, seed: int, n_seeds: int) -> np.ndarray:
    regret = baselines.jax_straightforward(p, jax.random.split(jax.random.key(seed), n_seeds))
    return np.asarray(jax.block_until_ready(regret)).mean(axis=1)


def fedbandit_jax(p: Problem, seed: int, n_seeds: int) -> np.ndarray:
    horizon = len(p.beta)
    key = jax.random.key(seed)
    result = fb.simulate(
        p.env(), p.algo(), horizon=horizon, key=key, n_seeds=n_seeds, stride=horizon, progress=False
    )
    return result.regret[:, -1] / horizon


# All return the mean regret of a round, (n_seeds,).
IMPLEMENTATIONS: tuple[Callable[[Problem, int, int], np.ndarray], ...] = (
    numpy_loop,
    numpy_vectorised,
    jax_straightforward,
    fedbandit_jax,
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of a benchmark."""

    shape: dict[str, int]
    law_horizon: int
    law_seeds: int
    repeats: int
    batches: dict[tuple[str, int], int]  # (implementation, seeds) -> batches in a timed run

    def problem(self, mode: str, horizon: int) -> Problem:
        return baselines.problem(**self.shape, fixed=mode == "B", horizon=horizon)


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
        ("fedbandit_jax", 1): 100,
        ("fedbandit_jax", MANY): 20,
    },
)
SMOKE = Plan(
    shape=dict(n_agents=8, n_arms=10, dim=4, batch=5),
    law_horizon=20,
    law_seeds=16,
    repeats=3,
    batches=dict.fromkeys(REFERENCE.batches, 4),
)


class Compilations:
    """Counts what XLA compiles in this process."""

    def __init__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration: float, **_: Any) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"


def main(
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Compare the implementations.

    Args:
        json: print only {"rows": [...], "ratios": {...}} on standard output.
        smoke: tiny sizes, a few seconds: shows that the benchmark runs, its rates mean nothing.
    """
    plan = SMOKE if smoke else REFERENCE
    compilations = Compilations()
    rows, ratios = [], {}
    for mode in "AB":
        laws = measure_laws(plan, mode)
        times, compiling = measure_times(plan, mode, compilations)
        rows += [row(plan, mode, *key, times[key], compiling[key], laws) for key in times]
        ratios |= compare(plan, mode, times, judged=not smoke)
    if json:
        print(json_format.dumps({"rows": rows, "ratios": ratios}, indent=1))
    else:
        print(report(plan, rows, ratios))
    if any(abs(r["z"]) > MAX_Z for r in rows):
        sys.exit("the implementations do not play the same game: see regret/ar and z")


def measure_laws(plan: Plan, mode: str) -> dict[str, tuple[float, float]]:
    """Mean regret per agent-round of a common short run, and its standard error."""
    p = plan.problem(mode, plan.law_horizon)
    laws = {}
    for run in IMPLEMENTATIONS:
        regret = run(p, 0, plan.law_seeds) / p.n_agents
        laws[run.__name__] = float(regret.mean()), float(regret.std(ddof=1) / np.sqrt(len(regret)))
    return laws


def measure_times(plan: Plan, mode: str, compilations: Compilations):
    """Seconds per agent-round, (repeats,), and seconds of compilation, per (implementation, seeds)."""
    runs = {
        (run.__name__, seeds): (run, plan.problem(mode, plan.shape["batch"] * n_batches), seeds)
        for run in IMPLEMENTATIONS
        for (name, seeds), n_batches in plan.batches.items()
        if name == run.__name__
    }
    first = {key: _seconds(*run, seed=0) for key, run in runs.items()}
    compiled = compilations.count
    turns = [{key: _seconds(*run, seed=1 + i) for key, run in runs.items()} for i in range(plan.repeats)]
    if compilations.count > compiled:
        raise RuntimeError(f"{compilations.count - compiled} programs were compiled in timed runs of mode {mode}")
    times, compiling = {}, {}
    for key, (_, p, seeds) in runs.items():
        seconds = np.array([turn[key] for turn in turns])
        times[key] = seconds / (len(p.beta) * p.n_agents * seeds)
        compiling[key] = None if key[0].startswith("numpy") else float(first[key] - np.median(seconds))
    return times, compiling


def _seconds(run: Callable, p: Problem, n_seeds: int, *, seed: int) -> float:
    started = time.perf_counter()
    run(p, seed, n_seeds)
    return time.perf_counter() - started


def row(plan: Plan, mode: str, name: str, seeds: int, times: np.ndarray, compiling: float | None, laws) -> dict[str, Any]:
    """One line of the table."""
    mean, error = laws[name]
    our_mean, our_error = laws["fedbandit_jax"]
    rates = 1 / times
    return {
        "mode": mode,
        "implementation": name,
        "seeds": seeds,
        "rounds": plan.shape["batch"] * plan.batches[name, seeds],
        "agent_rounds_per_second": float(np.median(rates)),
        "slowest": float(rates.min()),
        "fastest": float(rates.max()),
        "compile_seconds": compiling,
        "regret_per_agent_round": mean,
        "standard_error": error,
        "z": 0.0 if name == "fedbandit_jax" else (mean - our_mean) / float(np.hypot(error, our_error)),
    }


def compare(plan: Plan, mode: str, times: dict[tuple[str, int], np.ndarray], *, judged: bool) -> dict[str, Any]:
    """How many times faster ours is. NumPy plays seeds one after the other: its rate is that of one seed."""
    ratios = {}
    for seeds in (1, MANY):
        for other in ("numpy_vectorised", "numpy_loop", "jax_straightforward"):
            theirs = times.get((other, seeds), times[other, 1])
            value = float(np.median(theirs / times["fedbandit_jax", seeds]))
            target = TARGETS[mode][seeds] if judged and other == "numpy_vectorised" else None
            ratios[f"{mode}, {seeds} seed{'s'[: seeds > 1]}: fedbandit_jax / {other}"] = {
                "value": value,
                "target": target,
                "met": None if target is None else value >= target,
            }
    return ratios


def report(plan: Plan, rows: list[dict[str, Any]], ratios: dict[str, Any]) -> str:
    """The table and the ratios, for reading."""
    shape = ", ".join(f"{name}={value}" for name, value in plan.shape.items())
    device = jax.devices()[0]
    lines = [
        f"{shape}, Gaussian rewards; {os.cpu_count()} cores, {device.device_kind}, jax {jax.__version__}, numpy "
        f"{np.__version__}",
        f"medians of {plan.repeats} turns; regret/ar: {plan.law_horizon} rounds, {plan.law_seeds} seeds, z against ours",
        "",
        f"{'mode':4}  {'implementation':19}  {'seeds':>5}  {'M ar/s':>7}  {'slowest-fastest':>15}  {'ns/ar':>7}  "
        f"{'compile':>7}  {'regret/ar':>16}  {'z':>4}",
    ]
    for r in rows:
        compiling = "-" if r["compile_seconds"] is None else f"{r['compile_seconds']:.1f} s"
        spread = f"{r['slowest'] / 1e6:.3f}-{r['fastest'] / 1e6:.3f}"
        lines.append(
            f"{r['mode']:4}  {r['implementation']:19}  {r['seeds']:5}  {r['agent_rounds_per_second'] / 1e6:7.3f}  {spread:>15}  "
            f"{1e9 / r['agent_rounds_per_second']:7.0f}  {compiling:>7}  "
            f"{r['regret_per_agent_round']:.4f} +- {r['standard_error']:.4f}  {r['z']:+4.1f}"
        )
    lines += ["", f"Ratios; those of {MANY} seeds use NumPy's rate of one seed, since NumPy plays seeds one by one:"]
    for name, ratio in ratios.items():
        verdict = "" if ratio["met"] is None else f"   target {ratio['target']:.0f}x: {'met' if ratio['met'] else 'NOT MET'}"
        lines.append(f"{name:51}  {ratio['value']:6.1f}x{verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
