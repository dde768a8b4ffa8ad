"""A log as an environment: a fitted model answers for any arm, or rows count whose logged arm is played."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Bool, Float, Int, Integer, Key
from typing_extensions import override

from fedbandit_jax.core import random, struct
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.envs._linear import LinearEnvironment
from fedbandit_jax.interfaces import Feedback, Round, Spec

MODELS = ("linear", "logistic")


class Log(NamedTuple):
    """Logged arms and rewards of the replayed rows, hidden from algorithms: (N,) arrays, in the order of silos."""

    row: Int[Array | np.ndarray, " N"]  # index of the row in the table, from 0
    arm: Int[Array | np.ndarray, " N"]  # played
    reward: Float[Array | np.ndarray, " N"]  # observed, in [0, 1]
    propensity: Float[Array | np.ndarray, " N"] | None = None  # probability of the played arm, if known


class Visits(NamedTuple):
    """Instance of one seed, with the users of a round."""

    theta: Float[Array, " d"]
    row: Int[Array, " M"]  # among the replayed rows, 0 ... N - 1


@struct.pytree
class FittedLaw:
    """Law on two values in [0, 1], with a model's mean and the residuals' standard deviation.

    If the mean is too close to 0 or 1 for this deviation, rewards are 0 or 1.
    """

    noise_std: struct.Number  # from 1/2 on all rewards are 0 or 1
    model: str = struct.static()  # one of `MODELS`

    def mean(self, z: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Returns the mean reward for <x, theta> = z."""
        return jax.nn.sigmoid(z) if self.model == "logistic" else jnp.clip(z, 0, 1)

    def draw(self, key: Key[Array, ""], mean: Float[Array, " A"], agent: Integer[Array, " A"]) -> Float[Array, " A"]:
        """Draws rewards of agents, given the means of their arms. Each draw is independent of the other agents."""
        tiny = jnp.finfo(jnp.float32).tiny
        variance = jnp.minimum(self.noise_std**2, mean * (1 - mean))
        std = jnp.sqrt(variance)
        # mean + up with probability down / (up + down), otherwise mean - down: variance up * down
        up = jnp.minimum(jnp.maximum(std, variance / jnp.maximum(mean, tiny)), 1 - mean)
        down = jnp.minimum(jnp.maximum(std, variance / jnp.maximum(1 - mean, tiny)), mean)
        u = random.uniform_at(key, jnp.uint32(0), agent.astype(jnp.uint32))
        rises = u * (up + down) < down
        return jnp.clip(jnp.where(rises, mean + up, mean - down), 0, 1)


@struct.pytree
class Logged(LinearEnvironment):
    """A linear bandit over the rows of a log; made by `fb.data.table`.

    In every round each silo serves one of its N_i rows, drawn uniformly, with any of K arms. The features of row z in
    R^p and arm w in R^q are w kron z, after a constant if the w are unit vectors.

    Attributes:
        log: arms, rewards and propensities of the replayed rows.
        encoding: description of how columns became features and rewards.
        fit: goodness of fit on held-out rows, and sizes of the table, an `fb.data.Fit`.
        shares: whether propensities are the shares of arms in the table, which are estimates.
    """

    rows: Float[Array | np.ndarray, "N p"]  # one silo after the other
    arms: Float[Array | np.ndarray, "K q"]
    starts: Int[Array | np.ndarray, " M"]  # first row of each silo
    counts: Int[Array | np.ndarray, " M"]  # number of rows of each silo
    users: Int[Array | np.ndarray, " N"] | None  # user of each row, if identified
    theta: Float[Array | np.ndarray, " d"]
    rewards: Any  # `FittedLaw`
    log: Log
    intercept: float | None = struct.static()  # constant entry before w kron z
    encoding: str = struct.static(repr=False)
    fit: Any = struct.static(repr=False)
    spec: Spec = struct.static()
    shares: bool = struct.static(default=False, later=True)

    def init(self, key: Key[Array, ""]) -> Visits:
        """Returns the fitted parameter, equal for every seed."""
        return Visits(jnp.asarray(self.theta), jnp.asarray(self.starts))

    @override
    def observe(self, key: Key[Array, ""], world: Visits, t: Int[ArrayLike, ""]) -> tuple[Round, Visits]:
        counts = jnp.asarray(self.counts)
        row = jnp.asarray(self.starts) + jax.random.randint(key, counts.shape, 0, counts)
        return self.offer(row), world._replace(row=row)

    def offer(self, row: Int[Array, " M"]) -> Round:
        """Returns the offers of silos to the users of these rows."""
        user = None if self.users is None else jnp.asarray(self.users)[row]
        return Round(joint(jnp.asarray(self.rows)[row], jnp.asarray(self.arms), self.intercept), user=user)


def joint(rows: Any, arms: Any, intercept: float | None) -> Any:
    """Returns the features (n, K, d) of rows (n, p) and arms (K, q): an optional constant, and w kron z."""
    xp = np if isinstance(rows, np.ndarray) else jnp
    pairs = arms[None, :, :, None] * rows[:, None, None, :]
    found = pairs.reshape(len(rows), len(arms), -1)
    if intercept is None:
        return found
    return xp.concatenate([xp.full_like(found[..., :1], intercept), found], -1)


class Queue(NamedTuple):
    """Queues of rows of all silos under one seed, and the silos' positions."""

    order: Int[Array, " N"]  # rows, grouped by silo
    used: Int[Array, " M"]  # rows that a silo has offered so far
    refused: Bool[Array, " M"]  # silos without an accepted arm in this round


@struct.pytree
class Rejection:
    """An environment of logged rewards, without a model; made by `rejection`."""

    env: Any  # from `fb.data.table`
    least: Float[Array | np.ndarray, " M"]  # least propensity of a silo
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> Queue:
        """Draws the order of the rows of every silo."""
        n = len(self.env.rows)
        place = jnp.searchsorted(jnp.asarray(self.env.starts), jnp.arange(n), side="right")
        order = jnp.lexsort((random.uniform(key, (n,)), place)).astype(jnp.int32)
        return Queue(order, jnp.zeros(self.spec.n_agents, jnp.int32), jnp.zeros(self.spec.n_agents, bool))

    def observe(self, key: Key[Array, ""], world: Queue, t: Int[Array, ""]) -> tuple[Round, Queue]:
        """Offers the next row to silos with a refused arm, or to all in a new round."""
        refused = world.refused | ~world.refused.any()
        world = world._replace(used=world.used + refused, refused=refused)
        return self.env.offer(self._row(world)), world

    def accepts(self, key: Key[Array, ""], world: Queue, arms: Int[Array, " M"]) -> tuple[Bool[Array, " M"], Queue]:
        """Accepts logged arms, thinned so that all have the same acceptance probability.

        `observe` offers another user to refused agents, and the same offer to the others.
        """
        row, log = self._row(world), self.env.log
        u = random.uniform(key, arms.shape)
        same = (arms == jnp.asarray(log.arm)[row]) & (u * jnp.asarray(log.propensity)[row] < self.least)
        refused = world.refused & ~same & ~self._over(world)
        return ~refused, world._replace(refused=refused)

    def pull(self, key: Key[Array, ""], world: Queue, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Returns the logged rewards, NaN for silos without rows left, and gaps of 1 minus the reward."""
        reward = jnp.asarray(self.env.log.reward)[self._row(world)]
        nothing = world.refused | self._over(world)
        return Feedback(jnp.where(nothing, jnp.nan, reward), jnp.where(nothing, 1, 1 - reward))

    def _row(self, world: Queue) -> Array:
        return world.order[jnp.asarray(self.env.starts) + jnp.minimum(world.used, self.env.counts) - 1]

    def _over(self, world: Queue) -> Array:
        return world.used > jnp.asarray(self.env.counts)


def rejection(env: Any) -> Rejection:
    """Replays the log of an environment of `fb.data.table` with its own rewards, if arms were randomised.

    Every silo has its rows in random order. If the played arm is not the logged one, the row is dropped and the next
    one offered, until an arm is accepted. An arm logged with propensity p is then accepted with probability c / p,
    where c is the least p of its silo. So counted rows are distributed as the silo's rows, and rewards are unbiased.
    Every row is offered once, and about a share c of them counts. A silo without rows left sets the status
    `OUTSIDE_SPEC`.

    The best arm of a row is unknown, so the gap of a round is 1 minus the reward. Only differences of this "regret"
    between algorithms are differences of regret.

    Certificates are about the accepted users in their rounds, not about rows of the log, and say so. Another arm in one
    row shifts later rows by a round, and so moves later sums by more than one user's share.

    Args:
        env: an environment of `fb.data.table` with a `propensity` column; `fit_share` sets how many rows it lacks.

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
        got = "a table without: name their column in fb.data.table(...)"
        raise BadValue("env", "must have propensities", None, got=got)
    basis = (
        f"Rewards are those of {env.fit.source}, of rows that showed the arm which was played, each at most once; "
        "there is no model, and regret is what they lack to 1."
    )
    least = np.minimum.reduceat(np.asarray(env.log.propensity), np.asarray(env.starts))
    return Rejection(env=env, least=least, spec=dataclasses.replace(env.spec, basis=basis, rejects=True))
