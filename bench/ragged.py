"""Measures a table whose queries differ much in size, as in MSLR-WEB10K: d = 57, about 170 arms, 908 at most.

`fb.algos.fed_lin_ucb` plays `fb.envs.replay` of random features in two ways: in tiles of the rows that are offered, as
it does by default, and with all queries padded to the largest. Beside it a loop in NumPy and float32 scores the rows
that exist, agent by agent, makes a Sherman-Morrison step, and computes one inverse for all every B rounds. All three
have the same widths. z compares regret with that of the loop.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import baselines
import jax
import jax.numpy as jnp
import measure
import numpy as np
import tyro
from measure import Row, verdict

import fedbandit_jax as fb

TILES, PADDED, LOOP = "tiles", "padded", "NumPy loop"


class Plan(NamedTuple):
    """Sizes of a benchmark."""

    n_agents: int  # M
    dim: int  # d
    n_queries: int
    horizon: int  # T
    batch: int  # B
    seeds: int  # of the runs in tiles and padded
    loop_seeds: int  # of the loop
    turns: int  # timed runs of everything


REFERENCE = Plan(n_agents=10, dim=57, n_queries=400, horizon=500, batch=25, seeds=8, loop_seeds=2, turns=5)
SMOKE = Plan(n_agents=2, dim=22, n_queries=10, horizon=20, batch=5, seeds=2, loop_seeds=2, turns=2)


class Table(NamedTuple):
    """Features of all queries, one below the other."""

    features: np.ndarray  # (N, d)
    sizes: np.ndarray  # (Q,) rows of each query
    theta: np.ndarray  # (d,)


def make_table(plan: Plan) -> Table:
    """Returns unit vectors in queries of 20 to 300 rows, one of them of 908."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(20, 301, plan.n_queries)
    sizes[len(sizes) // 2] = 908
    x = rng.standard_normal((sizes.sum() + 1, plan.dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return Table(x[1:], sizes, x[0])


def numpy_loop(plan: Plan, table: Table, env: fb.Environment, seed: int) -> float:
    """Plays federated LinUCB on the rows that exist; returns the regret of a run."""
    policy: Any = fb.algos.fed_lin_ucb(schedule=plan.batch).bind(env.spec, plan.horizon).policy
    beta = np.asarray(policy.width(jnp.arange(plan.horizon)), np.float32)
    rng, ends = np.random.default_rng(seed), np.cumsum(table.sizes)
    blocks = np.arange(plan.n_agents + 1) * plan.n_queries // plan.n_agents

    def offered(i: int) -> np.ndarray:
        query = rng.integers(blocks[i], blocks[i + 1])
        return table.features[ends[query] - table.sizes[query] : ends[query]]

    constants = plan.n_agents, plan.batch, 0.5, float(policy.regularization)
    return baselines.loop(rng, offered, table.theta, beta, *constants).sum()


def compare(plan: Plan, *, judged: bool) -> tuple[list[Row], dict[str, Row]]:
    """Measures all three; returns a row for each, and how many times faster tiles are than the others."""
    table = make_table(plan)
    env = fb.envs.replay(*table, n_agents=plan.n_agents)
    padded = dataclasses.replace(env, ragged=False)
    algo = fb.algos.fed_lin_ucb(schedule=plan.batch)

    def ours(env: fb.Environment, turn: int, n_seeds: int) -> list[float]:
        options: dict[str, Any] = dict(horizon=plan.horizon, seeds=n_seeds, stride=plan.horizon, progress=False)
        return list(fb.simulate(env, algo, key=jax.random.key(turn), **options).regret[:, -1])

    def loop(turn: int) -> list[float]:
        return [numpy_loop(plan, table, env, 1000 * turn + seed) for seed in range(plan.loop_seeds)]

    runs = {
        (TILES, plan.seeds): lambda turn: ours(env, turn, plan.seeds),
        (TILES, 1): lambda turn: ours(env, turn, 1),
        (PADDED, plan.seeds): lambda turn: ours(padded, turn, plan.seeds),
        (PADDED, 1): lambda turn: ours(padded, turn, 1),
        (LOOP, plan.loop_seeds): loop,
    }
    times = measure.in_turns(runs, plan.turns, measure.Compilations())
    times = {name: taken.each(plan.horizon * plan.n_agents * name[1]) for name, taken in times.items()}
    regrets = {name: np.concatenate(taken.results) for name, taken in times.items()}
    reference = regrets[LOOP, plan.loop_seeds]
    rows = [
        {
            "way": way,
            "seeds": n_seeds,
            "microseconds": float(np.median(taken.wall)) * 1e6,
            "processor_microseconds": float(np.median(taken.processors)) * 1e6,
            "regret": float(np.mean(regrets[way, n_seeds])),
            "z": _z(regrets[way, n_seeds], reference) if way != LOOP else None,
        }
        for (way, n_seeds), taken in times.items()
    ]
    ratios = {
        f"tiles over {way}, rate, {n_seeds} of our seeds": verdict(
            measure.speed_over(times[TILES, n_seeds], times[other]), judged=judged
        )
        for n_seeds in (plan.seeds, 1)
        for way, other in (("padded", (PADDED, n_seeds)), ("a NumPy loop", (LOOP, plan.loop_seeds)))
    }
    return rows, ratios


def _z(one: np.ndarray, other: np.ndarray) -> float:
    """Returns by how many standard errors two means differ."""
    return float((one.mean() - other.mean()) / np.sqrt(sum(x.var(ddof=1) / len(x) for x in (one, other))))


def main(json: measure.Flag = False, smoke: measure.Flag = False) -> None:
    """Compare the three, and print a table; times are those of an agent-round.

    Args:
        json: print JSON only: {"machine": {...}, "rows": [...], "ratios": {...}}.
        smoke: use tiny sizes, which show that the benchmark works; the numbers mean nothing.
    """
    plan = SMOKE if smoke else REFERENCE
    rows, ratios = compare(plan, judged=not smoke)
    sizes = ", ".join(f"{name} = {value}" for name, value in plan._asdict().items())
    measure.output(f"{sizes}; microseconds per agent-round", rows, ratios, json=json)
    if not smoke:
        measure.check_laws(rows)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
