"""Drop-outs: silos miss synchronisations, independently of their users."""

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
