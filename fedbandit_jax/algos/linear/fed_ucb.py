"""FedUCB with a controller: Algorithms 1 and 2 of Dubey & Pentland (2020), as a composition of policy and mechanism."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fedbandit_jax.algos.linear.confidence import LogDetWidth
from fedbandit_jax.algos.linear.federated import Federated
from fedbandit_jax.algos.linear.ucb import BoundUCB, Exploration
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Law, Policy
from fedbandit_jax.privacy import spectral
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.channel import BoundMechanism
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism
from fedbandit_jax.privacy.spectral import Spectral
from fedbandit_jax.privacy.trust import SiloLocal
from fedbandit_jax.schedules import LogDet, Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogDetUCB(Exploration):
    """Optimism with the width of Proposition 2 of Dubey & Pentland (2020), which follows log det V_i of every agent i.

    Letters: N is the noise on a silo's prefix sum of x x', Lambda a bound on its norm, H = N + 2 Lambda I the silo's
    regulariser, whose eigenvalues are between rho_min = Lambda and rho_max = 3 Lambda, and kappa a bound on the noise
    on the silo's sum of x y, in the norm of H^-1. See `fb.privacy.spectral`.

    Args:
        spectral: how Lambda is found: "theory" as printed, "quantile" from the law of the noise, a fraction of that.
        regularization: rho_min = rho_max of one agent where there is no noise, > 0; None: 1. V starts at M times this
            (n_C times with n_C agents in a clique of `GossipFedUCB`): to compare with `fed_lin_ucb`, where V starts at
            lambda I, take lambda / M.

    The other arguments are those of `UCB`: alpha, subgaussian, theta_norm and exploration_scale.

    Raises:
        ValueError, TypeError: if an argument is not one of these; the message names it and its value. When bound, also
            if there is only one agent, or silos do not add the noise.
    """

    spectral: str = "quantile"

    def __post_init__(self):
        super().__post_init__()
        validate.one_of("spectral", self.spectral, spectral.SPECTRAL)

    def bind(self, law: Law) -> BoundUCB:
        """Returns the policy with rho_min, rho_max and kappa for all silos together."""
        if law.n_agents < 2:
            raise ValueError(
                f"n_agents must be at least two for FedUCB (Definition 1), got an environment with {law.n_agents}: "
                "private_fed_lin_ucb and LinUCB work with one"
            )
        m = law.n_agents
        of_silo = self.bounds(law, len(law.stds))
        low, high, _ = of_silo
        return BoundUCB(
            first_regularization=np.float32(m * low),
            regularization=np.float32(m * (low + high) / 2),  # shifts noisy sums by 2 Lambda per silo
            width=self.width(of_silo, m, law.dim),
            known_noise=None,
            rho=(low, high),
            project=False,
        )

    def bounds(self, law: Law, n_releases: int) -> Spectral:
        """Returns rho_min, rho_max and kappa of one silo, which hold at all of n releases of all silos together.

        Args:
            law: the law of the noise; without a mechanism rho_min = rho_max and kappa = 0.
            n_releases: n, the most releases of one silo.

        Raises:
            ValueError: if the trust model is not silo-local.
        """
        mechanism = law.mechanism
        if not isinstance(mechanism, BoundMechanism):
            rho = 1.0 if self.regularization is None else self.regularization
            return Spectral(rho, rho, 0.0)
        budget, release, trust = mechanism.budgets[0], mechanism.release, mechanism.trust
        if not isinstance(trust, SiloLocal):
            raise ValueError(
                f"trust must be 'silo_local_matrix' or 'silo_local' with LogDetUCB, got {trust.sentence!r}"
            )
        if mechanism.statistic.gram_scale != 1:
            scale = mechanism.statistic.gram_scale
            raise ValueError(f"gram_scale must be 1 with LogDetUCB, whose bounds are for equal noise, got {scale:g}")
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
        """Returns the widths of Proposition 2 for groups of n silos that share; n = `sharing` is an array of any shape.

            beta_i = R sqrt(2 ln(2/alpha) + ln det V_i - d ln(n rho_min)) + S sqrt(n rho_max) + kappa sqrt n

        with R = `subgaussian` and S = `theta_norm`, all times `exploration_scale`.

        DEVIATION dubey2020 Prop. 2: the factor d before log det V_i is a misprint; the proof (Proposition 6) has none.
        The width is not proved for all agents at once: each agent's rows are a process of its own that depends on when
        others synchronise, and the proof spends alpha / 2 on one agent (see footnote 5 of Zhou & Chowdhury 2024).
        """
        low, high, kappa = of_silo
        n, scale = np.asarray(sharing, float), self.exploration_scale
        offset = self.theta_norm * np.sqrt(n * high) + kappa * np.sqrt(n)
        log_term = 2 * math.log(2 / self.alpha) - dim * np.log(n * low)
        slope = np.full(n.shape, scale * self.subgaussian)
        fields = (scale * offset, slope, log_term, np.zeros(n.shape))
        return LogDetWidth(*(np.asarray(field, np.float32) for field in fields))


def privatizer(privacy: Mechanism | Budget | None) -> Mechanism | None:
    """Returns the mechanism of PRIVATIZER, Algorithm 2, if only a budget is given, and any other mechanism as it is.

    PRIVATIZER adds noise to the joint matrix [x y]'[x y], by a tree whose prefix sums the silos send.
    """
    return as_mechanism(privacy, release="prefix_tree", trust="silo_local_matrix")


def fed_ucb(
    privacy: Mechanism | Budget | None = None,
    *,
    exploration: LogDetUCB | None = None,
    schedule: Schedule | int | None = None,
    learns_in_batch: bool = True,
    name: str | None = None,
) -> Federated:
    """Makes FedUCB with a controller: LinUCB agents that all synchronise when one of them has learned enough.

    Agent i plays argmax <x, theta_i> + beta_i ||x||_{V_i^-1} on what all had released at the last synchronisation plus
    its own statistics since. At a synchronisation every silo adds symmetric Gaussian noise to the joint matrix of its
    batch, by a binary tree (PRIVATIZER, Algorithm 2), and shifts it by 2 Lambda I, where Lambda bounds the noise's
    norm. `Result.communication` counts these sums; a request to synchronise is one bit and is not counted.

    Trust is silo-local: each silo adds the noise, a user trusts her silo, but neither the controller nor other silos.
    The privacy unit is one user of one round. The l2 sensitivity of the joint matrix, where x x' counts by 1 / sqrt 2
    because its noise has sqrt 2 times the standard deviation of that on x y, is 2 under adjacency "replace" and
    sqrt(1.5) under "add_remove"; that of all L nodes with the user's batch is sqrt(L) times as much. As printed (the
    default) the algorithm is not private, whatever its noise, because raw statistics decide when it synchronises. With
    `schedule=fb.schedules.PrivateLogDet()` and `learns_in_batch=False` it is certified. Noise and constants are exact
    by default and several times smaller than printed; for the printed ones choose `calibration="theorem"`,
    `spectral="theory"` and `LogDet(trigger="dp20")`.

    What is certified and has the least regret that we know of where all agents are alike is not adaptive, but the last
    example: greedy play on batches that grow. See the documentation's page "Beyond the papers".

    Args:
        privacy: a budget (then PRIVATIZER) or an `fb.privacy.Mechanism`, with `LogDetUCB` of trust "silo_local_matrix"
            or "silo_local"; None: no noise.
        exploration: width and spectral bounds, or another policy; default `LogDetUCB()`.
        schedule: one of `fb.schedules`; default `LogDet()`, which is Theorem 1's D and the restated trigger. The three
            budgets of communication in Remark 1 are `LogDet("M log T")`, `LogDet("M^1.5")` and `Every(1)`, which runs
            round by round.
        learns_in_batch: True: agents also act on their own raw statistics (as printed). False: on released statistics
            only.
        name: label in results; default "FedUCB", or "Private-FedUCB" with noise.

    Returns:
        The recipe, a `Federated`.

    Raises:
        ValueError, TypeError: if an argument is not one of these; the message names it and its value. When bound to an
            environment, also if it has one agent or, with noise, feature vectors may be longer than 1.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> private = fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1))
        >>> private.certificate(env.spec, 100).claim
        'none'
        >>> safe = private.replace(schedule=fb.schedules.PrivateLogDet(), learns_in_batch=False)
        >>> safe.certificate(env.spec, 100).claim
        'certified'
        >>> mechanism = fb.privacy.Mechanism(
        ...     fb.privacy.Budget(1.0, 0.1), fb.privacy.Decaying(1.5), centred=True, gram_scale=0.5
        ... )  # add trust="secagg" where there is a secure aggregator
        >>> growing = dict(schedule=fb.schedules.Geometric(1.5, first=12), learns_in_batch=False)
        >>> best = fb.algos.fed_ucb(mechanism, exploration=fb.algos.Greedy(), **growing)
        >>> best.certificate(env.spec, 100).claim
        'certified'

    Reference: Dubey & Pentland (2020), Algorithms 1 and 2, Propositions 2 and 4, Theorem 1; Zhou & Chowdhury (2024),
    Algorithm 3, which restates it.
    """
    policy = LogDetUCB() if exploration is None else exploration
    return Federated(
        policy=validate.instance("exploration", policy, Policy, "an fb.algos.LogDetUCB or None"),
        schedule=LogDet() if schedule is None else schedule,
        privacy=privatizer(privacy),
        learns_in_batch=learns_in_batch,
        name=name if name is not None else "FedUCB" if privacy is None else "Private-FedUCB",
    )
