"""Byzantine silos: attacks sent to the server in place of messages, which no bound of a sum applies to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

LARGE = 1000.0  # factor of the attack "large"

Lie = Callable[[Key[Array, ""], Float[Array, "M D"], Float[Array, "M d d+1"]], Float[Array, "M D"]]


def _random(key: Array, sent: Array, sums: Array) -> Array:
    drawn = jax.random.normal(key, sent.shape)
    return drawn * jnp.linalg.norm(sent, axis=1, keepdims=True) / jnp.linalg.norm(drawn, axis=1, keepdims=True)


ATTACKS: dict[str, Lie] = {
    "random": _random,
    "sign_flip": lambda key, sent, sums: -sent,
    "large": lambda key, sent, sums: -LARGE * sent,
    "collude": lambda key, sent, sums: sent.at[:, -sums.shape[1] :].set(sums[:, :, 0]),
}


@dataclasses.dataclass(frozen=True)
class Liars:
    """Silos that send an attack instead of their private sums [W | U], at every synchronisation.

    They serve their users like all others, by the server's beliefs, and count in the regret. Neither the bounds that
    honest silos enforce nor the noise applies to a liar's message.

    Args:
        silos: the share of silos that lie, in [0, 1), or their numbers. A share is the first silos, the nearest number
            to share times M.
        attack: "sign_flip" sends minus the true message, "large" minus a thousand times it. "random" sends a message of
            the same norm in a random direction, fresh every time. "collude" sends the true W with U = W e_1, as if the
            reward of every arm were its first feature. All liars then pull theta towards the first axis, within usual
            bounds.

    Raises:
        ValueError, TypeError: if an argument is out of range or of the wrong type.

    Example:
        >>> Liars(0.2, "collude").among(10), Liars([1, 4]).among(5)
        ((0, 1), (1, 4))
    """

    silos: float | Sequence[int] = 0.2
    attack: str = "sign_flip"

    def __post_init__(self):
        if isinstance(self.silos, (list, tuple)):
            numbers = tuple(validate.integer("silos", one, at_least=0) for one in self.silos)
            if len(set(numbers)) < len(numbers):
                raise BadValue("silos", "must name every silo once", list(numbers))
            object.__setattr__(self, "silos", numbers)
        elif validate.within("silos", self.silos, 0, 1) == 1:
            raise BadValue("silos", "must be a share below 1, or a list of silos", self.silos)
        validate.one_of("attack", self.attack, ATTACKS)

    def among(self, n_agents: int) -> tuple[int, ...]:
        """Returns the numbers of the silos that lie, out of M.

        Raises:
            ValueError: if there is no silo of such a number, all silos lie, or a share above 0 is none of them.
        """
        share: Any = self.silos
        found = share if isinstance(share, tuple) else tuple(range(round(share * n_agents)))
        if any(one >= n_agents for one in found):
            raise BadValue("silos", f"must be below the {n_agents} of the environment", list(found))
        if not found and share not in (0, ()):
            raise BadValue("silos", f"must be 0, or a share that is at least one of {n_agents} silos", share)
        if len(found) == n_agents:
            raise BadValue("silos", f"must leave one of {n_agents} that is honest", share)
        return found

    def mask(self, n_agents: int) -> Float[np.ndarray, " M"]:
        """Returns the mask of the M silos that lie, 1 for liars."""
        found = np.zeros(n_agents, np.float32)
        found[list(self.among(n_agents))] = 1
        return found
