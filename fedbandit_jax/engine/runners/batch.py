"""The loop over the rounds of a batch, and checks of rewards and gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import control
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.engine.record import Recording
from fedbandit_jax.interfaces import Algorithm, Feedback

GAP = 1e-3  # rounding error of a gap below 0, for rewards up to 1


class Streams(NamedTuple):
    """Keys (B,) of the rounds of a batch, shared by all configurations."""

    users: Array
    answers: Array
    choices: Array


class Played(NamedTuple):
    """A batch before its synchronisation."""

    world: Any
    local: Any  # the agents' local state; None if they were played in groups
    records: Any  # gathered by `Algorithm.gather`
    gap: Array  # (B,) summed over agents
    wrong: Array  # (B,) bool, whether anything violated the environment's spec
    recording: Recording | None = None  # extra records


def play_rounds(
    algo: Algorithm, play: Callable[[Any, Any], Any], carry: Any, now: Any
) -> tuple[Any, tuple[Any, Array, Array]]:
    """Runs `play` over a batch; returns the carry, and gathered records, gaps and violations."""
    if on_cpu():
        carry, (records, gap, wrong) = lax.scan(play, carry, now)
        return carry, (algo.gather(records), gap, wrong)

    rounds, streams = now
    b = len(rounds)

    def after(i, carry):  # without slices or updates by copy, so a batch is one CUDA graph
        t = rounds[0] + i
        return t, *play(carry, (t, jax.tree.map(lambda x: x[i], streams)))

    def add(i, carry):  # storing the records of many agents would take much of a GPU's memory
        carry, total, metrics = carry
        _, carry, (record, *new) = after(i, carry)
        total = jax.tree.map(jnp.add, total, algo.gather(jax.tree.map(lambda y: y[None], record)))
        here = lax.iota(jnp.int32, b) == i
        return carry, total, [jnp.where(here, x, old) for old, x in zip(metrics, new)]

    def keep(i, carry):
        carry, kept = carry
        t, carry, new = after(i, carry)
        return carry, control.put_row(kept, i, new, t)

    record, *new = jax.eval_shape(lambda: play(carry, jax.tree.map(lambda x: x[0], now))[1])
    metrics = [jnp.zeros(b, x.dtype) for x in new]
    if not algo.adds:
        records = jax.tree.map(lambda x: jnp.zeros((b, *x.shape), x.dtype), record)
        carry, (records, gap, wrong) = lax.fori_loop(0, b, keep, (carry, (records, *metrics)))
        return carry, (algo.gather(records), gap, wrong)
    empty = algo.gather(jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), record))
    carry, total, (gap, wrong) = lax.fori_loop(0, b, add, (carry, empty, metrics))
    return carry, (total, gap, wrong)


def allowed(reward: Array, refused: Array, in_unit: bool) -> tuple[Array, Array]:
    """Enforces the spec on rewards (M,), 0 if refused or not finite; also returns which (M,) have changed."""
    wrong = refused | ~jnp.isfinite(reward)
    reward = jnp.where(wrong, 0, reward)
    if not in_unit:
        return reward, wrong
    clipped = jnp.clip(reward, 0, 1)
    return clipped, wrong | (clipped != reward)


def impossible(feedback: Feedback) -> Array:
    """Returns whether a gap is negative, which no maximum over arms allows."""
    return feedback.gap < -GAP * (1 + jnp.abs(feedback.reward))
