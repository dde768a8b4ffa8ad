"""Multi-armed bandits: users are exchangeable, and a reward depends on the arm only, or on whether a user lies."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.stats import norm
from jaxtyping import ArrayLike, Float, Int, Key, Real
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._rewards import RANGES, SHAPES
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Feedback, Round, Spec

INSTANCES = types.MappingProxyType({"easy": (0.25, 0.75), "hard": (0.45, 0.55)})  # ranges of means
LAWS = ("gaussian", "bernoulli", "pareto")


@struct.pytree
class RandomArms:
    """K arms with rewards in [0, 1]. The world is their means, for Gaussian rewards before clipping. Made by `arms`."""

    low: Any  # least parameter of a random instance
    high: Any  # largest parameter of a random instance
    fixed: Float[Array | np.ndarray, " K"] | None  # given parameters, or None for a random instance
    spread: Any  # noise_std of Gaussian rewards, otherwise unused
    rewards: str = struct.static()  # one of `LAWS`
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> Float[Array, " K"]:
        """Returns the given parameters of the arms, or draws them uniformly from [low, high]."""
        if self.fixed is not None:
            return jnp.asarray(self.fixed, jnp.float32)
        return self.low + (self.high - self.low) * random.uniform(key, (self.spec.n_arms,))

    def means(self, world: Float[Array, " K"]) -> Float[Array, " K"]:
        """Returns the mean reward of every arm, for Gaussian rewards after clipping."""
        if self.rewards != "gaussian":
            return world
        low, high = -world / self.spread, (1 - world) / self.spread
        inside = world * (norm.cdf(high) - norm.cdf(low)) - self.spread * (norm.pdf(high) - norm.pdf(low))
        return inside + norm.sf(high)

    def answers(
        self, key: Key[Array, ""], world: Float[Array, " K"], arm: Int[ArrayLike, ""], size: int
    ) -> tuple[Float[Array, " {size}//2"], Float[Array, " {size}//2"]]:
        """Draws the rewards of `size` (static, even) pulls of `arm`, in two halves."""
        one, other = random.bits(key, size // 2)
        if self.rewards == "bernoulli":
            one, other = (random.unit(word) < world[arm] for word in (one, other))
            return one.astype(jnp.float32), other.astype(jnp.float32)
        one, other = random.normal_pair(one, other)
        return jnp.clip(world[arm] + self.spread * one, 0, 1), jnp.clip(world[arm] + self.spread * other, 0, 1)

    def observe(
        self, key: Key[Array, ""], world: Float[Array, " K"], t: Int[ArrayLike, ""]
    ) -> tuple[Round, Float[Array, " K"]]:
        """Offers the K arms to one user. Arm a has the unit vector e_a, for algorithms that need features."""
        return Round(jnp.eye(self.spec.n_arms)[None]), world

    def pull(self, key: Key[Array, ""], world: Float[Array, " K"], offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Draws the reward of the user of a round, with the gap of the played arm."""
        reward = self.answers(key, world, arms[0], 2)[0]
        means = self.means(world)
        return Feedback(reward, means.max() - means[arms])


@struct.pytree
class ParetoArms(RandomArms):
    """K arms with Pareto rewards, which may be large. Made by `arms`."""

    shape: Float[Array | np.ndarray, " K"]  # tail index of every arm

    @override
    def answers(
        self, key: Key[Array, ""], world: Float[Array, " K"], arm: Int[ArrayLike, ""], size: int
    ) -> tuple[Float[Array, " {size}//2"], Float[Array, " {size}//2"]]:
        shape = jnp.asarray(self.shape)[arm]
        one, other = (
            world[arm] * (1 - 1 / shape) * jnp.exp(-jnp.log(random.unit(word)) / shape)
            for word in random.bits(key, size // 2)
        )
        return one, other


def arms(
    n_arms: int | None = None,
    *,
    instance: str = "easy",
    means: Real[Array | np.ndarray, " K"] | Sequence[float] | None = None,
    rewards: str = "gaussian",
    noise_std: float = 0.1,
    shape: Any = None,
) -> RandomArms:
    """Makes a multi-armed bandit with K arms and one user a round, with random means for every seed or given ones.

    Args:
        n_arms: K >= 2; by default 10, or the number of `means`.
        instance: law of random means: "easy", uniform in [0.25, 0.75], or "hard", in [0.45, 0.55].
        means: means of the arms, in [0, 1], instead of random ones; for Gaussian rewards before clipping.
        rewards: law of a reward: "gaussian", N(mean, noise_std^2) clipped to [0, 1] (regret uses the mean after
            clipping); "bernoulli", 1 with probability the mean; or "pareto", heavy tails above 0, not clipped.
        noise_std: standard deviation > 0 of Gaussian rewards before clipping, in units of reward.
        shape: tail index of Pareto rewards in [1.5, 10^6], one or (K,). Moments below it are finite. None: 2.5.

    Example:
        >>> env = arms(means=[0.2, 0.5, 0.6], rewards="bernoulli")
        >>> env.spec.n_arms, env.spec.rewards_in_unit
        (3, True)

    Reference: Chowdhury & Zhou (2023), Section 7.
    """
    fixed = None
    if means is not None:
        fixed = validate.finite_array("means", means, ndim=1)
        if len(fixed) < 2:
            raise BadValue("means", "must have at least two arms", len(fixed))
        for i in np.flatnonzero((fixed < 0) | (fixed > 1)):
            raise BadValue("means", "must be in [0, 1]", fixed[i], got=f"{fixed[i]:g} of arm {i}")
        if n_arms is not None and n_arms != len(fixed):
            raise BadValue("n_arms", f"must be the number of means {len(fixed)} or None", n_arms)
        n_arms = len(fixed)
    n_arms = validate.integer("n_arms", 10 if n_arms is None else n_arms, at_least=2)
    low, high = INSTANCES[validate.one_of("instance", instance, INSTANCES)]
    validate.one_of("rewards", rewards, LAWS)
    noise_std = validate.single("noise_std", validate.positive("noise_std", noise_std))
    if shape is not None and rewards != "pareto":
        raise BadValue("shape", f"must be None with rewards={rewards!r}", shape, others=("rewards",))
    plain = RandomArms(
        low=low,
        high=high,
        fixed=fixed,
        spread=noise_std if rewards == "gaussian" else 0.0,
        rewards=rewards,
        spec=Spec(n_agents=1, n_arms=n_arms, dim=n_arms, fixed_contexts=True, max_norm=1.0, rewards_in_unit=True),
    )
    if rewards != "pareto":
        return plain
    (lowest, highest), given = RANGES["pareto"], SHAPES["pareto"] if shape is None else shape
    one = np.ndim(given) == 0
    tails = np.array([validate.positive("shape", given)]) if one else validate.finite_array("shape", given, ndim=1)
    if len(tails) != (1 if one else n_arms) or not ((tails >= lowest) & (tails <= highest)).all():
        raise BadValue("shape", f"must be in [{lowest:g}, {highest:g}], one or {n_arms} of them", shape)
    heavy: dict[str, Any] = dict(spec=dataclasses.replace(plain.spec, rewards_in_unit=False))
    return ParetoArms(shape=np.resize(tails.astype(np.float32), n_arms), **vars(plain) | heavy)


@struct.pytree
class ContaminatedArms(Wrapper):
    """Arms of whose users a share is corrupted. Made by `contaminate`."""

    share: Any  # probability that a user is corrupted
    favoured: Any  # the arm that corrupted users favour

    def means(self, world: Any) -> Float[Array, " K"]:
        """Returns the mean reward of every arm, for honest users."""
        return self.env.means(world)

    def answers(
        self, key: Key[Array, ""], world: Any, arm: Int[ArrayLike, ""], size: int
    ) -> tuple[Float[Array, " {size}//2"], Float[Array, " {size}//2"]]:
        """Draws rewards, infinite for corrupted users: positive for the favoured arm, negative for others."""
        lie = jnp.where(jnp.asarray(arm) == self.favoured, jnp.inf, -jnp.inf)
        rewards = self.env.answers(key, world, arm, size)
        lots = random.bits(random.stream(key, "lies"), size // 2)
        one, other = (jnp.where(random.unit(lot) < self.share, lie, x) for x, lot in zip(rewards, lots))
        return one, other

    @override
    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        found = super().pull(key, world, offered, arms)
        return found._replace(reward=self.answers(key, world, arms[0], 2)[0])


def contaminate(env: Any, share: float = 0.01, favoured: int = 0) -> ContaminatedArms:
    """Wraps a multi-armed environment with corrupted users, who favour one arm (Huber contamination).

    A corrupted user reports an infinite reward, which every algorithm clips to the largest or least that it accepts.
    Gaps, and so regret, use the means of honest users. For users who corrupt their message after it is made private,
    see `fb.algos.RRSE`.

    Args:
        env: a multi-armed environment with new users only.
        share: probability in [0, 0.5) that a user is corrupted, independently of others.
        favoured: the arm for which they report the most. For others they report the least.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.contaminate(fb.envs.arms(means=[0.2, 0.9], rewards="bernoulli"), share=0.4)
        >>> key = jax.random.key(0)
        >>> [sorted(set(env.answers(key, env.init(key), arm, 40)[0].tolist())) for arm in (0, 1)]
        [[0.0, 1.0, inf], [-inf, 0.0, 1.0]]
    """
    spec = wrapped_spec(env)
    if not callable(getattr(env, "answers", None)) or spec.n_users:
        raise BadValue("env", "must be a multi-armed environment with new users only", env, got=type(env).__name__)
    validate.within("share", share, 0, 0.5)
    arm = np.int32(validate.integer("favoured", favoured, at_least=0, at_most=spec.n_arms - 1))
    spec = dataclasses.replace(spec, rewards_in_unit=False)
    return ContaminatedArms(env=env, share=np.float32(share), favoured=arm, spec=spec)
