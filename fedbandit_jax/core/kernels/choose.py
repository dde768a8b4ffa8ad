"""Choosing arms without storing what was offered: features are drawn, scored and forgotten, one arm after another.

In a run with fresh contexts most of the time goes into K feature vectors for every agent, of which one is played. If a
draw is a function of (key, arm, agent), and the worth of an arm one of its own features, then nothing of this needs
memory: each (arm, agent) is drawn, scored and compared in registers, and the features of the arm that won are drawn
again, once. There are three ways to the same arms:

- *stored*: the environment makes all contexts and the policy scores them (`RoundClock` does that without this file).
  It is the oracle, and serves whatever else must see all contexts: masks, tables, policies of one's own, and many
  configurations that share them.
- *fused*, below, for XLA:CPU and what else is no GPU. XLA:CPU compiles an elementwise expression of any length into
  one loop without intermediate arrays, but it would write two such loops for two results (index and mean), and copy
  the expression into every other one that reads them. So both are the parts of one complex number, made in a
  `while_loop` of one turn (`control.once`), which XLA does not see through. Whichever of arms and agents is longer is
  the last axis, where the vector units work.
- *kernel*, for GPUs, in `choose_gpu`: one Pallas kernel that also finds the largest.

Contexts that are rows of a table, of which each agent is offered another number, are chosen among in `choose_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, Integer

from fedbandit_jax.core import control, ridge
from fedbandit_jax.core.backend import on_gpu

LANES = 64  # agents that fill vectors and their pipelines; with fewer, arms are the last axis if there are more of them


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


def choose(
    offer: Offer, scorer: Scorer, n_arms: int, agents: Integer[Array, " A"], t: Int[Array, ""]
) -> tuple[Int[Array, " A"], Float[Array, " A"]]:
    """Returns the first arm of the largest index of every agent, see `ridge.first_argmax`, and the largest mean.

    On a GPU the functions are given arrays row by row, as tuples of scalars or of what single agents have, see
    `choose_gpu`: they index the first axis of an array with numbers, or make a list of it.

    Args:
        offer: what is offered.
        scorer: what it is worth.
        n_arms: K.
        agents: their numbers, uint32.
        t: any traced integer that is the same for all lanes of a vmap, see `control.once`.
    """
    if on_gpu():
        from fedbandit_jax.core.kernels import choose_gpu  # only GPUs need Triton

        return choose_gpu.choose(offer.draw, scorer.worth, offer.mean, offer.shared, scorer.own, n_arms, agents)
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
