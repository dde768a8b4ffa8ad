"""Elimination in phases on a G-optimal design: DP-DPE of Li, Zhou & Ji (2022), on released statistics.

Letters: the K arms x_a in R^d are the same for all users. A phase has n users, and A are the remaining arms. A design
pi has probabilities of the arms in A, and V = sum_a pi_a x_a x_a' has rank r. In a phase every user plays an arm drawn
from pi. Let u be the phase's own sum of x (y - c) over its n users, with noise of standard deviation s. It estimates
theta by V^-1 u / n, with the pseudoinverse V^-1. Here c = 1/2 if rewards are centred and 0 if not, and |y - c| <= R,
which is 1/2 or 1.

The width. Let g = V^-1 x_a. The error of the estimated mean of arm a is 1/n times a sum of n independent terms g' x (y
- c), minus their means, and noise. The terms have variances of at most R^2 E (g' x)^2 = R^2 x_a' V^-1 x_a. They differ
from their means by at most b = 2 R max_i |g' x_i|. This includes the random choice of arms. The noise has variance s^2
g' g, and satisfies Bernstein's bound on the moment generating function as well. So by his inequality the error is above

    w_a = sqrt(2 L (n R^2 x_a' V^-1 x_a + s^2 g' g)) / n + b L / (3 n)

with probability at most e^-L, and likewise below -w_a. Suppose that noise is Gaussian and independent between phases,
as with the release "input_perturbation". With L = ln(2 K S / failure) all means then stay in their intervals in all S
phases with probability 1 - failure. At a G-optimal design x_a' V^-1 x_a <= r for all remaining arms, and no design has
a lower maximum.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Key, Real
from typing_extensions import override

from fedbandit_jax.algos.policies.widths import LEAST_FAILURE
from fedbandit_jax.core import lapack, struct, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import NoiseLaw, Policy, Released

STEPS = 100  # steps of the search for a design
FLAT = 3e-3  # directions count if some arm reaches this share of the largest reach
LEAST = 1e-7  # and if the arms' mean square is at least this share of the largest


class Design(NamedTuple):
    """A design on the remaining arms, and the inverse of its Gram matrix."""

    weights: Float[Array, " K"]  # pi
    chart: Float[Array, "d d"]  # P: in coordinates z = P' x the remaining arms span r axes, with mean square 1
    inverse: Float[Array, "d d"]  # V^-1 in these coordinates


class Phase(NamedTuple):
    """Belief of `PhasedElimination`: the remaining arms, a design on them, and the last release."""

    active: Bool[Array, " K"]  # which arms are left
    design: Design
    bias: Float[Array, " d"]  # the last release
    users: Float[Array, ""]  # number of users in it


def g_optimal(arms: Float[Array, "K d"], active: Bool[Array, " K"]) -> Design:
    """Returns a design on the active arms that nearly minimises the largest x' V^-1 x, to about r.

    Each step multiplies the weights by x' V^-1 x and normalises them, which raises det V. At the maximum of det V the
    largest x' V^-1 x is minimal (Kiefer & Wolfowitz 1960). If the active arms span r < d dimensions, V is inverted on
    their span.
    """
    start = active / active.sum()
    values, vectors = lapack.eigh(_gram(arms, start))
    reach = jnp.where(active[:, None], jnp.abs(jnp.matmul(arms, vectors, precision="highest")), 0).max(0)
    there = (reach > FLAT * reach.max()) & (values > LEAST * values[-1])
    chart = vectors * jnp.where(there, lax.rsqrt(jnp.where(there, values, 1)), 0)
    z = jnp.matmul(arms, chart, precision="highest")

    def half(weights: Array) -> Array:
        return lapack.factor(_gram(z, weights) + jnp.diag(jnp.where(there, 0.0, 1.0)))[1]

    def step(_: Any, weights: Array) -> Array:
        new = weights * (jnp.matmul(z, half(weights).T, precision="highest") ** 2).sum(1)
        return new / new.sum()

    weights = lax.fori_loop(0, STEPS, step, start)
    lower = half(weights)
    return Design(weights, chart, jnp.matmul(lower.T, lower, precision="highest"))


def _gram(rows: Array, weights: Array) -> Array:
    return jnp.matmul(rows.T, weights[:, None] * rows, precision="highest")


@struct.sealed
@struct.pytree
class BoundPhasedElimination(Policy):
    """A bound `PhasedElimination`."""

    arms: Any  # (K, d) float32
    stds: Any  # (S,) s, the standard deviation of the noise on every phase's own sum of x (y - c)
    reward: struct.Number  # R
    log_term: struct.Number  # L
    scale: struct.Number  # factor on the widths

    @override
    def start(self, dim: int) -> Phase:
        active = jnp.ones(len(self.arms), bool)
        return Phase(active, g_optimal(jnp.asarray(self.arms), active), jnp.zeros(dim), jnp.float32(0))

    def intervals(
        self, k: Int[Array, ""], belief: Phase, released: Released
    ) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
        """Returns the estimated mean, minus c, of every arm after phase k, and its width w if it remains."""
        n, std = released.count - belief.users, jnp.asarray(self.stds)[k]
        chart = belief.design.chart
        z = jnp.matmul(jnp.asarray(self.arms), chart, precision="highest")
        g = jnp.matmul(z, belief.design.inverse, precision="highest")
        u = jnp.matmul(released.bias - belief.bias, chart, precision="highest")
        mean = jnp.matmul(g, u, precision="highest") / n
        variance = n * self.reward**2 * (g * z).sum(1) + std**2 * (g * g * (chart * chart).sum(0)).sum(1)
        reach = jnp.where(belief.active, jnp.abs(jnp.matmul(g, z.T, precision="highest")), 0).max(1)
        tail = jnp.sqrt(2 * self.log_term * variance) + 2 * self.reward * reach * self.log_term / 3
        return mean, self.scale * tail / n

    @override
    def update(self, k: Int[Array, ""], belief: Phase, released: Released) -> Phase:
        mean, width = self.intervals(k, belief, released)
        best = jnp.where(belief.active, mean - width, -jnp.inf).max()
        active = belief.active & ~(mean + width < best)  # without users no comparison holds
        return Phase(active, g_optimal(jnp.asarray(self.arms), active), released.bias, released.count)

    @override
    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: Phase, contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        if len(contexts) != len(self.arms):
            raise BadValue("arms", f"must be the {len(contexts)} that the environment offers", len(self.arms))
        weights = belief.design.weights
        return jnp.log(weights) + jax.random.gumbel(key, weights.shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasedElimination(Policy):
    """Plays the remaining arms by a G-optimal design, and drops arms after every phase, by that phase alone.

    A phase is the time between two synchronisations. Afterwards the phase's own sum of x y, the difference of two
    releases, estimates the mean of every arm. An arm is dropped if its upper confidence bound is below another arm's
    lower one. The released sum of x x' is not used, because the public design gives its mean. Let rewards in [0, 1]
    have means <x, theta*>. With the release "input_perturbation" the intervals of all arms and phases then hold
    together with probability 1 - `failure`, see the module `phased_elimination`.

    Args:
        arms: (K, d) the public feature vectors that every round offers to every user, in this order. Rounds with other
            arms are played as if they offered these.
        failure: failure probability in [1e-30, 1).
        exploration_scale: factor on the widths, > 0; the proof is for 1.

    Raises:
        ValueError: when bound, also if the environment has another number d of features. When run, if it offers another
            number K of arms.

    Reference: Li, Zhou & Ji (2022), Algorithm 1 (DP-DPE); Hanna, Girgis, Fragouli & Diggavi (2022). DEVIATION li2022
    Alg. 1: users draw arms from the design, where the paper rounds n pi_a up. Each arm has its own width, from the
    distribution of the noise. Users' rewards enter one by one, not as means of many. The paper samples clients for a
    phase, and each answers for many of its arms (client-level privacy). Here nobody is sampled, and the privacy unit is
    a user with one round.
    """

    needs_all_users = True
    said = ("policy in phases",)

    arms: Any
    failure: float = 0.05
    exploration_scale: float = 1.0

    def __post_init__(self):
        arms: Real[np.ndarray, "K d"] = validate.finite_array("arms", self.arms, ndim=2)
        if arms.size == 0 or not arms.any():
            raise BadValue("arms", "must have a feature vector that is not 0", self.arms)
        object.__setattr__(self, "arms", tuple(map(tuple, arms.tolist())))
        validate.within("failure", validate.probability("failure", self.failure), LEAST_FAILURE, 1)
        validate.single("exploration_scale", validate.positive("exploration_scale", self.exploration_scale))

    @override
    def bind(self, law: NoiseLaw) -> BoundPhasedElimination:
        arms, phases = np.array(self.arms, np.float32), len(law.stds)
        if arms.shape[1] != law.dim:
            raise BadValue("arms", f"must have the {law.dim} features of the environment", arms.shape[1])
        private = phases > 0 and law.stds.any()
        centred = private and law.mechanism.statistic.rule.centred
        return BoundPhasedElimination(
            arms=arms,
            stds=padded((law.mechanism.batch_stds() if private else np.zeros(max(phases, 1))).astype(np.float32)),
            reward=np.float32(0.5 if centred else 1.0),
            log_term=np.float32(math.log(2 * len(arms) * max(phases, 1) / self.failure)),
            scale=np.float32(self.exploration_scale),
        )
