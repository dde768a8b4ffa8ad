"""What linear agents do inside a batch: score the offered arms optimistically, play the best, learn or wait."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedbandit_jax.algos.linear._confidence import LogDetWidth, Width
from fedbandit_jax.core import ridge
from fedbandit_jax.core.ridge import Posterior
from fedbandit_jax.interfaces import Round


class Scores(NamedTuple):
    """Estimates of every arm, kept up to date from round to round when the contexts are fixed."""

    mean: Array  # (K, M) <x, theta>
    width_sq: Array  # (K, M) x' V^-1 x


class Local(NamedTuple):
    """The agents' estimates inside a batch."""

    posterior: Posterior  # A = M, or A = 1 while nobody learns inside the batch
    table: Scores | None  # when contexts are fixed
    width: Width | LogDetWidth  # of the confidence set, valid for the whole batch


class Record(NamedTuple):
    """What an agent remembers of a round until the batch ends."""

    x: Array  # (d, M) features played
    y: Array  # (M,) rewards


def score(posterior: Posterior, contexts: Array) -> Scores:
    """Estimates of contexts (M, K, d)."""
    return Scores(ridge.inner(contexts, posterior.theta), ridge.width_sq(contexts, posterior.inverse))


def start(posterior: Posterior, width: Width | LogDetWidth, offered: Round, fixed_contexts: bool) -> Local:
    """Begin a batch; fixed contexts are scored once."""
    return Local(posterior, score(posterior, offered.contexts) if fixed_contexts else None, width)


def act(t: Array, local: Local, offered: Round) -> Array:
    """Optimistic arms (M,): argmax of <x, theta> + beta_t sqrt(x' V^-1 x), the first one on ties."""
    scores = local.table or score(local.posterior, offered.contexts)
    index = scores.mean + local.width(t) * jnp.sqrt(jnp.maximum(scores.width_sq, 0))
    if offered.mask is not None:
        index = jnp.where(offered.mask.T, index, -jnp.inf)
    return ridge.first_argmax(index)


def learn(local: Local, offered: Round, record: Record) -> Local:
    """One Sherman-Morrison step per agent; a table of K arms follows in O(K d)."""
    gain = ridge.gain(local.posterior, record.x, record.y)
    table = local.table
    if table is not None:
        change = ridge.inner(offered.contexts, gain.image)  # x_a' V^-1 x for every arm a
        table = Scores(table.mean + change * gain.residual, table.width_sq - change * change * gain.scale)
    return Local(ridge.update(local.posterior, gain), table, local.width)
