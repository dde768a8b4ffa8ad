"""Returning users: their number, their probabilities and draws; and a wrapper whose silos serve n users repeatedly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key, Real
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Feedback, Round

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
    n = validate.integer("n_users", n_users, at_least=1)
    if n > MAX_USERS:
        raise BadValue("n_users", f"must be at most {MAX_USERS:,}", n, got=f"{n:,}")
    for name, count in (("n_servers", n_servers), ("n_clusters", n_clusters)):
        if validate.integer(name, count, at_least=1) > n:
            raise BadValue(name, f"must be at most the {n} users", count)
    return n, n_servers, n_clusters


def session(env: Any) -> int:
    """Returns the rounds for which a user stays, also in wrapped environments."""
    while env is not None and not hasattr(env, "session"):
        env = getattr(env, "env", None)
    return 1 if env is None else int(env.session)


@struct.pytree
class Returning(Wrapper):
    """An environment with n identified users in each silo; made by `returning`."""

    arrivals: Float[Array | np.ndarray, " n"]  # cumulative arrival probabilities of users
    session: struct.Number  # rounds for which a user stays

    @override
    def init(self, key: Key[Array, ""]) -> Any:
        return self.env.init(key), jnp.zeros(self.spec.n_agents, jnp.int32)

    @override
    def observe(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Round, Any]:
        within, user = world
        offered, within = self.env.observe(random.stream(key, "offer"), within, t)
        user = jnp.where(t % self.session == 0, self.comers(random.stream(key, "who"), self.spec.n_agents), user)
        return offered._replace(user=user), (within, user)

    @override
    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        return self.env.pull(key, world[0], offered, arms)

    def comers(self, key: Key[Array, ""], size: int) -> Int[Array, " {size}"]:
        """Draws the next `size` users."""
        return drawn(self.arrivals, key, size)


@struct.pytree
class ReturningArms(Returning):
    """A multi-armed environment with returning users, many of them in a batch; made by `returning`."""

    def means(self, world: Any) -> Float[Array, " K"]:
        """Returns the mean reward of every arm."""
        return self.env.means(world[0])

    def answers(
        self, key: Key[Array, ""], world: Any, arm: Int[Array, ""], size: int
    ) -> tuple[Float[Array, " {size}//2"], Float[Array, " {size}//2"]]:
        """Returns the rewards of the wrapped environment."""
        return self.env.answers(key, world[0], arm, size)


def returning(env: Any, n_users: int, arrivals: str | Sequence[float] = "uniform", session: int = 1) -> Returning:
    """Wraps an environment with n returning users in each silo, independent of their offers.

    User u of one silo and user u of another are two people. In T rounds a user comes T / n times on average.

    Args:
        env: an environment with new users only (`spec.n_users` = 0).
        n_users: n, users of each silo, at most 10^6.
        arrivals: "uniform", or n weights > 0, proportional to arrival probabilities.
        session: consecutive rounds of a user; users change in all silos at the same time; 1 in a multi-armed
            environment.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.returning(fb.envs.sphere(n_agents=3, n_arms=5, dim=4), n_users=20)
        >>> offered, _ = env.observe(jax.random.key(0), env.init(jax.random.key(1)), jax.numpy.int32(0))
        >>> offered.user.shape, env.spec.n_users
        ((3,), 20)
    """
    spec = wrapped_spec(env)
    if spec.n_users:
        raise BadValue("env", "must have new users only", spec.n_users, got=f"{spec.n_users:,} returning users")
    n, _, _ = population(n_users, 1, 1)
    kind = ReturningArms if callable(getattr(env, "answers", None)) else Returning
    if validate.integer("session", session, at_least=1) > 1 and kind is ReturningArms:
        raise BadValue("session", "must be 1 in a multi-armed environment, which serves users in batches", session)
    stays = np.int32(validate.within("session", session, 1, 2**30))
    return kind(env=env, arrivals=cumulative(arrivals, n), session=stays, spec=dataclasses.replace(spec, n_users=n))
