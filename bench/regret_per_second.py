"""Measures regret against wall-clock time: the regret of a whole run, and the seconds that it takes.

Every algorithm plays the same users (M = 100 agents, K = 100 arms, d = 10 features, Bernoulli rewards) in a run of its
own of `fb.simulate`, all seeds together. The algorithms are those that are not private, the printed private ones, and
the best certified one that we know for every trust model: noise by a buffered linear Toeplitz matrix (BLT), a projected
Gram matrix, and widths from the law of the noise. Under local noise, batches of 50 rounds are best, otherwise of 25.

The runs take turns, and their median counts, with the work on the host and without compilation. The seconds are those
of all seeds together, so that they compare algorithms; a single seed is not that many times faster.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import measure
import numpy as np
import tyro
from measure import Row, Times, verdict

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(epsilon=1.0, delta=0.1)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of a benchmark."""

    n_agents: int  # M
    n_arms: int  # K
    dim: int  # d
    horizon: int  # T
    seeds: int
    n_records: int  # rounds that are recorded
    repeats: int  # timed runs of every algorithm
    algorithms: int  # how many of them


REFERENCE = Plan(n_agents=100, n_arms=100, dim=10, horizon=2_500, seeds=8, n_records=100, repeats=3, algorithms=99)
SMOKE = Plan(n_agents=5, n_arms=10, dim=4, horizon=200, seeds=2, n_records=20, repeats=2, algorithms=3)


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


def compare(plan: Plan) -> tuple[list[Row], dict[str, Row]]:
    """Times all algorithms; returns rows and ratios."""
    chosen = dict(list(algorithms().items())[: plan.algorithms])
    runs = {label: partial(run, plan, algo) for label, algo in chosen.items()}
    times = measure.in_turns(runs, plan.repeats, measure.Compilations())
    rows = [row(plan, label, taken) for label, taken in times.items()]
    by_label = {row["algorithm"]: row for row in rows}
    base = by_label["FedLinUCB"]
    ratios = {}
    for label in by_label.keys() - {"FedLinUCB"}:
        for what, name in (("seconds", "seconds"), ("regret_per_round", "regret")):
            ratios[f"{label}: {name} over FedLinUCB"] = verdict(by_label[label][what] / base[what])
    return rows, dict(sorted(ratios.items()))


def run(plan: Plan, algo: fb.Algorithm, turn: int) -> fb.Result:
    """Runs an algorithm, with the same key in every turn."""
    env = fb.envs.sphere(plan.n_agents, plan.n_arms, plan.dim, rewards="bernoulli")
    return fb.simulate(
        env,
        algo,
        horizon=plan.horizon,
        key=jax.random.key(0),
        seeds=plan.seeds,
        stride=plan.horizon // plan.n_records,
        progress=False,
    )


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
    rows, ratios = compare(plan)
    title = (
        f"{plan.n_agents} agents, {plan.n_arms} arms, d = {plan.dim}, T = {plan.horizon}, {plan.seeds} seeds, "
        f"Bernoulli rewards, epsilon = {BUDGET.epsilon:g}, delta = {BUDGET.delta:g}"
    )
    measure.output(title, rows, ratios, json=json)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
