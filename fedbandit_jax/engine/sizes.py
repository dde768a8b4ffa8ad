"""Estimates the memory of records and of the states of seeds that run together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core import memory
from fedbandit_jax.core.memory import shown
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine.runners import Runner
from fedbandit_jax.engine.runners.runner import ROWS

COPIES = 3  # of records: input and output of a program, and the result
FLOAT = 4  # bytes
CURVES = 6  # curves of a run: regret, three of communication, and others


def check_records(arrays: Mapping[str, Any], n_runs: int) -> None:
    """Raises `ValueError` if the records of `n_runs` runs, name -> shape and dtype, exceed the memory limit."""
    size, most = n_runs * sum(map(bytes_of, arrays.values())), memory.limit() / COPIES
    if size > most:
        name = max(arrays, key=lambda name: bytes_of(arrays[name]))
        most_of_it = f"{name!r} of shape {arrays[name].shape}: record fewer rounds by fb.record.every, or fewer seeds"
        got = f"{shown(size)} of {n_runs:,} runs, most of it {most_of_it}"
        raise BadValue("record", f"must fit into {shown(most)}", size, got=got)


def seeds_together(runner: Runner, n_configs: int, n_seeds: int, n_records: int) -> int:
    """Returns the number of seeds that fit into memory together, for `n_configs` runners that share a program.

    Counts the curves of all runs and, for each seed, the world, two copies of every learner's state (before and after
    a chunk), of stored contexts, and of the rows of noise.

    Raises:
        ValueError: not even one seed fits.
    """
    world, state = jax.eval_shape(runner.init, jax.random.key(0))
    spec = runner.env.spec
    contexts = spec.n_agents * spec.n_arms * spec.dim * FLOAT * runner.stores
    one = sum(map(bytes_of, jax.tree.leaves(world))) + 2 * contexts
    one += 2 * n_configs * sum(map(bytes_of, jax.tree.leaves(state)))
    one += 2 * n_configs * FLOAT * ROWS * (runner.source is not None)
    curves, most = n_seeds * n_configs * n_records * CURVES * 2 * FLOAT, memory.limit()
    if curves + one > most:
        got = f"{shown(one)} for the state of one seed of {n_configs:,} configurations, {shown(curves)} for curves"
        raise BadValue(("env", "algorithms", "seeds"), f"must fit into {shown(most)} of memory", one, got=got)
    return min(n_seeds, int((most - curves) // max(one, 1)))


def bytes_of(array: Any) -> int:
    """Returns the bytes of an array with this shape and dtype."""
    size = 8 if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else np.dtype(array.dtype).itemsize
    return math.prod(array.shape) * size
