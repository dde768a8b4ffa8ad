"""Returning users in clusters, synthetic as in Liu et al. (2022) or given as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float, Int, Key, Real
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._arrivals import cumulative, drawn, population
from fedbandit_jax.envs._linear import facts
from fedbandit_jax.envs._rewards import RewardLaw, reward_law
from fedbandit_jax.interfaces import Feedback, Round, Spec

SMALLEST_GAP = 1e-3  # least `gap` that float32 resolves
MAX_CLUSTERS = 1_000  # for the memory of all pairwise distances, in each of `TRIES` draws
TRIES = 100  # draws of preference vectors until they are `gap` apart


class UserWorld(NamedTuple):
    """Users drawn for one seed."""

    thetas: Float[Array, "n d"]  # preference vector of every user
    cluster: Int[Array, " n"]  # true cluster of every user, in 0 ... m - 1


class KnownUsers:
    """Base class of environments with users as in `UserWorld`."""

    arrivals: Float[Array | np.ndarray, " n"]
    rewards: RewardLaw

    def items_of(self, key: Key[Array, ""]) -> Float[Array, "K d"]:
        """Draws the items of a round."""
        raise NotImplementedError(f"{type(self).__name__}.items_of")

    def observe(self, key: Key[Array, ""], world: UserWorld, t: Int[ArrayLike, ""]) -> tuple[Round, UserWorld]:
        """Draws the user of a round and the K items offered to that user."""
        user = drawn(self.arrivals, random.stream(key, "who"), 1)
        return Round(self.items_of(random.stream(key, "items"))[None], user=user), world

    def pull(self, key: Key[Array, ""], world: UserWorld, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Draws the rewards of items for the round's user, with their gaps."""
        assert offered.user is not None
        means = self.rewards.mean(jnp.matmul(offered.contexts[0], world.thetas[offered.user[0]], precision="highest"))
        best, played = means.max(), means[arms]
        return Feedback(self.rewards.draw(key, played, jnp.arange(len(played))), best - played)

    def clusters(self, world: UserWorld) -> Int[Array, " n"]:
        """Returns the true cluster of every user."""
        return world.cluster


@struct.pytree
class Clustered(KnownUsers):
    """Users in m clusters with random preference vectors and random items; made by `clustered`."""

    arrivals: Float[Array | np.ndarray, " n"]  # cumulative arrival probabilities of users
    gap: struct.Number  # least Euclidean distance between preference vectors
    rewards: RewardLaw  # law of a reward, given its mean
    n_clusters: int = struct.static()  # m
    seating: str = struct.static()  # how clusters are distributed over servers
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> UserWorld:
        """Draws m preference vectors, and distributes them to the n users."""
        n, m, d = self.spec.n_users, self.n_clusters, self.spec.dim

        def draw(i):
            centres = _vectors(jax.random.fold_in(random.stream(key, "centres"), i), m, d)
            distances = jnp.sqrt(((centres[:, None] - centres[None]) ** 2).sum(-1)) + 10 * jnp.eye(m)
            return centres, distances.min()

        centres, apart = jax.lax.map(draw, jnp.arange(TRIES))
        wide = apart >= self.gap
        best = jnp.where(wide.any(), jnp.argmax(wide), jnp.argmax(apart))  # the first wide one, or the widest
        if self.seating == "consecutive":
            cluster = jnp.asarray(_consecutive(n, self.spec.n_servers, m))
        else:
            cluster = jax.random.permutation(random.stream(key, "users"), jnp.arange(n) % m).astype(jnp.int32)
        return UserWorld(centres[best][cluster], cluster)

    @override
    def items_of(self, key: Key[Array, ""]) -> Float[Array, "K d"]:
        return _vectors(key, self.spec.n_arms, self.spec.dim)


def _consecutive(n_users: int, n_servers: int, n_clusters: int) -> np.ndarray:
    """Returns clusters (n,) that fill the servers one after the other."""
    user = np.arange(n_users)  # at place u // L of server u mod L
    order = np.lexsort((user // n_servers, user % n_servers))
    cluster = np.empty(n_users, np.int32)
    cluster[order] = user * n_clusters // n_users
    return cluster


def _vectors(key: Array, n: int, dim: int) -> Array:
    """Draws n vectors (u, 1) / sqrt 2, (n, d)."""
    u = random.normal(key, (n, dim - 1))
    u = u / jnp.sqrt(2 * (u * u).sum(1, keepdims=True))
    return jnp.concatenate([u, jnp.full((n, 1), math.sqrt(0.5))], axis=1)


def _check_gap(gap: float, n_clusters: int, dim: int) -> None:
    """Raises unless one in ten draws is `gap` apart; then all `TRIES` fail in about 3 of 10^5 seeds."""
    rng, apart = np.random.default_rng(0), np.empty(300)
    for i in range(len(apart)):
        u = rng.standard_normal((n_clusters, dim - 1))
        u /= np.linalg.norm(u, axis=-1, keepdims=True)
        cosines = np.matmul(u, u.T)
        np.fill_diagonal(cosines, -1)
        apart[i] = math.sqrt(max(1 - cosines.max(), 0))
    most = float(np.sort(apart)[-len(apart) // 10])
    if n_clusters > 1 and most < gap:
        vectors = f"{n_clusters} random vectors in {dim} dimensions"
        raise BadValue("gap", f"must be at most {most:.3g} for {vectors}", gap)


def clustered(
    n_users: int = 40,
    n_servers: int = 5,
    n_clusters: int = 2,
    *,
    n_arms: int = 10,
    dim: int = 10,
    seating: str = "random",
    arrivals: str | Sequence[float] | Real[np.ndarray, " n"] = "uniform",
    gap: float = 0.5,
    rewards: str = "bernoulli",
    noise_std: float = 0.5,
    shape: float | None = None,
) -> Clustered:
    """Makes a clustered linear bandit: n users on L servers share m preference vectors, and one arrives each round.

    The user is offered K fresh items. Items and preference vectors are (u, 1) / sqrt 2 with u uniform on the unit
    sphere of R^(d-1), so the mean reward <x, theta> of an item is in [0, 1]. Each seed has its own preference vectors:
    the first of 100 draws with all distances at least `gap`, or otherwise the draw with the largest. Clusters have
    (nearly) equal sizes; user u is at server u mod L.

    Args:
        n_users: n, at most 10^6.
        n_servers: L <= n.
        n_clusters: m <= n, at most 1,000.
        n_arms: K, items offered each round.
        dim: d >= 2, length of items and preference vectors.
        seating: distribution of clusters over servers. "random": each seed permutes the users. "consecutive" (as in the
            authors' code): clusters fill the servers one after the other, so each server has users of few clusters, and
            each cluster is on few servers.
        arrivals: "uniform", or n weights > 0, proportional to arrival probabilities.
        gap: gamma of Assumption 1, the least Euclidean distance of two preference vectors, in [0.001, 1].
        rewards, noise_std, shape: law of a reward, as in `sphere`; "bernoulli" is the paper's.

    Raises:
        ValueError, TypeError: an argument is invalid, or random preference vectors are rarely `gap` apart.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=3, dim=4)
        >>> world = env.init(jax.random.key(0))
        >>> offered, world = env.observe(jax.random.key(1), world, 0)
        >>> offered.contexts.shape, sorted(env.clusters(world).tolist())
        ((1, 10, 4), [0, 0, 1, 1, 2, 2])

    Reference: Liu et al. (2022), Sections 2 and 5. The laws and n, L, K and d are from the authors' code. Its instance
    also has `n_clusters=4`, `seating="consecutive"` and `gap=0.001`. Our defaults for these three are easier.
    """
    n, servers, m = population(n_users, n_servers, n_clusters)
    validate.integer("n_clusters", m, at_least=1, at_most=MAX_CLUSTERS)
    law = reward_law(rewards, noise_std, shape)
    validate.one_of("seating", seating, ("random", "consecutive"))
    validate.integer("dim", dim, at_least=2)
    sizes: Any = dict(n_agents=1, n_arms=n_arms, dim=dim, n_users=n, n_servers=servers)
    spec = Spec(**sizes, max_norm=1.0, rewards_in_unit=law.in_unit, constant=True)
    _check_gap(validate.within("gap", gap, SMALLEST_GAP, 1), m, spec.dim)
    return Clustered(
        arrivals=cumulative(arrivals, n), gap=float(gap), rewards=law, n_clusters=m, seating=seating, spec=spec
    )


@struct.pytree
class UserTable(KnownUsers):
    """Given users in clusters and given items; made by `community`."""

    items: Float[Array | np.ndarray, "N d"]  # feature vectors
    thetas: Float[Array | np.ndarray, "n d"]  # preference vectors of users
    cluster: Int[Array | np.ndarray, " n"]  # true cluster of every user
    arrivals: Float[Array | np.ndarray, " n"]  # cumulative arrival probabilities of users
    rewards: RewardLaw  # law of a reward, given its mean
    n_clusters: int = struct.static()  # m
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> UserWorld:
        """Distributes the users over the servers in a random order."""
        order = jax.random.permutation(random.stream(key, "users"), self.spec.n_users)
        return UserWorld(jnp.asarray(self.thetas)[order], jnp.asarray(self.cluster)[order])

    @override
    def items_of(self, key: Key[Array, ""]) -> Float[Array, "K d"]:
        which = jax.random.randint(key, (self.spec.n_arms,), 0, len(self.items))
        return jnp.asarray(self.items)[which]


def community(
    items: Real[np.ndarray, "N d"],
    thetas: Real[np.ndarray, "n d"],
    clusters: Int[np.ndarray, " n"],
    *,
    n_servers: int,
    n_arms: int = 10,
    arrivals: str | Sequence[float] | Real[np.ndarray, " n"] = "uniform",
    rewards: str = "bernoulli",
    noise_std: float = 0.5,
    shape: float | None = None,
) -> UserTable:
    """Makes a clustered linear bandit from given users and items: one user a round is offered K random items.

    Items are drawn uniformly with replacement. The mean reward of item x for user i is <x, thetas[i]>. Each seed
    distributes the users over the servers anew.

    Args:
        items: feature vectors of items; private algorithms require Euclidean norms <= 1.
        thetas: preference vectors of users.
        clusters: true clusters of users, integers that take every value in 0 ... m - 1, used only to evaluate the
            clusters that an algorithm finds.
        n_servers, n_arms, rewards, noise_std, shape: as in `clustered`; with "bernoulli" every mean must be in [0, 1].
        arrivals: as in `clustered`. Weight i belongs to the i-th user after the permutation, not to row i of `thetas`.

    Example:
        >>> import numpy as np, fedbandit_jax as fb
        >>> eye = np.eye(2)
        >>> env = fb.envs.community(eye, eye[[0, 1, 1]], np.array([0, 1, 1]), n_servers=2, n_arms=4)
        >>> env.spec.n_users, env.n_clusters
        (3, 2)

    Reference: Liu et al. (2022), Section 5, "MovieLens Dataset".
    """
    items, thetas = (validate.finite_array(n, a, ndim=2) for n, a in (("items", items), ("thetas", thetas)))
    labels = validate.integer_array("clusters", clusters)
    if len(items) == 0 or items.shape[1:] != thetas.shape[1:]:
        got = f"shapes {items.shape} and {thetas.shape}"
        raise BadValue(("items", "thetas"), "must have rows of one length", items.shape, got=got)
    if len(labels) != len(thetas):
        raise BadValue("clusters", f"must be {len(thetas)} integers, one a user", len(labels))
    used = np.unique(labels)
    if len(used) == 0 or (used != np.arange(len(used))).any():
        raise BadValue("clusters", "must be 0 to m - 1, each used", used.tolist()[:10])
    n, servers, m = population(len(thetas), n_servers, len(used))
    law = reward_law(rewards, noise_std, shape, np.matmul(items, thetas.T))
    sizes: Any = dict(n_agents=1, n_arms=n_arms, dim=items.shape[1], n_users=n, n_servers=servers)
    spec = Spec(**sizes, **facts(items), rewards_in_unit=law.in_unit)
    return UserTable(
        items=items,
        thetas=thetas,
        cluster=labels.astype(np.int32),
        arrivals=cumulative(arrivals, n),
        rewards=law,
        n_clusters=m,
        spec=spec,
    )
