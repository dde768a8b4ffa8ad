"""Environments whose draws are functions of (key, arm, agent), so that each can be drawn without the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import ArrayLike, Float, Int, Integer, Key

from fedbandit_jax.core import ridge
from fedbandit_jax.envs._rewards import RewardLaw
from fedbandit_jax.interfaces import Feedback, Round, Spec


class SingleDraws:
    """Base class that makes `observe` and `pull` of single draws: `features_at`, `mean_at` and a law of rewards.

    Where an algorithm scores arms by their features alone, a run does without these two, see `core.choose`. A subclass
    that overrides them is run by them.
    """

    rewards: RewardLaw
    spec: Spec

    def features_at(
        self, key: Array | tuple[Array, Array], world: Any, t: Array, arm: Array, agent: Array
    ) -> list[Array] | Array:
        """Returns the d features of arms, uint32 numbers that broadcast: a list of arrays of their shape.

        Above `UNROLL_DIM` features it may be an array, with the features on the last axis. The key is that of round t,
        as in `observe`, or its two words.
        """
        raise NotImplementedError(f"{type(self).__name__}.features_at")

    def mean_at(self, world: Any, x: Sequence[Array] | Array) -> Array:
        """Returns the mean reward <x, theta*> of vectors with these d features, a list or a leading axis."""
        return ridge.dot(list(x), world.theta)

    def observe(self, key: Key[Array, ""], world: Any, t: Int[ArrayLike, ""]) -> tuple[Round, Any]:
        """Offers K fresh feature vectors to each of the M users of a round."""
        t = jnp.asarray(t)
        arm, agent = lax.iota(jnp.uint32, self.spec.n_arms)[:, None], lax.iota(jnp.uint32, self.spec.n_agents)[None]
        if self.spec.dim > ridge.UNROLL_DIM:
            x = self.features_at(key, world, t, arm.T, agent.T)
            return Round(x if isinstance(x, Array) else jnp.stack(x, -1)), world
        return Round(ridge.from_features_first(jnp.stack(self.features_at(key, world, t, arm, agent)))), world

    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Draws the rewards of the arms played, and returns them with their gaps."""
        means = ridge.inner(offered.contexts, world.theta[:, None])
        played = jnp.take_along_axis(means, arms[None], axis=0)[0]
        return Feedback(self.reward_at(key, played, jnp.arange(len(arms))), means.max(0) - played)

    def reward_at(
        self, key: Array, mean: Float[Array, "*shape"], agent: Integer[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        """Draws the rewards of agents who played arms of these means."""
        return self.rewards.draw(key, mean, agent)
