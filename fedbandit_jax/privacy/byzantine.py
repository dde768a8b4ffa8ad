"""Byzantine silos: attacks sent to the server in place of messages, and robust rules to add up messages.

A rule takes M times a robust centre of M vectors. `AGGREGATES` maps every name to its centre. A centre breaks down if
lies can move it without bound. The mean ("sum") tolerates no lies, "median" and "geometric_median" fewer than half, and
"trimmed_mean" a quarter. Robustness costs noise if nobody lies, see `cost`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
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
TRIM = 0.25  # share of messages that "trimmed_mean" leaves out at each end
STEPS = 64  # of Weiszfeld's algorithm
NUMBERS = 2**21  # drawn at most, about, to compute a `cost`
FEWEST = 512  # least number of coordinates in that average

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

    They serve their users like all others, by the server's beliefs. They count in the regret. Neither the bounds that
    honest silos enforce nor the noise applies to a liar's message.

    Args:
        silos: the share of silos that lie, in [0, 1), or their numbers. A share is the first silos, the nearest number
            to share times M.
        attack: what liars send. With "sign_flip" it is minus the true message, and with "large" minus a thousand times
            it. With "random" it has the same norm in a random direction, fresh every time. With "collude" it is the
            true W with U = W e_1. The reward of every arm then seems to be its first feature. All liars then pull theta
            towards the first axis, within usual bounds.

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


def median(sent: Float[Array, "M D"]) -> Float[Array, " D"]:
    """Returns the coordinatewise median. For an even number of messages it is the mean of the two in the middle."""
    return jnp.median(sent, axis=0)


def trimmed_mean(sent: Float[Array, "M D"]) -> Float[Array, " D"]:
    """Returns the mean of every coordinate after leaving out floor(M / 4) values at each end.

    Reference: Yin, Chen, Ramchandran & Bartlett (2018), Definition 2.
    """
    out = int(TRIM * len(sent))
    return jnp.sort(sent, axis=0)[out : len(sent) - out].mean(0)


def geometric_median(sent: Float[Array, "M D"]) -> Float[Array, " D"]:
    """Returns the point with the least sum of distances to all messages, by 64 steps of Weiszfeld's algorithm.

    It starts at the coordinatewise median. A message at the current point counts as if it were 10^-6 of a median
    distance off.
    """

    def distances(centre: Array) -> Array:
        return jnp.sqrt(((sent - centre) ** 2).sum(1))

    start = median(sent)
    least = 1e-6 * jnp.median(distances(start)) + jnp.finfo(jnp.float32).tiny

    def step(_: Array, centre: Array) -> Array:
        weights = least / jnp.maximum(distances(centre), least)
        return (weights[:, None] * sent).sum(0) / weights.sum()

    return jax.lax.fori_loop(0, STEPS, step, start)


def mean(sent: Float[Array, "M D"]) -> Float[Array, " D"]:
    """Returns the mean; M times the mean is the plain sum."""
    return sent.mean(0)


AGGREGATES: dict[str, Callable[[Array], Array]] = {
    "sum": mean,
    "median": median,
    "geometric_median": geometric_median,
    "trimmed_mean": trimmed_mean,
}


@functools.cache
def cost(aggregate: str, n_agents: int, size: int) -> float:
    """Returns the standard deviation of an aggregate of M iid Gaussian messages, in units of their sum's.

    It tends to sqrt(pi / 2) for the median as M grows. An aggregate minus the mean does not depend on the centre of the
    Gaussians. So it is independent of the mean (Basu's theorem), and their variances add up. The variance of the
    difference is an average over draws from a fixed seed. It is right to 0.2 % for M = 100 and D = 65.

    Args:
        aggregate: a key of `AGGREGATES`.
        n_agents: M.
        size: D, which only the geometric median depends on.

    Example:
        >>> round(cost("median", 1001, 65), 1), cost("sum", 1001, 65), cost("median", 2, 65)
        (1.3, 1.0, 1.0)
    """
    if aggregate == "sum" or n_agents <= 2:  # all are the mean of two
        return 1.0
    columns = max(FEWEST, NUMBERS // n_agents)
    runs = -(-columns // size) if aggregate == "geometric_median" else 1
    drawn = np.random.default_rng(0).standard_normal((runs, n_agents, -(-columns // runs)), np.float32)
    if runs > 1:
        drawn = drawn[..., :size]
    centres = np.asarray(jax.jit(jax.vmap(AGGREGATES[aggregate]))(drawn))
    return math.sqrt(1 + n_agents * float(((centres - drawn.mean(1)) ** 2).mean()))
