"""Measures regret against wall-clock time: agent-rounds per second, and the regret that is reached after some seconds.

Every algorithm plays the same users (M = 100 agents, K = 100 arms, d = 10 features, Bernoulli rewards) in a run of its
own of `fb.simulate`, all seeds together. The first run compiles and gives the curve. The runs after it are timed, where
algorithms take turns, and their median counts. Every batch runs the same compiled program, so that rounds are mapped to
seconds linearly: round t of T is drawn at t / T of the median seconds of a whole run, with the work on the host and
without compilation. The seconds are those of all seeds together, so the picture compares algorithms; a single seed is
not that many times faster.

The picture shows group regret per round, Reg(t) / t, mean over seeds with two standard errors.
"""

from __future__ import annotations

import dataclasses
import json as json_format
import os
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from matplotlib.figure import Figure

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(epsilon=1.0, delta=0.1)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of a benchmark."""

    n_agents: int  # M
    n_arms: int  # K
    dim: int  # d
    horizon: int  # T
    n_seeds: int
    n_records: int  # rounds at which the curve is recorded
    repeats: int  # timed runs of every algorithm


REFERENCE = Plan(n_agents=100, n_arms=100, dim=10, horizon=2_500, n_seeds=8, n_records=100, repeats=3)
SMOKE = Plan(n_agents=5, n_arms=10, dim=4, horizon=200, n_seeds=2, n_records=20, repeats=2)


def algorithms() -> dict[str, fb.Algorithm]:
    """Returns the algorithms that are timed, by label."""
    theorem = fb.privacy.Mechanism(BUDGET, calibration="theorem")
    return {
        "lin_ucb": fb.algos.LinUCB(),
        "fed_lin_ucb": fb.algos.fed_lin_ucb(),
        "private_fed_lin_ucb, tight": fb.algos.private_fed_lin_ucb(BUDGET),
        "private_fed_lin_ucb, theorem": fb.algos.private_fed_lin_ucb(theorem),
    }


def main(
    out: Path = Path("results/regret_per_second.png"),
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Time the algorithms and draw regret against seconds.

    Args:
        out: file of the picture, whose folder is made if it is missing.
        json: print JSON only: {"rows": [...]}.
        smoke: use tiny sizes, which take some 10 seconds and show that the benchmark works; the rates mean nothing.
    """
    plan = SMOKE if smoke else REFERENCE
    curves = {label: run(plan, algo)[0] for label, algo in algorithms().items()}
    seconds = {label: [] for label in curves}
    for _ in range(plan.repeats):
        for label, algo in algorithms().items():
            seconds[label].append(run(plan, algo)[1])
    rows = [row(plan, label, curves[label], np.array(seconds[label])) for label in curves]
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(plan, curves, {r["algorithm"]: r["seconds"] for r in rows}, out)
    print(json_format.dumps({"rows": rows}, indent=1) if json else report(plan, rows, out))


def run(plan: Plan, algo: fb.Algorithm) -> tuple[fb.Result, float]:
    """Runs an algorithm; returns its result, and the seconds that it took."""
    env = fb.envs.sphere(plan.n_agents, plan.n_arms, plan.dim, rewards="bernoulli")
    started = time.perf_counter()
    result = fb.simulate(
        env,
        algo,
        horizon=plan.horizon,
        key=jax.random.key(0),
        n_seeds=plan.n_seeds,
        stride=plan.horizon // plan.n_records,
        progress=False,
    )
    return result, time.perf_counter() - started


def row(plan: Plan, label: str, result: fb.Result, seconds: np.ndarray) -> dict[str, Any]:
    """Returns one row of the table."""
    final = result.time_average[:, -1]
    median = float(np.median(seconds))
    return {
        "algorithm": label,
        "agent_rounds_per_second": plan.n_agents * plan.horizon * plan.n_seeds / median,
        "seconds": median,
        "seconds_spread": [float(seconds.min()), float(seconds.max())],
        "regret_per_round": float(final.mean()),
        "standard_error": float(final.std(ddof=1) / np.sqrt(len(final))),
        "claim": result.certificate.claim,
    }


def report(plan: Plan, rows: list[dict[str, Any]], out: Path) -> str:
    """Returns the table as text."""
    columns = "{:28}  {:>7}  {:>7}  {:>11}  {:>14}  {:>9}"
    head = "algorithm", "M ar/s", "seconds", "min-max", "Reg(T)/T", "claim"
    lines = [
        f"{plan.n_agents} agents, {plan.n_arms} arms, d = {plan.dim}, T = {plan.horizon}, {plan.n_seeds} seeds, "
        f"Bernoulli rewards, epsilon = {BUDGET.epsilon:g}, delta = {BUDGET.delta:g}",
        f"{os.cpu_count()} cores, device {jax.devices()[0].device_kind}, jax {jax.__version__}; medians of "
        f"{plan.repeats} turns",
        "",
        columns.format(*head),
    ]
    for r in rows:
        lines.append(
            columns.format(
                r["algorithm"],
                f"{r['agent_rounds_per_second'] / 1e6:.3f}",
                f"{r['seconds']:.2f}",
                "{:.2f}-{:.2f}".format(*r["seconds_spread"]),
                f"{r['regret_per_round']:.2f} ± {r['standard_error']:.2f}",
                r["claim"],
            )
        )
    return "\n".join([*lines, "", f"picture: {out}"])


def draw(plan: Plan, curves: dict[str, fb.Result], seconds: dict[str, float], out: Path) -> None:
    """Draws group regret per round, Reg(t) / t, against the wall-clock."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for label, result in curves.items():
        average = result.time_average
        clock = seconds[label] * result.rounds / plan.horizon
        mean, error = average.mean(0), average.std(0, ddof=1) / np.sqrt(len(average))
        (line,) = axes.plot(clock, mean, label=label)
        axes.fill_between(clock, mean - error, mean + error, color=line.get_color(), alpha=0.2, lw=0)
    axes.set(
        xscale="log",
        xlabel=f"seconds, mean ± 1 s.e. of {plan.n_seeds} seeds run together\ntotal time x t/T, without compilation",
        ylabel="group regret per round, Reg(t) / t",
        title=f"M = {plan.n_agents}, K = {plan.n_arms}, d = {plan.dim}, T = {plan.horizon:,}, "
        f"ε = {BUDGET.epsilon:g}, δ = {BUDGET.delta:g}",
    )
    axes.legend()
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
