"""Real data as a linear contextual bandit: the queries of a feature table, divided among the agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import ArrayLike, Float, Int, Key, Real

from fedbandit_jax.core import ridge, struct, validate
from fedbandit_jax.core.choose_rows import saves
from fedbandit_jax.envs._shared import RewardLaw, facts, law_of_means
from fedbandit_jax.interfaces import Feedback, Round, Spec


class ReplayWorld(NamedTuple):
    """The instance, the same for every seed: only who arrives and what they answer is random."""

    theta: Float[Array, " d"]  # the parameter of the mean reward


@struct.pytree
class Replay:
    """A linear bandit over a table of feature vectors; made by `replay`."""

    features: Float[Array | np.ndarray, "d rows"]  # N rows and K of zeros, so that a slice of K rows always fits
    starts: Int[Array | np.ndarray, " Q"]  # first row of each query
    counts: Int[Array | np.ndarray, " Q"]  # number of rows of each query
    theta: Float[Array | np.ndarray, " d"]  # the mean reward of a row x is <x, theta>
    rewards: RewardLaw  # law of a reward, given its mean
    spec: Spec = struct.static()
    ragged: bool = struct.static()  # whether K rows for every query would be more than half padding

    def init(self, key: Key[Array, ""]) -> ReplayWorld:
        """Returns the given parameter, the same for every seed."""
        return ReplayWorld(jnp.asarray(self.theta))

    def observe(self, key: Key[Array, ""], world: ReplayWorld, t: Int[ArrayLike, ""]) -> tuple[Round, ReplayWorld]:
        """Offers every agent the rows of one of its own queries, drawn uniformly; arms beyond these rows are masked."""
        first, count = self.listed(key, world, t)
        k = self.spec.n_arms
        rows = jax.vmap(lambda row: self.rows_at(row, k))(first)
        return Round(rows.transpose(0, 2, 1), jnp.arange(k) < count[:, None]), world

    def listed(
        self, key: Key[Array, ""], world: ReplayWorld, t: Int[ArrayLike, ""]
    ) -> tuple[Int[Array, " M"], Int[Array, " M"]]:
        """Returns the first row of the query that each agent receives, and the number of its rows."""
        m, n_queries = self.spec.n_agents, len(self.starts)
        first = jnp.arange(m) * n_queries // m  # contiguous blocks of queries, as in the paper
        last = (jnp.arange(m) + 1) * n_queries // m
        query = jax.random.randint(key, (m,), first, last)
        return jnp.asarray(self.starts)[query], jnp.asarray(self.counts)[query]

    def rows_at(self, first: Int[Array, ""], size: int) -> Float[Array, "d {size}"]:
        """Returns the features of `size` <= K rows of the table from the first one on."""
        return lax.dynamic_slice(jnp.asarray(self.features), (0, first), (self.spec.dim, size))

    def mean_at(self, world: ReplayWorld, x: Sequence[Array] | Array) -> Array:
        """Returns the mean reward <x, theta> of vectors with these d features, on the leading axis."""
        return ridge.dot(jnp.asarray(x), world.theta[:, None])

    def reward_at(self, key: Array, mean: Float[Array, " A"], agent: Int[Array, " A"]) -> Float[Array, " A"]:
        """Draws the rewards of agents who played rows of these means."""
        return self.rewards.draw(key, mean, agent)

    def pull(self, key: Key[Array, ""], world: ReplayWorld, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Draws the rewards of the rows chosen, and returns them with their gaps."""
        means = ridge.inner(offered.contexts, world.theta[:, None])  # (K, M)
        played = jnp.take_along_axis(means, arms[None], axis=0)[0]
        best = means.max(0) if offered.mask is None else jnp.where(offered.mask.T, means, -jnp.inf).max(0)
        return self.rewards.feedback(key, best, played)


def replay(
    features: Real[np.ndarray, "N d"],
    query_sizes: Int[np.ndarray, " Q"],
    theta: Real[np.ndarray, " d"],
    *,
    n_agents: int,
    rewards: str = "gaussian",
    noise_std: float = 0.5,
) -> Replay:
    """Linear bandit over a table of N real feature vectors, the rows of Q queries.

    Query q owns `query_sizes[q]` consecutive rows of `features`. Queries are split over the M agents in contiguous
    blocks of (nearly) equal size; each round every agent receives one of its queries, uniformly at random, and
    chooses a row. The mean reward of a row x is <x, theta>. K is the largest number of rows of a query.

    Args:
        features: finite feature vectors; private algorithms require Euclidean norms <= 1, and centred rewards a column
            that has the same number, not 0, in all rows.
        query_sizes: numbers of rows of the queries, positive integers that sum to N.
        theta: parameter of the mean reward, for instance `fb.data.lasso` of real labels.
        n_agents: M <= Q silos.
        rewards: law of a reward: "gaussian", "bernoulli" (every mean must be in [0, 1]) or "clipped_gaussian", as in
            `sphere`.
        noise_std: standard deviation of the Gaussian rewards, in units of reward; ignored by "bernoulli".

    Raises:
        ValueError, TypeError: an argument is out of range, not finite or of the wrong type, or shapes disagree.

    Example:
        >>> import numpy as np, fedbandit_jax as fb
        >>> table = np.eye(4, dtype=np.float32)
        >>> env = fb.envs.replay(table, np.array([1, 3]), np.full(4, 0.5), n_agents=2)
        >>> env.spec.n_arms, env.spec.max_norm
        (3, 1.0)

    Reference: Zhou & Chowdhury (2024), Section 6, "Real-data bandit instance".
    """
    features = validate.finite_array("features", features, ndim=2)
    theta = validate.finite_array("theta", theta, ndim=1)
    sizes = validate.integer_array("query_sizes", query_sizes)
    if len(features) == 0:
        raise ValueError("features must have at least one row, got none")
    if theta.shape != features.shape[1:]:
        raise ValueError(f"theta must have shape {features.shape[1:]} like a row of features, got {theta.shape}")
    if len(sizes) == 0 or sizes.min() < 1:
        raise ValueError(f"query_sizes must be a vector of integers >= 1, got {validate.shown(query_sizes)}")
    if sizes.sum() != len(features):
        raise ValueError(f"query_sizes must sum to the {len(features)} rows of features, got {sizes.sum()}")
    n_agents = validate.integer("n_agents", n_agents, at_least=1)
    if n_agents > len(sizes):
        raise ValueError(f"n_agents must be <= the number of queries {len(sizes)}, got {n_agents}")
    law = law_of_means(rewards, noise_std, np.matmul(features, theta))
    n_arms = int(sizes.max())
    spec = Spec(
        n_agents=n_agents,
        n_arms=n_arms,
        dim=features.shape[1],
        **facts(features),
        rewards_in_unit=law.in_unit,
    )
    return Replay(
        features=np.concatenate([features.T, np.zeros((features.shape[1], n_arms), np.float32)], axis=1),
        starts=(np.cumsum(sizes) - sizes).astype(np.int32),
        counts=sizes.astype(np.int32),
        theta=theta,
        rewards=law,
        spec=spec,
        ragged=saves(sizes),
    )
