"""Measures the cost of deciding in every round whether to synchronise: adaptive schedules against a fixed batch.

All play the same environment with 24 seeds in one program; an adaptive schedule synchronises in other rounds in every
seed. The fixed batch is chosen such that it synchronises as often, on average. "Lazy" agents act on released statistics
only and share one estimate. An adaptive schedule needs the log-determinant of every agent, so it is compared with a
fixed batch whose agents learn inside the batch; a lazy private schedule can be compared with a fixed batch of lazy
agents, too.

The schedules take turns; numbers are medians over the turns, of processor time, which other jobs change less, and of
wall-clock time.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import measure
import numpy as np
import tyro
from linear import MANY
from measure import Row, verdict

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(100.0, 0.1)  # little noise, so that private runs synchronise about as often as others
ADAPTIVE, FIXED = "adaptive (logdet, zc24)", "fixed batch"
TARGET = 1.25  # wanted: processor time over that of a fixed batch with as many synchronisations


class Plan(NamedTuple):
    """Sizes of a benchmark."""

    n_agents: int  # M
    n_arms: int  # K
    dim: int  # d
    horizon: int  # T
    threshold: float  # D of the adaptive schedules
    turns: int  # timed runs of everything


REFERENCE = Plan(100, 100, 10, 1000, 30.0, 5)
SMOKE = Plan(8, 10, 4, 60, 10.0, 2)


def algorithms(plan: Plan) -> dict[str, fb.Algorithm]:
    """Returns the algorithms that are timed, by name; fixed batches are added once the others have been counted."""
    logdet = fb.schedules.LogDet(plan.threshold)
    tested = fb.schedules.PrivateLogDet(plan.threshold, max_syncs=64)
    ring = fb.networks.make("ring", plan.n_agents)
    small = fb.algos.LogDetUCB(regularization=1 / plan.n_agents)
    return {
        ADAPTIVE: fb.algos.fed_lin_ucb(schedule=logdet),
        "FedUCB": fb.algos.fed_ucb(schedule=logdet, policy=small),
        "FedUCB, every round": fb.algos.fed_ucb(schedule=1),
        "private FedUCB, dp20": fb.algos.fed_ucb(BUDGET, schedule=fb.schedules.LogDet(plan.threshold, "dp20")),
        "private_logdet, lazy": fb.algos.private_fed_lin_ucb(BUDGET, schedule=tested),
        "geometric, lazy": fb.algos.private_fed_lin_ucb(BUDGET, schedule=fb.schedules.Geometric(1.3)),
        "gossip on a ring, gamma = 2": fb.algos.GossipFedUCB(graph=ring, gamma=2, schedule=logdet),
    }


def compare(plan: Plan, *, judged: bool) -> tuple[list[Row], dict[str, Row]]:
    """Measures all schedules; returns a row for each, and the ratio that has a target."""
    env = fb.envs.sphere(plan.n_agents, plan.n_arms, plan.dim, rewards="bernoulli")
    algos = algorithms(plan)

    def synchronisations(name: str, seed: int) -> float:
        options: dict[str, Any] = dict(horizon=plan.horizon, seeds=MANY, stride=plan.horizon, progress=False)
        result = fb.simulate(env, algos[name], key=jax.random.key(seed), **options)
        return float(result.communication["rounds"][:, -1].mean())

    (first, _), found = measure.timed(lambda: synchronisations(ADAPTIVE, 0))
    batch = max(1, round(plan.horizon / max(1.0, found)))
    fixed = fb.algos.fed_lin_ucb(schedule=batch)
    algos |= {FIXED: fixed, "fixed batch, lazy": fb.algos.private_fed_lin_ucb(BUDGET, schedule=batch)}
    runs = {name: partial(synchronisations, name) for name in algos}
    times = measure.in_turns(runs, plan.turns, measure.Compilations())
    times[ADAPTIVE] = times[ADAPTIVE]._replace(compiling=float(first - np.median(times[ADAPTIVE].wall)))
    agent_rounds = plan.horizon * plan.n_agents * MANY
    rows = [
        {
            "schedule": name,
            "synchronisations": float(np.mean(taken.results)),
            "ns": float(np.median(taken.wall)) / agent_rounds * 1e9,
            "processor_ns": float(np.median(taken.processors)) / agent_rounds * 1e9,
            "over_fixed_batch": float(np.median(taken.processors / times[FIXED].processors)),
            "compile_seconds": taken.compiling,
        }
        for name, taken in times.items()
    ]
    (ratio,) = (row["over_fixed_batch"] for row in rows if row["schedule"] == ADAPTIVE)
    return rows, {"adaptive over fixed batch, processor time": verdict(ratio, most=TARGET, judged=judged)}


def main(json: measure.Flag = False, smoke: measure.Flag = False) -> None:
    """Compare the schedules, and print a table.

    Args:
        json: print JSON only: {"machine": {...}, "rows": [...], "ratios": {...}}.
        smoke: use tiny sizes, which show that the benchmark works; the numbers mean nothing.
    """
    plan = SMOKE if smoke else REFERENCE
    rows, ratios = compare(plan, judged=not smoke)
    sizes = ", ".join(f"{name} = {value}" for name, value in plan._asdict().items())
    measure.output(f"{MANY} seeds, {sizes}; ns per agent-round", rows, ratios, json=json)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
