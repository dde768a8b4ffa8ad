"""Synthetic linear bandits of Zhou & Chowdhury (2024), Section 6, and Dubey & Pentland (2020), Section 4.4."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import ArrayLike, Float, Int, Key
from typing_extensions import override

from fedbandit_jax.core import random, ridge, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._linear import LinearEnvironment, World, turned
from fedbandit_jax.envs._rewards import RewardLaw, reward_law
from fedbandit_jax.interfaces import Round, Spec

LARGEST = 0.3  # the largest gap, since 0.7 + gap <= ||x|| ||theta*|| <= 1


class SphereWorld(NamedTuple):
    """Instance drawn for one seed, with contexts and their means only if contexts are fixed."""

    theta: Float[Array, " d"]  # theta*
    features: Float[Array, "d K M"] | None  # fixed contexts, with agents last as in the loop over rounds
    means: Float[Array, "K M"] | None  # mean rewards <x, theta*> of fixed contexts


@struct.pytree
class Sphere(LinearEnvironment):
    """A linear bandit with features and parameter on a shifted sphere; made by `sphere`."""

    rewards: RewardLaw  # law of a reward, given its mean
    spec: Spec = struct.static()
    shared: bool = struct.static(default=False, later=True)  # whether all agents and seeds share fixed contexts

    def init(self, key: Key[Array, ""]) -> SphereWorld:
        """Draws theta*, and the contexts if they are fixed."""
        d = self.spec.dim
        u = random.normal(random.stream(key, "theta"), (d - 1,))
        theta = jnp.append(u * lax.rsqrt(2 * (u * u).sum()), jnp.float32(math.sqrt(0.5)))
        if not self.spec.fixed_contexts:
            return SphereWorld(theta, None, None)
        source = jax.random.key(0) if self.shared else key
        drawn, _ = super().observe(random.stream(source, "contexts"), None, jnp.int32(0))
        contexts = jnp.broadcast_to(drawn.contexts[:1], drawn.contexts.shape) if self.shared else drawn.contexts
        features = ridge.transposed(contexts)
        return SphereWorld(theta, features, self.rewards.mean(ridge.inner(contexts, theta[:, None])))

    def between(self, world: SphereWorld, other: SphereWorld, share: Array) -> SphereWorld:
        """Returns a world with fresh contexts, and u of theta* = (u, 1) / sqrt 2 turned by `share` to another's."""
        half = jnp.float32(math.sqrt(0.5))
        u = turned(world.theta[:-1] / half, other.theta[:-1] / half, share)
        return SphereWorld(jnp.append(half * u, half), None, None)

    @override
    def observe(self, key: Key[Array, ""], world: SphereWorld, t: Int[ArrayLike, ""]) -> tuple[Round, SphereWorld]:
        if world.features is None:
            return super().observe(key, world, t)
        return Round(ridge.transposed(world.features)), world

    @override
    def features_at(
        self, key: Array | tuple[Array, Array], world: SphereWorld | None, t: Array, arm: Array, agent: Array
    ) -> list[Array] | Array:
        half = jnp.float32(math.sqrt(0.5))
        n, one = self.spec.dim - 1, jnp.full(jnp.broadcast_shapes(arm.shape, agent.shape), half)
        if n >= ridge.UNROLL_DIM:
            u = random.long_direction(key, arm.ravel(), agent.ravel(), n, t)
            return jnp.concatenate([half * u, one[..., None]], -1)
        return [*(half * x for x in random.direction(key, arm, agent, n, t)), one]

    @override
    def means_of(self, world: SphereWorld, offered: Round) -> Float[Array, "K M"]:
        return super().means_of(world, offered) if world.means is None else world.means


def sphere(
    n_agents: int,
    n_arms: int,
    dim: int,
    *,
    contexts: str = "fresh",
    rewards: str = "gaussian",
    noise_std: float = 0.5,
    shape: float | None = None,
) -> Sphere:
    """Makes a linear bandit with features and parameter (u, 1) / sqrt 2, u uniform on the unit sphere of R^(d-1).

    So ||x|| = ||theta*|| = 1 and every mean reward <x, theta*> is in [0, 1]. Each seed has its own theta*.

    Args:
        n_agents: number M of silos.
        n_arms: number K of feature vectors offered to each user.
        dim: length d >= 2 of a feature vector.
        contexts: "fresh", K new vectors for every user (the paper's); "fixed", drawn once per agent and seed; or
            "shared", the same K public vectors for all users, agents and seeds.
        rewards: law of a reward, given z = <x, theta*>. "gaussian", z + N(0, noise_std^2), is the paper's; "bernoulli"
            is 1 with probability z. "clipped_gaussian" is the Gaussian clipped to [0, 1]; its mean is not linear, but
            regret still uses z. "logistic" is 1 with probability 1 / (1 + exp(-shape (z - 1/2))). "student_t" is z +
            noise_std times a draw of Student's law, "pareto" z times a draw of Pareto's law with mean 1. To compare
            algorithms with and without privacy, use "bernoulli". Private ones clip "gaussian" rewards to [0, 1], which
            biases them and voids proofs of widths.
        noise_std: standard deviation of the Gaussian rewards, or scale as above, in units of reward.
        shape: slope of "logistic" (default 8), degrees of freedom >= 1.01 of "student_t" (3), or tail index >= 1.5 of
            "pareto" (2.5), the order from which moments are infinite. None with other laws.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=3, n_arms=5, dim=4)
        >>> world = env.init(jax.random.key(0))
        >>> offered, world = env.observe(jax.random.key(1), world, 0)
        >>> offered.contexts.shape
        (3, 5, 4)

    Reference: Zhou & Chowdhury (2024), Section 6, "Synthetic bandit instance" (after Vaswani et al., 2020).
    """
    law = reward_law(rewards, noise_std, shape)
    validate.integer("dim", dim, at_least=2)
    fixed = validate.one_of("contexts", contexts, ("fresh", "fixed", "shared")) != "fresh"
    sizes: Any = dict(n_agents=n_agents, n_arms=n_arms, dim=dim)
    spec = Spec(**sizes, fixed_contexts=fixed, max_norm=1.0, rewards_in_unit=law.in_unit, constant=True)
    return Sphere(rewards=law, spec=spec, shared=contexts == "shared")


@struct.pytree
class Gap(LinearEnvironment):
    """A linear bandit whose best arm beats all others by a gap; made by `gap`."""

    gap: struct.Number  # least difference of <x, theta*> between the best arm and any other
    rewards: RewardLaw  # law of a reward, given its mean
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> World:
        """Draws theta*, with a uniform direction and a norm uniform in [0.7 + gap, 1]."""
        g = random.normal(random.stream(key, "direction"), (self.spec.dim,))
        norm = 0.7 + self.gap + (LARGEST - self.gap) * random.uniform(random.stream(key, "norm"), (1,))
        return World(norm * g * lax.rsqrt((g * g).sum()))

    def between(self, world: World, other: World, share: Array) -> World:
        """Returns a world with theta* turned by `share` of the way to another's, and with the length in `world`.

        The length changes at the end of the way, since in between it would have another law.
        """
        norms = [jnp.sqrt((one.theta * one.theta).sum()) for one in (world, other)]
        return World(norms[0] * turned(world.theta / norms[0], other.theta / norms[1], share))

    @override
    def features_at(
        self, key: Array | tuple[Array, Array], world: World, t: Array, arm: Array, agent: Array
    ) -> list[Array]:
        d = self.spec.dim
        norm = jnp.sqrt(ridge.dot(list(world.theta), list(world.theta)))
        *axis, last = (x / norm for x in world.theta)
        # The first n coordinates of a uniform point of the unit sphere of R^(n+2) are uniform in the unit ball of R^n.
        if d > ridge.UNROLL_DIM:
            ball = list(jnp.moveaxis(random.long_direction(key, arm.ravel(), agent.ravel(), d + 1, t), -1, 0))[: d - 1]
        else:
            ball = random.direction(key, arm, agent, d + 1, t)[: d - 1]
        u = random.uniform_at(key, arm, agent, d // 2 + 1)  # the block after those of the direction
        position = random.uniform_at(key, jnp.uint32(self.spec.n_arms), agent) * self.spec.n_arms
        best = arm == position.astype(jnp.uint32)
        along = (jnp.where(best, 0.6 + self.gap, 0.5) + 0.1 * u) / norm
        radius = jnp.sqrt(jnp.maximum(1 - along * along, 0))
        across = radius * ridge.dot(ball, axis)
        # A reflection maps R^(d-1) to the orthogonal complement of theta*, and the last unit vector to its direction,
        # up to sign.
        shift = along - across / (1 + jnp.abs(last))
        tail = along * last - across * jnp.where(last < 0, -1, 1)
        return [*(radius * w + a * shift for w, a in zip(ball, axis)), tail]


def gap(
    n_agents: int,
    n_arms: int,
    dim: int,
    *,
    gap: float = 0.1,
    rewards: str = "bernoulli",
    noise_std: float = 0.5,
    shape: float | None = None,
) -> Gap:
    """Makes a linear bandit with fresh arms for every user, the best of which beats all others by at least `gap`.

    theta* has a uniform direction, and a norm uniform in [0.7 + gap, 1]. Of the K feature vectors of a user, K - 1 have
    <x, theta*> uniform in [0.5, 0.6], and one, at a uniform position, in [0.6 + gap, 0.7 + gap]. The component of x
    orthogonal to theta* is uniform in the ball allowed by ||x|| <= 1. Each seed has its own theta*.

    Args:
        n_agents: number M of silos.
        n_arms: number K of feature vectors offered to each user, 2 <= K <= dim^2 as in the paper.
        dim: length d >= 2 of a feature vector.
        gap: Δ in (0, 0.3], the least difference of <x, theta*>, and of mean rewards unless they are "logistic".
        rewards, noise_std, shape: law of a reward, as in `sphere`; "bernoulli" is the paper's.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.gap(n_agents=3, n_arms=5, dim=4)
        >>> world = env.init(jax.random.key(0))
        >>> offered, world = env.observe(jax.random.key(1), world, 0)
        >>> ((offered.contexts @ world.theta) > 0.65).sum(1)  # one of five is good
        Array([1, 1, 1], dtype=int32)

    Reference: Dubey & Pentland (2020), Section 4.4, and Figure 2 for the gap. The paper only gives the intervals of
    the means, and theta* in the unit ball. The uniform laws, and the norm that makes them feasible, are ours.
    """
    law = reward_law(rewards, noise_std, shape)
    validate.within("gap", validate.single("gap", validate.positive("gap", gap)), 0, LARGEST)
    for name, size in (("n_arms", n_arms), ("dim", dim)):
        validate.integer(name, size, at_least=2)
    spec = Spec(n_agents=n_agents, n_arms=n_arms, dim=dim, max_norm=1.0, rewards_in_unit=law.in_unit)
    if spec.n_arms > spec.dim**2:
        raise BadValue("n_arms", f"must be <= dim^2 = {spec.dim**2}, as in the paper", n_arms)
    return Gap(gap=float(gap), rewards=law, spec=spec)
