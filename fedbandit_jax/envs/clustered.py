"""Synthetic users on many servers who come again and are alike within clusters, as in Liu et al. (2022)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float, Int, Key, Real

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.envs._shared import KnownUsers, RewardLaw, UserWorld, arrive, cumulative, population, reward_law
from fedbandit_jax.interfaces import Round, Spec

SMALLEST_GAP = 1e-3  # least allowed `gap`: closer preference vectors could not be told apart in float32
SEATING = ("random", "consecutive")  # how clusters are spread over servers
TRIES = 100  # how often a seed draws preference vectors to find some that are `gap` apart


@struct.pytree
class Clustered(KnownUsers):
    """Users in m clusters with random preference vectors, who are offered random items; made by `clustered`."""

    arrivals: Float[Array | np.ndarray, " n"]  # cumulative probabilities of users to come
    gap: struct.Number  # least Euclidean distance wanted between preference vectors
    rewards: RewardLaw  # law of a reward, given its mean
    n_clusters: int = struct.static()  # m
    seating: str = struct.static()  # how clusters are spread over servers
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> UserWorld:
        """Draws m preference vectors, and deals the n users out to them."""
        n, m, d = self.spec.n_users, self.n_clusters, self.spec.dim

        def draw(i):
            centres = _vectors(jax.random.fold_in(random.stream(key, "centres"), i), m, d)
            distances = jnp.sqrt(((centres[:, None] - centres[None]) ** 2).sum(-1)) + 10 * jnp.eye(m)
            return centres, distances.min()

        centres, apart = jax.lax.map(draw, jnp.arange(TRIES))
        wide = apart >= self.gap
        # The first draw that is wide enough is used, or the widest one if none is.
        best = jnp.where(wide.any(), jnp.argmax(wide), jnp.argmax(apart))
        if self.seating == "consecutive":
            cluster = jnp.asarray(_consecutive(n, self.spec.n_servers, m))
        else:
            cluster = jax.random.permutation(random.stream(key, "users"), jnp.arange(n) % m).astype(jnp.int32)
        return UserWorld(centres[best][cluster], cluster)

    def observe(self, key: Key[Array, ""], world: UserWorld, t: Int[ArrayLike, ""]) -> tuple[Round, UserWorld]:
        """Draws the user of a round and K fresh items, which are offered to that user."""
        who, items = random.stream(key, "who"), random.stream(key, "items")
        contexts = _vectors(items, self.spec.n_arms, self.spec.dim)
        return Round(contexts[None], user=arrive(who, self.arrivals)), world


def _consecutive(n_users: int, n_servers: int, n_clusters: int) -> np.ndarray:
    """Returns the cluster of every user (n,) int32, where clusters fill up the servers one after the other.

    User u is at place u // L of server u mod L. Of all n users, sorted by server and then by place, the first n / m are
    cluster 0, the next n / m are cluster 1, and so on.
    """
    user = np.arange(n_users)
    order = np.lexsort((user // n_servers, user % n_servers))
    cluster = np.empty(n_users, np.int32)
    cluster[order] = user * n_clusters // n_users
    return cluster


def _vectors(key: Array, n: int, dim: int) -> Array:
    """Draws n vectors (u, 1) / sqrt 2 with u uniform on the unit sphere of R^(d-1), (n, d)."""
    u = random.normal(key, (n, dim - 1))
    u = u / jnp.sqrt(2 * (u * u).sum(1, keepdims=True))
    return jnp.concatenate([u, jnp.full((n, 1), math.sqrt(0.5))], axis=1)


def _check_gap(gap: float, n_clusters: int, dim: int) -> None:
    """Raises `ValueError` unless about one in ten draws of preference vectors is `gap` apart.

    If one in ten is, all `TRIES` draws fail in about 3 of 10^5 seeds, which then use the widest draw they saw.
    """
    u = np.random.default_rng(0).standard_normal((300, n_clusters, dim - 1))
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    apart = np.sqrt(np.maximum(1 - np.matmul(u, u.transpose(0, 2, 1)) + 2 * np.eye(n_clusters), 0)).min((1, 2))
    most = float(np.sort(apart)[-len(apart) // 10])
    if n_clusters > 1 and most < gap:
        raise ValueError(
            f"gap must be at most {most:.3g} for {n_clusters} random vectors in {dim} dimensions, got {gap:g}"
        )


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
) -> Clustered:
    """Clustered linear bandit: n users on L servers share m preference vectors, and one of them comes each round.

    The user is offered K fresh items. Items and preference vectors are (u, 1) / sqrt 2 with u uniform on the unit
    sphere of R^(d-1), so that the mean reward <x, theta> of an item is in [0, 1]. Each seed has its own preference
    vectors: the first of 100 draws in which they are at least `gap` apart, or the draw in which they are furthest apart
    if there is none. Clusters have (nearly) equal sizes; user u is at server u mod L.

    Args:
        n_users: n, at most 10^6.
        n_servers: L <= n.
        n_clusters: m <= n.
        n_arms: K, items offered each round.
        dim: d >= 2, length of items and preference vectors.
        seating: how clusters are spread over servers: "random", each seed deals the users out to clusters, whatever
            their server; or "consecutive" (that of the authors' code), clusters fill up the servers one after the
            other, so that a server has users of few clusters, and a cluster has users on few servers.
        arrivals: "uniform", or n weights > 0, to which the probabilities of users to come are proportional.
        gap: gamma of Assumption 1, the least Euclidean distance of two preference vectors, in [0.001, 1].
        rewards: law of a reward: "bernoulli", 1 with probability the mean (the paper's); or "gaussian" or
            "clipped_gaussian", as in `sphere`.
        noise_std: standard deviation of the Gaussian rewards, in units of reward; ignored by "bernoulli".

    Raises:
        ValueError, TypeError: an argument is out of range or of the wrong type, or random preference vectors are hardly
            ever `gap` apart.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=3, dim=4)
        >>> world = env.init(jax.random.key(0))
        >>> offered, world = env.observe(jax.random.key(1), world, 0)
        >>> offered.contexts.shape, sorted(env.clusters(world).tolist())
        ((1, 10, 4), [0, 0, 1, 1, 2, 2])

    Reference: Liu et al. (2022), Sections 2 and 5. The laws and n, L, K and d are those of the authors' code, whose
    instance also has `n_clusters=4` and `seating="consecutive"`; gaps are not bounded there (`gap=0.001`). The defaults
    for these three, an easier instance, are ours.
    """
    n, servers, m = population(n_users, n_servers, n_clusters)
    law = reward_law(rewards, noise_std)
    validate.one_of("seating", seating, SEATING)
    spec = Spec(
        n_agents=1,
        n_arms=validate.integer("n_arms", n_arms, at_least=1),
        dim=validate.integer("dim", dim, at_least=2),
        max_norm=1.0,
        rewards_in_unit=law.in_unit,
        n_users=n,
        n_servers=servers,
        constant=True,
    )
    _check_gap(validate.within("gap", gap, SMALLEST_GAP, 1), m, spec.dim)
    return Clustered(
        arrivals=cumulative(arrivals, n), gap=float(gap), rewards=law, n_clusters=m, seating=seating, spec=spec
    )
