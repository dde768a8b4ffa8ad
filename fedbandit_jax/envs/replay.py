"""Environments that repeat their input: the queries of a feature table, or a script of contexts and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import ArrayLike, Float, Int, Key, Real, Shaped
from typing_extensions import override

from fedbandit_jax.core import ridge, struct, validate
from fedbandit_jax.core.choose import tiles_save
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._arrivals import MAX_USERS
from fedbandit_jax.envs._linear import LinearEnvironment, World, facts
from fedbandit_jax.envs._rewards import RewardLaw, reward_law
from fedbandit_jax.interfaces import Feedback, Round, Spec


@struct.pytree
class Replay(LinearEnvironment):
    """A linear bandit over a table of feature vectors; made by `replay`."""

    features: Float[Array | np.ndarray, "d rows"]  # N rows, padded by K zeros so that slices of K rows always fit
    starts: Int[Array | np.ndarray, " Q"]  # first row of each query
    counts: Int[Array | np.ndarray, " Q"]  # number of rows of each query
    theta: Float[Array | np.ndarray, " d"]  # the mean reward of a row x is <x, theta>
    rewards: RewardLaw  # law of a reward, given its mean
    spec: Spec = struct.static()
    ragged: bool = struct.static()  # whether padding to K rows would more than double the rows

    def init(self, key: Key[Array, ""]) -> World:
        """Returns the given parameter, equal for every seed."""
        return World(jnp.asarray(self.theta))

    @override
    def observe(self, key: Key[Array, ""], world: World, t: Int[ArrayLike, ""]) -> tuple[Round, World]:
        first, count = self.listed(key, world, t)
        k = self.spec.n_arms
        rows = jax.vmap(lambda row: self.rows_at(row, k))(first)
        return Round(rows.transpose(0, 2, 1), jnp.arange(k) < count[:, None]), world

    def listed(
        self, key: Key[Array, ""], world: World, t: Int[ArrayLike, ""]
    ) -> tuple[Int[Array, " M"], Int[Array, " M"]]:
        """Returns the first row and the number of rows of each agent's query, see `core.choose.choose_rows`."""
        m, n_queries = self.spec.n_agents, len(self.starts)
        ends = np.arange(m + 1, dtype=np.int64) * n_queries // m  # contiguous blocks of queries, as in the paper
        query = jax.random.randint(key, (m,), jnp.int32(ends[:-1]), jnp.int32(ends[1:]))
        return jnp.asarray(self.starts)[query], jnp.asarray(self.counts)[query]

    def rows_at(self, first: Int[Array, ""], size: int) -> Float[Array, "d {size}"]:
        """Returns the features of `size` <= K rows of the table from `first` on, arbitrary past the end of a query."""
        return lax.dynamic_slice(jnp.asarray(self.features), (0, first), (self.spec.dim, size))

    @override
    def mean_at(self, world: World, x: Sequence[Array] | Array) -> Array:
        return self.rewards.mean(ridge.dot(jnp.asarray(x), world.theta[:, None]))


def replay(
    features: Real[np.ndarray, "N d"],
    query_sizes: Int[np.ndarray, " Q"],
    theta: Real[np.ndarray, " d"],
    *,
    n_agents: int,
    rewards: str = "gaussian",
    noise_std: float = 0.5,
    shape: float | None = None,
) -> Replay:
    """Makes a linear bandit from a table of N real feature vectors, the rows of Q queries.

    Query q owns `query_sizes[q]` consecutive rows of `features`. Queries are split over the M agents in contiguous
    blocks of (nearly) equal size. Each round every agent receives one of its queries, uniformly at random, and chooses
    a row. The mean reward of a row x is <x, theta>. K is the largest number of rows of a query. If every agent has one
    query, or several with equal rows, contexts are fixed and public: `spec.fixed_contexts`.

    Args:
        features: finite feature vectors; private algorithms require Euclidean norms <= 1, and centred rewards a
            non-zero constant column.
        query_sizes: numbers of rows of the queries, positive integers that sum to N.
        theta: parameter of the mean reward, for instance fitted to real labels.
        n_agents: number M <= Q of silos.
        rewards, noise_std, shape: as in `sphere`; with "bernoulli" every mean must be in [0, 1].

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
        raise BadValue("features", "must have at least one row", None, got="none")
    if theta.shape != features.shape[1:]:
        raise BadValue("theta", f"must have shape {features.shape[1:]} like a row of features", theta.shape)
    if len(sizes) == 0 or sizes.min() < 1:
        raise BadValue("query_sizes", "must be a vector of integers >= 1", query_sizes)
    if sizes.sum() != len(features):
        raise BadValue("query_sizes", f"must sum to the {len(features)} rows of features", sizes.sum())
    if validate.integer("n_agents", n_agents, at_least=1) > len(sizes):
        raise BadValue("n_agents", f"must be <= the number of queries {len(sizes)}", n_agents)
    law = reward_law(rewards, noise_std, shape, np.matmul(features, theta))
    n_arms, dim = int(sizes.max()), features.shape[1]
    starts = np.cumsum(sizes) - sizes
    known: Any = dict(
        n_agents=n_agents, n_arms=n_arms, dim=dim, fixed_contexts=_repeat(features, starts, sizes, n_agents)
    )
    spec = Spec(**known, **facts(features), rewards_in_unit=law.in_unit)
    return Replay(
        features=np.concatenate([features.T, np.zeros((dim, n_arms), np.float32)], axis=1),
        starts=starts.astype(np.int32),
        counts=sizes.astype(np.int32),
        theta=theta,
        rewards=law,
        spec=spec,
        ragged=tiles_save(sizes),
    )


def _repeat(features: np.ndarray, starts: np.ndarray, sizes: np.ndarray, n_agents: int) -> bool:
    """Returns whether every agent's queries have equal rows, so that contexts are fixed."""
    queries = np.arange(len(sizes))
    block = np.searchsorted(np.arange(1, n_agents + 1) * len(sizes) // n_agents, queries, side="right")
    first = np.searchsorted(block, block)  # first query of the same agent
    if (sizes != sizes[first]).any():
        return False
    rows = np.arange(len(features))
    return np.array_equal(features, features[rows + np.repeat(starts[first] - starts, sizes)])


@struct.pytree
class Script:
    """Contexts and answers given round by round; made by `script`.

    The world is the index of the round; later rounds repeat the last one.
    """

    contexts: Float[Array | np.ndarray, "T M K d"]  # offered feature vectors
    answers: Float[Array | np.ndarray, "T M K"]  # reward of every arm
    means: Float[Array | np.ndarray, "T M K"]  # means for the regret
    users: Int[Array | np.ndarray, "T M"] | None = None  # identified users, if any
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Returns the index of the first round, 0."""
        return jnp.int32(0)

    def observe(
        self, key: Key[Array, ""], world: Int[Array, ""], t: Int[ArrayLike, ""]
    ) -> tuple[Round, Int[Array, ""]]:
        """Offers the contexts of round t, or of the last one."""
        t = jnp.minimum(jnp.asarray(t, jnp.int32), len(self.contexts) - 1)
        return Round(jnp.asarray(self.contexts)[t], user=None if self.users is None else jnp.asarray(self.users)[t]), t

    def pull(self, key: Key[Array, ""], world: Int[Array, ""], offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Returns the given answers of the played arms, and their gaps."""

        def played(table):
            return jnp.take_along_axis(table, arms[:, None], 1)[:, 0]

        means = jnp.asarray(self.means)[world]
        return Feedback(played(jnp.asarray(self.answers)[world]), means.max(1) - played(means))


def script(
    contexts: Real[Array | np.ndarray, "T M K d"] | Sequence[Any],
    answers: Shaped[Array | np.ndarray, "T M K"] | Sequence[Any],
    means: Shaped[Array | np.ndarray, "T M K"] | Sequence[Any] | None = None,
    *,
    users: Shaped[Array | np.ndarray, "T M"] | Sequence[Any] | None = None,
    fixed_contexts: bool = False,
) -> Script:
    """Makes a deterministic environment that offers given contexts and gives given answers, round by round.

    Args:
        contexts: offered feature vectors, an array or nested lists. Rounds after the first T repeat the last one.
        answers: reward of every arm.
        means: mean rewards for the regret; by default the answers.
        users: user of each silo, integers >= 0; by default every user is new.
        fixed_contexts: whether all rounds offer the same contexts, which are then public.

    Example:
        >>> env = script([[[[1.0, 0.0], [0.0, 1.0]]]], [[[0.0, 1.0]]])
        >>> env.spec.n_agents, env.spec.n_arms, env.spec.dim, env.spec.max_norm
        (1, 2, 2, 1.0)
    """
    contexts = validate.finite_array("contexts", contexts, ndim=4)
    if not contexts.size:
        got = f"shape {contexts.shape}"
        raise BadValue("contexts", "must have at least one entry along every axis", contexts.shape, got=got)
    answers = validate.finite_array("answers", answers, ndim=3)
    means = answers if means is None else validate.finite_array("means", means, ndim=3)
    for name, table in (("answers", answers), ("means", means)):
        if table.shape != contexts.shape[:3]:
            raise BadValue(name, f"must have shape {contexts.shape[:3]} as contexts do", table.shape)
    came = None if users is None else _came(users, contexts.shape[:2])
    shape: Any = dict(zip(("n_agents", "n_arms", "dim"), contexts.shape[1:]))
    spec = Spec(
        **shape,
        fixed_contexts=fixed_contexts,
        max_norm=float(np.linalg.norm(contexts, axis=-1).max()),
        rewards_in_unit=bool((answers >= 0).all() and (answers <= 1).all()),
        n_users=0 if came is None else int(came.max()) + 1,
    )
    if spec.fixed_contexts and (contexts != contexts[0]).any():
        raise BadValue("fixed_contexts", "must be False if contexts differ between rounds", True)
    return Script(contexts=contexts, answers=answers, means=means, users=came, spec=spec)


def _came(users: Any, shape: tuple[int, int]) -> np.ndarray:
    came = validate.integer_array("users", users, ndim=2)
    if came.shape != shape:
        raise BadValue("users", f"must have shape {shape}, one a round and silo", came.shape)
    if came.min() < 0 or came.max() >= MAX_USERS:
        raise BadValue("users", f"must be in [0, {MAX_USERS:,})", came.min(), got=f"{came.min()} to {came.max()}")
    return came.astype(np.int32)
