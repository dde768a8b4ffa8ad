"""LinUCB (Abbasi-Yadkori, Pal & Szepesvari 2011), each agent on its own: no communication, no privacy."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.algos.linear.scheduled import adopt, best_arms
from fedbandit_jax.algos.linear.ucb import UCB, BoundUCB, Estimate, Prepared
from fedbandit_jax.core import ridge, struct
from fedbandit_jax.core.ridge import Posterior
from fedbandit_jax.interfaces import Algorithm, Law, Recipe, Report, Round, Spec, Status

REFRESH_ALONE = 100  # rounds between Cholesky refreshes of V^-1; float32 needs one per 1,000 (125 if lambda < 0.01)


class LinUCBState(NamedTuple):
    """Everything the agents have seen."""

    sums: Array  # (M, d, d + 1) Gram matrix and bias of each agent
    posterior: Posterior  # A = M


class LinUCBRecord(NamedTuple):
    """What the agents remember of a round until the next refresh."""

    x: Array  # (d, M) features played
    y: Array  # (M,) rewards


@struct.sealed
@struct.pytree
class BoundLinUCB(Algorithm):
    """LinUCB for a known environment and horizon."""

    policy: BoundUCB
    spec: Spec = struct.static()
    batch: int = struct.static()

    def init(self, key: Array, spec: Spec) -> LinUCBState:
        """V = lambda I, b = 0."""
        del key
        zeros = jnp.zeros((spec.n_agents, spec.dim, spec.dim + 1))
        return LinUCBState(zeros, self._solve(zeros))

    def download(self, state: LinUCBState, offered: Round) -> Prepared:
        """Continue from the refreshed estimate."""
        belief = Estimate(state.posterior, jnp.zeros(()), jnp.zeros(()), self.policy.width)
        return self.policy.prepare(belief, offered, self.spec.fixed_contexts)

    def act(self, key: Array, t: Array, local: Prepared, offered: Round) -> Array:
        """Optimism, with the width of one agent."""
        return best_arms(self.policy.indices(key, t, local, offered), offered)

    def learn(
        self, t: Array, local: Prepared, offered: Round, arms: Array, rewards: Array
    ) -> tuple[Prepared, LinUCBRecord]:
        """Rank-one update of every agent."""
        del t
        record = LinUCBRecord(ridge.take(offered.contexts, arms), rewards)
        return self.policy.learn(local, offered, record.x, record.y), record

    def sync(
        self, key: Array, k: Array, state: LinUCBState, local: Prepared, records: LinUCBRecord
    ) -> tuple[LinUCBState, Report]:
        """Nothing is exchanged: V^-1 is refreshed from the Gram matrix so that float32 errors do not pile up."""
        del key, k, local
        rows = jnp.concatenate([records.x, records.y[:, None]], axis=1)  # (B, d + 1, M)
        sums = state.sums + jnp.einsum("bim,bjm->mij", records.x, rows, precision="highest")
        posterior, ok = adopt(self._solve(sums), state.posterior)
        return LinUCBState(sums, posterior), Report(status=jnp.where(ok, 0, Status.NO_ESTIMATE))

    def _solve(self, sums: Array) -> Posterior:
        eye = jnp.eye(sums.shape[1])
        return ridge.solve(self.policy.regularization * eye + sums[..., :-1], sums[..., -1])[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinUCB(Recipe):
    """M independent LinUCB agents: the limit of no cooperation. Not private. Users who come again are an agent each.

    Plays argmax_a <x_a, theta> + beta_t ||x_a||_{V^-1} with V = lambda I + sum x x', theta = V^-1 sum x y.

    Args:
        exploration: regulariser and confidence width.
        name: label in results.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=2, n_arms=5, dim=3)
        >>> fb.simulate(env, fb.algos.LinUCB(), horizon=50, key=jax.random.key(0), n_seeds=2).regret.shape
        (2, 50)

    Reference: Abbasi-Yadkori, Pal & Szepesvari (2011), Figure 1 and Theorem 2.
    """

    exploration: UCB = UCB()
    name: str = "LinUCB"

    def __post_init__(self):
        if not isinstance(self.exploration, UCB):
            raise TypeError(f"exploration must be an fb.algos.UCB, got {self.exploration!r}")

    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        """Regulariser and width for one agent, or for one user."""
        if spec.n_users:
            return self._of_users(spec)
        batch = -(-horizon // -(-horizon // REFRESH_ALONE))  # at most so many, and as few past the horizon as can be
        policy = self.exploration.bind(Law(1, spec.dim, np.zeros(0)))
        return BoundLinUCB(policy=policy, spec=spec, batch=batch)

    def _of_users(self, spec: Spec) -> Algorithm:
        from fedbandit_jax.algos.clusters import user_lin_ucb, users  # the one box of two families

        ucb = self.exploration
        if ucb.confidence != "theory":
            raise ValueError(f"confidence must be 'theory' where users are told apart, got {ucb.confidence!r}")
        regularization = 1.0 if ucb.regularization is None else ucb.regularization
        parts = users.common(spec, regularization, ucb.alpha, ucb.subgaussian, ucb.theta_norm, ucb.exploration_scale)
        return user_lin_ucb.BoundUserLinUCB(**parts)
