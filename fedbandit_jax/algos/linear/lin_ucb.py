"""LinUCB (Abbasi-Yadkori, Pal & Szepesvari 2011), each agent on its own: no communication, no privacy."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.algos.clusters import _users
from fedbandit_jax.algos.clusters._user_lin_ucb import BoundUserLinUCB
from fedbandit_jax.algos.linear import _confidence, _local
from fedbandit_jax.algos.linear._confidence import Width
from fedbandit_jax.algos.linear._local import Local, Record
from fedbandit_jax.core import ridge, struct, validate
from fedbandit_jax.core.ridge import Posterior
from fedbandit_jax.interfaces import Algorithm, Report, Round, Spec, Status

REFRESH = 100  # rounds between Cholesky refreshes of V^-1; float32 needs one per 1,000 (125 if lambda < 0.01)


class LinUCBState(NamedTuple):
    """Everything the agents have seen."""

    sums: Array  # (M, d, d + 1) Gram matrix and bias of each agent
    posterior: Posterior  # A = M


@struct.pytree
class BoundLinUCB(Algorithm):
    """LinUCB for a known environment and horizon."""

    regularization: struct.Number
    width: Width
    spec: Spec = struct.static()
    batch: int = struct.static()

    def init(self, key: Array, spec: Spec) -> LinUCBState:
        """V = lambda I, b = 0."""
        del key
        zeros = jnp.zeros((spec.n_agents, spec.dim, spec.dim + 1))
        return LinUCBState(zeros, self._solve(zeros)[0])

    def download(self, state: LinUCBState, offered: Round) -> Local:
        """Continue from the refreshed estimate."""
        return _local.start(state.posterior, self.width, offered, self.spec.fixed_contexts)

    def act(self, key: Array, t: Array, local: Local, offered: Round) -> Array:
        """Optimism, with the width of one agent."""
        del key
        return _local.act(t, local, offered)

    def learn(self, t: Array, local: Local, offered: Round, arms: Array, rewards: Array):
        """Rank-one update of every agent."""
        del t
        record = Record(ridge.take(offered.contexts, arms), rewards)
        return _local.learn(local, offered, record), record

    def sync(self, key: Array, k: Array, state: LinUCBState, local: Local, records: Record):
        """Nothing is exchanged: V^-1 is refreshed from the Gram matrix so that float32 errors do not pile up."""
        del key, k, local
        rows = jnp.concatenate([records.x, records.y[:, None]], axis=1)  # (B, d + 1, M)
        sums = state.sums + jnp.einsum("bim,bjm->mij", records.x, rows)
        posterior, ok = self._solve(sums)
        status = jnp.where(ok.all(), 0, Status.NO_ESTIMATE)
        return LinUCBState(sums, ridge.where(ok, posterior, state.posterior)), Report(status=status)

    def _solve(self, sums: Array) -> tuple[Posterior, Array]:
        eye = jnp.eye(sums.shape[1])
        return ridge.solve(self.regularization * eye + sums[..., :-1], sums[..., -1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinUCB(Algorithm):
    """See `lin_ucb`."""

    alpha: float
    subgaussian: float
    theta_norm: float
    exploration_scale: float
    confidence: str
    name: str = "LinUCB"

    def replace(self, **changes: Any) -> LinUCB:
        """Checked copy."""
        unknown = set(changes) - set(self.parameters())
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(sorted(unknown))}")
        return lin_ucb(**{**{name: getattr(self, name) for name in self.parameters()}, **changes})

    def bind(self, spec: Spec, horizon: int) -> BoundLinUCB | BoundUserLinUCB:
        """Regulariser and width for one agent, or for one user."""
        if spec.n_users:
            if self.confidence != "theory":
                raise ValueError(f"confidence must be 'theory' where users are told apart, got {self.confidence!r}")
            widths = self.alpha, self.subgaussian, self.theta_norm, self.exploration_scale
            return BoundUserLinUCB(**_users.common(spec, 1.0, *widths))
        common: dict[str, Any] = dict(
            n_agents=1,
            dim=spec.dim,
            alpha=self.alpha,
            subgaussian=self.subgaussian,
            exploration_scale=self.exploration_scale,
        )
        if self.confidence == "theory":
            lam, width = _confidence.theory(
                **common, server_stds=np.zeros(0), theta_norm=self.theta_norm, regularizer="shift"
            )
        else:
            lam, width = _confidence.released(**common, levels=0, message_std=0.0)
        batch = -(-horizon // -(-horizon // REFRESH))  # at most REFRESH, and as few rounds past the horizon as can be
        return BoundLinUCB(regularization=np.float32(lam), width=width, spec=spec, batch=batch)


def lin_ucb(
    *,
    alpha: float = 0.01,
    subgaussian: float = 0.5,
    theta_norm: float = 1.0,
    exploration_scale: float = 1.0,
    confidence: str = "theory",
    name: str = "LinUCB",
) -> LinUCB:
    """M independent LinUCB agents: the limit of no cooperation. Not private. Users who come again are an agent each.

    Plays argmax_a <x_a, theta> + beta_t ||x_a||_{V^-1} with V = lambda I + sum x x', theta = V^-1 sum x y.

    Args:
        alpha: probability that the confidence set fails, in (0, 1).
        subgaussian: R, sub-Gaussian constant of the reward noise (1/2 for rewards in [0, 1]).
        theta_norm: S, bound on ||theta*||; used by confidence="theory".
        exploration_scale: factor on beta_t; 1 is the theory, 0 is greedy.
        confidence: "theory" (lambda = 1) or "released" (the constants of Zhou & Chowdhury's code with M = 1).
        name: label in results.

    Raises:
        ValueError, TypeError: naming the argument and its value.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=2, n_arms=5, dim=3)
        >>> fb.simulate(env, fb.algos.lin_ucb(), horizon=50, key=jax.random.key(0), n_seeds=2).regret.shape
        (2, 50)

    Reference: Abbasi-Yadkori, Pal & Szepesvari (2011), Figure 1 and Theorem 2.
    """
    return LinUCB(
        alpha=validate.probability("alpha", alpha),
        subgaussian=validate.non_negative("subgaussian", subgaussian),
        theta_norm=validate.non_negative("theta_norm", theta_norm),
        exploration_scale=validate.non_negative("exploration_scale", exploration_scale),
        confidence=validate.one_of("confidence", confidence, ("theory", "released")),
        name=name,
    )
