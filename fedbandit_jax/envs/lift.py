"""Random Fourier features of contexts, for linear algorithms with non-linear rewards."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Feedback, Round

MOST = 4096  # features


class Lifted(NamedTuple):
    """Instance of one seed in one round."""

    frequencies: Float[Array, "e n"]  # drawn once, from e wrapped features
    within: Any  # the world of the wrapped environment
    offered: Float[Array, "M K e"]  # its contexts


@struct.pytree
class Lift(Wrapper):
    """An environment that offers random features of another one's contexts; made by `lift`."""

    bandwidth: Any  # of the Gaussian kernel

    @override
    def init(self, key: Key[Array, ""]) -> Lifted:
        inner = self.env.spec
        normal = random.normal(random.stream(key, "frequencies"), (inner.dim, self.spec.dim // 2))
        nothing = jnp.zeros((inner.n_agents, inner.n_arms, inner.dim))
        return Lifted(normal / self.bandwidth, self.env.init(key), nothing)

    @override
    def observe(self, key: Key[Array, ""], world: Lifted, t: Int[Array, ""]) -> tuple[Round, Lifted]:
        offered, within = self.env.observe(key, world.within, t)
        contexts = offered.contexts.astype(jnp.float32)
        angles = jnp.matmul(contexts, world.frequencies, precision="highest")
        features = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1) / math.sqrt(self.spec.dim // 2)
        return offered._replace(contexts=features), Lifted(world.frequencies, within, contexts)

    @override
    def pull(self, key: Key[Array, ""], world: Lifted, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        return self.env.pull(key, world.within, offered._replace(contexts=world.offered), arms)


def lift(env: Any, random_features: int, bandwidth: float = 1.0) -> Lift:
    """Wraps an environment to offer random Fourier features phi(x) of its contexts x, of norm 1.

    phi(x) = (cos <w_i, x>, sin <w_i, x>)_i / sqrt n for n = D / 2 frequencies w_i ~ N(0, I / bandwidth^2). So
    <phi(x), phi(y)> is exp(-||x - y||^2 / (2 bandwidth^2)) within about 1 / sqrt D. An algorithm that is linear in
    phi(x) can learn means that are smooth functions of x. Each seed has its own frequencies. Contexts themselves are
    hidden; fixed contexts stay fixed. Regret is to the best arm, not to the best linear function.

    Args:
        env: an environment.
        random_features: D, an even number, the new `spec.dim`.
        bandwidth: distance over which means vary, in units of contexts, > 0.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.lift(fb.envs.sphere(n_agents=3, n_arms=5, dim=4, rewards="logistic"), random_features=20)
        >>> offered, _ = env.observe(jax.random.key(0), env.init(jax.random.key(1)), jax.numpy.int32(0))
        >>> offered.contexts.shape, float((offered.contexts**2).sum(-1).max().round(5))
        ((3, 5, 20), 1.0)

    Reference: Rahimi & Recht (2007), with the two features of a frequency as in Sutherland & Schneider (2015).
    """
    spec = wrapped_spec(env, clusters=False)
    dim = validate.integer("random_features", random_features, at_least=2, at_most=MOST)
    if dim % 2:
        raise BadValue("random_features", "must be even, for a cosine and a sine of every frequency", dim)
    width = validate.single("bandwidth", validate.positive("bandwidth", bandwidth))
    return Lift(env=env, bandwidth=width, spec=dataclasses.replace(spec, dim=dim, max_norm=1.0, constant=False))
