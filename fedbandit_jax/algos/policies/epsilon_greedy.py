"""Greedy play with random arms now and then: the epsilon_t-greedy rule of Auer, Cesa-Bianchi & Fischer (2002)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax import linalg
from fedbandit_jax.core import struct, validate
from fedbandit_jax.interfaces import NoiseLaw, Policy, Released


@struct.sealed
@struct.pytree
class EpsilonGreedy(Policy):
    """Plays the best arm by a ridge estimate or, with probability min(1, c / t) in round t = 1, 2, ..., any arm.

    The noisy Gram matrix W is projected on the positive semidefinite cone, and theta = (lambda I + W)^-1 U, where
    lambda is `shrinkage` standard deviations of the noise on W, or 1 if that is more: as in `Greedy`, which explores by
    nothing but the contexts. (In the paper c is c' K / gap^2.)

    Args:
        explore: c >= 0, about how many rounds are played at random for every factor e of the rounds.
        shrinkage: lambda in standard deviations of the noise, >= 0.

    Raises:
        ValueError, TypeError: when bound, if an argument is not a number >= 0; the message names it and its value.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.Federated(policy=fb.algos.EpsilonGreedy(), privacy=fb.privacy.Budget(1.0, 0.1))
        >>> algo.certificate(env.spec, horizon=50).claim
        'certified'

    Reference: Auer, Cesa-Bianchi & Fischer (2002), Figure 3, on the statistics of Zhou & Chowdhury (2024), Algorithm 8.
    """

    explore: float = 5.0
    shrinkage: float = 1.0

    @override
    def bind(self, law: NoiseLaw) -> EpsilonGreedy:
        for name in ("explore", "shrinkage"):
            validate.single(name, validate.non_negative(name, getattr(self, name)))
        return self

    @override
    def update(self, k: Int[Array, ""], belief: Any, released: Released) -> Float[Array, " d"]:
        ridge = jnp.maximum(1.0, self.shrinkage * released.std) * jnp.eye(released.dim)
        return linalg.GaussianBelief.solve(linalg.project(released.gram) + ridge, released.bias).mean

    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: Float[Array, " d"], contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        """The estimated mean reward of every arm or, with probability min(1, c / (t + 1)), random numbers."""
        coin, other = jax.random.split(key)
        explores = jax.random.uniform(coin) * (t + 1) < self.explore
        anything = jax.random.uniform(other, contexts.shape[:1])
        return jnp.where(explores, anything, jnp.matmul(contexts, belief, precision="highest"))
