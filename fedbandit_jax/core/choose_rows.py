"""Choosing among rows of a table, of which every agent is offered another number, without padding.

Queries of real data differ in size: in MSLR-WEB10K the largest has 908 documents, and the mean is about 120. Here the
consecutive rows that an agent is offered are cut into tiles of `TILE`, each scored by one matrix product; the tiles of
all agents form one queue, and a loop takes them one by one. On a GPU, which a queue would leave idle, contexts are
stored, padded to the largest query.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from fedbandit_jax.core import control
from fedbandit_jax.core.choose import Scorer
from fedbandit_jax.core.ridge import NOWHERE

TILE = 64  # rows scored at once: enough for a matrix product, few enough that the last tile of a query is no waste


def saves(counts: Int[np.ndarray, " Q"]) -> bool:
    """Whether queries of these sizes have at most half as many rows in tiles as if padded to the largest."""
    return 2 * TILE * int((-(-counts // TILE)).sum()) <= len(counts) * int(counts.max())


def choose(
    rows: Callable[[Array, int], Array],
    scorer: Scorer,
    mean: Callable[[Array], Array],
    n_arms: int,
    first: Int[Array, " A"],
    count: Int[Array, " A"],
) -> tuple[Int[Array, " A"], Float[Array, " A"]]:
    """The first arm of the largest index of every agent, see `ridge.first_argmax`, and the largest mean.

    Args:
        rows: (first, size) -> features (d, size) of so many rows, at most K, from the first one on; those past the end
            of a query may be any.
        scorer: what they are worth.
        mean: features (d, size) -> their mean rewards (size,).
        n_arms: K, the most rows that an agent is offered.
        first: the first row that each agent is offered.
        count: how many rows it is offered.
    """
    n, size = len(first), min(TILE, n_arms)
    tiles = (count + size - 1) // size
    ends = jnp.cumsum(tiles)

    def score(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        i, arm, index, best = carry
        agent = jnp.minimum((ends <= i).sum(), n - 1)  # in lanes whose queue is over, a tile without rows
        start = (i - (ends - tiles)[agent]) * size
        x = control.stored(lambda: rows(first[agent] + start, size), i)
        arms = start + lax.iota(jnp.int32, size)
        exists = arms < count[agent]
        value = jnp.where(exists, scorer.worth(scorer.one(scorer.own, agent), x), -jnp.inf)
        largest = value.max()
        here = jnp.where(value == largest, arms, NOWHERE).min()
        better = (largest > index[agent]) | jnp.isnan(largest)  # nothing exceeds a NaN, whose `here` is `NOWHERE`
        found = jnp.where(exists, mean(x), -jnp.inf).max()
        return (
            i + 1,
            arm.at[agent].set(jnp.where(better, here, arm[agent])),
            index.at[agent].set(jnp.where(better, largest, index[agent])),
            best.at[agent].max(found),
        )

    nothing = jnp.full(n, -jnp.inf)
    start = jnp.int32(0), jnp.full(n, NOWHERE, jnp.int32), nothing, nothing
    end = control.largest(ends[-1])
    _, arm, _, best = lax.while_loop(lambda carry: carry[0] < end, score, start)
    return arm, best
