"""Faults of silos, which miss synchronisations or wait for rewards."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Round

DELAYS = ("fixed", "geometric")  # laws


@struct.pytree
class Dropout(Wrapper):
    """An environment with silos that may miss the synchronisation after a round; made by `dropout`."""

    rate: Float[Array | np.ndarray, " M"]  # probability that a silo is away
    away: Bool[Array | np.ndarray, "T M"] | None  # silos that are away after every round, instead of the rate

    @override
    def observe(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Round, Any]:
        offered, world = self.env.observe(random.stream(key, "offer"), world, t)
        if self.away is None:
            away = random.uniform(random.stream(key, "away"), (self.spec.n_agents,)) < self.rate
        else:
            away = jnp.asarray(self.away)[jnp.minimum(t, len(self.away) - 1)]
        return offered._replace(away=away), world


def dropout(env: Any, rate: Any = 0.0, schedule: Any = None) -> Dropout:
    """Wraps an environment with silos that miss synchronisations, independently of their users and of each other.

    A silo that is away still serves its users, and receives releases before its next user. Its unsent sums are in its
    next message, or lost, see `fb.privacy.Mechanism`. Only `fb.algos.Federated` supports drop-outs.

    Args:
        env: an environment without drop-outs.
        rate: probability in [0, 1) that a silo misses the synchronisation after a round, one for all or (M,).
        schedule: (T, M) bool: silos that are away after every round, with the last row for all later ones; None: by
            `rate`.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.dropout(fb.envs.sphere(n_agents=3, n_arms=5, dim=4), schedule=[[True, False, False]])
        >>> env.observe(jax.random.key(0), env.init(jax.random.key(1)), 7)[0].away.tolist()
        [True, False, False]
    """
    spec = wrapped_spec(env, silos=True)
    if spec.drops:
        raise BadValue("env", "must have no drop-outs", None, got="an environment with drop-outs")
    m = spec.n_agents
    if isinstance(rate, (list, tuple)) or np.ndim(rate) == 1:
        rates = validate.finite_array("rate", rate, ndim=1)
    else:
        rates = np.float32(validate.within("rate", rate, 0, 1))
    if rates.shape not in ((), (m,)) or not ((rates >= 0) & (rates < 1)).all():
        raise BadValue("rate", f"must be in [0, 1), one or {m} of them", rate)
    away = None
    if schedule is not None:
        away = validate.bool_array("schedule", schedule, ndim=2)
        if away.shape[1] != m or not len(away):
            raise BadValue("schedule", f"must be bool of shape (T, {m})", away.shape)
        if rates.any():
            raise BadValue("rate", "must be 0 with a schedule", rate)
    spec = dataclasses.replace(spec, drops=True)
    return Dropout(env=env, rate=np.broadcast_to(rates, (m,)).copy(), away=away, spec=spec)


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

    Every silo awaits `rounds` rewards. In every round it gets one of them, and the round's own reward takes that slot.
    With "fixed" it gets the oldest, so all delays are equal. With "geometric" it gets a uniformly random one, so delays
    are geometric on 1, 2, ... with mean `rounds`. A user's contribution enters the batch in which the reward arrives.
    Rewards that would arrive after the horizon enter none. Only `fb.algos.Federated` supports delays.

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
    validate.one_of("law", law, DELAYS)
    return Delay(env=env, law=law, spec=dataclasses.replace(spec, late=rounds))
