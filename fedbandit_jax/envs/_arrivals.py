"""Users who come one at a time, come again and are alike within clusters: what `clustered` and `community` share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key, Real

from fedbandit_jax.core import random, validate
from fedbandit_jax.envs._rewards import RewardLaw
from fedbandit_jax.interfaces import Feedback, Round

MAX_USERS = 10**6  # limit on n_users, so that the statistics of all users fit into memory


def arrive(key: Key[Array, ""], cumulative: Float[Array | np.ndarray, " n"]) -> Int[Array, " 1"]:
    """Draws the user who comes, given the cumulative probabilities of all users."""
    u = random.uniform(key, (1,))
    return jnp.minimum(jnp.searchsorted(jnp.asarray(cumulative), u), len(cumulative) - 1).astype(jnp.int32)


class UserWorld(NamedTuple):
    """The users of one seed."""

    thetas: Float[Array, "n d"]  # preference vector of every user
    cluster: Int[Array, " n"]  # true cluster of every user, in 0 ... m - 1


class KnownUsers:
    """Base class of environments whose users have the preference vectors of a `UserWorld`."""

    rewards: RewardLaw

    def pull(self, key: Key[Array, ""], world: UserWorld, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Draws the reward of the items shown to the user who came, and returns it with their gaps."""
        assert offered.user is not None
        means = jnp.matmul(offered.contexts[0], world.thetas[offered.user[0]], precision="highest")
        return self.rewards.feedback(key, means.max(), means[arms])

    def clusters(self, world: UserWorld) -> Int[Array, " n"]:
        """Returns the true cluster of every user."""
        return world.cluster


def cumulative(arrivals: str | Sequence[float] | Real[np.ndarray, " n"], n_users: int) -> Float[np.ndarray, " n"]:
    """Checks `arrivals`, "uniform" or n weights > 0, and returns the cumulative probabilities of users."""
    if isinstance(arrivals, str):
        validate.one_of("arrivals", arrivals, ("uniform",))
        arrivals = np.ones(n_users)
    weights = validate.finite_array("arrivals", arrivals, ndim=1).astype(float)
    if len(weights) != n_users or not weights.min() > 0:
        got = f"{len(weights)} weights, the least {weights.min(initial=math.inf):g}"
        raise ValueError(f"arrivals must be 'uniform' or {n_users} weights > 0, one a user, got {got}")
    return (np.cumsum(weights) / weights.sum()).astype(np.float32)


def population(n_users: int, n_servers: int, n_clusters: int) -> tuple[int, int, int]:
    """Checks and returns the numbers of users, servers and clusters; there must be no more of these than users."""
    n = validate.integer("n_users", n_users, at_least=1)
    if n > MAX_USERS:
        raise ValueError(f"n_users must be at most {MAX_USERS:,}, got {n:,}")
    for name, count in (("n_servers", n_servers), ("n_clusters", n_clusters)):
        if validate.integer(name, count, at_least=1) > n:
            raise ValueError(f"{name} must be at most the {n} users, got {count}")
    return n, n_servers, n_clusters
