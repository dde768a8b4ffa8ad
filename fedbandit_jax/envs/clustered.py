"""Users on many servers who come again and are alike within clusters: the instances of Liu et al. (2022)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.envs._arrivals import KnownUsers, UserWorld, arrive, cumulative, population
from fedbandit_jax.envs._rewards import RewardLaw, reward_law
from fedbandit_jax.interfaces import Round, Spec

SMALLEST_GAP = 1e-3  # between preference vectors that float32 can tell apart after any horizon
TRIES = 100  # of every seed, for preference vectors that are `gap` apart


@struct.pytree
class Clustered(KnownUsers):
    """See `clustered`."""

    arrivals: Array | np.ndarray  # (n,) cumulative probabilities of who comes
    gap: struct.Number
    rewards: RewardLaw
    n_clusters: int = struct.static()
    spec: Spec = struct.static()

    def init(self, key: Array) -> UserWorld:
        """Draw m preference vectors, and deal the users out to them."""
        n, m, d = self.spec.n_users, self.n_clusters, self.spec.dim

        def draw(i):
            centres = _vectors(jax.random.fold_in(random.stream(key, "centres"), i), m, d)
            distances = jnp.sqrt(((centres[:, None] - centres[None]) ** 2).sum(-1)) + 10 * jnp.eye(m)
            return centres, distances.min()

        centres, apart = jax.lax.map(draw, jnp.arange(TRIES))
        wide = apart >= self.gap
        best = jnp.where(wide.any(), jnp.argmax(wide), jnp.argmax(apart))  # the first that will do, or the widest
        cluster = jax.random.permutation(random.stream(key, "users"), jnp.arange(n) % m).astype(jnp.int32)
        return UserWorld(centres[best][cluster], cluster)

    def observe(self, key: Array, world: UserWorld, t: Array) -> tuple[Round, UserWorld]:
        """The user of round t and K fresh items."""
        del t
        who, items = random.stream(key, "who"), random.stream(key, "items")
        contexts = _vectors(items, self.spec.n_arms, self.spec.dim)
        return Round(contexts[None], user=arrive(who, self.arrivals)), world


def _vectors(key: Array, n: int, dim: int) -> Array:
    """(n, d): (u, 1) / sqrt 2, u uniform on the unit sphere of R^(d-1)."""
    u = random.normal(key, (n, dim - 1))
    u = u / jnp.sqrt(2 * (u * u).sum(1, keepdims=True))
    return jnp.concatenate([u, jnp.full((n, 1), math.sqrt(0.5))], axis=1)


def _check_gap(gap: float, n_clusters: int, dim: int) -> None:
    """One in ten draws must have it: then `TRIES` of them fail in 3 of 10^5 seeds, which have the widest they saw."""
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
    arrivals: str | Sequence[float] | np.ndarray = "uniform",
    gap: float = 0.5,
    rewards: str = "bernoulli",
    noise_std: float = 0.5,
) -> Clustered:
    """n users on L servers, with m preference vectors between them; one user comes each round and sees K fresh items.

    Items and preference vectors are (u, 1) / sqrt 2, u uniform on the unit sphere of R^(d-1), so that the mean reward
    <x, theta> of an item is in [0, 1]. Each seed has its own preference vectors, at least `gap` apart: the first of 100
    draws that are, or the widest of them. Clusters have (nearly) equal sizes; user u is at server u mod L, whatever its
    cluster.

    Args:
        n_users: n.
        n_servers: L <= n.
        n_clusters: m <= n.
        n_arms: K items offered each round.
        dim: d >= 2.
        arrivals: "uniform", or n weights > 0 in proportion to which users come.
        gap: gamma of Assumption 1, the least Euclidean distance of two preference vectors, in [0.001, 1].
        rewards: "bernoulli", 1 with probability the mean (the paper's); "gaussian", "clipped_gaussian": as in `sphere`.
        noise_std: standard deviation of the Gaussian rewards, in reward units; ignored by "bernoulli".

    Raises:
        ValueError, TypeError: an argument is out of range.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=3, dim=4)
        >>> world = env.init(jax.random.key(0))
        >>> offered, world = env.observe(jax.random.key(1), world, 0)
        >>> offered.contexts.shape, sorted(env.clusters(world).tolist())
        ((1, 10, 4), [0, 0, 1, 1, 2, 2])

    Reference: Liu et al. (2022), Sections 2 and 5; n, L, K, d and the laws are those of the authors' code. The number
    of clusters and the gap of the paper's instance are not known: 2, the least of its sweep, and 0.5 are ours.
    """
    n, servers, m = population(n_users, n_servers, n_clusters)
    law = reward_law(rewards, noise_std)
    spec = Spec(
        n_agents=1,
        n_arms=validate.integer("n_arms", n_arms, at_least=1),
        dim=validate.integer("dim", dim, at_least=2),
        max_norm=1.0,
        rewards_in_unit=law.in_unit,
        n_users=n,
        n_servers=servers,
    )
    _check_gap(validate.within("gap", gap, SMALLEST_GAP, 1), m, spec.dim)
    return Clustered(arrivals=cumulative(arrivals, n), gap=float(gap), rewards=law, n_clusters=m, spec=spec)
