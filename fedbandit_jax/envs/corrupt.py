"""Silos that report false rewards of their users: data poisoning, for any algorithm and mechanism."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax.core import random, struct
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Feedback, Round
from fedbandit_jax.privacy.liars import ATTACKS, LARGE, Liars

# attack -> report of silos, given a key, the features (M, d) of played arms, and true rewards (M,)
FALSE: dict[str, Callable[[Array, Array, Array], Array]] = {
    "random": lambda key, x, y: random.uniform(key, y.shape),
    "sign_flip": lambda key, x, y: 1 - y,
    "large": lambda key, x, y: -LARGE * y,
    "collude": lambda key, x, y: jnp.where(x[:, 0] >= 0, 1.0, 0.0),
}
assert FALSE.keys() == ATTACKS.keys()


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
        attack: report in place of a reward y: "sign_flip", 1 - y; "random", uniform on [0, 1]; "large", -1000 y;
            "collude", 1 if the first feature of the played arm is not negative, otherwise 0.

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
