"""FedUCB with a controller: Algorithm 1 of Dubey & Pentland (2020), with or without its PRIVATIZER."""

from __future__ import annotations

import dataclasses

import numpy as np

from fedbandit_jax.algos.linear import _privatizer
from fedbandit_jax.algos.linear._certify import certify, nothing_released
from fedbandit_jax.algos.linear._privatizer import Recipe
from fedbandit_jax.algos.linear._scheduled import BoundScheduled, scheduled
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.channel import Aggregated, Exact
from fedbandit_jax.privacy.trust.calibration import Calibration
from fedbandit_jax.schedules import Schedule, Setting, logdet


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedUCB(Recipe):
    """See `fed_ucb`."""

    lazy: bool

    def calibrate(self, spec: Spec, horizon: int) -> tuple[Calibration, ...]:
        """Noise of every silo; () when there is nothing to protect or to release."""
        self.check(spec)
        return self.noise(self.schedule.n_syncs(horizon), spec.n_agents)

    def bind(self, spec: Spec, horizon: int) -> BoundScheduled:
        """Calibrate the noise, then rho_min, rho_max, kappa and D."""
        noises, m, n_syncs = self.calibrate(spec, horizon), spec.n_agents, self.schedule.n_syncs(horizon)
        of_silo = self.bounds(noises, n_syncs, spec.dim, m)
        channel, epsilon = Exact(n_agents=m), None
        if self.budget is not None and noises:
            release = releases.make(self.release, n_syncs)
            channel = Aggregated(n_agents=m, protocol=noises[0].protocol, release=release)
            epsilon = self.budget.epsilon / self.visits
        low, high, _ = of_silo
        return scheduled(
            self.schedule,
            Setting(m, spec.dim, horizon, low, high, epsilon),
            first_regularization=np.float32(m * low),
            regularization=np.float32(m * (low + high) / 2),  # 2 Lambda of every silo
            width=self.width(of_silo, m, spec.dim),
            known_noise=None,
            channel=channel,
            spec=spec,
            n_syncs=n_syncs,
            lazy=self.lazy,
            clip_rewards=self.budget is not None and self.clip_rewards,
            project=False,
        )

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """What this run proves."""
        if self.budget is None:
            return no_privacy("not a private algorithm: no noise is added")
        self.bind(spec, horizon)  # what the schedule reads is checked there
        noises = self.calibrate(spec, horizon)
        if not noises:
            return nothing_released(f"no synchronisation in {horizon} rounds", lazy=self.lazy)
        return certify(
            noises,
            noises[0].protocol,
            spec,
            lazy=self.lazy,
            clip_rewards=self.clip_rewards,
            schedule=self.schedule,
        )


def fed_ucb(
    budget: Budget | None = None,
    *,
    schedule: Schedule | None = None,
    lazy: bool = False,
    calibration: str = "tight",
    release: str = "prefix_tree",
    spectral: str = "quantile",
    visits: int = 1,
    clip_rewards: bool = True,
    regularization: float = 1.0,
    alpha: float = 0.01,
    subgaussian: float = 0.5,
    theta_norm: float = 1.0,
    exploration_scale: float = 1.0,
    name: str | None = None,
) -> FedUCB:
    """FedUCB with a controller: LinUCB agents that all synchronise when one of them has learned enough.

    Agent i plays argmax <x, theta_i> + beta_i ||x||_{V_i^-1} on what all had released at the last synchronisation plus
    its own statistics since. At a synchronisation every silo adds symmetric Gaussian noise to the joint matrix of its
    batch, by a binary tree (PRIVATIZER, Algorithm 2), and shifts it by 2 Lambda I, Lambda a bound on the noise's norm.
    `Result.communication` counts these sums; a request to synchronise is one bit and is not counted.

    Trust: silo-local, as `private_fed_lin_ucb`. As printed (the default) the algorithm is not private, whatever its
    noise: when it synchronises is a function of raw statistics. With `schedule=fb.schedules.private_logdet()` and
    `lazy=True` it is certified. Noise and constants are by default exact and several times smaller than printed, which
    are `calibration="theorem"`, `spectral="theory"` and `logdet(trigger="dp20")`.

    Args:
        budget: `fb.privacy.Budget(epsilon, delta, adjacency)`; None: no noise.
        schedule: one of `fb.schedules`, default `logdet()`: Theorem 1's D and the restated trigger. The three budgets
            of communication in Remark 1 are `logdet("M log T")`, `logdet("M^1.5")` and `every(1)`.
        lazy: False, act on own raw statistics too (as printed); True, on synchronised statistics only.
        calibration: "tight", exact; "theorem", sigma_N of Algorithm 2, several times more.
        release: "prefix_tree" (Algorithm 2) or another key of `fb.privacy.RELEASES` (not with "theorem").
        spectral: "theory", Lambda as printed; "quantile", from the law of the noise, a fraction of it.
        visits: how often one user may come to her silo.
        clip_rewards: clip rewards to [0, 1].
        regularization: rho_min = rho_max of one agent without a budget: V starts at M times it.
        alpha: probability that a confidence set fails, in (0, 1).
        subgaussian: sigma of the reward noise (1/2 for rewards in [0, 1]).
        theta_norm: S, bound on ||theta*||.
        exploration_scale: factor on beta_i.
        name: label; default "FedUCB", or "Private-FedUCB" with a budget.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound to an environment, also if it has one
            agent, or with a budget feature vectors longer than 1.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> result = fb.simulate(env, fb.algos.fed_ucb(), horizon=100, key=jax.random.key(0), n_seeds=2)
        >>> result.regret.shape
        (2, 100)
        >>> private = fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1))
        >>> private.certificate(env.spec, 100).claim
        'none'
        >>> private.replace(schedule=fb.schedules.private_logdet(), lazy=True).certificate(env.spec, 100).claim
        'certified'

    Reference: Dubey & Pentland (2020), Algorithms 1 and 2, Propositions 2 and 4, Theorem 1; Zhou & Chowdhury (2024),
    Algorithm 3, which restates it.
    """
    schedule = logdet() if schedule is None else schedule
    return FedUCB(**_privatizer.checked(locals()), lazy=validate.boolean("lazy", lazy))


FedUCB.factory = fed_ucb
