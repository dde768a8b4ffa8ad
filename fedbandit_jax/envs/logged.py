"""A log as an environment: its users return and may play any arm, and a fitted model answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float, Int, Integer, Key
from typing_extensions import override

from fedbandit_jax.core import random, struct
from fedbandit_jax.envs._linear import LinearEnvironment
from fedbandit_jax.interfaces import Round, Spec

MODELS = ("linear", "logistic")


class Log(NamedTuple):
    """Logged arms and rewards of the replayed rows, hidden from algorithms: (N,) arrays, in the order of silos."""

    row: Int[Array | np.ndarray, " N"]  # index of the row in the table, from 0
    arm: Int[Array | np.ndarray, " N"]  # played
    reward: Float[Array | np.ndarray, " N"]  # observed, in [0, 1]
    propensity: Float[Array | np.ndarray, " N"] | None = None  # probability of the played arm, if known


class Visits(NamedTuple):
    """The instance of one seed, and the users of a round."""

    theta: Float[Array, " d"]
    row: Int[Array, " M"]  # among the replayed rows, 0 ... N - 1


@struct.pytree
class FittedLaw:
    """The law of a reward in [0, 1] with a model's mean: two values, with the residuals' standard deviation.

    If the mean is too close to 0 or 1 for this deviation, rewards are 0 or 1.
    """

    noise_std: struct.Number  # from 1/2 on all rewards are 0 or 1
    model: str = struct.static()  # one of `MODELS`

    def mean(self, z: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Returns the mean reward for <x, theta> = z."""
        return jax.nn.sigmoid(z) if self.model == "logistic" else jnp.clip(z, 0, 1)

    def draw(self, key: Key[Array, ""], mean: Float[Array, " A"], agent: Integer[Array, " A"]) -> Float[Array, " A"]:
        """Draws rewards of agents, given the means of their arms; each draw is independent of the other agents."""
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
