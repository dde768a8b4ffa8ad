"""FedUCB with a controller: Algorithms 1 and 2 of Dubey & Pentland (2020), as a composition."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fedbandit_jax.algos.linear.confidence import LogDetWidth
from fedbandit_jax.algos.linear.federated import Federated
from fedbandit_jax.algos.linear.ucb import BoundUCB, Exploration
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Law
from fedbandit_jax.privacy import spectral
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.channel import BoundMechanism
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism
from fedbandit_jax.privacy.spectral import Spectral
from fedbandit_jax.privacy.trust import SiloLocal
from fedbandit_jax.schedules import LogDet, Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogDetUCB(Exploration):
    """Optimism with the width of Proposition 2 of Dubey & Pentland (2020), which follows log det V_i.

    Args:
        spectral: of the noise of a silo's prefix sum, whose norm Lambda bounds: "theory", as printed; "quantile", from
            its law, a fraction of that. V is shifted by 2 Lambda I for every silo.
        regularization: rho_min = rho_max of one agent where there is no noise; default 1.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound, also if there is one agent.
    """

    spectral: str = "quantile"

    def __post_init__(self):
        super().__post_init__()
        validate.one_of("spectral", self.spectral, spectral.SPECTRAL)

    def bind(self, law: Law) -> BoundUCB:
        """rho_min, rho_max and kappa, for all silos together."""
        if law.n_agents < 2:
            raise ValueError(
                f"FedUCB needs at least two agents (Definition 1), the environment has {law.n_agents}: "
                "private_fed_lin_ucb and LinUCB work with one"
            )
        m = law.n_agents
        of_silo = self.bounds(law, len(law.stds))
        low, high, _ = of_silo
        return BoundUCB(
            first_regularization=np.float32(m * low),
            regularization=np.float32(m * (low + high) / 2),  # 2 Lambda of every silo
            width=self.width(of_silo, m, law.dim),
            known_noise=None,
            rho=(low, high),
            project=False,
        )

    def bounds(self, law: Law, n_releases: int) -> Spectral:
        """rho_min, rho_max and kappa of one silo, at all of n releases of all silos together."""
        mechanism = law.mechanism
        if not isinstance(mechanism, BoundMechanism):
            rho = 1.0 if self.regularization is None else self.regularization
            return Spectral(rho, rho, 0.0)
        budget, release, trust = mechanism.budgets[0], mechanism.release, mechanism.trust
        if not isinstance(trust, SiloLocal):
            raise ValueError(
                f"trust must be 'silo_local_matrix' or 'silo_local' with LogDetUCB, got {trust.sentence!r}"
            )
        printed = self.spectral == "theory"
        return spectral.bounds(
            self.spectral,
            sigma=trust.sigma_of_silo(),
            nodes=1 + math.ceil(math.log2(release.n_syncs)) if printed else release.largest_variance(),
            dim=law.dim,
            n_syncs=n_releases,
            n_agents=law.n_agents,
            alpha=self.alpha,
            delta=budget.delta,
        )

    def width(self, of_silo: Spectral, sharing: Any, dim: int) -> LogDetWidth:
        """Proposition 2, n silos sharing (an array of any shape): beta_i =

            sigma sqrt(2 ln(2/alpha) + ln det V_i - d ln(n rho_min)) + S sqrt(n rho_max) + kappa sqrt n.

        DEVIATION dubey2020 Prop. 2: the factor d before log det V_i is a misprint; the proof (Proposition 6) has none.
        Not proved for all agents at once: each agent's rows are a process of its own that depends on when others
        synchronise, and the proof spends alpha / 2 on one (see footnote 5 of Zhou & Chowdhury 2024).
        """
        low, high, kappa = of_silo
        n, scale = np.asarray(sharing, float), self.exploration_scale
        offset = self.theta_norm * np.sqrt(n * high) + kappa * np.sqrt(n)
        log_term = 2 * math.log(2 / self.alpha) - dim * np.log(n * low)
        slope = np.full(n.shape, scale * self.subgaussian)
        fields = (scale * offset, slope, log_term, np.zeros(n.shape))
        return LogDetWidth(*(np.asarray(field, np.float32) for field in fields))


def privatizer(privacy: Mechanism | Budget | None) -> Mechanism | None:
    """PRIVATIZER, Algorithm 2, where only a budget is given: a tree on the joint matrix, whose prefixes silos send."""
    return as_mechanism(privacy, release="prefix_tree", trust="silo_local_matrix")


def fed_ucb(
    privacy: Mechanism | Budget | None = None,
    *,
    exploration: LogDetUCB | None = None,
    schedule: Schedule | int | None = None,
    learns_in_batch: bool = True,
    name: str | None = None,
) -> Federated:
    """FedUCB with a controller: LinUCB agents that all synchronise when one of them has learned enough.

    Agent i plays argmax <x, theta_i> + beta_i ||x||_{V_i^-1} on what all had released at the last synchronisation plus
    its own statistics since. At a synchronisation every silo adds symmetric Gaussian noise to the joint matrix of its
    batch, by a binary tree (PRIVATIZER, Algorithm 2), and shifts it by 2 Lambda I, Lambda a bound on the noise's norm.
    `Result.communication` counts these sums; a request to synchronise is one bit and is not counted.

    Trust: silo-local, as `private_fed_lin_ucb`. As printed (the default) the algorithm is not private, whatever its
    noise: when it synchronises is a function of raw statistics. With `schedule=fb.schedules.PrivateLogDet()` and
    `learns_in_batch=False` it is certified. Noise and constants are by default exact and several times smaller than
    printed, which are `calibration="theorem"`, `spectral="theory"` and `LogDet(trigger="dp20")`.

    Args:
        privacy: a budget (then PRIVATIZER) or an `fb.privacy.Mechanism` with trust "silo_local_matrix"; None: no noise.
        exploration: width and spectral bounds, default `LogDetUCB()`.
        schedule: one of `fb.schedules`, default `LogDet()`: Theorem 1's D and the restated trigger. The three budgets
            of communication in Remark 1 are `LogDet("M log T")`, `LogDet("M^1.5")` and `Every(1)`, which runs round by
            round.
        learns_in_batch: True, act on own raw statistics too (as printed); False, on released statistics only.
        name: label; default "FedUCB", or "Private-FedUCB" with noise.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound to an environment, also if it has one
            agent, or with noise feature vectors longer than 1.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> result = fb.simulate(env, fb.algos.fed_ucb(), horizon=100, key=jax.random.key(0), n_seeds=2)
        >>> result.regret.shape
        (2, 100)
        >>> private = fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1))
        >>> private.certificate(env.spec, 100).claim
        'none'
        >>> safe = private.replace(schedule=fb.schedules.PrivateLogDet(), learns_in_batch=False)
        >>> safe.certificate(env.spec, 100).claim
        'certified'

    Reference: Dubey & Pentland (2020), Algorithms 1 and 2, Propositions 2 and 4, Theorem 1; Zhou & Chowdhury (2024),
    Algorithm 3, which restates it.
    """
    return Federated(
        policy=LogDetUCB() if exploration is None else exploration,
        schedule=LogDet() if schedule is None else schedule,
        privacy=privatizer(privacy),
        learns_in_batch=learns_in_batch,
        name=name or ("FedUCB" if privacy is None else "Private-FedUCB"),
    )
