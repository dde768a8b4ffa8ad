"""Arrivals of users: their number, their probabilities, and draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key, Real

from fedbandit_jax.core import random, validate
from fedbandit_jax.core.validate import BadValue

MAX_USERS = 10**6  # most users, for the memory of their statistics
LEAST = 2.0**-20  # least probability of a user, since draws are 2^-23 apart


def cumulative(arrivals: str | Sequence[float] | Real[np.ndarray, " n"], n_users: int) -> Float[np.ndarray, " n"]:
    """Checks `arrivals`, and returns the cumulative probabilities of users."""
    if isinstance(arrivals, str):
        validate.one_of("arrivals", arrivals, ("uniform",))
        arrivals = np.ones(n_users)
    weights = validate.finite_array("arrivals", arrivals, ndim=1).astype(float)
    if len(weights) != n_users or not weights.min() > 0:
        got = f"{len(weights)} weights, the least {weights.min(initial=math.inf):g}"
        raise BadValue("arrivals", f"must be 'uniform' or {n_users} weights > 0, one a user", got, got=got)
    if (least := weights.min() / weights.sum()) < LEAST:
        raise BadValue("arrivals", "must be at least 2^-20 of their sum, for each user to be drawn", least)
    return (np.cumsum(weights) / weights.sum()).astype(np.float32)


def drawn(arrivals: Float[Array | np.ndarray, " n"], key: Key[Array, ""], size: int) -> Int[Array, " {size}"]:
    """Draws users by their cumulative probabilities."""
    u = random.uniform(key, (size,))
    return jnp.minimum(jnp.searchsorted(jnp.asarray(arrivals), u), len(arrivals) - 1).astype(jnp.int32)


def population(n_users: int, n_servers: int, n_clusters: int) -> tuple[int, int, int]:
    """Checks the number of users, and the numbers of servers and clusters, at most as many."""
    n = validate.integer("n_users", n_users, at_least=1, at_most=MAX_USERS)
    for name, count in (("n_servers", n_servers), ("n_clusters", n_clusters)):
        if validate.integer(name, count, at_least=1) > n:
            raise BadValue(name, f"must be at most the {n} users", count)
    return n, n_servers, n_clusters


def session(env: Any) -> int:
    """Returns the rounds for which a user stays, also in wrapped environments."""
    while env is not None and not hasattr(env, "session"):
        env = getattr(env, "env", None)
    return 1 if env is None else int(env.session)
