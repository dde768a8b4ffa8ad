"""Measures nanoseconds per user of private elimination, for `run.py`: this library, NumPy and plain `jax.random`.

For a user who is asked, a reward is drawn, rounded at random to an integer and added to the sum of an arm; every arm
and batch gets one draw of noise. Time is divided by the number of users asked. Users of an unfinished batch, and those
who come when only one arm is left, are not asked, and nothing is drawn for them. Our library is timed through
`fb.simulate`, its certificate and all work on the host included.

The implementations take turns, and numbers are medians over the turns. `cores` is processor time over wall-clock time.
All final regrets must agree within 4 standard errors.

Letters: T users, n users in a batch of one arm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import measure
import numpy as np
from jax import lax
from measure import Compilations, Row, Times

import fedbandit_jax as fb
from fedbandit_jax.core import random, wide

ALGORITHM = fb.algos.DistDPSE(0.5)
BLOCK = 2**16  # users that the baselines draw at once


class Plan(NamedTuple):
    """Sizes of a benchmark."""

    horizon: int  # T
    seeds: int  # random instances in a run
    turns: int  # timed runs of everything


REFERENCE = Plan(10**7, 20, 3)
SMOKE = Plan(10**4, 4, 2)


class Played(NamedTuple):
    """The outcome of a run: regret after T users for every seed, and how many users of all seeds were asked."""

    regret: np.ndarray
    asked: float


def fedbandit_jax(env: Any, horizon: int, seeds: int, seed: int) -> Played:
    options: dict[str, Any] = dict(horizon=horizon, seeds=seeds, stride="log", progress=False)
    result = fb.simulate(env, ALGORITHM, key=jax.random.key(seed), **options)
    return Played(result.regret[:, -1], float(result.communication["floats"][:, -1].sum()))


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
    """Compares the implementations on hard instances; z compares final regrets with ours, paired by seed."""
    world = fb.envs.arms(instance="hard"), plan.horizon, plan.seeds
    runs = {run.__name__: partial(run, *world) for run in (fedbandit_jax, numpy_vectorised, jax_random)}
    rows, ours = [], None
    for name, times in measure.in_turns(runs, plan.turns, compilations).items():
        regret = np.concatenate([run.regret for run in times.results])
        ours = regret if ours is None else ours
        beyond, error = (regret - ours).mean(), (regret - ours).std(ddof=1) / np.sqrt(len(regret))
        law = {"regret": float(regret.mean()), "beyond_ours": float(beyond), "error": float(error)}
        law["z"] = float(beyond / error) if error else 0.0
        rows.append({"instance": "hard", "implementation": name, **costs(times), **law})
    return rows
