"""Faults of silos, which miss synchronisations, wait for rewards, or report false ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Feedback, Round
from fedbandit_jax.privacy.byzantine import ATTACKS, LARGE, Liars

DELAYS = ("fixed", "geometric")  # laws
# attack -> report of silos, given a key, the features (M, d) of played arms, and true rewards (M,)
FALSE: dict[str, Callable[[Array, Array, Array], Array]] = {
    "random": lambda key, x, y: random.uniform(key, y.shape),
    "sign_flip": lambda key, x, y: 1 - y,
    "large": lambda key, x, y: -LARGE * y,
    "collude": lambda key, x, y: jnp.where(x[:, 0] >= 0, 1.0, 0.0),
}
assert FALSE.keys() == ATTACKS.keys()


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


@struct.pytree
class Corrupt(Wrapper):
    """An environment with silos that report false rewards; made by `corrupt`."""

    lying: Float[Array | np.ndarray, " M"]  # 1 for silos that lie
    attack: str = struct.static()  # a key of `FALSE`

    @override
    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        found = self.env.pull(key, world, offered, arms)
        x = jnp.take_along_axis(offered.contexts, arms[:, None, None], axis=1)[:, 0]
        false = FALSE[self.attack](random.stream(key, "lies"), x, found.reward)
        return found._replace(reward=jnp.where(jnp.asarray(self.lying) > 0, false, found.reward))


def corrupt(env: Any, silos: float | Sequence[int] = 0.2, attack: str = "sign_flip") -> Corrupt:
    """Wraps an environment with false rewards from some silos, for any algorithm.

    Users choose nothing and answer truthfully: gaps, and so the regret of all silos, use the true means. Reports pass
    the bounds that every silo enforces, so a private mechanism clips "large" rewards to the range of its statistic. For
    a silo that ignores these bounds and sends any message, use `fb.privacy.Liars` with `fb.algos.Federated`.

    Args:
        env: an environment with at least two silos.
        silos: share of silos that lie, in [0, 1), the first ones; or their indices.
        attack: report in place of a reward y. With "sign_flip" it is 1 - y, with "random" uniform on [0, 1], and with
            "large" -1000 y. With "collude" it is 1 if the first feature of the played arm is not negative, otherwise 0.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> honest = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> env = fb.envs.corrupt(honest, silos=[3])
        >>> key, arms = jax.random.key(0), jax.numpy.zeros(4, int)
        >>> offered, world = env.observe(key, env.init(key), jax.numpy.int32(0))
        >>> one, other = (each.pull(key, world, offered, arms).reward for each in (honest, env))
        >>> (one != other).tolist()
        [False, False, False, True]
    """
    spec = wrapped_spec(env)
    if spec.n_agents < 2:
        raise BadValue("env", "must have at least two silos", spec.n_agents)
    lying = Liars(silos, attack).mask(spec.n_agents)
    spec = dataclasses.replace(spec, rewards_in_unit=spec.rewards_in_unit and attack != "large")
    return Corrupt(env=env, lying=lying, attack=attack, spec=spec)
