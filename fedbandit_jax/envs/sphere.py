"""The synthetic instance of Zhou & Chowdhury (2024), Section 6: features and parameter on a shifted sphere."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import random, ridge, struct, validate
from fedbandit_jax.envs._rewards import RewardLaw, reward_law
from fedbandit_jax.interfaces import Feedback, Round, Spec


class SphereWorld(NamedTuple):
    """One seed's instance; contexts and their means only when they are fixed."""

    theta: Array  # (d,)
    features: Array | None  # (d, K, M): agents last, as the hot loop wants them
    means: Array | None  # (K, M)


@struct.pytree
class Sphere:
    """See `sphere`."""

    rewards: RewardLaw
    spec: Spec = struct.static()

    def init(self, key: Array) -> SphereWorld:
        """Draw theta*, and the contexts if they are fixed."""
        d = self.spec.dim
        u = random.normal(random.stream(key, "theta"), (d - 1,))
        theta = jnp.append(u * lax.rsqrt(2 * (u * u).sum()), jnp.float32(math.sqrt(0.5)))
        if not self.spec.fixed_contexts:
            return SphereWorld(theta, None, None)
        features = self._features(random.stream(key, "contexts"))
        return SphereWorld(theta, features, ridge.inner(ridge.from_features_first(features), theta[:, None]))

    def observe(self, key: Array, world: SphereWorld, t: Array) -> tuple[Round, SphereWorld]:
        """K feature vectors for each of the M users of round t."""
        del t
        features = self._features(key) if world.features is None else world.features
        return Round(ridge.from_features_first(features)), world

    def pull(self, key: Array, world: SphereWorld, offered: Round, arms: Array) -> Feedback:
        """Rewards of the arms played."""
        means = ridge.inner(offered.contexts, world.theta[:, None]) if world.means is None else world.means
        played = jnp.take_along_axis(means, arms[None], axis=0)[0]
        return self.rewards.feedback(key, means.max(0), played)

    def _features(self, key: Array) -> Array:
        """(d, K, M), each vector (u, 1) / sqrt 2 with u uniform on the unit sphere of R^(d-1)."""
        m, k, d = self.spec.n_agents, self.spec.n_arms, self.spec.dim
        u = random.normal(key, (d - 1, k, m))
        squares = u[0] * u[0]
        for row in u[1:]:
            squares = squares + row * row
        ones = jnp.full((1, k, m), math.sqrt(0.5), u.dtype)
        return jnp.concatenate([u * lax.rsqrt(2 * squares), ones])


def sphere(
    n_agents: int,
    n_arms: int,
    dim: int,
    *,
    contexts: str = "fresh",
    rewards: str = "gaussian",
    noise_std: float = 0.5,
) -> Sphere:
    """Linear bandit whose features and parameter are (u, 1) / sqrt 2, u uniform on the unit sphere of R^(d-1).

    Hence ||x|| = ||theta*|| = 1 and every mean reward <x, theta*> lies in [0, 1]. Each seed has its own theta*.

    Args:
        n_agents: M, the silos.
        n_arms: K, feature vectors offered to each user.
        dim: d >= 2.
        contexts: "fresh", K new vectors for every user (the paper's), or "fixed", drawn once per agent.
        rewards: "gaussian", mean + N(0, noise_std^2), as in the paper; "bernoulli", 1 with probability the mean,
            which a certified private run wants; "clipped_gaussian", the Gaussian clipped to [0, 1] (its mean is
            no longer linear, regret is still scored on <x, theta*>).
        noise_std: standard deviation of the Gaussian rewards, in reward units; ignored by "bernoulli".

    Raises:
        ValueError, TypeError: an argument is out of range.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=3, n_arms=5, dim=4)
        >>> world = env.init(jax.random.key(0))
        >>> offered, world = env.observe(jax.random.key(1), world, 0)
        >>> offered.contexts.shape
        (3, 5, 4)

    Reference: Zhou & Chowdhury (2024), Section 6, "Synthetic bandit instance" (after Vaswani et al., 2020).
    """
    law = reward_law(rewards, noise_std)
    spec = Spec(
        n_agents=validate.integer("n_agents", n_agents, at_least=1),
        n_arms=validate.integer("n_arms", n_arms, at_least=1),
        dim=validate.integer("dim", dim, at_least=2),
        fixed_contexts=validate.one_of("contexts", contexts, ("fresh", "fixed")) == "fixed",
        max_norm=1.0,
        rewards_in_unit=law.in_unit,
    )
    return Sphere(rewards=law, spec=spec)
