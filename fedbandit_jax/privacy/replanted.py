"""Noise of trees that are planted again in every phase, on sums that go on: Algorithm 5 of Liu et al. (2022), composed.

A local cluster's tree of phase s has one leaf for all that came before it, and one for each upload until the next tree.
A datum is in the first leaf of every tree that is planted after it came, and so in b = 1 + floor(log2(leaves)) nodes of
each, and in a later leaf of the tree before, of whose nodes prefix sums use at most b - 1 (of two brothers they use the
first). Nobody came before the first tree. So all releases of all phases move by sqrt(kappa) times what one release
moves, with kappa = sum over phases of b, minus 1.

This bounds trees that go on over several phases, too, beside the one leaf that is then released when a phase begins:
f(r_1 + r_2) + 1 <= f(r_1) + f(r_2) with f(r) = 1 + floor(log2(1 + r)) and r_s >= 0 uploads in phase s. What a tree did
not use in one phase it may therefore use in the next.

Trees are nowhere stored. Prefix k = 0, 1, ... has k + 1 leaves and the noise H_k of the nodes at the one-bits of k + 1,
each drawn again from its own key. From one prefix to the next, one node comes, of level ctz(k + 2), and those of all
lower levels go. That suits thousands of trees, of which few move.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import control, random, struct, validate
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.budget import ADJACENCY, MATRIX_SENSITIVITY_SQ, MAX_NORM, Budget
from fedbandit_jax.privacy.statistic import LinearStatistic, matrix_weights, packed_size, unpack
from fedbandit_jax.privacy.trust.model import GAUSSIAN, noise_std

METHODS = ("tight", "theorem")
TRUST = (
    "servers ({} of them): each adds its own noise to the sums of its clusters and is trusted with its own users; the "
    "global server and other servers are not trusted"
)
LARGEST_MU = 1e4  # beyond which the accountant does not compute


@struct.sealed
@struct.pytree
class Replanted:
    """The trees of all local clusters: they draw the noise, say how often each may upload, and prove what that gives.

    Attributes:
        std: standard deviation of a node's noise on x y and off the diagonal of x x', sqrt 2 of it on the diagonal.
        leaves: (S,) of the tree of every phase 1, ..., S; later phases plant none.
        visits: rounds of one user that are protected together.
        epsilon, delta, adjacency: the budget asked for.
    """

    std: struct.Number
    leaves: Any
    visits: struct.Number
    epsilon: struct.Number
    delta: struct.Number
    adjacency: str = struct.static()

    @property
    def n_phases(self) -> int:
        """S."""
        return len(self.leaves)

    def room(self, planted: Array, phase: Array) -> Array:
        """How many uploads a tree that was planted in one phase may have made by the end of another."""
        ends = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(jnp.asarray(self.leaves) - 1)])
        return ends[jnp.minimum(phase, self.n_phases)] - ends[jnp.maximum(planted, 1) - 1]

    def admit(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Features (d,) scaled to the unit ball, or 0 if they are not finite, and a reward clipped to [0, 1]."""
        x, y, _ = LinearStatistic(dim=len(x)).admit(x[:, None], y[None])
        return x[:, 0], y[0]

    def first(self, key: Array, phase: Array, slot: Array, dim: int) -> Array:
        """H_0, (d, d + 1), of the tree that a local cluster plants in a phase."""
        return self.std * _node(_tree(key, phase, slot), jnp.int32(0), jnp.int32(1), dim)

    def change(self, key: Array, phase: Array, slot: Array, k: Array, dim: int) -> Array:
        """H_(k+1) - H_k, (d, d + 1), of this tree."""
        tree, leaves = _tree(key, phase, slot), k + 2
        level = jnp.bitwise_count((leaves & -leaves) - 1).astype(jnp.int32)

        def add(j, total):
            comes = jnp.where(j == level, _node(tree, j, leaves >> j, dim), 0)
            goes = jnp.where(j < level, _node(tree, j, (leaves - 1) >> j, dim), 0)
            return total + comes - goes

        return self.std * lax.fori_loop(0, control.largest(level) + 1, add, jnp.zeros((dim, dim + 1)))

    @property
    def sigma(self) -> float:
        """The least standard deviation that is drawn, without the room for what float32 makes of unit vectors."""
        return float(np.min(np.asarray(self.std, float))) / MAX_NORM**2

    @property
    def releases_per_user(self) -> float:
        """kappa."""
        return float(_kappa(self._counts))

    @property
    def nodes(self) -> int:
        """Most nodes in one prefix sum of a tree that lives for all phases."""
        return (sum(self._counts) + 1).bit_length() - 1

    @property
    def epsilon_exact(self) -> float:
        """The smallest epsilon that this noise is proved to give at delta, for all phases together."""
        sensitivity = _sensitivity(self._counts, self._visits, self.adjacency)
        if not self.sigma * LARGEST_MU > sensitivity:
            return math.inf
        return gaussian_epsilon(sensitivity / self.sigma, float(self.delta))

    def guarantee(self, n_servers: int, n_trees: int) -> Certificate:
        """What the noise proves for one user, if the servers have at most so many local clusters. On the host."""
        exact, asked, delta = self.epsilon_exact, float(self.epsilon), float(self.delta)
        gives = f"gives epsilon = {exact:.4g} at delta = {delta:g}, all phases together"
        sound, often = exact <= asked, "once" if self._visits == 1 else f"{self._visits} times"
        return Certificate(
            claim="certified" if sound else "none",
            reason=f"noise of known law is on every sum that leaves a server, and {gives}"
            if sound
            else f"the noise {gives}, not {asked:g}",
            trust=TRUST.format(n_servers),
            adjacency=f"{self.adjacency} ({ADJACENCY[self.adjacency]})",
            unit="what one user of another server did in a round (cluster differential privacy); who comes "
            f"{often} is protected altogether",
            epsilon=asked,
            delta=delta,
            epsilon_exact=exact,
            accountant=f"{GAUSSIAN}; all trees of all phases composed",
            noise_std=self.sigma,
            noise_whose="of a node of a local cluster's tree, sqrt 2 of it on the diagonal",
            server_noise_std=self.sigma * math.sqrt(2 * self.nodes * n_trees),
            releases=sum(self._counts),
            releases_per_user=self.releases_per_user,
            not_covered=(
                "when and at which server users come, and how many of a cluster's rounds are in its sums",
                "recommendations at the user's own server, to others of her cluster: that server is trusted",
                "what only a simulator sees: regret curves, checkpoints",
                "floating-point attacks: noise is pseudo-random, all arithmetic and its rounding float32",
            ),
        )

    @property
    def _counts(self) -> tuple[int, ...]:
        """Leaves of the tree of every phase, of which the first is always shown."""
        return tuple(max(1, math.ceil(count)) for count in np.ravel(self.leaves))

    @property
    def _visits(self) -> int:
        return max(1, math.ceil(float(self.visits)))


def replant(budget: Budget, *, leaves: tuple[int, ...], method: str = "tight", visits: int = 1) -> Replanted:
    """Noise for trees of so many leaves, one after the other.

    Args:
        budget: epsilon, delta and adjacency.
        leaves: of every phase's tree, >= 1.
        method: "tight", sigma^2 = visits^2 kappa Delta^2 / mu*^2, exact for all phases together; "theorem", sigma^2 =
            64 nu ln(2/delta) / epsilon^2 as printed in Algorithm 5, nu = 1 + ceil(log2(leaves)) of the largest tree,
            which is meant for one tree.
        visits: r, rounds of one user that are protected together: group privacy.

    Example:
        >>> noise = replant(Budget(1.0, 0.1), leaves=(3, 5, 9))
        >>> noise.releases_per_user, round(noise.sigma, 2), round(noise.epsilon_exact, 4)
        (8.0, 6.14, 1.0)
        >>> round(replant(Budget(1.0, 0.1), leaves=(3, 5, 9), method="theorem").sigma, 2)
        30.96

    Reference: Liu et al. (2022), Algorithm 5; its text has ln(2/delta)^2 instead, which is more noise.
    """
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a fb.privacy.Budget, got {budget!r}")
    validate.one_of("method", method, METHODS)
    for count in leaves:
        validate.integer("leaves", count, at_least=1)
    visits = validate.integer("visits", visits, at_least=1)
    if method == "tight":
        sigma = _sensitivity(leaves, visits, budget.adjacency) / gaussian_mu(budget.epsilon, budget.delta)
    else:
        nu = 1 + math.ceil(math.log2(max(leaves)))
        sigma = 8 * math.sqrt(nu * math.log(2 / budget.delta)) / budget.epsilon
    return Replanted(
        std=noise_std(sigma),
        leaves=np.array(leaves, np.int32),
        visits=visits,
        epsilon=float(budget.epsilon),
        delta=float(budget.delta),
        adjacency=budget.adjacency,
    )


def _kappa(leaves: tuple[int, ...]) -> int:
    """Squared sensitivity of all releases to one datum, relative to one release."""
    return max(1, sum(map(int.bit_length, leaves)) - 1)


def _sensitivity(leaves: tuple[int, ...], visits: int, adjacency: str) -> float:
    """How far one user moves all releases together, in units of the noise of a node."""
    return visits * math.sqrt(_kappa(leaves) * MATRIX_SENSITIVITY_SQ[adjacency])


def _tree(key: Array, phase: Array, slot: Array) -> Array:
    """Key of the tree that a local cluster planted in a phase."""
    return jax.random.fold_in(jax.random.fold_in(random.stream(key, "trees"), phase), slot)


def _node(tree: Array, level: Array, index: Array, dim: int) -> Array:
    """Node `index` = 1, 2, ... of a level: [(G + G') / sqrt 2 | g], G and g iid N(0, 1)."""
    own = jax.random.fold_in(jax.random.fold_in(tree, level), index)
    size = packed_size(dim)
    return unpack(jax.random.normal(own, (size,)) * matrix_weights(size), dim)
