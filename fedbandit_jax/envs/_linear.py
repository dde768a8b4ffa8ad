"""The base class of environments with linear rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import ArrayLike, Float, Int, Integer, Key

from fedbandit_jax.core import ridge
from fedbandit_jax.envs._rewards import RewardLaw
from fedbandit_jax.interfaces import Feedback, Round, Spec


def facts(rows: Float[np.ndarray, "N d"]) -> dict[str, Any]:
    """Computes the fields of a `Spec` that depend on a table of feature vectors: largest norm and `constant`."""
    norm = float(np.linalg.norm(rows.astype(np.float64), axis=1).max())
    return {"max_norm": round(norm, 6), "constant": bool(((rows == rows[0]).all(0) & (rows[0] != 0)).any())}


class World(NamedTuple):
    """Instance drawn for one seed."""

    theta: Float[Array, " d"]  # theta*


class LinearEnvironment:
    """Base class of linear environments, which draws single arms and rewards by a law.

    If an algorithm scores arms by their features alone, runs skip `observe` and `pull`, see `core.choose`. Overrides of
    these two in subclasses are respected.
    """

    rewards: RewardLaw
    spec: Spec

    def features_at(
        self, key: Array | tuple[Array, Array], world: Any, t: Array, arm: Array, agent: Array
    ) -> list[Array] | Array:
        """Returns the d features of arms, for broadcasting uint32 indices: a list of arrays of their shape.

        Above `UNROLL_DIM` features it may be an array with the features on the last axis. The key is round t's, as in
        `observe`, or its two words. Each draw is elementwise, and possible without the others. On a GPU one kernel does
        all. It gets the arrays of environment and world row by row. An array of shape (n,) is a tuple of n scalars.
        There are no larger ones, see `core.choose`.
        """
        raise NotImplementedError(f"{type(self).__name__}.features_at")

    def mean_at(self, world: Any, x: Sequence[Array] | Array) -> Array:
        """Returns the mean reward of vectors with these d features, a list or a leading axis."""
        return self.rewards.mean(ridge.dot(list(x), world.theta))

    def observe(self, key: Key[Array, ""], world: Any, t: Int[ArrayLike, ""]) -> tuple[Round, Any]:
        """Offers K fresh feature vectors to each of the M users of a round."""
        t = jnp.asarray(t)
        arm, agent = lax.iota(jnp.uint32, self.spec.n_arms)[:, None], lax.iota(jnp.uint32, self.spec.n_agents)[None]
        if self.spec.dim > ridge.UNROLL_DIM:
            x = self.features_at(key, world, t, arm.T, agent.T)
            return Round(x if isinstance(x, Array) else jnp.stack(x, -1)), world
        return Round(ridge.transposed(jnp.stack(self.features_at(key, world, t, arm, agent)))), world

    def means_of(self, world: Any, offered: Round) -> Float[Array, "K M"]:
        """Returns the mean reward of every offered arm."""
        return self.rewards.mean(ridge.inner(offered.contexts, world.theta[:, None]))

    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Draws the rewards of the played arms, with the gaps of their means before any clipping."""
        means = self.means_of(world, offered)
        played = jnp.take_along_axis(means, arms[None], axis=0)[0]
        best = means.max(0) if offered.mask is None else jnp.where(offered.mask.T, means, -jnp.inf).max(0)
        return Feedback(self.reward_at(key, played, jnp.arange(len(arms))), best - played)

    def reward_at(
        self, key: Array, mean: Float[Array, "*shape"], agent: Integer[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        """Draws rewards of agents, given the means of their arms."""
        return self.rewards.draw(key, mean, agent)


def turned(one: Float[Array, " n"], other: Float[Array, " n"], share: Array) -> Float[Array, " n"]:
    """Rotates a unit vector by `share` of the way to another one, on the circle through both.

    For two independent uniform vectors the result is uniform too, since the map commutes with rotations.
    """
    cosine = jnp.clip((one * other).sum(), -1, 1)
    across = other - cosine * one
    length = jnp.sqrt((across * across).sum())
    angle = share * jnp.arctan2(length, cosine)
    across = across / jnp.maximum(length, jnp.finfo(jnp.float32).tiny)
    return jnp.cos(angle) * one + jnp.sin(angle) * across
