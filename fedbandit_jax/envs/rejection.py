"""A log replayed without a model: rows count only where the arm that is played is the one that was shown."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key

from fedbandit_jax.core import random, struct
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.interfaces import Feedback, Round, Spec


class Queue(NamedTuple):
    """The queues of rows of all silos under one seed, and the silos' places in them."""

    order: Int[Array, " N"]  # rows, those of a silo together
    used: Int[Array, " M"]  # rows that a silo has offered so far
    refused: Bool[Array, " M"]  # who has not had an accepted arm in this round


@struct.pytree
class Rejection:
    """An environment of logged rewards, without a model; made by `rejection`."""

    env: Any  # of `fb.data.table`
    least: Float[Array | np.ndarray, " M"]  # the least propensity of a silo
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> Queue:
        """Draws the order of the rows of every silo."""
        n = len(self.env.rows)
        place = jnp.searchsorted(jnp.asarray(self.env.starts), jnp.arange(n), side="right")
        order = jnp.lexsort((random.uniform(key, (n,)), place)).astype(jnp.int32)
        return Queue(order, jnp.zeros(self.spec.n_agents, jnp.int32), jnp.zeros(self.spec.n_agents, bool))

    def observe(self, key: Key[Array, ""], world: Queue, t: Int[Array, ""]) -> tuple[Round, Queue]:
        """Offers the next row to silos whose arm was refused, or to all of them in a new round."""
        refused = world.refused | ~world.refused.any()
        world = world._replace(used=world.used + refused, refused=refused)
        return self.env.offer(self._row(world)), world

    def accepts(self, key: Key[Array, ""], world: Queue, arms: Int[Array, " M"]) -> tuple[Bool[Array, " M"], Queue]:
        """Accepts the arm that was shown, so often that all are accepted with the same probability."""
        row, log = self._row(world), self.env.log
        u = random.uniform(key, arms.shape)
        same = (arms == jnp.asarray(log.arm)[row]) & (u * jnp.asarray(log.propensity)[row] < self.least)
        refused = world.refused & ~same & ~self._over(world)
        return ~refused, world._replace(refused=refused)

    def pull(self, key: Key[Array, ""], world: Queue, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """The logged rewards, NaN where a silo has no rows left, and their distances to 1 as gaps."""
        reward = jnp.asarray(self.env.log.reward)[self._row(world)]
        nothing = world.refused | self._over(world)
        return Feedback(jnp.where(nothing, jnp.nan, reward), jnp.where(nothing, 1, 1 - reward))

    def _row(self, world: Queue) -> Array:
        return world.order[jnp.asarray(self.env.starts) + jnp.minimum(world.used, self.env.counts) - 1]

    def _over(self, world: Queue) -> Array:
        return world.used > jnp.asarray(self.env.counts)


def rejection(env: Any) -> Rejection:
    """The log of an environment of `fb.data.table` with its own rewards, where arms were drawn at random.

    Every silo has its rows in random order. If the arm that is played is not the one that was shown, the row is left
    out, and the next one is offered, until an arm is accepted. Where the arm of a row was shown with probability p, it
    is then accepted with probability c / p, c the least p of its silo, so that rows which count are distributed as
    those of the silo, and rewards are unbiased, whatever was fitted. Every row is offered once, and about a share c of
    them counts: a silo without rows left sets the status `OUTSIDE_SPEC`.

    Nobody knows the best arm of a row, so the gap of a round is 1 less the reward, and "regret" what rewards lack to 1:
    differences between algorithms are those of regret.

    Certificates are about the accepted users in their rounds, whose rewards and features may be replaced, and not about
    rows of the log, as they say. Which rows are accepted, and when, depends on the arms that were shown and on what was
    released before: another arm in one row lets later ones come a round earlier or later, and so moves later sums by
    more than one user's share.

    Args:
        env: an environment of `fb.data.table` whose `propensity` is a column; `fit_share` says how few rows it has.

    Raises:
        TypeError, ValueError: `env` is none of that kind, or has no propensities.

    Reference: Li, Chu, Langford & Wang (2011), "Unbiased offline evaluation of contextual-bandit-based news article
        recommendation algorithms", Algorithm 2; here in every silo.

    Example:
        >>> import jax, numpy as np, fedbandit_jax as fb
        >>> rng = np.random.default_rng(0)
        >>> place, arm = rng.integers(0, 3, 900), rng.integers(0, 2, 900)
        >>> log = dict(school=place, size=arm, passed=rng.random(900) < 0.4 + 0.3 * arm, p=np.full(900, 0.5))
        >>> env = fb.data.table(log, silo="school", arm="size", reward="passed", propensity="p", fit_share=0.1)
        >>> world = fb.envs.rejection(env).init(jax.random.key(0))
        >>> sorted(world.order[: env.counts[0]].tolist()) == list(range(env.counts[0]))
        True
    """
    if not hasattr(env, "log"):
        raise BadType("env", "must be an environment of fb.data.table", env)
    if env.log.propensity is None:
        raise BadValue(
            "env", "must have propensities", None, got="a table without: name their column in fb.data.table(...)"
        )
    basis = (
        f"Rewards are those of {env.fit.source}, of rows that showed the arm which was played, each at most once; "
        "there is no model, and regret is what they lack to 1."
    )
    least = np.minimum.reduceat(np.asarray(env.log.propensity), np.asarray(env.starts))
    return Rejection(env=env, least=least, spec=dataclasses.replace(env.spec, basis=basis, rejects=True))
