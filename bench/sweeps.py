"""Sweeps of many small configurations: the time of the host for each of them, and a whole sweep end to end."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import measure
import numpy as np

import fedbandit_jax as fb

AGENTS, ARMS, DIM, NORMS = 4, 5, 3, 25


class Plan(NamedTuple):
    """Sizes of a sweep over epsilon and 25 widths of Private-FedLinUCB."""

    epsilons: int = 40
    seeds: int = 24
    horizon: int = 200
    turns: int = 3


def sweep(plan: Plan, turn: int, **options: Any) -> None:
    """Runs the sweep once; options replace those of the plan."""
    env = fb.envs.sphere(AGENTS, ARMS, DIM, rewards="bernoulli")
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=10)
    grid = {"epsilon": np.linspace(0.5, 5, plan.epsilons), "policy.theta_norm": np.linspace(0.5, 2, NORMS)}
    asked: dict[str, Any] = dict(horizon=plan.horizon, seeds=plan.seeds, progress=False, throw=False) | options
    fb.sweep(env, [algo], grid=grid, key=jax.random.key(turn), stride=asked["horizon"], **asked)


def speed(plan: Plan, compilations: measure.Compilations) -> list[measure.Row]:
    """Rows of the sweep with one seed and ten rounds, which are the host's time, and of the whole one."""
    n = plan.epsilons * NORMS
    runs = {
        "host": dict(seeds=1, horizon=10),
        "end to end": dict(seeds=plan.seeds, horizon=plan.horizon),
    }
    rows = []
    for what, options in runs.items():
        times = measure.in_turns({what: lambda turn, o=options: sweep(plan, turn, **o)}, plan.turns, compilations)[what]
        seconds = float(np.median(times.wall))
        rounds = AGENTS * n * options["seeds"] * options["horizon"]
        rows.append(
            dict(what=what, configurations=n, **options, seconds=seconds, milliseconds_each=1e3 * seconds / n,
                 cores=times.cores, compile_seconds=times.compiling, agent_rounds_per_second=rounds / seconds)
        )  # fmt: skip
    return rows
