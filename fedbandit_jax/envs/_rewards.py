"""Reward laws shared by the linear environments."""

import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.interfaces import Feedback

LAWS = ("gaussian", "bernoulli", "clipped_gaussian")


@struct.pytree
class RewardLaw:
    """How an answer scatters around its mean <x, theta*>."""

    noise_std: float
    law: str = struct.static()

    @property
    def in_unit(self) -> bool:
        """Are all rewards in [0, 1]?"""
        return self.law != "gaussian"

    def feedback(self, key: Array, best: Array, mean: Array) -> Feedback:
        """Draw rewards of means (M,); regret is scored on the unclipped means, `best` being the largest offered."""
        if self.law == "bernoulli":
            reward = (random.uniform(key, mean.shape) < mean).astype(mean.dtype)
        else:
            reward = mean + self.noise_std * random.normal(key, mean.shape)
            if self.law == "clipped_gaussian":
                reward = jnp.clip(reward, 0, 1)
        return Feedback(reward, best - mean)


def reward_law(rewards: str, noise_std: float) -> RewardLaw:
    """Checked constructor."""
    return RewardLaw(
        noise_std=validate.non_negative("noise_std", noise_std), law=validate.one_of("rewards", rewards, LAWS)
    )
