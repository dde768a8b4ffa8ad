"""The laws of rewards that linear environments share."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer, Key

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.interfaces import Feedback

LAWS = ("gaussian", "bernoulli", "clipped_gaussian")


@struct.pytree
class RewardLaw:
    """The law of a reward, given its mean <x, theta*>."""

    noise_std: float  # standard deviation of Gaussian noise, in units of reward
    law: str = struct.static()  # one of `LAWS`

    @property
    def in_unit(self) -> bool:
        """Whether all rewards are in [0, 1]."""
        return self.law != "gaussian"

    def feedback(
        self, key: Key[Array, ""], best: Float[Array, ""] | Float[Array, " M"], mean: Float[Array, " M"]
    ) -> Feedback:
        """Draws rewards for the means of the arms played, and returns them with the gaps `best` - `mean`.

        `best` is the largest mean offered. Gaps are those of means before any clipping.
        """
        return Feedback(self.draw(key, mean, jnp.arange(len(mean))), best - mean)

    def draw(self, key: Array, mean: Float[Array, " A"], agent: Integer[Array, " A"]) -> Float[Array, " A"]:
        """Draws the rewards of agents who played arms of these means; an agent's does not depend on the others."""
        nothing, agent = jnp.uint32(0), agent.astype(jnp.uint32)
        if self.law == "bernoulli":
            return (random.uniform_at(key, nothing, agent) < mean).astype(mean.dtype)
        reward = mean + self.noise_std * random.normal_at(key, nothing, agent)
        return jnp.clip(reward, 0, 1) if self.law == "clipped_gaussian" else reward


def reward_law(rewards: str, noise_std: float) -> RewardLaw:
    """Checks `rewards`, one of `LAWS`, and `noise_std` >= 0, and returns the law of rewards; see `sphere`."""
    noise_std = validate.single("noise_std", validate.non_negative("noise_std", noise_std))
    return RewardLaw(noise_std=noise_std, law=validate.one_of("rewards", rewards, LAWS))
