"""Measures nanoseconds per user of private successive elimination: this library against NumPy and plain `jax.random`.

For a user who is asked, a reward is drawn, rounded at random to an integer and added to the sum of an arm; every arm
and batch gets one draw of noise. Time is divided by the number of users asked. Users of an unfinished batch, and those
who come when only one arm is left, are not asked, and nothing is drawn for them. Our library is timed through
`fb.simulate`, its certificate and all work on the host included.

The implementations take turns, and numbers are medians over the turns. `cores` is processor time over wall-clock time.
All final regrets must agree within 4 standard errors, or the exit code is 1.

Letters: K arms, T users, n users in a batch of one arm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import measure
import numpy as np
import tyro
from jax import lax
from measure import Compilations, Row, Times, verdict

import fedbandit_jax as fb
from fedbandit_jax.core import random, wide
from fedbandit_jax.privacy.integers.noise import Asked

A = fb.algos
NOISES = A.CDPSE, A.LDPSE, A.DistDPSE, A.ShuffleDPSE, A.DistRDPSE, A.DistCDPSE
EPSILONS = [0.1, 0.5, 1.0]  # budgets of the big job
ALGORITHM = fb.algos.DistDPSE(0.5)
BLOCK = 2**16  # users that the baselines draw at once
TARGETS = {"hard, ns per user": 1.5, "noise, largest n over smallest": 2.0, "big job, seconds": 60.0}  # upper limits


class Plan(NamedTuple):
    """Sizes of a benchmark."""

    horizons: dict[str, int]  # T, for each kind of instance
    seeds: int  # random instances in a run
    turns: int  # timed runs of everything
    users: list[int]  # numbers n of users in a sum whose noise is timed
    growth: list[tuple[int, int]]  # pairs (T, K) whose cost is measured


REFERENCE = Plan(
    horizons={"easy": 10**6, "hard": 10**7},
    seeds=20,
    turns=5,
    users=[2**b for b in range(4, 29, 6)],
    growth=[(10**5, 10), (10**6, 10), (10**7, 10), (10**7, 30), (10**7, 100)],
)
SMOKE = Plan({"easy": 10**4, "hard": 10**4}, 4, 2, [2**4, 2**28], [(10**4, 10), (10**4, 30)])


class Played(NamedTuple):
    """The outcome of a run: regret after T users for every seed, and how many users of all seeds were asked."""

    regret: np.ndarray
    asked: float


def fedbandit_jax(env: Any, horizon: int, seeds: int, seed: int) -> Played:
    options: dict[str, Any] = dict(horizon=horizon, seeds=seeds, stride="log", progress=False)
    result = fb.simulate(env, ALGORITHM, key=jax.random.key(seed), **options)
    return Played(result.regret[:, -1], float(result.communication["floats"][:, -1].sum()))


def three_budgets(env: Any, horizon: int, seeds: int, seed: int) -> Played:
    options: dict[str, Any] = dict(horizon=horizon, seeds=seeds, stride="log", progress=False)
    result = fb.sweep(env, [ALGORITHM], grid={"epsilon": EPSILONS}, key=jax.random.key(seed), **options)
    return Played(result.regret[..., -1], float(result.communication["floats"][..., -1].sum()))


def numpy_vectorised(env: Any, horizon: int, seeds: int, seed: int) -> Played:
    def collect(rng: np.random.Generator, mean: float, steps: np.float32, n: int) -> int:
        total = 0
        for size in [BLOCK] * (n // BLOCK) + [n % BLOCK]:
            x = np.float32(env.spread) * rng.standard_normal(size, np.float32) + np.float32(mean)
            z = np.clip(x, 0, 1) * steps
            whole = np.floor(z)
            total += int((whole + (rng.random(size, np.float32) < z - whole)).astype(np.int64).sum())
        return total

    return eliminate(env, horizon, seeds, seed, collect)


def jax_random(env: Any, horizon: int, seeds: int, seed: int) -> Played:
    def collect(rng: np.random.Generator, mean: float, steps: np.float32, n: int) -> int:
        key = jax.random.key(rng.integers(2**32))
        with jax.enable_x64(True):  # because sums exceed 32 bits
            return int(_collect(key, np.float32(mean), np.float32(env.spread), steps, n))

    return eliminate(env, horizon, seeds, seed, collect)


@jax.jit
def _collect(key, mean, spread, steps, n):
    def add_block(i, total):
        drawing, rounding = jax.random.split(jax.random.fold_in(key, i))
        z = jnp.clip(mean + spread * jax.random.normal(drawing, (BLOCK,), jnp.float32), 0, 1) * steps
        whole = jnp.floor(z)
        encoded = (whole + (jax.random.uniform(rounding, (BLOCK,), jnp.float32) < z - whole)).astype(jnp.int64)
        return total + jnp.where(i * BLOCK + jnp.arange(BLOCK) < n, encoded, 0).sum()

    return lax.fori_loop(0, (n + BLOCK - 1) // BLOCK, add_block, jnp.int64(0))


def eliminate(env: Any, horizon: int, seeds: int, seed: int, collect: Callable[..., int]) -> Played:
    """Plays Algorithm 1 of Chowdhury & Zhou (2023) on the host, on the instances of the library.

    `collect` draws the rewards of n users of an arm, rounds them to integers and returns their sum.
    """
    bound = ALGORITHM.bind(env.spec, horizon)
    ring: Any = bound.protocol
    moduli, limits = (wide.to_int(x).astype(np.int64) for x in (ring.modulus, ring.largest))
    regret, asked = np.zeros(seeds), 0
    for i in range(seeds):
        rng = np.random.default_rng([seed, i])
        means = np.asarray(env.init(random.stream(jax.random.fold_in(jax.random.key(seed), i), "world")))
        gaps = np.asarray(env.means(means).max() - env.means(means))
        arms, rest = np.arange(env.spec.n_arms), horizon
        for k, n in enumerate(bound.users[:, 1].tolist()):
            if len(arms) == 1 or n * len(arms) > rest:
                left = np.clip(rest - n * np.arange(len(arms)), 0, n if len(arms) > 1 else rest)
                regret[i] += left @ gaps[arms]
                break
            rest -= n * len(arms)
            asked += n * len(arms)
            regret[i] += n * gaps[arms].sum()
            sums = np.array([collect(rng, means[arm], ring.steps[k], n) for arm in arms])
            plus, minus = rng.geometric(-np.expm1(-1 / ring.noise.size[k]), (2, len(arms)))
            shown = (sums + plus - minus) % moduli[k]
            read = np.where(shown > limits[k], shown - moduli[k], shown) / (ring.steps[k] * n)
            arms = arms[read + 2 * bound.radius[k, len(arms)] >= read.max()]
    return Played(regret, asked)


def costs(times: Times) -> Row:
    """Returns the columns of a table for the cost of a run."""
    asked = float(np.mean([run.asked for run in times.results]))
    wall = float(np.median(times.wall))
    per_user = wall / asked * 1e9
    return {"seconds": wall, "asked": asked, "ns": per_user, "cores": times.cores, "compile": times.compiling}


def speed(plan: Plan, compilations: Compilations) -> list[Row]:
    """Compares the implementations on easy and hard instances; z compares final regrets with ours, paired by seed."""
    rows = []
    for instance, horizon in plan.horizons.items():
        world = fb.envs.arms(instance=instance), horizon, plan.seeds
        runs = {run.__name__: partial(run, *world) for run in (fedbandit_jax, numpy_vectorised, jax_random)}
        ours = None
        for name, times in measure.in_turns(runs, plan.turns, compilations).items():
            regret = np.concatenate([run.regret for run in times.results])
            ours = regret if ours is None else ours
            beyond = (regret - ours).mean(), (regret - ours).std(ddof=1) / np.sqrt(len(regret))
            law = {"regret": float(regret.mean()), "beyond_ours": float(beyond[0]), "error": float(beyond[1])}
            law["z"] = law["beyond_ours"] / law["error"] if law["error"] else 0.0
            rows.append({"part": "speed", "instance": instance, "implementation": name, **costs(times), **law})
    return rows


@partial(jax.jit, static_argnums=0)
def _noise(n_arms: int, sampler: Any, k: Any, n: Any, seed: Any) -> Any:
    return lax.map(lambda key: sampler.total(key, k, n, (n_arms,)), jax.random.split(jax.random.key(seed), 1000))


def noise(plan: Plan, compilations: Compilations) -> list[Row]:
    """Measures nanoseconds per noise of one sum, for 10 arms in 1,000 batches, by mechanism and n."""
    rows = []
    for kind in NOISES:
        assert kind.law is not None
        sampler = kind.law.made(Asked(0.5, 10.0, 0.1, 2 * plan.users[-1]), plan.users)
        runs = {n: partial(_noise, 10, sampler, k, np.int32(n)) for k, n in enumerate(plan.users)}
        times = measure.in_turns(runs, plan.turns, compilations)
        found = {f"n={n:,}": 1e5 * float(np.median(times[n].wall)) for n in runs}
        rows.append({"part": "noise", "mechanism": kind.title, **found})
    return rows


def growth(plan: Plan, compilations: Compilations) -> list[Row]:
    """Measures the cost of the library on hard instances as T and K grow."""
    runs = {(t, k): partial(fedbandit_jax, fb.envs.arms(k, instance="hard"), t, plan.seeds) for t, k in plan.growth}
    times = measure.in_turns(runs, plan.turns, compilations)
    return [{"part": "growth", "T": t, "K": k, **costs(times[t, k])} for t, k in runs]


def big_job(plan: Plan, compilations: Compilations) -> list[Row]:
    """Measures a sweep over three budgets on hard instances; a user is counted once for each budget."""
    run = partial(three_budgets, fb.envs.arms(instance="hard"), plan.horizons["hard"], plan.seeds)
    return [{"part": "big_job", **costs(measure.in_turns({"": run}, plan.turns, compilations)[""])}]


def judge(plan: Plan, rows: list[Row], *, judged: bool) -> dict[str, Row]:
    """Returns the ratios that have targets."""
    noises = [row for row in rows if row["part"] == "noise"]
    flat = max(row[f"n={plan.users[-1]:,}"] / row[f"n={plan.users[0]:,}"] for row in noises)
    ours = [row["ns"] for row in rows if row.get("instance") == "hard" and row["implementation"] == "fedbandit_jax"]
    big = [row["seconds"] for row in rows if row["part"] == "big_job"]
    return {
        name: verdict(value, most=TARGETS[name], judged=judged) for name, value in zip(TARGETS, (*ours, flat, *big))
    }


def main(json: measure.Flag = False, smoke: measure.Flag = False) -> None:
    """Compare the implementations, and print tables.

    Args:
        json: print JSON only: {"machine": {...}, "rows": [...], "ratios": {...}}.
        smoke: use tiny sizes, which take some 30 seconds and show that the benchmark works; the numbers mean nothing.
    """
    plan, compilations = SMOKE if smoke else REFERENCE, Compilations()
    rows = [row for part in (speed, noise, growth, big_job) for row in part(plan, compilations)]
    title = (
        f"{ALGORITHM.name}, epsilon = {ALGORITHM.epsilon}, {plan.seeds} instances, 10 arms, T = {plan.horizons}\n"
        f"ns: per user who is asked, or per noisy sum; medians of {plan.turns} turns"
    )
    measure.output(title, rows, judge(plan, rows, judged=not smoke), json=json)
    measure.check_laws(rows)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
