"""Delayed rewards: a silo observes them rounds after it served the user."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Int, Key
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Round

LAWS = ("fixed", "geometric")


@struct.pytree
class Delay(Wrapper):
    """An environment with delayed rewards; made by `delay`."""

    law: str = struct.static()

    @override
    def observe(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Round, Any]:
        offered, world = self.env.observe(random.stream(key, "offer"), world, t)
        m, n = self.spec.n_agents, self.spec.late
        if self.law == "fixed":
            return offered._replace(arrives=jnp.full(m, t % n, jnp.int32)), world
        u = random.uniform(random.stream(key, "arrives"), (m,))
        return offered._replace(arrives=jnp.minimum((u * n).astype(jnp.int32), n - 1)), world


def delay(env: Any, rounds: int, law: str = "fixed") -> Delay:
    """Wraps an environment with delayed rewards; delays are independent of the rewards.

    Every silo awaits `rounds` rewards. In every round one of them is delivered, and the round's reward takes its slot.
    It is the oldest, for a constant delay ("fixed"), or a uniformly random one ("geometric"), for geometric delays on
    1, 2, ... with this mean. A user's contribution enters the batch in which the reward is delivered, or none after the
    horizon. Only `fb.algos.Federated` supports delays.

    Args:
        env: an environment without delays.
        rounds: the delay, or its mean, in [1, 10^4].
        law: "fixed" or "geometric".

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.delay(fb.envs.sphere(n_agents=3, n_arms=5, dim=4), rounds=10)
        >>> env.observe(jax.random.key(0), env.init(jax.random.key(1)), 27)[0].arrives.tolist()
        [7, 7, 7]
    """
    spec = wrapped_spec(env, silos=True)
    if spec.late:
        raise BadValue("env", "must have no delayed rewards", None, got="a delayed environment")
    rounds = validate.integer("rounds", rounds, at_least=1, at_most=10**4)
    validate.one_of("law", law, LAWS)
    return Delay(env=env, law=law, spec=dataclasses.replace(spec, late=rounds))
