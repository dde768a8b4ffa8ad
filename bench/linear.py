"""Measures agent-rounds per second of federated LinUCB, for `run.py`: this library against NumPy, plain JAX and C.

One agent that plays one round is one agent-round (ar): K feature vectors are drawn or looked up and scored with their
bonus, the best one is played, the reward is drawn, the agent learns, and the regret is recorded. Every B rounds, all
agents are synchronised by one inverse. Mode A draws fresh contexts every round, mode B keeps them fixed. Our library is
timed through `fb.simulate`, all its work on the host included.

The implementations take turns; rates are medians over the turns, ratios are medians of the ratios within a turn.
`cores` is processor time over wall-clock time: in mode A JAX keeps all cores busy, unless something else was running.
The C reference is the arithmetic of an agent-round alone, without learning, on all cores: a limit, not a competitor.

Every implementation that learns also plays the same short run over several seeds. Their mean regrets per agent-round
must agree within 4 standard errors: a baseline that does less work would be noticed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import baselines
import jax
import measure
import numpy as np
import reference
from baselines import Problem
from measure import Compilations, Row, Times, verdict

import fedbandit_jax as fb

MANY = 24  # seeds of the batched runs
TARGETS = {  # mode -> other implementation -> least speed of ours, with many seeds, over the other's
    "A": {"numpy_vectorised": 20.0, "c_reference": 0.6},
    "B": {"numpy_vectorised": 15.0, "c_reference": 0.3},
}
ONE_SEED = {"A": 0.7, "B": 0.55}  # least speed with one seed over that with many

Run = Callable[[Problem, int, int], Any]  # (problem, seed, n_seeds) -> mean regret of a round, (n_seeds,)
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
        seeds=n_seeds,
        stride=horizon,
        progress=False,
    )
    return result.regret[:, -1] / horizon


def c_reference(p: Problem, seed: int, n_seeds: int) -> None:
    """Returns nothing, because it learns nothing."""
    shape, mode = reference.Shape(p.n_agents, p.n_arms, p.dim), "B" if p.fixed else "A"
    reference.run(shape, mode, len(p.beta) * p.n_agents * n_seeds, seed)


IMPLEMENTATIONS: dict[str, Run] = {
    run.__name__: run for run in (numpy_loop, numpy_vectorised, jax_straightforward, fedbandit_jax, c_reference)
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

    @property
    def runs(self) -> list[Key]:
        """The runs: all of `batches`, but C only if there is a compiler."""
        here = not reference.missing(self.c_shape)
        return [key for key in self.batches if here or key[0] != "c_reference"]

    @property
    def c_shape(self) -> reference.Shape:
        """The shape that the C reference is compiled for."""
        return reference.Shape(self.shape["n_agents"], self.shape["n_arms"], self.shape["dim"])


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
        ("fedbandit_jax", MANY): 200,
        ("c_reference", MANY): 20,
    },
)
SMOKE = Plan(
    shape=dict(n_agents=8, n_arms=10, dim=4, batch=5),
    law_horizon=20,
    law_seeds=MANY,  # as in the timed runs, so that no other program is compiled
    repeats=3,
    batches=dict.fromkeys(REFERENCE.batches, 4),
)


def compare(plan: Plan, *, judged: bool) -> tuple[list[Row], dict[str, Row]]:
    """Measures both modes; returns a row for every implementation and number of seeds, and the ratios."""
    compilations = Compilations()
    rows: list[Row] = []
    ratios: dict[str, Row] = {}
    for mode in "AB":
        times = measure_times(plan, mode, compilations)
        laws = measure_laws(plan, mode)
        rows += [row(plan, mode, key, times[key], laws) for key in times]
        ratios |= compare_speeds(mode, times, judged=judged)
    return rows, ratios


def measure_times(plan: Plan, mode: str, compilations: Compilations) -> dict[Key, Times]:
    """Returns the seconds per agent-round."""
    problems = {key: plan.problem(mode, plan.rounds(key)) for key in plan.runs}

    def play(key: Key, turn: int) -> None:
        IMPLEMENTATIONS[key[0]](problems[key], turn, key[1])

    times = measure.in_turns({key: partial(play, key) for key in problems}, plan.repeats, compilations)
    return {key: times[key].each(len(p.beta) * p.n_agents * key[1]) for key, p in problems.items()}


def measure_laws(plan: Plan, mode: str) -> dict[str, tuple[float, float]]:
    """Returns the mean regret per agent-round of a common short run, and its standard error, by implementation."""
    p = plan.problem(mode, plan.law_horizon)
    laws = {}
    for name, run in IMPLEMENTATIONS.items():
        if name != "c_reference":
            regret = run(p, 0, plan.law_seeds) / p.n_agents
            laws[name] = float(regret.mean()), float(regret.std(ddof=1) / np.sqrt(len(regret)))
    return laws


def row(plan: Plan, mode: str, key: Key, times: Times, laws: dict[str, tuple[float, float]]) -> Row:
    """Returns one row of the table."""
    name, n_seeds = key
    mean, error = laws.get(name, (None, None))
    our_mean, our_error = laws["fedbandit_jax"]
    z = None if mean is None or error is None else (mean - our_mean) / float(np.hypot(error, our_error))
    rates = 1 / times.wall
    return {
        "mode": mode,
        "implementation": name,
        "seeds": n_seeds,
        "rounds": plan.rounds(key),
        "agent_rounds_per_second": float(np.median(rates)),
        "slowest": float(rates.min()),
        "fastest": float(rates.max()),
        "ns": 1e9 * float(np.median(times.wall)),
        "cores": times.cores,
        "compile_seconds": times.compiling if "jax" in name else None,
        "regret_per_agent_round": mean,
        "standard_error": error,
        "z": 0.0 if name == "fedbandit_jax" else z,
    }


def compare_speeds(mode: str, times: dict[Key, Times], *, judged: bool) -> dict[str, Row]:
    """Returns the speed of ours over that of each of the others, and with one seed over that with many.

    NumPy plays seeds one after the other, so that its rate for many seeds is that of one.
    """
    ratios = {}
    for n_seeds in (1, MANY):
        for other in ("numpy_vectorised", "numpy_loop", "jax_straightforward", "c_reference"):
            theirs = times.get((other, n_seeds), times.get((other, 1)))
            if theirs is not None:
                least = TARGETS[mode].get(other) if n_seeds == MANY else None
                value = measure.speed_over(times["fedbandit_jax", n_seeds], theirs)
                name = f"mode {mode}, {n_seeds} seed{'s'[: n_seeds > 1]}: over {other}"
                ratios[name] = verdict(value, least=least, judged=judged)
    alone = measure.speed_over(times["fedbandit_jax", 1], times["fedbandit_jax", MANY])
    return {**ratios, f"mode {mode}: one seed over {MANY}": verdict(alone, least=ONE_SEED[mode], judged=judged)}
