"""FedUCB with a controller: the policy of Algorithms 1 and 2 of Dubey & Pentland (2020)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.policies.ucb import BoundUCB
from fedbandit_jax.algos.policies.widths import Exploration, LogDetWidth, check_width
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import NoiseLaw, Policy
from fedbandit_jax.privacy import spectral
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.privacy.spectral import Spectral


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogDetUCB(Exploration, Policy):
    """Optimism with the width of Proposition 2 of Dubey & Pentland (2020), which follows log det V_i of every agent i.

    Letters: N is the noise on a silo's prefix sum of x x', and Lambda bounds its norm. The silo's regulariser H = N + 2
    Lambda I has eigenvalues between rho_min = Lambda and rho_max = 3 Lambda. The noise on the silo's sum of x y is
    at most kappa in the norm of H^-1. See `fb.privacy.spectral`.

    Args:
        spectral: how Lambda is found: "theory" as printed, "quantile" from the distribution of the noise, a fraction of
            that.
        regularization: rho_min = rho_max of one agent without noise, >= 1e-5; None: 1. V starts at M times this (n_C
            times for n_C agents in a clique of `GossipFedUCB`). To compare with `fed_lin_ucb`, where V starts at lambda
            I, take lambda / M.

    The other arguments are those of `UCB`: failure, subgaussian, theta_norm and exploration_scale.

    Raises:
        ValueError: when bound, also if there is only one agent, or silos do not add the noise.
    """

    needs_all_users = keeps_matrix = True
    said = ("policy that bounds silos' noise",)

    spectral: str = "quantile"

    def __post_init__(self):
        super().__post_init__()
        validate.one_of("spectral", self.spectral, spectral.SPECTRAL)

    @override
    def bind(self, law: NoiseLaw) -> BoundUCB:
        if law.n_agents < 2:
            raise BadValue(
                "n_agents",
                "must be at least two for FedUCB (Definition 1)",
                law.n_agents,
                got=f"an environment with {law.n_agents}: private_fed_lin_ucb and LinUCB work with one",
            )
        return self.of_groups(self.bounds(law, len(law.stds)), law.n_agents, law.n_agents, law.dim)

    def of_groups(self, of_silo: Spectral, sizes: Any, sharing: Any, dim: int) -> BoundUCB:
        """Returns the policy of agents in groups of `sizes` silos, () or (C,); `sharing` is that of every agent, () or
        (M,).
        """
        low, high, _ = of_silo
        return BoundUCB(
            first_regularization=np.asarray(sizes * low, np.float32),
            regularization=np.asarray(sizes * (low + high) / 2, np.float32),  # shifts noisy sums by 2 Lambda per silo
            width=self.width(of_silo, sharing, dim),
            rule=None,
            rho=(low, high),
            project=False,
        )

    def bounds(self, law: NoiseLaw, n_releases: int) -> Spectral:
        """Returns bounds rho_min, rho_max and kappa of one silo, for all `n_releases` of all silos together."""
        mechanism = law.mechanism
        if not isinstance(mechanism, NoisyMechanism):
            return Spectral(self.least, self.least, 0.0)
        budget, release, trust = mechanism.budget(0), mechanism.release, mechanism.trust
        printed = self.spectral == "theory"
        return spectral.bounds(
            self.spectral,
            sigma=float(np.max(trust.std)) / MAX_NORM**2,  # pyright: ignore[reportAttributeAccessIssue]
            nodes=1 + math.ceil(math.log2(release.n_syncs)) if printed else release.largest_variance(),
            dim=law.dim,
            n_syncs=n_releases,
            n_agents=law.n_agents,
            failure=self.failure,
            delta=budget.delta,
        )

    def width(self, of_silo: Spectral, sharing: Any, dim: int) -> LogDetWidth:
        """Returns the widths of Proposition 2 for groups of n silos; n = `sharing` is an array of any shape.

            beta_i = R sqrt(2 ln(2/failure) + ln det V_i - d ln(n rho_min)) + S sqrt(n rho_max) + kappa sqrt n

        with R = `subgaussian` and S = `theta_norm`, all times `exploration_scale`.

        DEVIATION dubey2020 Prop. 2: the factor d before log det V_i is a misprint; the proof (Proposition 6) has none.
        The width is not proved for all agents at once. Each agent's rows are a process of their own, which depends on
        others' requests. The proof spends failure / 2 on one agent (see footnote 5 of Zhou & Chowdhury 2024).
        """
        low, high, kappa = of_silo
        n, scale = np.asarray(sharing, float), self.exploration_scale
        offset = self.theta_norm * np.sqrt(n * high) + kappa * np.sqrt(n)
        log_term = 2 * math.log(2 / self.failure) - dim * np.log(n * low)
        slope = np.full(n.shape, scale * self.subgaussian)
        check_width(np.max(scale * offset), np.max(slope))
        fields = (scale * offset, slope, log_term, np.zeros(n.shape))
        return LogDetWidth(*(np.asarray(field, np.float32) for field in fields))
