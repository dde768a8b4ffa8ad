"""Measures regret against wall-clock time: the regret of a whole run, and the seconds that it takes.

Every algorithm plays the same users (M = 100 agents, K = 100 arms, d = 10 features, Bernoulli rewards) in a run of its
own of `fb.simulate`, all seeds together. The algorithms are those that are not private, the printed private ones, and
the best certified one that we know for every trust model: noise by a buffered linear Toeplitz matrix (BLT), a projected
Gram matrix, and widths from the law of the noise. Under local noise, batches of 50 rounds are best, otherwise of 25.

The runs take turns, and their median counts, with the work on the host and without compilation. The seconds are those
of all seeds together, so that they compare algorithms; a single seed is not that many times faster.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import measure
import numpy as np
import tyro
from measure import Row, Times

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(1.0, 0.1)


class Plan(NamedTuple):
    """Sizes of a benchmark."""

    n_agents: int  # M
    n_arms: int  # K
    dim: int  # d
    horizon: int  # T
    seeds: int
    turns: int  # timed runs of every algorithm
    algorithms: int | None  # how many of them; None: all


REFERENCE = Plan(100, 100, 10, 2_500, 8, 3, None)
SMOKE = Plan(5, 10, 4, 200, 2, 2, 3)


def algorithms() -> dict[str, fb.Algorithm]:
    """Returns the algorithms that are timed, by label."""
    private = fb.algos.private_fed_lin_ucb
    best = fb.algos.UCB(regularizer="project", confidence="known_noise")

    def certified(trust: str, batch: int) -> fb.Algorithm:
        return private(fb.privacy.Mechanism(BUDGET, "blt", trust), policy=best, schedule=batch)

    return {
        "FedLinUCB": fb.algos.fed_lin_ucb(),
        "as printed (tree, Theorem 5.1)": private(
            fb.privacy.Mechanism(BUDGET, std="theorem_5_1"), learns_in_batch=True
        ),
        "BLT, secure aggregation": certified("secagg", 25),
        "LinUCB, alone": fb.algos.LinUCB(),
        "tree, exact noise": private(BUDGET),
        "BLT, noise at every silo": certified("silo_local", 50),
        "BLT, trusted server": certified("central", 25),
    }


def run(plan: Plan, algo: fb.Algorithm, turn: int) -> fb.Result:
    """Runs an algorithm, with the same key in every turn, and records a hundred rounds."""
    env = fb.envs.sphere(plan.n_agents, plan.n_arms, plan.dim, rewards="bernoulli")
    options: dict[str, Any] = dict(horizon=plan.horizon, seeds=plan.seeds, stride=plan.horizon // 100, progress=False)
    return fb.simulate(env, algo, key=jax.random.key(0), **options)


def row(plan: Plan, label: str, times: Times) -> Row:
    """Returns one row of the table."""
    result = times.results[0]
    final, seconds = result.time_average[:, -1], float(np.median(times.wall))
    return {
        "algorithm": label,
        "agent_rounds_per_second": plan.n_agents * plan.horizon * plan.seeds / seconds,
        "seconds": seconds,
        "fastest": float(times.wall.min()),
        "slowest": float(times.wall.max()),
        "regret_per_round": float(final.mean()),
        "standard_error": float(final.std(ddof=1) / np.sqrt(len(final))),
        "claim": result.certificate.claim,
    }


def main(json: measure.Flag = False, smoke: measure.Flag = False) -> None:
    """Time the algorithms, and print their regret beside their seconds.

    Args:
        json: print JSON only: {"machine": {...}, "rows": [...], "ratios": {...}}.
        smoke: three algorithms at tiny sizes, to see that the benchmark works; the rates mean nothing.
    """
    plan = SMOKE if smoke else REFERENCE
    runs = {label: partial(run, plan, algo) for label, algo in list(algorithms().items())[: plan.algorithms]}
    times = measure.in_turns(runs, plan.turns, measure.Compilations())
    title = f"M = {plan.n_agents}, K = {plan.n_arms}, d = {plan.dim}, T = {plan.horizon}, {plan.seeds} seeds, "
    title += f"Bernoulli rewards, epsilon = 1, delta = 0.1; medians of {plan.turns} turns"
    measure.output(title, [row(plan, label, taken) for label, taken in times.items()], {}, json=json)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
