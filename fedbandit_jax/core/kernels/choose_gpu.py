"""The choice among K arms on a GPU: one kernel that draws contexts, scores them and picks, and stores only the pick.

Stored contexts of M agents are M K d numbers, which every round writes to memory and reads back. Here a number that
belongs to one arm of one agent lives in a register of one thread, and is gone when the arm has been scored. The kernel
is written in Pallas, whose Triton backend maps a tile of `TILE` (arm, agent) pairs to the 128 threads of a block. A
block owns a few agents, keeps what they know in registers, and walks through the arms, a few at a time. Each thread
remembers the best arm that it has seen; at the end the threads of an agent agree on the first of the best.

The functions that draw and score are ordinary elementwise JAX programs. On a CPU the kernel runs in Pallas'
interpreter, so that a test compares it to the same functions on whole arrays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Float, Int, UInt32

from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.ridge import NOWHERE

TILE = 256  # (arm, agent) pairs that a block works on at a time, two for every thread
FEW, MANY = 8, 32  # agents of a block, powers of two: few, so that a small problem is spread over the whole device
LARGE = 4096  # number of agents from which on a block takes many, and fewer of its last tile lie beyond the last arm

Draw = Callable[[Any, Array, Array], Sequence[Array]]
Worth = Callable[[Any, Sequence[Array]], Array]
Mean = Callable[[Any, Sequence[Array]], Array]


def choose(
    draw: Draw, worth: Worth, mean: Mean, shared: Any, own: Any, n_arms: int, agents: UInt32[Array, " A"]
) -> tuple[Int[Array, " A"], Float[Array, " A"]]:  # fmt: skip
    """Returns the first arm of the largest index of every agent, and the largest mean.

    The three functions are elementwise programs on arrays that broadcast to one shape, whose last axis is the agents,
    and they use no arrays but their arguments. They are given the leaves of `shared` and `own` as the tuples of their
    rows: a leaf of shape (n,) in `shared` as n scalars, one of shape (n, A) in `own` as n rows of agents, and a scalar
    as itself. Arms and agents beyond the last are drawn, too, and dropped.

    Args:
        draw: (shared, arm, agent) -> the d features of these arms (uint32) of these agents (uint32).
        worth: (own, features) -> what the arm is worth to its agent.
        mean: (shared, features) -> the mean of its reward.
        shared: a pytree of small arrays that all agents share, of shape () or (n,).
        own: a pytree of arrays whose last axis is the agents, or 1 if they share it; of shape (), (A,) or (n, A).
        n_arms: K.
        agents: by which numbers `draw` knows the agents.

    Returns:
        The arms, int32, `ridge.NOWHERE` for agents any of whose indices is NaN; and the largest means, float32.
    """
    n_agents = len(agents)
    wide = MANY if n_agents >= LARGE else FEW
    high = TILE // wide
    leaves, treedef = jax.tree.flatten((shared, own))
    n_shared, leaves = len(jax.tree.leaves(shared)), [jnp.asarray(leaf) for leaf in leaves]
    single = [leaf.ndim < (1 if i < n_shared else 2) for i, leaf in enumerate(leaves)]
    given = [leaf.reshape(-1) for leaf in leaves[:n_shared]]
    given += [leaf.reshape(-1, *leaf.shape[-1:] or (1,)) for leaf in leaves[n_shared:]]

    def kernel(*refs):
        *refs, numbers, arms, means = refs
        exists = pl.program_id(0) * wide + lax.broadcasted_iota(jnp.int32, (1, wide), 1) < n_agents

        def row(ref, n):
            """Returns row n of a leaf: a scalar, or what the agents of this block have, (1, wide)."""
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
            x = draw(shared, new.astype(jnp.uint32), agent)
            index = worth(own, x)
            higher = offered & (index > score)
            best = jnp.where(offered, jnp.maximum(best, mean(shared, x)), best)
            unknown = jnp.where(offered & jnp.isnan(index), 1, unknown)
            return jnp.where(higher, index, score), jnp.where(higher, new, arm), best, unknown

        lowest, zeros = jnp.full((high, wide), -jnp.inf, jnp.float32), jnp.zeros((high, wide), jnp.int32)
        score, arm, best, unknown = lax.fori_loop(0, pl.cdiv(n_arms, high), look, (lowest, zeros, lowest, zeros))
        first = jnp.where(score == score.max(0), arm, NOWHERE).min(0)
        triton.store(arms.at[:, :], jnp.where(unknown.max(0) == 1, NOWHERE, first)[None], mask=exists)
        triton.store(means.at[:, :], best.max(0)[None], mask=exists)

    def block(leaf):
        if leaf.ndim == 1 or leaf.shape[1] == 1:
            return pl.BlockSpec(leaf.shape, lambda i: (0,) * leaf.ndim)
        return pl.BlockSpec((len(leaf), wide), lambda i: (0, i))

    arms, means = pl.pallas_call(
        kernel,
        [jax.ShapeDtypeStruct((1, n_agents), kind) for kind in (jnp.int32, jnp.float32)],
        grid=(pl.cdiv(n_agents, wide),),
        in_specs=[*map(block, given), block(agents[None])],
        out_specs=[pl.BlockSpec((1, wide), lambda i: (0, i))] * 2,
        interpret=on_cpu(),
        name="choose",
        compiler_params=None if on_cpu() else triton.CompilerParams(num_warps=4, num_stages=1),
    )(*given, agents[None])
    return arms[0], means[0]
