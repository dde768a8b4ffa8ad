"""Beliefs of a policy after each release. Beliefs with non-finite numbers are dropped."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core.programs import call
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces import Policy, Released, Status


def finite_or(old: Any, fresh: Any) -> tuple[Any, Array]:
    """Returns a fresh belief if all its numbers are finite, the old one otherwise, and `Status` bits.

    Raises:
        TypeError: the two beliefs have different structures or shapes.
    """
    fresh = jax.tree.map(jnp.asarray, fresh)
    (leaves, kind), (others, like) = (jax.tree.flatten(belief) for belief in (fresh, old))
    if kind != like or [leaf.shape for leaf in leaves] != [leaf.shape for leaf in others]:
        must = f"must return a belief shaped like that of its start, {old}"
        raise BadType("a policy's update", must, fresh, got=fresh)
    finite = [jnp.isfinite(x).all() for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    ok = jnp.stack(finite).all() if finite else jnp.bool_(True)
    belief = jax.tree.map(lambda new, old: jnp.where(ok, new, old), fresh, old)
    return belief, jnp.where(ok, jnp.int32(0), jnp.int32(Status.NO_ESTIMATE))


def first_belief(policy: Policy, dim: int) -> tuple[Any, Array]:
    """Returns the belief before the first release, zeros if it is not finite, and `Status` bits."""
    belief = jax.tree.map(jnp.asarray, call(policy, "start", dim))
    return finite_or(jax.tree.map(jnp.zeros_like, belief), belief)


def next_belief(policy: Policy, k: Array, belief: Any, released: Released) -> tuple[Any, Array]:
    """Returns the belief after release k = 0, 1, ..., the old one if it is not finite, and `Status` bits."""
    return finite_or(belief, call(policy, "update", k, belief, released))
