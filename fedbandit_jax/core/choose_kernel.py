"""Choosing arms on a GPU by one kernel that draws, scores and picks; the oracle uses whole arrays."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, Integer

from fedbandit_jax.core import control
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.ridge import NOWHERE
from fedbandit_jax.core.scoring import Offer, Scorer

TILE = 256  # (arm, agent) pairs of a block at a time, two for every thread
FEW, MANY = 8, 32  # agents of a block, powers of two; few spread a small problem over the device
LARGE = 4096  # agents of all runs from which blocks have MANY, to waste less of their last tile
LOADED = 64  # numbers of agents loaded at once; of more, Triton would move some through shared memory


def choose_by_kernel(
    offer: Offer, scorer: Scorer, n_arms: int, agents: Integer[Array, " A"]
) -> tuple[Int[Array, " A"], Float[Array, " A"]]:
    """Chooses arms on a GPU, by one kernel that draws contexts, scores them, and stores only the choice.

    A number of one (arm, agent) pair lives in a register of one thread until the arm is scored. Pallas' Triton backend
    maps a tile of `TILE` pairs to the 128 threads of a block. A block owns a few agents and keeps their state in
    registers. It loops over the arms, a few at a time. Each thread keeps its best arm. At the end the threads of an
    agent reduce to the first best. On a CPU Pallas' interpreter runs it, so a test compares it to whole arrays.

    Rows of agents are loaded several at a time. For every load Triton walks through the whole kernel, which was two
    thirds of the time to compile 20 features.

    The functions of `offer` use no arrays except their arguments. They and `scorer.worth` get the leaves of `shared`
    and `scorer` as tuples of rows, to be indexed by Python integers. A leaf (n,) in `shared` becomes n scalars, a leaf
    (n, A) in `scorer` n rows of agents. Arms and agents beyond the last are drawn and dropped.
    """
    from jax.experimental import pallas as pl  # imported late: only GPUs need Triton
    from jax.experimental.pallas import triton

    n_agents = len(agents)
    leaves, treedef = jax.tree.flatten((offer.shared, scorer))
    n_shared, leaves = len(jax.tree.leaves(offer.shared)), [jnp.asarray(leaf) for leaf in leaves]
    single = [leaf.ndim < (1 if i < n_shared else 2) for i, leaf in enumerate(leaves)]
    given = [leaf.reshape(-1) for leaf in leaves[:n_shared]]
    given += [leaf.reshape(-1, *leaf.shape[-1:] or (1,)) for leaf in leaves[n_shared:]] + [agents[None]]

    def kernel(wide, *refs):
        high = TILE // wide
        *refs, numbers, arms, means = refs
        exists = pl.program_id(0) * wide + lax.broadcasted_iota(jnp.int32, (1, wide), 1) < n_agents

        def rows(ref):
            if len(ref.shape) == 1:
                return [ref[n] for n in range(len(ref))]
            if ref.shape[-1] == 1:
                return [ref[n, 0] for n in range(len(ref))]
            found = []
            while left := len(ref) - len(found):
                size = min(LOADED // wide, 1 << left.bit_length() - 1)
                block = triton.load(ref.at[pl.ds(len(found), size), :], mask=exists, other=0)
                found += lax.split(block, [1] * size)
            return found

        def leaf(ref, single):
            return rows(ref)[0] if single else tuple(rows(ref))

        shared, own = jax.tree.unflatten(treedef, map(leaf, refs, single))
        agent = rows(numbers)[0]

        def look(step, found):
            score, arm, best, unknown = found
            new = step * high + lax.broadcasted_iota(jnp.int32, (high, wide), 0)
            offered = new < n_arms
            x = offer.draw(shared, new.astype(jnp.uint32), agent)
            index = own.worth(x)
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
