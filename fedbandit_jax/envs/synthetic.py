"""Synthetic linear bandits: those of Zhou & Chowdhury (2024), Section 6, and Dubey & Pentland (2020), Section 4.4."""

from __future__ import annotations

import math
from typing import NamedTuple

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

LARGEST = 0.3  # the largest gap, as the best mean can be 0.7 + gap, and 0.7 + gap <= ||x|| ||theta*|| <= 1


class SphereWorld(NamedTuple):
    """The instance of one seed; contexts and their means are part of it only if contexts are fixed."""

    theta: Float[Array, " d"]  # theta*
    features: Float[Array, "d K M"] | None  # fixed contexts, with agents last as the loop over rounds wants them
    means: Float[Array, "K M"] | None  # mean rewards <x, theta*> of fixed contexts


@struct.pytree
class Sphere(LinearEnvironment):
    """A linear bandit whose features and parameter are on a shifted sphere; made by `sphere`."""

    rewards: RewardLaw  # law of a reward, given its mean
    spec: Spec = struct.static()
    shared: bool = struct.static(default=False, later=True)  # whether fixed contexts are those of all agents and seeds

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
        """A world with fresh contexts whose u of theta* = (u, 1) / sqrt 2 is `share` of the way to that of another."""
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
    """Linear bandit whose features and parameter are (u, 1) / sqrt 2, u uniform on the unit sphere of R^(d-1).

    Hence ||x|| = ||theta*|| = 1 and every mean reward <x, theta*> lies in [0, 1]. Each seed has its own theta*.

    Args:
        n_agents: M silos.
        n_arms: K, feature vectors offered to each user.
        dim: d >= 2, length of a feature vector.
        contexts: "fresh", K new vectors for every user (the paper's); "fixed", drawn once per agent and seed; or
            "shared", the same K vectors for all users, agents and seeds, which everybody knows.
        rewards: law of a reward: "gaussian", mean + N(0, noise_std^2), as in the paper; "bernoulli", 1 with probability
            the mean, which private algorithms need not clip to [0, 1]; "clipped_gaussian", the Gaussian clipped to [0,
            1] (its mean is no longer linear, but regret is still computed from <x, theta*>). Private algorithms clip
            the rewards of "gaussian", which biases them, so that no width is proved, and algorithms without privacy do
            not: for a comparison of the two take "bernoulli". Or "logistic", 1 with probability 1 / (1 + exp(-shape (z
            - 1/2))) for z = <x, theta*>; "student_t", mean + noise_std times a draw of Student's law; "lognormal", mean
            times exp(noise_std N(0, 1) - noise_std^2 / 2); "pareto", mean times a draw of Pareto's law that has mean 1.
        noise_std: standard deviation of the Gaussian rewards, or scale as above, in units of reward.
        shape: slope of "logistic" (default 8), degrees of freedom >= 1.01 of "student_t" (3), or tail index >= 1.5 of
            "pareto" (2.5): moments of this order and beyond are infinite. None with other laws.

    Raises:
        ValueError, TypeError: an argument is out of range or of the wrong type.

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
    spec = Spec(
        n_agents=validate.integer("n_agents", n_agents, at_least=1),
        n_arms=validate.integer("n_arms", n_arms, at_least=1),
        dim=validate.integer("dim", dim, at_least=2),
        fixed_contexts=validate.one_of("contexts", contexts, ("fresh", "fixed", "shared")) != "fresh",
        max_norm=1.0,
        rewards_in_unit=law.in_unit,
        constant=True,
    )
    return Sphere(rewards=law, spec=spec, shared=contexts == "shared")


@struct.pytree
class Gap(LinearEnvironment):
    """A linear bandit whose best arm is better than all others by a gap; made by `gap`."""

    gap: struct.Number  # least difference between <x, theta*> of the best arm and of any other
    rewards: RewardLaw  # law of a reward, given its mean
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> World:
        """Draws theta*, with a uniform direction and a norm uniform in [0.7 + gap, 1]."""
        g = random.normal(random.stream(key, "direction"), (self.spec.dim,))
        norm = 0.7 + self.gap + (LARGEST - self.gap) * random.uniform(random.stream(key, "norm"), (1,))
        return World(norm * g * lax.rsqrt((g * g).sum()))

    def between(self, world: World, other: World, share: Array) -> World:
        """A world whose theta* has turned by `share` of the way to another's, and is as long as in `world`.

        The length changes at the end of the way: half-way it would have another law.
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
        # A reflection maps R^(d-1) to the orthogonal complement of theta*, and the last unit vector to the direction of
        # theta*, up to sign.
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
    """Linear bandit that offers every user fresh arms, the best of which is better than all others by at least `gap`.

    theta* has a uniform direction, and a norm uniform in [0.7 + gap, 1]. Of the K feature vectors of a user, K - 1 have
    <x, theta*> uniform in [0.5, 0.6], and one, at a uniform position, in [0.6 + gap, 0.7 + gap]. The component of x
    orthogonal to theta* is uniform in the ball that ||x|| <= 1 leaves. Each seed has its own theta*.

    Args:
        n_agents: M silos.
        n_arms: K, feature vectors offered to each user, 2 <= K <= dim^2 as in the paper.
        dim: d >= 2, length of a feature vector.
        gap: Δ in (0, 0.3], the least difference of <x, theta*>, and of mean rewards unless they are "logistic".
        rewards: law of a reward, as in `sphere`; "bernoulli" is the paper's.
        noise_std, shape: as in `sphere`.

    Raises:
        ValueError, TypeError: an argument is out of range or of the wrong type.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.gap(n_agents=3, n_arms=5, dim=4)
        >>> world = env.init(jax.random.key(0))
        >>> offered, world = env.observe(jax.random.key(1), world, 0)
        >>> ((offered.contexts @ world.theta) > 0.65).sum(1)  # one of five is good
        Array([1, 1, 1], dtype=int32)

    Reference: Dubey & Pentland (2020), Section 4.4, and Figure 2 for the gap. The paper only says that the means are in
    the intervals and theta* in the unit ball; the uniform laws, and the norm that makes them feasible, are ours.
    """
    law = reward_law(rewards, noise_std, shape)
    validate.within("gap", validate.single("gap", validate.positive("gap", gap)), 0, LARGEST)
    spec = Spec(
        n_agents=validate.integer("n_agents", n_agents, at_least=1),
        n_arms=validate.integer("n_arms", n_arms, at_least=2),
        dim=validate.integer("dim", dim, at_least=2),
        max_norm=1.0,
        rewards_in_unit=law.in_unit,
    )
    if spec.n_arms > spec.dim**2:
        raise BadValue("n_arms", f"must be <= dim^2 = {spec.dim**2}, as in the paper", n_arms)
    return Gap(gap=float(gap), rewards=law, spec=spec)
