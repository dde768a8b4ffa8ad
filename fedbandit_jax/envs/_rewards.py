"""Laws of rewards, given the inner product of an arm's features with the parameter."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Integer, Key

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue

LAWS = ("gaussian", "bernoulli", "clipped_gaussian", "logistic", "student_t", "pareto")
SHAPES = MappingProxyType({"logistic": 8.0, "student_t": 3.0, "pareto": 2.5})  # defaults of laws with a shape
# Beyond these shapes and this scale the mean is wrong, since float32 uniforms stop at 2^-24.
RANGES = MappingProxyType({"logistic": (1e-6, 1e6), "student_t": (1.01, 1e6), "pareto": (1.5, 1e6)})


@struct.pytree
class RewardLaw:
    """Law of a reward, given z = <x, theta*>."""

    noise_std: float  # standard deviation of Gaussian noise; scale of "student_t"
    shape: Any  # slope of "logistic", degrees of freedom of "student_t", tail index of "pareto"
    law: str = struct.static()  # one of `LAWS`

    @property
    def in_unit(self) -> bool:
        """Whether all rewards are in [0, 1]."""
        return self.law in ("bernoulli", "clipped_gaussian", "logistic")

    def mean(self, z: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Returns the mean reward before any clipping: z, except for "logistic"."""
        return jax.nn.sigmoid(self.shape * (z - 0.5)) if self.law == "logistic" else z

    def draw(self, key: Key[Array, ""], mean: Float[Array, " A"], agent: Integer[Array, " A"]) -> Float[Array, " A"]:
        """Draws rewards of agents, given the means of their arms. Each draw is independent of the other agents."""
        nothing, agent = jnp.uint32(0), agent.astype(jnp.uint32)
        if self.law in ("bernoulli", "logistic"):
            return (random.uniform_at(key, nothing, agent) < mean).astype(mean.dtype)
        if self.law == "student_t":  # Bailey (1994)
            u, v = random.uniform_at(key, nothing, agent), random.uniform_at(key, jnp.uint32(1), agent)
            radius = jnp.sqrt(self.shape * jnp.expm1(-2 / self.shape * jnp.log(u)))
            return mean + self.noise_std * radius * jnp.cos(2 * jnp.pi * v)
        if self.law == "pareto":
            u = random.uniform_at(key, nothing, agent)
            return mean * (1 - 1 / self.shape) * jnp.exp(-jnp.log(u) / self.shape)
        reward = mean + self.noise_std * random.normal_at(key, nothing, agent)
        return jnp.clip(reward, 0, 1) if self.law == "clipped_gaussian" else reward


def reward_law(
    rewards: str, noise_std: float, shape: float | None = None, means: np.ndarray | None = None
) -> RewardLaw:
    """Checks `rewards`, one of `LAWS`, `noise_std` >= 0, `shape`, and that all `means` are possible."""
    noise_std = validate.single("noise_std", validate.non_negative("noise_std", noise_std))
    law = validate.one_of("rewards", rewards, LAWS)
    if shape is not None and law not in SHAPES:
        raise BadValue("shape", f"must be None with rewards={law!r}", shape, others=("rewards",))
    if law in SHAPES:
        shape = SHAPES[law] if shape is None else shape
        low, high = RANGES[law]
        if not low <= validate.positive("shape", shape) <= high:
            raise BadValue("shape", f"must be in [{low:g}, {high:g}] with rewards={law!r}", shape, others=("rewards",))
    low, high = (0.0, 1.0) if law == "bernoulli" else (0.0, math.inf) if law == "pareto" else (-math.inf, math.inf)
    if means is not None and not (means.min() >= low - 1e-6 and means.max() <= high + 1e-6):
        got = f"[{means.min():g}, {means.max():g}]"
        inside = "in [0, 1]" if law == "bernoulli" else ">= 0"
        raise BadValue("rewards", f"must not be {law!r} unless every mean <x, theta> is {inside}", got, got=got)
    return RewardLaw(noise_std=noise_std, shape=shape, law=law)
