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
- *kernel* (`choose_by_kernel`), for GPUs: one Pallas kernel that also finds the largest.

Contexts that are rows of a table, of which each agent is offered another number, are cut into tiles (`choose_rows`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int, Integer

from fedbandit_jax.core import control, ridge
from fedbandit_jax.core.backend import UNROLL_DIM, on_cpu, on_gpu
from fedbandit_jax.core.ridge import NOWHERE, Posterior

LANES = 64  # agents that fill vectors and their pipelines; with fewer, arms are the last axis if there are more of them
ROWS = 64  # rows of a table scored at once: enough for a matrix product, few enough to waste little on the last tile
TILE = 256  # (arm, agent) pairs that a block of the kernel works on at a time, two for every thread
FEW, MANY = 8, 32  # agents of a block, powers of two: few, so that a small problem is spread over the whole device
LARGE = 4096  # agents of all runs, from which on a block takes many, and fewer of its last tile lie beyond the last arm


class Scorer(NamedTuple):
    """How an arm is scored by its features alone."""

    worth: Callable[[Any, Sequence[Array] | Array], Array]  # (own, d features) -> index, elementwise in their shape
    own: Any  # pytree of arrays that say what agents know, with agents last: (..., A), (..., 1) or ()
    one: Callable[[Any, Array], Any]  # (own, agent) -> what this agent knows, as if it were all agents


class Offer(NamedTuple):
    """What is offered in a round, as functions of `shared` and of (arm, agent), elementwise in the shape of these."""

    draw: Callable[[Any, Array, Array], Sequence[Array]]  # (shared, arm, agent), uint32 -> the d features
    mean: Callable[[Any, Sequence[Array]], Array]  # (shared, the d features) -> mean reward
    shared: Any  # pytree of arrays that are alike for all agents


class Own(NamedTuple):
    """What agents know in a round, as `optimism` reads it."""

    posterior: Posterior  # A = 1 or A = M
    width: Float[Array, ""] | Float[Array, " A"]  # beta_t, A = 1 or A = M


def optimism(own: Any, x: Sequence[Array] | Array) -> Array:
    """Upper confidence bounds <x, theta> + beta sqrt(x' V^-1 x) of vectors with these d features.

    `own` is an `Own`, whose arrays may have more axes after that of the agents.
    """
    width_sq = jnp.maximum(ridge.form(x, own.posterior.inverse), 0)
    theta = own.posterior.theta
    mean = ridge.dot(x, list(theta) if len(x) <= UNROLL_DIM else theta)
    return mean + own.width * jnp.sqrt(width_sq)


def one(own: Own, agent: Int[Array, ""]) -> Own:
    """The knowledge of one agent."""
    return Own(ridge.one(own.posterior, agent), own.width if own.width.size == 1 else own.width[agent])


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
    own = scorer.own
    if arms_last:
        arm, agent = arm.T, agent.T
        own = jax.tree.map(lambda x: jnp.asarray(x)[..., None], own)

    def score() -> tuple[Array, Array]:
        x = offer.draw(offer.shared, arm, agent)
        return scorer.worth(own, x), offer.mean(offer.shared, x)

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
        first: the first row that each agent is offered.
        count: how many rows it is offered.
    """
    n, size = len(first), min(ROWS, n_arms)
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


def choose_by_kernel(
    offer: Offer, scorer: Scorer, n_arms: int, agents: Integer[Array, " A"]
) -> tuple[Int[Array, " A"], Float[Array, " A"]]:
    """The choice on a GPU: one kernel that draws contexts, scores them and picks, and stores only the pick.

    A number that belongs to one arm of one agent lives in a register of one thread, and is gone when the arm has been
    scored. Pallas' Triton backend maps a tile of `TILE` (arm, agent) pairs to the 128 threads of a block. A block owns
    a few agents, keeps what they know in registers, and walks through the arms, a few at a time. Each thread remembers
    the best arm that it has seen; at the end the threads of an agent agree on the first of the best. On a CPU this is
    run by Pallas' interpreter, so that a test compares it to the same functions on whole arrays.

    The functions of `offer` and `scorer` use no arrays but their arguments. They are given the leaves of `shared` and
    `own` as tuples of rows, which they index with numbers or make a list of: a leaf of shape (n,) in `shared` as n
    scalars, one of shape (n, A) in `own` as n rows of agents, and a scalar as itself. Arms and agents beyond the last
    are drawn, too, and dropped.
    """
    from jax.experimental import pallas as pl  # only GPUs need Triton
    from jax.experimental.pallas import triton

    n_agents = len(agents)
    leaves, treedef = jax.tree.flatten((offer.shared, scorer.own))
    n_shared, leaves = len(jax.tree.leaves(offer.shared)), [jnp.asarray(leaf) for leaf in leaves]
    single = [leaf.ndim < (1 if i < n_shared else 2) for i, leaf in enumerate(leaves)]
    given = [leaf.reshape(-1) for leaf in leaves[:n_shared]]
    given += [leaf.reshape(-1, *leaf.shape[-1:] or (1,)) for leaf in leaves[n_shared:]] + [agents[None]]

    def kernel(wide, *refs):
        high = TILE // wide
        *refs, numbers, arms, means = refs
        exists = pl.program_id(0) * wide + lax.broadcasted_iota(jnp.int32, (1, wide), 1) < n_agents

        def row(ref, n):
            if len(ref.shape) == 1:
                return ref[n]
            if ref.shape[-1] == 1:
                return ref[n, 0]
            return triton.load(ref.at[pl.ds(n, 1), :], mask=exists, other=0)

        def rows(ref, single):
            return row(ref, 0) if single else tuple(row(ref, n) for n in range(len(ref)))

        shared, own = jax.tree.unflatten(treedef, map(rows, refs, single))
        agent = row(numbers, 0)

        def look(step, found):
            score, arm, best, unknown = found
            new = step * high + lax.broadcasted_iota(jnp.int32, (high, wide), 0)
            offered = new < n_arms
            x = offer.draw(shared, new.astype(jnp.uint32), agent)
            index = scorer.worth(own, x)
            higher = offered & (index > score)
            mean = offer.mean(shared, x)
            best = jnp.where(offered & ((mean > best) | jnp.isnan(mean)), mean, best)  # PTX's max would drop a NaN
            unknown = jnp.where(offered & jnp.isnan(index), 1, unknown)
            return jnp.where(higher, index, score), jnp.where(higher, new, arm), best, unknown

        lowest, zeros = jnp.full((high, wide), -jnp.inf, jnp.float32), jnp.zeros((high, wide), jnp.int32)
        score, arm, best, unknown = lax.fori_loop(0, pl.cdiv(n_arms, high), look, (lowest, zeros, lowest, zeros))
        first = jnp.where(score == score.max(0), arm, NOWHERE).min(0)
        triton.store(arms.at[:, :], jnp.where(unknown.max(0) == 1, NOWHERE, first)[None], mask=exists)
        lost = jnp.where(jnp.isnan(best), 1, 0).max(0) == 1
        triton.store(means.at[:, :], jnp.where(lost, jnp.nan, best.max(0))[None], mask=exists)

    def block(leaf, wide):
        if leaf.ndim == 1 or leaf.shape[1] == 1:
            return pl.BlockSpec(leaf.shape, lambda i: (0,) * leaf.ndim)
        return pl.BlockSpec((len(leaf), wide), lambda i: (0, i))

    def called(n_runs):
        wide = MANY if n_runs * n_agents >= LARGE else FEW
        return pl.pallas_call(
            functools.partial(kernel, wide),
            [jax.ShapeDtypeStruct((1, n_agents), kind) for kind in (jnp.int32, jnp.float32)],
            grid=(pl.cdiv(n_agents, wide),),
            in_specs=[block(leaf, wide) for leaf in given],
            out_specs=[pl.BlockSpec((1, wide), lambda i: (0, i))] * 2,
            interpret=on_cpu(),
            name="choose",
            compiler_params=None if on_cpu() else triton.CompilerParams(num_warps=4, num_stages=1),
        )

    arms, means = control.by_lanes(called, *given)
    return arms[0], means[0]
