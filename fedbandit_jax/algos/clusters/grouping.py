"""Groupings: partitions of users into similar ones, from released sums."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.algos.clusters.pooling import Grouping, UserReleases, fit, pooled, ridge, variance
from fedbandit_jax.core import lapack, random, struct, validate
from fedbandit_jax.interfaces import Released, Spec

TURNS = 12  # most passes of users over the clusters
SPREADS = (0.0, 1 / 16, 1 / 4, 1.0, 4.0)  # variances t of users of one cluster, in units of S^2 / d
MARGIN = 1.5  # clusters of different users must explain this much more than by chance


@struct.sealed
@struct.pytree
class Alone(Grouping):
    """Takes every user as a group."""

    @override
    def group(self, key: Array, released: UserReleases, last: Array) -> Array:
        return jnp.arange(len(last), dtype=jnp.int32)


@struct.sealed
@struct.pytree
class Together(Grouping):
    """Takes all users as one group."""

    @override
    def group(self, key: Array, released: UserReleases, last: Array) -> Array:
        return jnp.zeros_like(last)


class Spectra(NamedTuple):
    """Released sums of every user in the eigenvectors of the user's W, and weights of the misfit."""

    values: Array  # (n, d) e_i
    basis: Array  # (n, d, d) rows p_i'
    bias: Array  # (n, d) p_i' U
    weight: Array  # (n, d) 1 / (R^2 max(e_i, 0) + v)


class Kinds(NamedTuple):
    """A partition of users into kinds."""

    theta: Array  # (C, d)
    label: Array  # (n,) int32
    misfit: Array  # (n,) q of every user to their kind


@struct.sealed
@struct.pytree
class Mixture(Grouping):
    """Groups users with released sums that fit the same linear model, as far as the noise allows.

    While the noise outweighs the data, most users are in one group. Every release finds the groups anew. It starts from
    the previous groups, and from one cluster fewer with a badly fitting user as the next. A user is served by their own
    sums and the group's, or by a share of the group's if its users differ.

    Let U_u and W_u be the released sums of x y and x x' of user u. The squared misfit of user u to cluster c is

        q_uc = sum_i (p_i' U_u - e_i p_i' theta_c)^2 / (R^2 max(e_i, 0) + v),    v = s_U^2 + S^2 s_W^2 / 2

    in the eigenvectors p_i of W_u, with eigenvalues e_i, for ||theta_c|| <= S; see `pooled`. Users join the cluster of
    least misfit. The cluster's theta_c is the ridge estimate from its users' sums. Both steps repeat.

    The number of clusters. If n users are all alike, their misfits are about the squares of n standard normal vectors
    in d dimensions. Their principal axis explains about (sqrt n + sqrt d)^2 of the squares (Marchenko & Pastur 1967).
    Splitting users by sign along it lowers the misfit by a share 2 / pi of that. So one more cluster must lower sum_u
    q_u by more than (2 / pi) (sqrt(n / C) + sqrt d)^2, with n / C users in each of C clusters. The last candidate has a
    cluster for every user. It must lower the misfit by the sum of these terms for C = 1, ..., n - 1. At most n d + 2
    sqrt(2 n d) is asked of any candidate, since the sum of all n d squares is rarely larger.

    If all users differ, clusters explain much and gain nothing. So clusters are compared with one group of different
    users. There theta_u has the variance t = 0, S^2 / (16 d), S^2 / (4 d), S^2 / d or 4 S^2 / d in every direction. It
    costs the least of

        sum_u sum_i (r_ui^2 / (s_ui^2 + e_ui^2 t) + ln(1 + e_ui^2 t / s_ui^2)),

    with numerator r^2 and denominator s^2 of q. If the least is not at t = 0, every other candidate must lower sum_u
    q_u by 1.5 times as much.

    This is a rule of thumb, not a test. The best split explains more than the split by sign. The variance v is the one
    across theta_c. Along theta_c its term in s_W is up to twice as large. The rule split none of 40 draws of 40 equal
    users. It splits more if the noise on x x' is several times the noise on x y (`gram_scale` below 1/2) or outweighs
    the data by far. Then it splits up to three in four draws of 200 to 400 equal users. Too many clusters cost regret,
    and never privacy.

    Args:
        max_groups: the most clusters, >= 1; if they do not fit either, every user is a cluster.
        tries: number of badly fitting users to try as the start of one more cluster, >= 1.
        subgaussian: R >= 0, sub-Gaussian constant of the reward noise (1/2 for rewards in [0, 1]), taken as its
            standard deviation. A value that is too large keeps different users together for longer.
        theta_norm: S >= 0, bound on the norm of preference vectors theta*. If the mechanism is `centred`, this is theta
            with <x, theta> = E[y] - 1/2, of norm at most sqrt(1/2) in `fb.envs.clustered`. A smaller S finds clusters
            earlier.

    Reference: ours. The law of the largest eigenvalue is that of Marchenko & Pastur (1967).
    """

    max_groups: int = struct.static(default=10)
    tries: int = struct.static(default=4)
    subgaussian: float = 0.5
    theta_norm: float = 1.0

    @override
    def bind(self, spec: Spec) -> Mixture:
        for name in ("max_groups", "tries"):
            validate.integer(name, getattr(self, name), at_least=1)
        for name in ("subgaussian", "theta_norm"):
            validate.single(name, validate.non_negative(name, getattr(self, name)))
        return self

    @override
    def group(self, key: Array, released: UserReleases, last: Array) -> Array:
        n, d = released.bias.shape
        seen = self._spectra(released)
        alone = ridge(released.gram, released.bias, released.std, jnp.ones(n))  # (n, d)
        n_groups = min(self.max_groups, n)

        def more(kinds: Kinds, given: tuple[Array, Array]) -> tuple[Kinds, tuple[Array, Array]]:
            key, c = given  # c kinds from now on
            odd = jax.random.categorical(key, jnp.log(kinds.misfit + 1e-9), shape=(self.tries,))
            start = jnp.broadcast_to(kinds.theta, (self.tries, *kinds.theta.shape)).at[:, c - 1].set(alone[odd])
            before = jnp.where(last.max() + 1 == c, fit(released, last, n_groups), start[0])
            start = jnp.concatenate([before[None], start])
            found = lax.map(lambda theta: self._settle(released, seen, theta, c), start)
            best = jax.tree.map(lambda x: x[jnp.argmin(found.misfit.sum(1))], found)
            return best, (best.label, best.misfit.sum())

        one = jnp.zeros(n, jnp.int32)
        theta = fit(released, one, n_groups)
        first = Kinds(theta, one, _misfit(seen, theta)[:, 0])
        differ = self._spread_out(seen, first)
        counts = jnp.arange(2, n_groups + 1)
        keys = jax.random.split(random.stream(key, "odd"), len(counts))
        _, (labels, costs) = lax.scan(more, first, (keys, counts))
        everybody = jnp.arange(n, dtype=jnp.int32)
        labels = jnp.concatenate([one[None], labels, everybody[None]])
        own = jax.vmap(_misfit)(jax.tree.map(lambda x: x[:, None], seen), alone[:, None])  # with own estimates
        costs = jnp.concatenate([differ.min()[None], costs, own.sum()[None]])
        chance = np.minimum(by_chance(n, d), n * d + 2 * math.sqrt(2 * n * d))
        chance = np.append(chance[:n_groups], chance[-1])
        chance = jnp.asarray(chance, jnp.float32) * jnp.where(jnp.argmin(differ) > 0, MARGIN, 1.0)
        return labels[jnp.argmin(costs + chance)]

    @override
    def pool(self, released: UserReleases, label: Array) -> Released:
        return pooled(released, label, self.subgaussian, self.theta_norm)

    def _spectra(self, released: UserReleases) -> Spectra:
        values, vectors = jax.vmap(lapack.eigh)(released.gram)
        basis = jnp.swapaxes(vectors, 1, 2)
        noise = released.bias_std**2 + (self.theta_norm * released.std) ** 2 / 2
        bias = jnp.einsum("nij,nj->ni", basis, released.bias, precision="highest")
        return Spectra(values, basis, bias, 1 / variance(self.subgaussian, values, noise))

    def _spread_out(self, seen: Spectra, one: Kinds) -> Array:
        more = jnp.maximum(seen.values, 0) ** 2 * seen.weight
        more = more * (self.theta_norm**2 / more.shape[1] * jnp.asarray(SPREADS)[:, None, None])
        turned = jnp.einsum("nij,j->ni", seen.basis, one.theta[0], precision="highest")
        rest = (seen.bias - seen.values * turned) ** 2 * seen.weight
        return (rest / (1 + more) + jnp.log1p(more)).sum((1, 2))

    def _settle(self, released: UserReleases, seen: Spectra, theta: Array, c: Array) -> Kinds:
        n_groups = len(theta)

        def deal(theta: Array) -> Kinds:
            misfit = jnp.where(jnp.arange(n_groups) < c, _misfit(seen, theta), jnp.inf)
            return Kinds(theta, jnp.argmin(misfit, 1).astype(jnp.int32), misfit.min(1))

        def turn(carry: tuple[Array, Array, Kinds]) -> tuple[Array, Array, Kinds]:
            i, _, kinds = carry
            new = deal(fit(released, kinds.label, n_groups))
            return i + 1, (new.label != kinds.label).any(), new

        start = jnp.int32(0), jnp.bool_(True), deal(theta)
        return lax.while_loop(lambda carry: carry[1] & (carry[0] < TURNS), turn, start)[2]


def by_chance(n: int, d: int) -> np.ndarray:
    """Returns the decrease of the misfit of n equal users in C clusters, for C = 1, ..., n."""
    return np.append(0, np.cumsum((2 / math.pi) * (np.sqrt(n / np.arange(1, n)) + math.sqrt(d)) ** 2))


def _misfit(seen: Spectra, theta: Array) -> Array:
    turned = jnp.einsum("nij,cj->nci", seen.basis, theta, precision="highest")
    rest = seen.bias[:, None] - seen.values[:, None] * turned
    return (rest * rest * seen.weight[:, None]).sum(-1)
