"""Ties among arms are broken by lot, so the order of arms has no influence.

Before the first release a greedy index is 0 for all arms, and confidence bounds depend on the norm only. Without lots
all agents would play the same arm.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int, Key, UInt32

from fedbandit_jax.core import control, random
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.ridge import NOWHERE

ROUNDING = 1e-6  # relative float32 error within which indices are tied
UNKNOWN, LEAST, NONE = np.uint32(0), np.uint32(1 << 31), np.uint32(2**32 - 1)  # a lot of NaN; range of the others


class Lots(NamedTuple):
    """Lots of a round: the lot of arm k and agent m is a function of word k and word m."""

    arm: UInt32[Array, " K"]
    agent: UInt32[Array, " M"]

    @classmethod
    def draw(cls, key: Key[Array, ""], n_arms: int, n_agents: int) -> Lots:
        """Draws the lots of a round from the key of its choices."""
        arm, agent = random.bits(random.stream(key, "ties"), max(n_arms, n_agents))
        return cls(arm[:n_arms], agent[:n_agents])


def near(largest: Float[Array, "*M"]) -> Float[Array, "*M"]:
    """Returns the least index tied with the largest."""
    return largest - jnp.where(jnp.isfinite(largest), ROUNDING * jnp.abs(largest), 0)


def drawn(
    scores: Float[Array, " K *M"], least: Float[Array, "*M"], words: UInt32[Array, " K *M"], arms: Array, n_arms: int
) -> UInt32[Array, " K *M"]:
    """Returns the lots of arms, with the arm in their low bits for `arm_of`; `NONE` for scores below the least.

    `words` are sums of two words; a multiplication separates the lots of all pairs.
    """
    lot = (words ^ words >> 16) * np.uint32(0x85EBCA6B)
    lot = (lot | LEAST) & ~np.uint32(_low(n_arms)) | arms.astype(jnp.uint32)
    return jnp.where(jnp.isnan(scores), UNKNOWN, jnp.where(scores >= least, lot, NONE))


def arm_of(lot: UInt32[Array, "*M"], n_arms: int) -> Int[Array, "*M"]:
    """Returns the arm of the smallest lot, or `NOWHERE` if a score was NaN."""
    return jnp.where(lot < LEAST, NOWHERE, (lot & np.uint32(_low(n_arms))).astype(jnp.int32))


def _low(n_arms: int) -> int:
    return (1 << (n_arms - 1).bit_length()) - 1


def best(key: Key[Array, ""], scores: Float[Array, " K M"]) -> Int[Array, " M"]:
    """Returns the argmax over the leading axis, with ties broken by lot; `NOWHERE` if any score is NaN."""
    arms = lax.broadcasted_iota(jnp.int32, scores.shape, 0)

    def by_lot(least: Array) -> Array:
        lots = Lots.draw(key, *scores.shape)
        return drawn(scores, least, lots.arm[:, None] + lots.agent, arms, len(scores))

    if not on_cpu():
        # XLA:GPU takes a maximum compared to scores for a softmax, but not `argmax`. For a `min` over arms of many
        # agents it would transpose all inputs of the scores.
        largest = jnp.take_along_axis(scores, jnp.argmax(scores, 0)[None], 0)[0]
        lot = by_lot(near(largest))
        least = lot.min(0) if scores.shape[1] == 1 else jnp.take_along_axis(lot, jnp.argmin(lot, 0)[None], 0)[0]
        return arm_of(least, len(scores))
    least = near(scores.max(0))
    bits = (len(scores) - 1).bit_length()
    if bits > 15:
        return arm_of(by_lot(least).min(0), len(scores))
    # One pass counts the best arms in the high bits, and adds up their indices in the low ones. NaN counts as best.
    found = jnp.where(scores < least, 0, (1 << bits) + arms.astype(jnp.uint32)).sum(0, dtype=jnp.uint32)
    only = (found & np.uint32((1 << bits) - 1)).astype(jnp.int32)
    tied = found >> bits != 1
    return control.cond_any(tied.any(), lambda _: arm_of(by_lot(least).min(0), len(scores)), only)
