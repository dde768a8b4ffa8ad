"""Groupings: which users are alike, from released sums, and what the sums of a group are worth to each of its users."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.algos.loops.streams import Grouping, UserReleases
from fedbandit_jax.core import lapack, random, struct, validate
from fedbandit_jax.interfaces import Released, Spec
from fedbandit_jax.linalg import GaussianBelief

TURNS = 12  # the most times that users are dealt out to the kinds they misfit least
LEAST = 1e-2  # the least that is divided by: with less data or noise, nothing is known
SPREADS = (0.0, 1 / 16, 1 / 4, 1.0, 4.0)  # how much users of one kind may differ, in terms of S^2 / d
MARGIN = 1.5  # by how many times chance kinds must explain more, where users differ in any case
CLEAR = 1.0  # standard deviations by which users must seem to differ
CAUTION = 3.0  # by how many they are then taken to differ more than it seems
HEED = 1.0  # noise of others, in terms of a user's own, that is let in before anything is known


@struct.sealed
@struct.pytree
class Alone(Grouping):
    """Takes nobody to be alike: every user is a group by herself."""

    @override
    def group(self, key: Array, released: UserReleases, last: Array) -> Array:
        return jnp.arange(len(last), dtype=jnp.int32)


@struct.sealed
@struct.pytree
class Together(Grouping):
    """Takes all users to be alike."""

    @override
    def group(self, key: Array, released: UserReleases, last: Array) -> Array:
        return jnp.zeros_like(last)


class Spectra(NamedTuple):
    """What is known of every user, in the eigenvectors of her W."""

    values: Array  # (n, d) e_i
    basis: Array  # (n, d, d) rows p_i'
    bias: Array  # (n, d) p_i' U
    weight: Array  # (n, d) 1 / (R^2 max(e_i, 0) + v)


class Differences(NamedTuple):
    """How much users of one group differ."""

    spread: Array  # (d, d) T, if that is clear
    clear: Array  # () bool
    alike: Array  # () the logarithm of how much likelier their releases are if T = 0 than if T = S^2 / d I


class Kinds(NamedTuple):
    """A way of dealing users out to kinds."""

    theta: Array  # (C, d)
    label: Array  # (n,) int32
    misfit: Array  # (n,) q of every user to her kind


@struct.sealed
@struct.pytree
class Mixture(Grouping):
    """Takes users to be alike whose released sums fit the same linear model, as far as the noise lets one tell.

    While the noise outweighs the data, users are mostly one group. Groups are found anew at every release, starting
    from those of the release before, and from fewer kinds of users to which one who fits them badly is added. A user is
    served by her own sums and those of her group, or by a share of these once users of a group are seen to differ.

    Let U_u and W_u be the sums of x y and x x' that were released of user u. Her squared misfit to kind c is

        q_uc = sum_i (p_i' U_u - e_i p_i' theta_c)^2 / (R^2 max(e_i, 0) + v),    v = s_U^2 + S^2 s_W^2 / 2

    in the eigenvectors p_i of W_u, with eigenvalues e_i, for ||theta_c|| <= S; see `pooled`. Users go to the kind that
    they misfit least, and theta_c is the ridge estimate from the sums of all users of kind c, over and over.

    How many kinds are there? If n users are all alike, their misfits are about the squares of n standard normal vectors
    in d dimensions. To split them by the sign along their principal axis, which explains about (sqrt n + sqrt d)^2 of
    the squares (Marchenko & Pastur 1967), lowers the misfit by a share 2 / pi of that. So one kind more must lower
    sum_u q_u by more than (2 / pi) (sqrt(n / C) + sqrt d)^2, where C kinds have n / C users on average. The last
    candidate is that all users are different, which must lower it by the sum of these for C = 1, ..., n - 1. No number
    of kinds need lower it by more than n d + 2 sqrt(2 n d), as the sum of all n d squares is hardly ever larger.

    Users who are all different can be dealt out to kinds that explain much, and nothing is gained by that. So kinds are
    compared with one kind of users who differ, whose theta_u has the variance t = 0, S^2 / (16 d), S^2 / (4 d), S^2 / d
    or 4 S^2 / d in every direction. It costs the least of

        sum_u sum_i (r_ui^2 / (s_ui^2 + e_ui^2 t) + ln(1 + e_ui^2 t / s_ui^2)),

    where r^2 and s^2 are numerator and denominator in q, and if that is not at t = 0, then every other candidate must
    lower sum_u q_u by half as much again.

    That is a rule of thumb, not a test. The best split is somewhat better than the one by sign, and v is the variance
    in a direction across theta_c, that along it being up to twice as large in s_W. Of 40 users who are all alike it
    split none in 40 draws; of 200 to 400 users it splits up to three draws in four where the noise on x x' is several
    times that on x y (`gram_scale` below 1/2) or outweighs the data by far. Too many kinds cost regret, and never
    privacy.

    Args:
        max_groups: the most kinds of users that are looked for, >= 1; if even they do not fit, all users are different.
        tries: how many users who fit badly are tried as the beginning of one more kind, >= 1.
        subgaussian: R >= 0, sub-Gaussian constant of the reward noise (1/2 for rewards in [0, 1]). It is taken for the
            standard deviation: where it is much larger, users who differ are kept together for longer.
        theta_norm: S >= 0, bound on the norm of preference vectors theta*. If the mechanism is `centred`, that of the
            theta with <x, theta> = E[y] - 1/2, which is at most sqrt(1/2) in `fb.envs.clustered`. A smaller S finds
            kinds earlier.

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
        own = jax.vmap(_misfit)(jax.tree.map(lambda x: x[:, None], seen), alone[:, None])  # of every user to herself
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
        """What one kind of users who differ costs, by `SPREADS`."""
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
    """How much lower misfits of n users who are alike are if they are dealt out to C kinds, for C = 1, ..., n."""
    return np.append(0, np.cumsum((2 / math.pi) * (np.sqrt(n / np.arange(1, n)) + math.sqrt(d)) ** 2))


def _misfit(seen: Spectra, theta: Array) -> Array:
    turned = jnp.einsum("nij,cj->nci", seen.basis, theta, precision="highest")
    rest = seen.bias[:, None] - seen.values[:, None] * turned
    return (rest * rest * seen.weight[:, None]).sum(-1)


def variance(subgaussian: float, values: Array, noise: Array) -> Array:
    """The variance R^2 p' G p + noise, at least `LEAST`, from R, what is known of p' G p, and the noise."""
    return jnp.maximum(subgaussian**2 * jnp.maximum(values, 0) + noise, LEAST)


def fit(released: UserReleases, label: Array, n_groups: int) -> Array:
    """The ridge estimate of every group (C, d), from the sums of its users."""
    gram, bias, size = (
        jax.ops.segment_sum(x, label, n_groups) for x in (released.gram, released.bias, jnp.ones(len(label)))
    )
    return ridge(gram, bias, released.std, size)


def ridge(gram: Array, bias: Array, std: Array, size: Array) -> Array:
    """The estimates (W + lambda I)^-1 U of every W (n, d, d) and U (n, d) that are sums over `size` users.

    lambda = 1 + 2 s sqrt(size d) is more than the norm of the noise on W, but for a tail; where it is not, theta = 0.
    """
    d = bias.shape[-1]
    precision = gram + (1 + 2 * std * jnp.sqrt(size * d))[:, None, None] * jnp.eye(d)
    theta = jax.vmap(lambda precision, bias: GaussianBelief.solve(precision, bias).mean)(precision, bias)
    return jnp.where(jnp.isfinite(theta).all(-1, keepdims=True), theta, 0)


def pooled(released: UserReleases, label: Array, subgaussian: float, theta_norm: float) -> Released:
    """The sums by which every user is served, with leading axis n: hers, and shares of those of her group.

    Let U and W be the sums of x y and x x' that were released of some users, G that of x x' without noise, and z and Z
    the noise. If mean rewards are <x, theta>, then U - W theta = sum x eta + z - Z theta, where eta is R-sub-Gaussian.
    Along a unit vector p the variance of that is about R^2 p' G p + s_U^2 + s_W^2 (||theta||^2 + (p' theta)^2) / 2 for
    one user, with the standard deviations s_U of z and s_W of the diagonal of Z, which is symmetric and has half the
    variance beside its diagonal; the variance of the noise of m users is m times that.

    Users who are taken to be alike need not be the same. Say that theta_u = theta_c + delta_u for the users u of group
    c, where delta_u has mean 0 and covariance T, the same in all groups. Let U_u and W_u be the sums that were released
    of user u, theta the ridge estimate of her group, and v(p) the variance of the noise on p' (U_u - W_u theta).

    How large is T? Let q_i and g_i be the eigenvectors and eigenvalues of the sum of W_u over all users. If N_u of N
    rounds were user u's, and her features like those of others, then r_u = q_i' (U_u - W_u theta) has about the mean e
    b_c and the variance s^2 + e^2 tau_i^2, with e = g_i N_u / N, s^2 = R^2 e + v(q_i), tau_i^2 = q_i' T q_i, and b_c
    what the ridge took from theta. If T = 0, then Cochran's Q, i.e. the sum over users of (r_u - e b_c)^2 / s^2 with
    the best b_c for each of C groups, exceeds n - C by x_i, of mean 0 and variance about 2 n. If x_1 + ... + x_d >
    sqrt(2 n d), then it is clear that users differ, and T = sum_i tau_i^2 q_i q_i' with

        tau_i^2 = max(0, x_i + 3 sqrt(2 n)) / sum_c (sum w_u - sum w_u^2 / sum w_u),    w_u = (e / s)^2

    where the inner sums are over the users of group c. Without 3 sqrt(2 n) that is the estimate of DerSimonian & Laird
    (1986). Three standard deviations are added since it costs more to take different users for the same than the
    opposite. So users who are the same, but by chance do not seem so (one release in six), share little in that one. If
    R is more than it need be, then users must differ more to be seen to differ.

    What are the others worth? Let p_i and g_i now be the eigenvectors and eigenvalues of the sum of W over the m - 1
    others of a user's group. Along p_i the variance of their estimate is 1 / A = (R^2 g_i + (m - 1) v(p_i)) / g_i^2,
    and that of their mean p_i' T p_i / (m - 1), if all have as many rounds; and she differs from it by a variance of
    p_i' T p_i. So they know as much of her theta as the share w_i = 1 / (1 + A m / (m - 1) p_i' T p_i) of their data
    would if T were 0. These shares of their sums are added to hers.

    As long as it is not clear that they differ, they may be alike or not. Say that theta_u has mean 0 and the variance
    V = S^2 / d in every direction, and that it is the same for all with probability rho, and independent otherwise. By
    the best linear estimate from both sums, w_i = rho / (1 + A V (1 - rho) (rho + 1 / (m - 1))). The odds of rho are
    those of the releases, by the restricted likelihood of all r_u, times 1 to sqrt(m - 1) - 1 before anything is seen:
    the noise of the others is then no more than her own. The direction in which most was played is left out of the
    likelihood, since users differ least there: it is that of the mean of all features.

    `std` is the root mean square over the directions p_i, of which one may have more noise, up to that of the group.
    """
    n = len(label)
    others, gram, bias, count = (
        jax.ops.segment_sum(x, label, n)[label] - x for x in (jnp.ones(n), released.gram, released.bias, released.count)
    )
    theta = fit(released, label, n)[label]
    differ = _differences(released, label, theta, subgaussian, theta_norm)
    values, vectors = jax.vmap(lapack.eigh)(gram)
    spread = jnp.einsum("nji,jk,nki->ni", vectors, differ.spread, vectors, precision="highest")
    noise = others[:, None] * _noise(released, theta, vectors)
    worth = jnp.maximum(values, 0) ** 2 / variance(subgaussian, values, noise)
    few = 1 / jnp.maximum(others, 1)[:, None]
    before = jnp.minimum(HEED * jnp.sqrt(few), 0.5)
    rho = jax.nn.sigmoid(jnp.log(before / (1 - before)) + differ.alike)
    doubtful = rho / (1 + worth * theta_norm**2 / theta.shape[1] * (1 - rho) * (rho + few))
    share = jnp.where(differ.clear, 1 / (1 + worth * (1 + few) * spread), doubtful)  # (n, d)
    gram = jnp.einsum("nij,nj,nkj->nik", vectors, share * values, vectors, precision="highest")
    bias = jnp.einsum("nij,nj,nkj,nk->ni", vectors, share, vectors, bias, precision="highest")
    return Released(
        gram=released.gram + gram,
        bias=released.bias + bias,
        count=released.count + share.mean(-1) * count,
        std=released.std * jnp.sqrt(1 + (share**2).mean(-1) * others),
    )


def _differences(
    released: UserReleases, label: Array, theta: Array, subgaussian: float, theta_norm: float
) -> Differences:
    n, d = released.bias.shape
    values, vectors = lapack.eigh(released.gram.sum(0))
    rest = released.bias - jnp.einsum("nij,nj->ni", released.gram, theta, precision="highest")
    rest = jnp.matmul(rest, vectors, precision="highest")
    seen = jnp.maximum(values, 0) * (released.count / jnp.maximum(released.count.sum(), 1))[:, None]  # (n, d) e
    expected = variance(subgaussian, seen, _noise(released, theta, vectors))
    size, weight, squares, slope = (
        jax.ops.segment_sum(x, label, n)
        for x in (jnp.ones(n), seen**2 / expected, (seen**2 / expected) ** 2, seen * rest / expected)
    )  # of every group
    best = slope / jnp.maximum(weight, LEAST)
    excess = ((rest - seen * best[label]) ** 2 / expected).sum(0) - (n - (size > 0).sum())
    information = weight.sum(0) - (squares / jnp.maximum(weight, LEAST)).sum(0)
    tau_squared = (excess + CAUTION * math.sqrt(2 * n)) / jnp.maximum(information, LEAST)
    clear = excess.sum() > CLEAR * math.sqrt(2 * n * len(excess))
    spread = jnp.matmul(vectors * jnp.maximum(tau_squared, 0), vectors.T, precision="highest")
    given = label, seen, rest, expected
    alike = _likelihood(0.0, *given) - _likelihood(theta_norm**2 / d, *given)
    return Differences(spread, clear, alike)


def _likelihood(spread: Any, label: Array, seen: Array, rest: Array, expected: Array) -> Array:
    """The restricted log-likelihood of all r_u but those along the last direction, if T = `spread` I."""
    n, d = rest.shape
    total = expected + seen**2 * spread
    size, known, slope = (jax.ops.segment_sum(x, label, n) for x in (jnp.ones(n), seen**2 / total, seen * rest / total))
    known = jnp.maximum(known, LEAST)
    squares = (rest - seen * (slope / known)[label]) ** 2 / total
    used = (squares + jnp.log(total)).sum(0) + jnp.where(size[:, None] > 0, jnp.log(known), 0).sum(0)
    return -used[: max(d - 1, 1)].sum() / 2


def _noise(released: UserReleases, theta: Array, vectors: Array) -> Array:
    along = jnp.matmul(theta[:, None], vectors, precision="highest")[:, 0]
    return released.bias_std**2 + released.std**2 * ((theta**2).sum(-1, keepdims=True) + along**2) / 2
