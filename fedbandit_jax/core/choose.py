"""Choosing arms without storing contexts: features are drawn, scored and discarded, one arm after another.

With fresh contexts most time goes into K feature vectors for every agent. One of them is played. Here a draw is a
function of (key, arm, agent), and a score of one arm's features. So neither needs memory. The features of the chosen
arm are drawn again. Three implementations choose the same arms:

- *stored*: the environment makes all contexts and the policy scores them (`Synchronous`, without this file). It is the
  oracle, and serves masks, user-defined policies and configurations that share contexts.
- *fused* (`choose`), for XLA:CPU, which compiles an elementwise expression of any length into one loop without
  intermediate arrays. Two results (index and mean) would need two loops, and every reader a copy of the expression. So
  both are parts of one complex number, see `control.materialize_pair`. The longer of arms and agents is the last axis,
  the vector lane.
- *kernel* (`core.choose_kernel`), for GPUs: one Pallas kernel that also finds the argmax.

`choose_rows` serves contexts that are rows of a table, with ragged sets of arms, in tiles.
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

LANES = 64  # agents that fill the vector pipelines; with fewer agents than this and arms, arms are the last axis
ROWS = 64  # rows of a tile: enough for a matrix product, few enough to waste little in the last tile


def choose(
    offer: Offer, scorer: Scorer, n_arms: int, agents: Integer[Array, " A"], t: Int[Array, ""]
) -> tuple[Int[Array, " A"], Float[Array, " A"]]:
    """Returns every agent's first arm of largest index, see `ridge.first_argmax`, and its largest mean reward.

    `agents` are indices, uint32. t is any traced integer, equal in all lanes of a vmap.
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

    index, mean = control.materialize_pair(score, t)
    if arms_last:
        index, mean = index.T, mean.T
    return ridge.first_argmax(index), mean.max(0)


def tiles_save(counts: Int[np.ndarray, " Q"]) -> bool:
    """Returns whether tiles of queries with these sizes have at most half the rows of padding to the largest."""
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
    """Chooses among consecutive rows of a table, a different number for every agent, without padding.

    Queries of real data differ in size. In MSLR-WEB10K the largest has 908 documents, and the mean is about 120. An
    agent's rows are split into tiles of `ROWS`, each scored by one matrix product. A loop takes the tiles of all agents
    from one queue. A queue would leave a GPU idle, where contexts are stored and padded instead.

    Args:
        rows: (first, size) -> features (d, size) of rows from `first` on, with size <= K; arbitrary past the end of a
            query.
        scorer: scores features.
        mean: features (d, size) -> mean rewards (size,).
        n_arms: K, the most rows of an agent.
        drawn: lots that break ties.
        first: first row of each agent.
        count: number of rows of each agent.
    """
    n, size = len(first), min(ROWS, n_arms)
    tiles = (count + size - 1) // size
    ends = jnp.cumsum(tiles)
    of_arm = jnp.pad(drawn.arm, (0, size))

    def score(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        i, lot, index, best = carry
        agent = jnp.minimum((ends <= i).sum(), n - 1)  # lanes with an empty queue get a tile without rows
        start = (i - (ends - tiles)[agent]) * size
        x = control.materialize(lambda: rows(first[agent] + start, size), i)
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
    end = control.max_over_lanes(ends[-1])
    _, lot, _, best = lax.while_loop(lambda carry: carry[0] < end, score, start)
    return lots.arm_of(lot, n_arms), best
