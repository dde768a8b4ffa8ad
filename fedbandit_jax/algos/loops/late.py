"""Delayed rewards, and the table of pending ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core import ridge
from fedbandit_jax.interfaces import Round, Spec


class Late(NamedTuple):
    """The pending rewards of every silo, from the last L rounds."""

    x: Array  # (L, M, d) features of the arms played, zero before the first round
    y: Array  # (L, M) rewards
    user: Array | None  # (L, M), if users are identified

    @classmethod
    def none(cls, spec: Spec) -> Late | None:
        """Returns the table before the first round; None if no reward is delayed."""
        if not spec.late:
            return None
        shape = spec.late, spec.n_agents
        user = jnp.full(shape, spec.n_users, jnp.int32) if spec.n_users else None
        return cls(jnp.zeros((*shape, spec.dim)), jnp.zeros(shape), user)


def arrived(late: Late | None, offered: Round, arms: Array, rewards: Array) -> tuple[Array, Array, Array | None, Any]:
    """Returns features (d, M), rewards (M,) and users (M,) of the rewards that arrive in a round, and the new table."""
    x = ridge.take(offered.contexts, arms)
    if late is None:
        return x, rewards, offered.user, None
    assert offered.arrives is not None
    which, silo, most = offered.arrives, jnp.arange(len(rewards)), len(late.y)
    exists = (which >= 0) & (which < most)  # otherwise nothing arrives
    at = jnp.where(exists, which, most), silo
    now = Late(x.T, rewards, offered.user)
    old = jax.tree.map(lambda table: table.at[at].get(mode="fill", fill_value=0), late)
    user = None if old.user is None else jnp.where(exists, old.user, 2**30)
    return old.x.T, old.y, user, jax.tree.map(lambda table, row: table.at[at].set(row, mode="drop"), late, now)
