"""How much memory a run needs, and how much there is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from fedbandit_jax.engine.clocks import Clock

LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container or a job, on Linux
COPIES = 3  # of records: a program reads one and writes one, and the result is one
FLOAT = 4  # bytes
CURVES = 6  # of a run: regret, three of communication, and others
SHARE = 0.8  # of the memory that a run may take


def total() -> int:
    """The bytes of memory of the devices that runs share: of this machine, or of all its accelerators."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    if all("bytes_limit" in one for one in stats):
        return sum(one["bytes_limit"] for one in stats)
    try:
        limit = int(LIMIT.read_text())
    except (OSError, ValueError):  # there is none
        limit = psutil.virtual_memory().total
    return min(limit, psutil.virtual_memory().total)


def check_records(arrays: Mapping[str, Any], n_runs: int) -> None:
    """Raises a ValueError unless what is recorded of so many runs fits into memory.

    Args:
        arrays: name -> shape and dtype of what is recorded of one run.
        n_runs: seeds times configurations.
    """
    size, most = n_runs * sum(map(bytes_of, arrays.values())), SHARE * total() / COPIES
    if size > most:
        name = max(arrays, key=lambda name: bytes_of(arrays[name]))
        raise ValueError(
            f"record must fit into {shown(most)}, got {shown(size)} of {n_runs:,} runs, most of it {name!r} of shape "
            f"{arrays[name].shape}: record fewer rounds by fb.record.every, or fewer seeds"
        )


def seeds_together(clock: Clock, n_configs: int, n_seeds: int, n_records: int) -> int:
    """The number of seeds of a program that fit into memory at a time.

    Counted are the curves of all runs, and for every seed that runs the world, two copies of every learner's state
    (before and after a chunk of rounds) and two of the contexts, if these are stored.

    Args:
        clock: any of those that share the program.
        n_configs: how many there are.
        n_seeds: of the run.
        n_records: rounds of a curve.

    Raises:
        ValueError: not even one seed fits.
    """
    world, state = jax.eval_shape(clock.init, jax.random.key(0))
    spec = clock.env.spec
    contexts = spec.n_agents * spec.n_arms * spec.dim * FLOAT * (not clock.draws)
    one = sum(map(bytes_of, jax.tree.leaves(world))) + 2 * contexts
    one += 2 * n_configs * sum(map(bytes_of, jax.tree.leaves(state)))
    curves, most = n_seeds * n_configs * n_records * CURVES * 2 * FLOAT, SHARE * total()
    if curves + one > most:
        raise ValueError(
            f"env, algorithms and seeds must fit into {shown(most)} of memory, got {shown(one)} for the state of one "
            f"seed of {n_configs:,} configurations and {shown(curves)} for the curves of all"
        )
    return min(n_seeds, int((most - curves) // max(one, 1)))


def bytes_of(array: Any) -> int:
    """Returns the number of bytes of an array, of which only shape and dtype need be known."""
    size = 8 if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else np.dtype(array.dtype).itemsize
    return math.prod(array.shape) * size


def shown(size: float) -> str:
    """Returns a number of bytes in words.

    >>> shown(3 * 2**30), shown(2**60)
    ('3 GiB', '1,073,741,824 GiB')
    """
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:,.3g} {name}" if size < 1000 * unit else f"{size / unit:,.0f} {name}"
    return f"{size / 2**10:,.3g} KiB"
