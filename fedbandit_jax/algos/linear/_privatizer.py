"""What centralised and decentralised FedUCB share: parameters, PRIVATIZER (Algorithm 2), and the width of Proposition
2."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fedbandit_jax.algos.linear import _spectral
from fedbandit_jax.algos.linear._budgeted import Budgeted
from fedbandit_jax.algos.linear._confidence import LogDetWidth
from fedbandit_jax.algos.linear._spectral import Spectral
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.budget import MAX_NORM, Budget
from fedbandit_jax.privacy.trust import calibration
from fedbandit_jax.privacy.trust.calibration import Calibration, calibrate
from fedbandit_jax.schedules import Schedule

TRUST = "silo_local_matrix"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Budgeted):
    """Parameters of FedUCB."""

    private = ("calibration", "release", "spectral", "visits", "clip_rewards")
    public = ("regularization",)

    name: str
    budget: Budget | None
    schedule: Schedule
    calibration: str
    release: str
    spectral: str
    visits: int
    clip_rewards: bool
    regularization: float
    alpha: float
    subgaussian: float
    theta_norm: float
    exploration_scale: float

    def check(self, spec: Spec) -> None:
        """Is there somebody to talk to, and a bound on what one user contributes?"""
        if spec.n_agents < 2:
            raise ValueError(
                f"{self.name} needs at least two agents (Definition 1), the environment has {spec.n_agents}: "
                "private_fed_lin_ucb and lin_ucb work with one"
            )
        if self.budget is not None and not 0 <= spec.max_norm <= MAX_NORM:
            raise ValueError(
                f"{self.name} needs feature vectors of norm <= 1, the environment's largest has norm "
                f"{spec.max_norm:g}: scale its features"
            )

    def noise(self, n_syncs: int, n_agents: int) -> tuple[Calibration, ...]:
        """Of every silo, for S releases; () when there is nothing to protect or to release."""
        if self.budget is None or n_syncs == 0:
            return ()
        return (
            calibrate(
                self.budget,
                n_syncs=n_syncs,
                release=self.release,
                method=self.calibration,
                trust=TRUST,
                visits=self.visits,
                n_agents=n_agents,
                pure=self.schedule.pure(self.budget.epsilon / self.visits),
            ),
        )

    def bounds(self, noises: tuple[Calibration, ...], n_releases: int, dim: int, n_agents: int) -> Spectral:
        """rho_min, rho_max and kappa of one silo, at all of n releases of all silos together."""
        if not noises:
            return Spectral(self.regularization, self.regularization, 0.0)
        (noise,) = noises
        nodes = releases.make(self.release, noise.n_syncs).largest_variance()
        return _spectral.bounds(
            self.spectral,
            sigma=noise.sigma,
            nodes=1 + math.ceil(math.log2(noise.n_syncs)) if self.spectral == "theory" else nodes,  # m as printed
            dim=dim,
            n_syncs=n_releases,
            n_agents=n_agents,
            alpha=self.alpha,
            delta=noise.budget.delta,
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


def checked(given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of `Recipe` among these, checked."""
    budget, schedule, name = given["budget"], given["schedule"], given["name"]
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget must be a fb.privacy.Budget or None, got {budget!r}")
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be one of fb.schedules, got {schedule!r}")
    if budget is None and schedule.pure(1.0) > 0:
        raise ValueError(f"schedule must spend no budget when budget is None, got {schedule!r}")
    calibration.check(trust=TRUST, release=given["release"], method=given["calibration"], argument="calibration")
    default = "FedUCB" if budget is None else "Private-FedUCB"
    return dict(
        budget=budget,
        schedule=schedule,
        calibration=given["calibration"],
        release=given["release"],
        spectral=validate.one_of("spectral", given["spectral"], _spectral.SPECTRAL),
        visits=validate.integer("visits", given["visits"], at_least=1),
        clip_rewards=validate.boolean("clip_rewards", given["clip_rewards"]),
        regularization=validate.positive("regularization", given["regularization"]),
        alpha=validate.probability("alpha", given["alpha"]),
        subgaussian=validate.non_negative("subgaussian", given["subgaussian"]),
        theta_norm=validate.non_negative("theta_norm", given["theta_norm"]),
        exploration_scale=validate.non_negative("exploration_scale", given["exploration_scale"]),
        name=default if name is None else name,
    )
