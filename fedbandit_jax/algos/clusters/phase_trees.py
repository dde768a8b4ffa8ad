"""Tree noise on sums over several phases. Every local cluster plants a new binary tree in each phase.

This is the mechanism of Algorithm 5 of Liu et al. (2022), with the trees of all phases composed. A local cluster is a
group of users at one server. It uploads its sums now and then. Its tree of phase s has one leaf for all data from
before the phase. Every upload until the next tree is planted has one more leaf.

Sensitivity: a datum is in the first leaf of every later tree. So it is in b = 1 + floor(log2(leaves)) nodes of each.
Before, it was in a later leaf of one tree. Prefix sums use at most b - 1 of its nodes there (of two siblings the
first). No data came before the first tree. So all releases of all phases together move by sqrt(kappa) times the move of
one release. Here kappa is the sum of b over phases, minus 1.

The same bound covers trees that go on over several phases, with the one leaf that is released whenever a phase begins.
Let r_s >= 0 be the uploads in phase s, and f(r) = 1 + floor(log2(1 + r)). Then f(r_1 + r_2) + 1 <= f(r_1) + f(r_2). So
a tree may make uploads in the next phase that it did not make in one.

No tree is stored. Prefix k = 0, 1, ... has k + 1 leaves. Its noise H_k is the sum over the nodes at the one-bits of k +
1, each redrawn from its own key. Prefix k + 1 adds one node. Its level is the number of trailing zero bits of k + 2.
The nodes of all lower levels are dropped. That suits thousands of trees, if few change at a time.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.certificate import BEYOND, Certificate
from fedbandit_jax.core import control, random, struct
from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.accounting.gaussian import MOST_MU
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.budget import ADJACENCY, MAX_NORM, Budget, matrix_sensitivity_sq
from fedbandit_jax.privacy.packing import matrix_weights, packed_size, unpack
from fedbandit_jax.privacy.tails import check_delta, normal
from fedbandit_jax.privacy.trust.gaussian import GAUSSIAN, noise_std
from fedbandit_jax.privacy.trust.requirement import allowed_mu

METHODS = ("tight", "theorem")
SENTENCE = (
    "servers ({} of them): each adds its own noise to the sums of its clusters; users trust their own server; the "
    "global server and other servers are not trusted"
)
MOST = 32  # phases, each twice as long as the one before: no horizon has more
MAX_DIM = 360  # most features d: a node has D = d (d + 3) / 2 <= 2^16 entries
NODE_MISSING = 2.0**16 * tails.CUT  # mass of the tails of one node that are never drawn


@struct.sealed
@struct.pytree
class Replanted:
    """Trees of all local clusters, which draw the noise, limit the number of uploads, and issue the certificate.

    Trust model and privacy unit are those of `FCLUB`. A change of the unit moves all releases together by at most
    visits sqrt(kappa) Delta, Delta^2 = `matrix_sensitivity_sq(adjacency)`.

    Attributes:
        std: standard deviation of a node's noise on x y and off the diagonal of x x'. On the diagonal it is sqrt 2 std.
        leaves: numbers of leaves of the trees of phases 1, ..., n_phases, padded by 0. Later phases plant none.
        visits: number of rounds of one user that are protected together.
        epsilon: epsilon of the budget asked for.
        delta: delta of the budget asked for.
        adjacency: "replace" or "zero_out", see `Budget`.
    """

    std: struct.Number
    leaves: Any
    visits: struct.Number
    epsilon: struct.Number
    delta: struct.Number
    adjacency: str = struct.static()

    @property
    def n_phases(self) -> Any:
        """Returns the number of phases that plant trees."""
        return ((self.leaves > 0) * np.arange(1, len(self.leaves) + 1)).max(initial=1)

    def room(self, planted: Array, phase: Array) -> Array:
        """Returns the most uploads by the end of phase `phase` of a tree planted in phase `planted`."""
        ends = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(jnp.asarray(self.leaves) - 1)])
        return ends[jnp.minimum(phase, self.n_phases)] - ends[jnp.maximum(planted, 1) - 1]

    def admit(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Returns features (d,) scaled to norm <= 1 (0 if they are not finite) and the reward () clipped to [0, 1]."""
        admitted = BoundStatistic(dim=len(x)).admit(x[:, None], y[None])
        return admitted.x[:, 0], admitted.v[0]

    def first(self, key: Array, phase: Array, slot: Array, dim: int) -> Array:
        """Draws H_0, (d, d + 1), the noise on the first leaf of the tree that cluster `slot` plants in `phase`."""
        return self.std * _node(_tree(key, phase, slot), jnp.int32(0), jnp.int32(1), dim)

    def change(self, key: Array, phase: Array, slot: Array, k: Array, dim: int) -> Array:
        """Draws H_(k+1) - H_k, (d, d + 1), the change of that tree's noise from prefix k to prefix k + 1."""
        tree, leaves = _tree(key, phase, slot), k + 2
        level = jnp.bitwise_count((leaves & -leaves) - 1).astype(jnp.int32)

        def add(j, total):  # the node at `level` comes, those below it go
            node = _node(tree, j, jnp.where(j < level, leaves - 1, leaves) >> j, dim)
            return total + jnp.where(j < level, -node, jnp.where(j == level, node, 0))

        return self.std * lax.fori_loop(0, control.max_over_lanes(level) + 1, add, jnp.zeros((dim, dim + 1)))

    @property
    def sigma(self) -> float:
        """The least `std`, divided by the factor for unit vectors that float32 makes too long."""
        return float(np.min(np.asarray(self.std, float))) / MAX_NORM**2

    @property
    def releases_per_user(self) -> float:
        """kappa, the squared sensitivity of all releases of all phases, relative to one release."""
        return float(max(1, sum(map(int.bit_length, self._counts)) - 1))

    @property
    def sensitivity(self) -> float:
        """The joint l2 sensitivity of all releases of all phases to one user."""
        return self._visits * math.sqrt(self.releases_per_user * matrix_sensitivity_sq(self.adjacency))

    @property
    def depth(self) -> int:
        """nu = 1 + ceil(log2(leaves)) of the largest tree (Algorithm 5, line 2)."""
        return 1 + math.ceil(math.log2(max(self._counts)))

    @property
    def nodes(self) -> int:
        """Returns the most nodes in one prefix sum of a tree that lives for all phases."""
        return (sum(self._counts) + 1).bit_length() - 1

    @property
    def epsilon_exact(self) -> float:
        """The smallest epsilon that this noise is proved to give at `delta`, for all phases together."""
        if not self.sigma * MOST_MU > self.sensitivity:
            return math.inf
        mu, asked = self.sensitivity / self.sigma, float(self.epsilon)
        return tails.epsilon(lambda delta: gaussian_epsilon(mu, delta), float(self.delta), asked, self.missing)

    def guarantee(self, n_servers: int, n_trees: int) -> Certificate:
        """Returns the certificate of the noise for `n_servers` and at most `n_trees` local clusters, on the host."""
        exact, asked, delta = self.epsilon_exact, float(self.epsilon), float(self.delta)
        gives = f"gives epsilon = {exact:.4g} at delta = {delta:g}, all phases together"
        smallest, sound, once = tails.smallest_delta(asked, self.missing), exact <= asked, self._visits == 1
        short = f"the noise {gives}, not {asked:g}" if smallest < delta else tails.sentence(smallest, asked, delta)
        rounds, often = ("one round", "one visit") if once else (f"{self._visits} rounds", f"{self._visits} visits")
        return Certificate(
            claim="certified" if sound else "none",
            reason=f"every sum that leaves a server has noise of a known distribution; it {gives}" if sound else short,
            trust=SENTENCE.format(n_servers),
            trusted="silo" if n_servers > 1 else "server",
            adjacency=f"{self.adjacency} ({ADJACENCY[self.adjacency]})",
            neighbours=self.adjacency,
            unit=f"the data of one user in {rounds}, protected from every party except their own server (cluster "
            f"differential privacy); this covers all data of a user with {often}",
            epsilon=asked,
            delta=delta,
            epsilon_exact=exact,
            smallest_delta=smallest,
            accountant=f"{GAUSSIAN}; all trees of all phases composed",
            noise_std=self.sigma,
            noise_whose="of a node of a local cluster's tree, sqrt 2 of it on the diagonal",
            server_noise_std=self.sigma * math.sqrt(2 * self.nodes * n_trees),
            releases=sum(self._counts),
            releases_per_user=self.releases_per_user,
            sensitivity=self.sensitivity,
            not_covered=(
                "the times and servers of users' visits, and the number of a cluster's rounds in its sums",
                "recommendations at the user's own server, to others of their cluster: that server is trusted",
                *BEYOND,
                "floating-point attacks: all arithmetic and its rounding is float32",
            ),
        )

    @property
    def missing(self) -> float:
        """Bounds the mass of the tails that are never drawn, over all nodes that contain a user's data."""
        return 2 * sum(self._counts) * NODE_MISSING

    @property
    def _counts(self) -> tuple[int, ...]:  # the first leaf of a tree is always released
        return tuple(max(1, math.ceil(count)) for count in np.ravel(self.leaves)[: self.n_phases])

    @property
    def _visits(self) -> int:
        return max(1, math.ceil(float(self.visits)))


def replant(budget: Budget, *, leaves: tuple[int, ...], method: str = "tight", visits: int = 1) -> Replanted:
    """Finds the noise that a budget needs for trees that are planted one after the other, one in every phase.

    Args:
        budget: epsilon, delta and adjacency, for all phases together.
        leaves: number of leaves of every phase's tree.
        method: how sigma is found. "tight" is exact for all phases together, with sigma^2 = visits^2 kappa Delta^2 /
            mu*^2. One release has the squared sensitivity Delta^2, and the budget allows the Gaussian privacy mu*. With
            "theorem" sigma^2 is 64 nu ln(2/delta) / epsilon^2, with nu = 1 + ceil(log2(leaves)) of the largest tree. It
            is printed in Algorithm 5, which is meant for one tree.
        visits: number of rounds of one user that are protected together (group privacy).

    Raises:
        ValueError: if delta is too small for the tails that are never drawn, or epsilon for float32.

    Example:
        >>> noise = replant(Budget(1.0, 0.1), leaves=(3, 5, 9))
        >>> noise.releases_per_user, round(noise.sigma, 2), round(noise.epsilon_exact, 4)
        (8.0, 6.14, 1.0)
        >>> round(replant(Budget(1.0, 0.1), leaves=(3, 5, 9), method="theorem").sigma, 2)
        30.96

    Reference: Liu et al. (2022), Algorithm 5. The paper's text has ln(2/delta)^2 instead, which is more noise.
    """
    trees = Replanted(
        std=np.float32(0),
        leaves=np.pad(np.array(leaves, np.int32), (0, max(0, MOST - len(leaves)))),
        visits=visits,
        epsilon=float(budget.epsilon),
        delta=float(budget.delta),
        adjacency=budget.adjacency,
    )
    check_delta(budget.delta, trees.missing)
    if method == "tight":
        sigma = trees.sensitivity / allowed_mu(budget.epsilon, budget.delta, trees.missing)
    else:
        sigma = 8 * math.sqrt(trees.depth * math.log(2 / budget.delta)) / budget.epsilon
    return dataclasses.replace(trees, std=noise_std(sigma))


def _tree(key: Array, phase: Array, slot: Array) -> Array:  # key of the tree
    return jax.random.fold_in(jax.random.fold_in(random.stream(key, "trees"), phase), slot)


def _node(tree: Array, level: Array, index: Array, dim: int) -> Array:
    """Draws node `index` = 1, 2, ... of a level, [(G + G') / sqrt 2 | g], with iid N(0, 1) entries of G and g."""
    own = jax.random.fold_in(jax.random.fold_in(tree, level), index)
    size = packed_size(dim)
    return unpack(normal(own, (size,)) * matrix_weights(size), dim)
