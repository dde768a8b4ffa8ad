"""The loop over the rounds of a batch, its result, and checks of rewards and gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import control
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.engine.recorder import Recording
from fedbandit_jax.interfaces import Algorithm, Feedback

GAP = 1e-3  # how far below 0 rounding may bring a gap, for rewards up to 1


class Streams(NamedTuple):
    """The keys (B,) of the rounds of a batch, in the streams that all configurations share."""

    users: Array
    answers: Array
    choices: Array


class Played(NamedTuple):
    """The result of a batch before its synchronisation."""

    world: Any
    local: Any  # the agents' local state; None if they were played in groups
    records: Any  # what `Algorithm.gather` made of their records
    gap: Array  # (B,) summed over agents
    wrong: Array  # (B,) bool: whether anything was not as the environment's spec says
    recording: Recording | None = None  # what is recorded beside the curves


def play_rounds(
    algo: Algorithm, play: Callable[[Any, Any], Any], carry: Any, now: Any
) -> tuple[Any, tuple[Any, Array, Array]]:
    """The carry after a batch, gathered records, gaps and wrongs; `play` maps (carry, now) to (carry, these)."""
    if on_cpu():
        carry, (records, gap, wrong) = lax.scan(play, carry, now)
        return carry, (algo.gather(records), gap, wrong)

    rounds, streams = now
    b = len(rounds)

    def after(i, carry):  # nothing is cut out or put in by a copy, so that a batch is one graph
        t = rounds[0] + i
        return t, *play(carry, (t, jax.tree.map(lambda x: x[i], streams)))

    def add(i, carry):  # a GPU has many agents at once: the records of a batch would take much of its memory
        carry, total, told = carry
        _, carry, (record, *new) = after(i, carry)
        total = jax.tree.map(jnp.add, total, algo.gather(jax.tree.map(lambda y: y[None], record)))
        here = lax.iota(jnp.int32, b) == i
        return carry, total, [jnp.where(here, x, old) for old, x in zip(told, new)]

    def keep(i, carry):
        carry, told = carry
        t, carry, new = after(i, carry)
        return carry, control.put_row(told, i, new, t)

    record, *new = jax.eval_shape(lambda: play(carry, jax.tree.map(lambda x: x[0], now))[1])
    told = [jnp.zeros(b, x.dtype) for x in new]
    if not algo.adds:
        records = jax.tree.map(lambda x: jnp.zeros((b, *x.shape), x.dtype), record)
        carry, (records, gap, wrong) = lax.fori_loop(0, b, keep, (carry, (records, *told)))
        return carry, (algo.gather(records), gap, wrong)
    empty = algo.gather(jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), record))
    carry, total, (gap, wrong) = lax.fori_loop(0, b, add, (carry, empty, told))
    return carry, (total, gap, wrong)


def allowed(reward: Array, refused: Array, in_unit: bool) -> tuple[Array, Array]:
    """Rewards (M,) as the spec allows them, 0 if refused or infinite, and which of them (M,) have changed."""
    wrong = refused | ~jnp.isfinite(reward)
    reward = jnp.where(wrong, 0, reward)
    if not in_unit:
        return reward, wrong
    clipped = jnp.clip(reward, 0, 1)
    return clipped, wrong | (clipped != reward)


def impossible(feedback: Feedback) -> Array:
    """Whether a gap is below 0, though it is the largest mean reward offered, less that of the arm played."""
    return feedback.gap < -GAP * (1 + jnp.abs(feedback.reward))
