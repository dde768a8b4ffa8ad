"""The trust model of sums of noisy bits behind a trusted shuffler: P_Vec in the paper.

It protects one user of one silo, with at most `visits` contributions, under the adjacency of the budget. It covers only
the tree, with kappa levels l = 0, ..., kappa - 1. Algorithms and theorems are from Zhou & Chowdhury (2024).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.accounting import gaussian_mu, nearly_gaussian
from fedbandit_jax.privacy.budget import MAX_NORM, sensitivity_sq
from fedbandit_jax.privacy.packing import pack_users, packed_size
from fedbandit_jax.privacy.samplers import CUT, NORMAL_LIMIT, centred_binomial, stochastic_round
from fedbandit_jax.privacy.tails import normal
from fedbandit_jax.privacy.trust.model import Proof, Trust, least, same_sizes
from fedbandit_jax.privacy.trust.requirement import Requirement


@struct.sealed
@struct.pytree
class VectorSum(Trust):
    """P_Vec, Algorithms 6 and 7: every user sends a few bits for every entry. A shuffler mixes all of them.

    The silos see their users' statistics and draw the bits. They and the shuffler are trusted, the server is not. A
    node of level l has n = M B 2^l users. For each entry w in [-1, 1] a user has 2 g_l + b_l bits. With z = (w + 1)
    g_l, data add floor(z) + Bernoulli(z - floor(z)) ones. Noise adds Binomial(b_l, 1/2) ones. From all ones Y of an
    entry the server estimates the sum of the n values w by (Y - b_l n / 2) / g_l - n. One user moves a node's counts of
    ones, of all D entries, by at most visits (g_l Delta_J + sqrt(D)) in l2 norm. Delta_J is the joint sensitivity of (x
    y, x x'), and sqrt(D) is for rounding.

    # DEVIATION zhou2024 Alg. 6: the d(d+1)/2 entries of the matrix on and above the diagonal are sent. Entries above it
    are scaled by sqrt 2 (see `statistic`). Noise bits have p = 1/2 instead of the printed 1/4. Then 3/4 of the printed
    number of bits have the same variance.
    """

    sentence = (
        "shuffle: each silo sends noisy bits for each of its users, in every tree node of that user; users trust their "
        "own silo; a trusted shuffler mixes the bits of all silos; the server is not trusted"
    )
    trusted = "shuffler"
    whose = "of the sum over silos"
    for_trees = True
    needs = ("n_agents", "batch", "dim")
    plain = True
    needs_users = True
    on_grid = True

    g: Any  # (kappa,) steps per unit of an entry, at each level
    b: Any  # (kappa,) noise bits of one user for one entry, at each level
    n_batch: int = struct.static()  # M B, users of all silos in a batch
    exact: bool = struct.static()  # whether any binomial is too small to be drawn by its normal limit
    width: int = struct.static()  # the largest 2 g + b over levels, bits of one entry

    @classmethod
    @override
    def calibrate(cls, need: Requirement, std: float | None = None) -> VectorSum:
        budget, n = need.budget, need.n_agents * np.array(need.points, float)
        g = np.ceil(np.maximum(2 * np.sqrt(n), max(need.dim, 4)))
        step = _step(need, g)

        def of(stds: Any) -> VectorSum:  # of the noise in the ones of an entry
            b = np.maximum(np.ceil(4 * stds**2 / n), 1)
            return cls(
                g=g.astype(np.float32),
                b=b.astype(np.float32),
                n_batch=need.n_agents * need.batch,
                exact=bool((n * b / 4 < NORMAL_LIMIT).any()),
                width=int((2 * g + b).max()),
            )

        if std is not None:
            return of(std * g)
        # kappa levels with the same mu; proofs then pay for the noise being binomial
        return least(lambda mu: of(math.sqrt(len(n)) * step / mu), need, gaussian_mu(budget.epsilon, budget.delta))

    @override
    def missing(self, need: Requirement) -> float:
        return need.draws * CUT

    @override
    def proof(self, need: Requirement) -> Proof:
        g, b, n = np.asarray(self.g, float), np.floor(np.asarray(self.b, float)), self._users()
        variance = n * b / 4
        trials = min(float((n * b).min()), 1e15)
        sigma = float((np.sqrt(variance + n / 4) / g).max())
        accountant = "Gaussian differential privacy, corrected for binomial noise and rounding"
        others = ("silos that show the server their own bits, or send none: the noise needs the bits of all users",)
        if not trials >= 1:
            return Proof(sigma, math.inf, "none: no noise is drawn", others)
        sensitivity = float(np.sqrt((_step(need, g) ** 2 / variance).sum() * trials / 4))
        if not sensitivity <= 500 * math.sqrt(trials):  # the accountant does not compute larger ratios
            return Proof(sigma, math.inf, "none: (almost) no noise is drawn", others)
        entries = need.visits * len(g) * packed_size(need.dim)
        noise: dict[str, Any] = dict(sensitivity=sensitivity, n_trials=int(trials), n_entries=entries)
        epsilon = need.epsilon(
            lambda delta: nearly_gaussian.binomial(**noise, delta=delta).epsilon(delta), self.missing(need)
        )
        return Proof(sigma, epsilon, accountant, others)

    @override
    def objection(self, need: Requirement) -> str:
        g, b = np.asarray(self.g, float), np.asarray(self.b, float)
        if not ((g >= 1).all() and (b >= 1).all()):
            return "its numbers of steps and of noise bits must be at least 1"
        if self.width < (2 * g + b).max() * (1 - 1e-6):  # g and b are float32
            return f"its messages have {self.width} bits, which do not hold all of its noise"
        if not self.exact and (self._users() * b / 4 < NORMAL_LIMIT * (1 - 1e-6)).any():
            return "its noise is too small for the normal limit that it is drawn in"
        return same_sizes((self.n_batch, len(g)), (need.n_agents * need.batch, len(need.points)))

    def init(self, size: int) -> Array:
        """Returns the rounding variance in the live node of every level, all 0, in units of 1/g_l^2, (kappa, D)."""
        return jnp.zeros((len(self.g), size))

    def noisy_sum(self, key: Array, k: Array, state: Array, total: Array, x: Array, y: Array) -> tuple[Array, Any]:
        """Adds binomial noise, and the normal limit of users' roundings, to the sum over silos, (D,).

        The statistics of these users give the variance of the roundings. The state keeps it for the live nodes, (kappa,
        D).
        """
        g = jnp.asarray(self.g)
        z = (pack_users(x, y) + 1) * g[:, None, None, None]
        fraction = z - jnp.floor(z)
        rounding = state + (fraction * (1 - fraction)).sum((1, 3))
        level, n = self._node(k)
        binomial, roundings, last = jax.random.split(key, 3)
        draws = centred_binomial(binomial, n * jnp.asarray(self.b)[level], total.shape, exact=self.exact)
        spread = jnp.sqrt(jnp.maximum(rounding[level] - 1 / 6, 0))  # the last rounding has variance 1/6 on average
        counts = stochastic_round(last, total * g[level] + spread * normal(roundings, total.shape)) + draws
        ended = k % (1 << jnp.arange(len(rounding))) == 0
        return counts / g[level], jnp.where(ended[:, None], 0, rounding)

    @override
    def randomize(self, key: Array, silo: Array, k: Array, message: tuple[Array, Array]) -> Array:
        users, inside = message
        level, _ = self._node(k)
        g, b = jnp.asarray(self.g)[level], jnp.asarray(self.b)[level]
        z = (users + 1) * g
        rounding, noise = jax.random.split(key)
        ones = jnp.floor(z) + jax.random.bernoulli(rounding, z - jnp.floor(z))
        place = jnp.arange(self.width)
        data = place < ones[..., None]
        flips = jax.random.bernoulli(noise, 0.5, (*users.shape, self.width))
        bits = jnp.where(place < 2 * g, data, flips)
        sent = inside[:, None, None] & (place < 2 * g + b)
        return jnp.where(sent, bits, -1).astype(jnp.int8)  # (N, D, width); -1 is not sent

    @override
    def third_party(self, key: Array, messages: Array) -> Array:
        m, n, size, width = messages.shape
        bits = jnp.moveaxis(messages, 2, 0).reshape(size, m * n * width)
        return jax.random.permutation(key, bits, axis=1, independent=True)

    @override
    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        level, n = self._node(k)
        g, b = jnp.asarray(self.g)[level], jnp.asarray(self.b)[level]
        return ((shown == 1).sum(-1) - b * n / 2) / g - n

    @override
    def uplink(self, k: Array, numbers: int, size: int) -> tuple[Array | int, Array | int]:
        level, n = self._node(k)
        return n * size, (2 * jnp.asarray(self.g) + jnp.asarray(self.b))[level]

    @override
    def message_stds(self, n: int) -> np.ndarray:
        k = np.arange(1, n + 1)
        levels = np.bitwise_count((k & -k) - 1)
        return (np.sqrt(self._users() * np.floor(np.asarray(self.b, float)) / 4) / np.asarray(self.g, float))[levels]

    @override
    def sum_std(self) -> float:
        g, b = np.asarray(self.g, float), np.asarray(self.b, float)
        return float((np.sqrt(self._users() * (b + 1) / 4) / g).max())

    def _users(self) -> np.ndarray:
        return self.n_batch * 2.0 ** np.arange(len(self.g))

    def _node(self, k: Array) -> tuple[Array, Array]:
        level = jnp.bitwise_count((k & -k) - 1).astype(jnp.int32)  # bitwise_count returns uint8
        return level, self.n_batch * jnp.exp2(level.astype(jnp.float32))  # int32 could overflow


def _step(need: Requirement, g: np.ndarray) -> np.ndarray:  # l2 sensitivity of a node's counts of ones, (kappa,)
    one = math.sqrt(sensitivity_sq(need.budget.adjacency)) * MAX_NORM**2
    return need.visits * (one * g + math.sqrt(packed_size(need.dim)))
