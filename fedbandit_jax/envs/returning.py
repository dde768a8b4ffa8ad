"""Returning users: each silo of an environment serves n users repeatedly."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._arrivals import MAX_USERS, cumulative, drawn
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Feedback, Round


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
        session: consecutive rounds of a user, 1 in a multi-armed environment. Users change in all silos at the same
            time.

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
    n = validate.integer("n_users", n_users, at_least=1, at_most=MAX_USERS)
    kind = ReturningArms if callable(getattr(env, "answers", None)) else Returning
    stays = np.int32(validate.integer("session", session, at_least=1, at_most=2**30))
    if stays > 1 and kind is ReturningArms:
        raise BadValue("session", "must be 1 in a multi-armed environment, which serves users in batches", session)
    return kind(env=env, arrivals=cumulative(arrivals, n), session=stays, spec=dataclasses.replace(spec, n_users=n))
