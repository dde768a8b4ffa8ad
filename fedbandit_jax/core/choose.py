"""Choosing arms without storing what was offered: features are drawn, scored and forgotten, one arm after another.

In a run with fresh contexts most of the time goes into K feature vectors for every agent, of which one is played. If a
draw is a function of (key, arm, agent), and the worth of an arm one of its own features, nothing of this needs memory,
and the features of the arm that won are drawn again, once. There are three ways to the same arms:

- *stored*: the environment makes all contexts and the policy scores them (`RoundClock`, without this file). It is the
  oracle, and serves whatever must see all contexts: masks, policies of one's own, configurations that share them.
- *fused* (`choose`), for XLA:CPU, which compiles an elementwise expression of any length into one loop without
  intermediate arrays, but would write two such loops for two results (index and mean), and copy the expression into
  every other one that reads them. So both are the parts of one complex number, see `control.once`. Whichever of arms
  and agents is longer is the last axis, where the vector units work.
- *kernel* (`core.choose_kernel`), for GPUs: one Pallas kernel that also finds the largest.

Contexts that are rows of a table, of which each agent is offered another number, are cut into tiles (`choose_rows`).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int, Integer

from fedbandit_jax.core import control, lots, ridge
from fedbandit_jax.core.backend import on_gpu
from fedbandit_jax.core.choose_kernel import choose_by_kernel
from fedbandit_jax.core.lots import NONE, UNKNOWN, Lots
from fedbandit_jax.core.scoring import Offer, Scorer

LANES = 64  # agents that fill vectors and their pipelines; with fewer, arms are the last axis if there are more of them
ROWS = 64  # rows of a table scored at once: enough for a matrix product, few enough to waste little on the last tile


def choose(
    offer: Offer, scorer: Scorer, n_arms: int, agents: Integer[Array, " A"], t: Int[Array, ""]
) -> tuple[Int[Array, " A"], Float[Array, " A"]]:
    """The first arm of the largest index of every agent, see `ridge.first_argmax`, and the largest mean.

    `agents` are numbers, uint32, and t any traced integer that is the same for all lanes of a vmap, see `control.once`.
    """
    if on_gpu():
        return choose_by_kernel(offer, scorer, n_arms, agents)
    arms_last = len(agents) < min(LANES, n_arms)
    arm, agent = lax.iota(jnp.uint32, n_arms)[:, None], agents[None]
    if arms_last:
        arm, agent = arm.T, agent.T
        scorer = jax.tree.map(lambda x: jnp.asarray(x)[..., None], scorer)

    def score() -> tuple[Array, Array]:
        x = offer.draw(offer.shared, arm, agent)
        return scorer.worth(x), offer.mean(offer.shared, x)

    index, mean = control.once(score, t)
    if arms_last:
        index, mean = index.T, mean.T
    return ridge.first_argmax(index), mean.max(0)


def tiles_save(counts: Int[np.ndarray, " Q"]) -> bool:
    """Whether queries of these sizes have at most half as many rows in tiles as if padded to the largest."""
    return 2 * ROWS * int((-(-counts // ROWS)).sum()) <= len(counts) * int(counts.max())


def choose_rows(
    rows: Callable[[Array, int], Array],
    scorer: Scorer,
    mean: Callable[[Array], Array],
    n_arms: int,
    drawn: Lots,
    first: Int[Array, " A"],
    count: Int[Array, " A"],
) -> tuple[Int[Array, " A"], Float[Array, " A"]]:
    """The choice among consecutive rows of a table, of which every agent is offered another number, without padding.

    Queries of real data differ in size: in MSLR-WEB10K the largest has 908 documents, and the mean is about 120. Here
    an agent's rows are cut into tiles of `ROWS`, each scored by one matrix product; the tiles of all agents form one
    queue, and a loop takes them one by one. On a GPU, which a queue would leave idle, contexts are stored and padded.

    Args:
        rows: (first, size) -> features (d, size) of so many rows, at most K, from the first one on; those past the end
            of a query may be any.
        scorer: what they are worth.
        mean: features (d, size) -> their mean rewards (size,).
        n_arms: K, the most rows that an agent is offered.
        drawn: lots, by which ties are broken.
        first: the first row that each agent is offered.
        count: how many rows it is offered.
    """
    n, size = len(first), min(ROWS, n_arms)
    tiles = (count + size - 1) // size
    ends = jnp.cumsum(tiles)
    of_arm = jnp.pad(drawn.arm, (0, size))

    def score(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        i, lot, index, best = carry
        agent = jnp.minimum((ends <= i).sum(), n - 1)  # in lanes whose queue is over, a tile without rows
        start = (i - (ends - tiles)[agent]) * size
        x = control.stored(lambda: rows(first[agent] + start, size), i)
        arms = start + lax.iota(jnp.int32, size)
        exists = arms < count[agent]
        value = jnp.where(exists, scorer.one(agent).worth(x), -jnp.inf)
        largest = jnp.maximum(value.max(), index[agent])
        words, good = lax.dynamic_slice(of_arm, (start,), (size,)) + drawn.agent[agent], lots.near(largest)
        own = jnp.where(exists, lots.drawn(value, good, words, arms, n_arms), NONE).min()
        before = jnp.where((index[agent] >= good) | (lot[agent] == UNKNOWN), lot[agent], NONE)
        found = jnp.where(exists, mean(x), -jnp.inf).max()
        return (
            i + 1,
            lot.at[agent].set(jnp.minimum(own, before)),
            index.at[agent].set(largest),
            best.at[agent].max(found),
        )

    nothing = jnp.full(n, -jnp.inf)
    start = jnp.int32(0), jnp.full(n, NONE), nothing, nothing
    end = control.largest(ends[-1])
    _, lot, _, best = lax.while_loop(lambda carry: carry[0] < end, score, start)
    return lots.arm_of(lot, n_arms), best
