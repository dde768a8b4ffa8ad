"""Measures what it costs to decide in every round whether to synchronise: adaptive schedules against a fixed batch.

All play the same environment with 24 seeds in one program; an adaptive schedule synchronises in other rounds in every
seed. The fixed batch is chosen such that it synchronises as often, on average. "Lazy" agents act on released statistics
only and share one estimate. An adaptive schedule needs the log-determinant of every agent, so it is compared with a
fixed batch whose agents learn inside the batch; a lazy private schedule can be compared with a fixed batch of lazy
agents, too.

Compilation is timed separately. The schedules take turns, so that drift of the machine affects all of them; numbers are
medians over the turns, of processor time, which other jobs change less, and of wall-clock time.
"""

from __future__ import annotations

import json as json_format
import os
import sys
import time
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import tyro
from linear import MANY, Compilations

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(100.0, 0.1)  # little noise, so that private runs synchronise about as often as others
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
        "adaptive (logdet, zc24)": fb.algos.fed_lin_ucb(schedule=logdet),
        "FedUCB": fb.algos.fed_ucb(schedule=logdet, exploration=small),
        "FedUCB, every round": fb.algos.fed_ucb(schedule=1),
        "private FedUCB, dp20": fb.algos.fed_ucb(BUDGET, schedule=fb.schedules.LogDet(plan.threshold, "dp20")),
        "private_logdet, lazy": fb.algos.private_fed_lin_ucb(BUDGET, schedule=tested),
        "geometric, lazy": fb.algos.private_fed_lin_ucb(BUDGET, schedule=fb.schedules.Geometric(1.3)),
        "gossip on a ring, gamma = 2": fb.algos.GossipFedUCB(graph=ring, gamma=2, schedule=logdet),
    }


def main(
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Compare the schedules, and print a table.

    Args:
        json: print JSON only: {"rows": [...], "ratio": {...}}.
        smoke: use tiny sizes, which show that the benchmark works; the numbers mean nothing.
    """
    plan = SMOKE if smoke else REFERENCE
    env = fb.envs.sphere(plan.n_agents, plan.n_arms, plan.dim, rewards="bernoulli")
    compilations = Compilations()
    algos, syncs = algorithms(plan), {}

    def seconds(name: str, seed: int) -> np.ndarray:
        started = np.array([time.perf_counter(), time.process_time()])
        result = fb.simulate(
            env,
            algos[name],
            horizon=plan.horizon,
            key=jax.random.key(seed),
            n_seeds=MANY,
            stride=plan.horizon,
            progress=False,
        )
        taken = np.array([time.perf_counter(), time.process_time()]) - started
        syncs[name] = result.communication["rounds"][:, -1]
        return taken

    first = {name: seconds(name, 0) for name in algos}
    batch = max(1, round(plan.horizon / max(1.0, float(syncs["adaptive (logdet, zc24)"].mean()))))
    fixed = {
        "fixed batch": fb.algos.fed_lin_ucb(schedule=batch),
        "fixed batch, lazy": fb.algos.private_fed_lin_ucb(BUDGET, schedule=batch),
    }
    algos |= fixed
    first |= {name: seconds(name, 0) for name in fixed}
    compiled = compilations.count
    turns = [{name: seconds(name, 1 + i) for name in algos} for i in range(plan.turns)]
    if compilations.count > compiled:
        raise RuntimeError(f"{compilations.count - compiled} programs were compiled in timed runs")
    agent_rounds = plan.horizon * plan.n_agents * MANY
    rows: list[dict[str, Any]] = []
    for name in algos:
        wall, processors = np.array([turn[name] for turn in turns]).T
        ratio = float(np.median([turn[name][1] / turn["fixed batch"][1] for turn in turns]))
        rows.append(
            {
                "schedule": name,
                "synchronisations": float(syncs[name].mean()),
                "ns_per_agent_round": float(np.median(wall)) / agent_rounds * 1e9,
                "processor_ns_per_agent_round": float(np.median(processors)) / agent_rounds * 1e9,
                "over_fixed_batch": ratio,
                "compile_seconds": float(first[name][0] - np.median(wall)),
            }
        )
    ratio = rows[0]["over_fixed_batch"]
    verdict = {"value": ratio, "target": TARGET, "met": None if smoke else ratio <= TARGET}
    if json:
        print(json_format.dumps({"rows": rows, "ratio": verdict}, indent=1))
        return
    print(f"{MANY} seeds, " + ", ".join(f"{name} = {value}" for name, value in plan._asdict().items()))
    print(f"{os.cpu_count()} cores, device {jax.devices()[0].device_kind}, jax {jax.__version__}, B = {batch}\n")
    print(f"{'schedule':28} {'syncs':>7} {'ns/ar':>7} {'cpu ns/ar':>9} {'x fixed':>8} {'compile':>8}")
    for row in rows:
        name, synchronised, wall, processors, over, compiling = row.values()
        print(f"{name:28} {synchronised:7.1f} {wall:7.0f} {processors:9.0f} {over:8.2f} {compiling:6.1f} s")
    if not smoke:
        met = "met" if verdict["met"] else "NOT MET"
        print(f"\nadaptive over fixed batch, processor time: {ratio:.2f} (target {TARGET}: {met})")


if __name__ == "__main__":
    sys.exit(tyro.cli(main, description=__doc__))
