"""Real users in clusters and real items as an environment: a table of both, such as `fb.data.movielens` returns."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float, Int, Key, Real

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.envs._shared import (
    KnownUsers,
    RewardLaw,
    UserWorld,
    arrive,
    cumulative,
    facts,
    law_of_means,
    population,
)
from fedbandit_jax.interfaces import Round, Spec


@struct.pytree
class UserTable(KnownUsers):
    """Given users in clusters, who are offered given items; made by `community`."""

    items: Float[Array | np.ndarray, "N d"]  # feature vectors
    thetas: Float[Array | np.ndarray, "n d"]  # preference vectors of users
    cluster: Int[Array | np.ndarray, " n"]  # true cluster of every user
    arrivals: Float[Array | np.ndarray, " n"]  # cumulative probabilities of users to come
    rewards: RewardLaw  # law of a reward, given its mean
    n_clusters: int = struct.static()  # m
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> UserWorld:
        """Deals the users out to the servers in a random order."""
        order = jax.random.permutation(random.stream(key, "users"), self.spec.n_users)
        return UserWorld(jnp.asarray(self.thetas)[order], jnp.asarray(self.cluster)[order])

    def observe(self, key: Key[Array, ""], world: UserWorld, t: Int[ArrayLike, ""]) -> tuple[Round, UserWorld]:
        """Draws the user of a round and the K items offered, uniformly with replacement."""
        who, items = random.stream(key, "who"), random.stream(key, "items")
        which = jax.random.randint(items, (self.spec.n_arms,), 0, len(self.items))
        return Round(jnp.asarray(self.items)[which][None], user=arrive(who, self.arrivals)), world


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
) -> UserTable:
    """Clustered linear bandit over given users and items: one user comes each round, and is offered K random items.

    Items are drawn uniformly with replacement. The mean reward of item x for user i is <x, thetas[i]>. Each seed deals
    the users out to servers anew.

    Args:
        items: feature vectors of items; private algorithms require Euclidean norms <= 1.
        thetas: preference vectors of users.
        clusters: true clusters of users, integers that take every value in 0 ... m - 1; only the clusters that an
            algorithm finds are compared with them.
        n_servers: L <= n.
        n_arms: K, items offered each round.
        arrivals: "uniform", or n weights > 0, to which the probabilities of users to come are proportional; weight i is
            that of the i-th user after they are dealt out, not of row i of `thetas`.
        rewards: law of a reward: "bernoulli" (every mean must be in [0, 1]), "gaussian" or "clipped_gaussian", as in
            `sphere`.
        noise_std: standard deviation of the Gaussian rewards, in units of reward; ignored by "bernoulli".

    Raises:
        ValueError, TypeError: an argument is out of range, not finite or of the wrong type, or shapes disagree.

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
        raise ValueError(f"items and thetas must have rows of one length, got shapes {items.shape} and {thetas.shape}")
    if len(labels) != len(thetas):
        raise ValueError(f"clusters must be {len(thetas)} integers, one a user, got {len(labels)}")
    used = np.unique(labels)
    if len(used) == 0 or (used != np.arange(len(used))).any():
        raise ValueError(f"clusters must be 0 to m - 1, each used, got {used.tolist()[:10]}")
    n, servers, m = population(len(thetas), n_servers, len(used))
    law = law_of_means(rewards, noise_std, np.matmul(items, thetas.T))
    spec = Spec(
        n_agents=1,
        n_arms=validate.integer("n_arms", n_arms, at_least=1),
        dim=items.shape[1],
        **facts(items),
        rewards_in_unit=law.in_unit,
        n_users=n,
        n_servers=servers,
    )
    return UserTable(
        items=items,
        thetas=thetas,
        cluster=labels.astype(np.int32),
        arrivals=cumulative(arrivals, n),
        rewards=law,
        n_clusters=m,
        spec=spec,
    )
