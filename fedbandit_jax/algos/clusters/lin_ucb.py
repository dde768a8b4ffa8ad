"""LinUCB (Abbasi-Yadkori, Pal & Szepesvari 2011) for agents that neither communicate nor protect privacy."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.clusters import seats
from fedbandit_jax.algos.clusters.seats import SeatedAlgorithm, UserSums
from fedbandit_jax.algos.loops.loop import PlayingLoop, finite_or
from fedbandit_jax.algos.policies.ucb import UCB, BoundUCB, Estimate, Prepared
from fedbandit_jax.core import ridge, struct, validate
from fedbandit_jax.core.ridge import Posterior
from fedbandit_jax.interfaces import Algorithm, NoiseLaw, Recipe, Report, Round, Spec
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import tagged


class LinUCBState(NamedTuple):
    """Statistics of all agents."""

    sums: Array  # (M, d, d + 1) Gram matrix and bias of each agent
    posterior: Posterior  # theta and V^-1 of each agent, A = M


@struct.sealed
@struct.pytree
class BoundLinUCB(PlayingLoop):
    """LinUCB for a known environment and horizon; a batch is the time between two refreshes."""

    policy: BoundUCB
    batch: int = struct.static()  # B, rounds between two refreshes

    @override
    def init(self, key: Array, spec: Spec) -> LinUCBState:
        zeros = jnp.zeros((spec.n_agents, spec.dim, spec.dim + 1))
        return LinUCBState(zeros, self._solve(zeros))

    @override
    def download(self, state: LinUCBState, offered: Round) -> Prepared:
        belief = Estimate(state.posterior, jnp.zeros(()), jnp.zeros(()), self.policy.width)
        return self.policy.prepare(belief, offered, self.spec.fixed_contexts)

    @override
    def learn(
        self, t: Array, local: Prepared, offered: Round, arms: Array, rewards: Array
    ) -> tuple[Prepared, tuple[Array, Array]]:
        x = ridge.take(offered.contexts, arms)
        return self.policy.learn(local, offered, x, rewards), (x, rewards)

    def sync(self, key: Array, k: Array, state: LinUCBState, local: Prepared, records: Any) -> tuple[Any, Report]:
        """Recomputes V^-1 from the Gram matrix against float32 errors; agents exchange nothing."""
        x, y = records  # (B, d, M) and (B, M)
        rows = jnp.concatenate([x, y[:, None]], axis=1)  # (B, d + 1, M)
        sums = state.sums + jnp.einsum("bim,bjm->mij", x, rows, precision="highest")
        posterior, status = finite_or(state.posterior, self._solve(sums))
        return LinUCBState(sums, posterior), Report(status=status)

    def _solve(self, sums: Array) -> Posterior:
        eye = jnp.eye(sums.shape[1])
        return ridge.solve(self.policy.regularization * eye + sums[..., :-1], sums[..., -1])[0]


@struct.sealed
@struct.pytree
class BoundUserLinUCB(SeatedAlgorithm):
    """`LinUCB` bound to an environment of returning users. Not private."""

    @override
    def init(self, key: Array, spec: Spec) -> UserSums:
        return self.nothing(spec.dim)

    @override
    def index(self, key: Array, t: Array, state: UserSums, user: Array, contexts: Array) -> Array:
        seat = self.seats.seat(user)
        return self.bounds(contexts, state.inverse[seat], state.theta[seat], state.counts[seat].astype(jnp.float32))

    @override
    def serve(self, key: Array, t: Array, state: UserSums, user: Array, x: Array, y: Array) -> tuple[UserSums, Report]:
        return self.learned(state, user, x, y), Report()

    @override
    def partition(self, state: UserSums) -> Array:
        return jnp.arange(self.seats.n_users, dtype=jnp.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinUCB(Recipe):
    """Independent LinUCB agents, or one per user in environments like `clustered`: no cooperation. Not private.

    If users return to M > 1 silos, each silo has one agent for all its users. From its own raw data an agent has V =
    lambda I + sum x x' and theta = V^-1 sum x y. It plays argmax_a <x_a, theta> + beta_t ||x_a||_{V^-1}.

    Args:
        policy: regulariser and confidence width.
        name: label in results.

    Raises:
        ValueError: when bound to an environment with one agent and returning users, if its `confidence` is not
            "theory".

    Reference: Abbasi-Yadkori, Pal & Szepesvari (2011), Figure 1 and Theorem 2.
    """

    policy: UCB = UCB()
    name: str = "LinUCB"

    def __post_init__(self):
        validate.instance("policy", self.policy, UCB, "an fb.algos.UCB")
        validate.text("name", self.name)

    @override
    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        if spec.n_users and spec.n_agents == 1:
            alone = tagged("n_users", spec.n_users, {"a model for each user": True})
            compatibility.check(self.policy.tags | alone)
            return BoundUserLinUCB(**seats.common(spec, self.policy, self.name))
        policy = self.policy.bind(NoiseLaw(1, spec.dim, np.zeros(0)))
        return BoundLinUCB(policy=policy, spec=spec, batch=seats.RESOLVE)
