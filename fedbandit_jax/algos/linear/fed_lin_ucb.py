"""Federated LinUCB with a fixed batch, private or not: Algorithms 1, 2, 4-8 of Zhou & Chowdhury (2024)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbandit_jax import schedules
from fedbandit_jax.algos.linear import _confidence
from fedbandit_jax.algos.linear._budgeted import Budgeted
from fedbandit_jax.algos.linear._certify import certify, nothing_released
from fedbandit_jax.algos.linear._fixed_batch import BoundFedLinUCB
from fedbandit_jax.algos.linear._scheduled import BoundScheduled, scheduled
from fedbandit_jax.algos.linear._tracked import REFRESH
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.budget import MAX_NORM, Budget
from fedbandit_jax.privacy.channel import Aggregated, Exact, Messages, Rounded
from fedbandit_jax.privacy.trust import calibration
from fedbandit_jax.privacy.trust.calibration import Calibration, calibrate
from fedbandit_jax.privacy.trust.protocols import Protocol
from fedbandit_jax.schedules import LogDet, PrivateLogDet, Schedule, Setting

MAX_SYNCS = 10**7  # whose variances are listed on the host


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedLinUCB(Budgeted):
    """See `fed_lin_ucb` and `private_fed_lin_ucb`."""

    private = ("calibration", "release", "trust", "visits", "clip_rewards", "regularizer", "messages")

    name: str
    batch: int | Schedule
    budget: Budget | tuple[Budget, ...] | None
    calibration: str
    release: str
    trust: str
    visits: int
    messages: bool
    lazy: bool
    clip_rewards: bool
    confidence: str
    regularizer: str
    alpha: float
    subgaussian: float
    theta_norm: float
    exploration_scale: float

    @property
    def schedule(self) -> Schedule:
        """When it synchronises."""
        return self.batch if isinstance(self.batch, Schedule) else schedules.every(self.batch)

    def _check(self, spec: Spec) -> None:
        """Is there a bound on what one user contributes, and a budget for every silo?"""
        if self.budget is None:
            return
        if not 0 <= spec.max_norm <= MAX_NORM:
            raise ValueError(
                f"{self.name} needs feature vectors of norm <= 1, the environment's largest has norm "
                f"{spec.max_norm:g}: scale its features"
            )
        if isinstance(self.budget, tuple) and len(self.budget) != spec.n_agents:
            raise ValueError(f"budget must name one budget for each of {spec.n_agents} silos, got {len(self.budget)}")

    def calibrate(self, spec: Spec, horizon: int) -> tuple[Calibration, ...]:
        """Noise of all silos, or of each if their budgets differ; () when there is nothing to protect or to release."""
        n_syncs = self.schedule.n_syncs(horizon)
        if self.budget is None or n_syncs == 0:
            return ()
        budgets = self.budget if isinstance(self.budget, tuple) else (self.budget,)
        found = {
            budget: calibrate(
                budget,
                n_syncs=n_syncs,
                release=self.release,
                method=self.calibration,
                trust=self.trust,
                visits=self.visits,
                n_agents=spec.n_agents,
                batch=self.batch if isinstance(self.batch, int) else None,
                dim=spec.dim,
                pure=self.schedule.pure(budget.epsilon / self.visits),
            )
            for budget in set(budgets)
        }
        return tuple(found[budget] for budget in budgets)

    def bind(self, spec: Spec, horizon: int) -> BoundFedLinUCB | BoundScheduled:
        """Calibrate the noise, then the regulariser and the width that it calls for."""
        self._check(spec)
        if isinstance(self.batch, int) and not self.lazy and self.batch > REFRESH:
            raise ValueError(f"batch must be <= {REFRESH} unless lazy=True, got {self.batch}")
        n_syncs = self.schedule.n_syncs(horizon)
        if n_syncs > MAX_SYNCS:
            raise ValueError(f"horizon must allow at most {MAX_SYNCS:,} synchronisations, got {horizon}")
        noises = self.calibrate(spec, horizon)
        channel, stds = Exact(n_agents=spec.n_agents), np.zeros(n_syncs)
        if noises:
            protocol, release = protocol_of(noises), releases.make(self.release, n_syncs)
            stds = protocol.sum_std() * np.sqrt(release.prefix_variance())
            common = dict(n_agents=spec.n_agents, protocol=protocol, release=release)
            if self.messages and isinstance(self.batch, int):
                channel = Messages(**common, batch=self.batch)
            else:
                channel = Rounded(**common) if protocol.on_grid else Aggregated(**common)
        common: dict[str, Any] = dict(
            n_agents=spec.n_agents,
            dim=spec.dim,
            alpha=self.alpha,
            subgaussian=self.subgaussian,
            exploration_scale=self.exploration_scale,
        )
        known_noise = None
        if self.confidence == "released":
            levels, message_std = (noises[0].releases_per_user, protocol_of(noises).sum_std()) if noises else (0, 0.0)
            lam, width = _confidence.released(**common, levels=levels, message_std=message_std)
        else:
            common |= dict(server_stds=stds, theta_norm=self.theta_norm, regularizer=self.regularizer)
            if self.confidence == "theory":
                lam, width = _confidence.theory(**common)
            else:
                lam, width, known_noise = _confidence.known_noise(**common)
        bound: dict[str, Any] = dict(
            regularization=np.float32(lam),
            width=width,
            known_noise=known_noise if n_syncs else None,
            channel=channel,
            spec=spec,
            n_syncs=n_syncs,
            lazy=self.lazy,
            clip_rewards=self.clip_rewards,
            project=self.regularizer == "project",
        )
        if isinstance(self.batch, int):
            return BoundFedLinUCB(**bound, batch=self.batch)
        epsilon = None if self.budget is None else _epsilon(self.budget) / self.visits
        rho = lam / spec.n_agents
        return scheduled(self.batch, Setting(spec.n_agents, spec.dim, horizon, rho, rho, epsilon), **bound)

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """What this run proves."""
        if self.budget is None:
            return no_privacy("not a private algorithm: no noise is added")
        self._check(spec)
        if isinstance(self.batch, Schedule):
            self.bind(spec, horizon)  # what it reads is checked there
        noises = self.calibrate(spec, horizon)
        if not noises:
            return nothing_released(f"no synchronisation in {horizon} rounds", lazy=self.lazy)
        return certify(
            noises, protocol_of(noises), spec, lazy=self.lazy, clip_rewards=self.clip_rewards, schedule=self.schedule
        )


def _epsilon(budget: Budget | tuple[Budget, ...]) -> Any:
    """Of all silos, or (M,) of each."""
    return np.array([one.epsilon for one in budget]) if isinstance(budget, tuple) else budget.epsilon


def protocol_of(noises: Sequence[Calibration]) -> Protocol:
    """The protocol of all silos together."""
    if len(noises) == 1:
        return noises[0].protocol
    std = np.array([noise.protocol.std[0] for noise in noises])  # pyright: ignore[reportAttributeAccessIssue]
    return type(noises[0].protocol)(std=std)  # pyright: ignore[reportCallIssue]


def fed_lin_ucb(
    *,
    batch: int | Schedule = 25,
    lazy: bool = False,
    alpha: float = 0.01,
    subgaussian: float = 0.5,
    theta_norm: float = 1.0,
    exploration_scale: float = 1.0,
    confidence: str = "theory",
    name: str = "FedLinUCB",
) -> FedLinUCB:
    """Federated LinUCB with a fixed batch, without privacy: Algorithm 1 of Zhou & Chowdhury (2024), no noise.

    Args:
        batch: B, rounds between synchronisations; B = 1 is the super single agent that sees all M users of a round.
            If B does not divide the horizon, the last T mod B rounds are played without a final synchronisation.
            Or a schedule of `fb.schedules`.
        lazy: False, agents learn inside the batch (Algorithm 1); True, only at synchronisations (Algorithm 8).
        alpha: probability that the confidence set fails, in (0, 1).
        subgaussian: R, sub-Gaussian constant of the reward noise (1/2 for rewards in [0, 1]).
        theta_norm: S, bound on ||theta*||; used by confidence="theory".
        exploration_scale: factor on beta_t (the authors' `crs`: 1 on synthetic data, 0.1 on real data).
        confidence: "theory", "known_noise" (the same without noise, but the bias shrinks with the data) or "released"
            (the authors' constants: lambda = sqrt M).
        name: label in results.

    Raises:
        ValueError, TypeError: naming the argument and its value.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3)
        >>> result = fb.simulate(env, fb.algos.fed_lin_ucb(), horizon=50, key=jax.random.key(0), n_seeds=2)
        >>> result.communication["rounds"][:, -1]
        array([2, 2])

    Reference: Zhou & Chowdhury (2024), Algorithm 1 with the identity protocol.
    """
    return _checked(
        name=name,
        batch=batch,
        budget=None,
        calibration="tight",
        release="tree",
        trust="silo_local",
        visits=1,
        messages=False,
        lazy=lazy,
        clip_rewards=False,
        confidence=confidence,
        regularizer="shift",
        alpha=alpha,
        subgaussian=subgaussian,
        theta_norm=theta_norm,
        exploration_scale=exploration_scale,
    )


def private_fed_lin_ucb(
    budget: Budget | Sequence[Budget],
    *,
    batch: int | Schedule = 25,
    calibration: str = "tight",
    release: str = "tree",
    trust: str = "silo_local",
    visits: int = 1,
    lazy: bool = True,
    clip_rewards: bool = True,
    confidence: str = "theory",
    regularizer: str = "shift",
    alpha: float = 0.01,
    subgaussian: float = 0.5,
    theta_norm: float = 1.0,
    exploration_scale: float = 1.0,
    messages: bool = False,
    name: str = "Private-FedLinUCB",
) -> FedLinUCB:
    """Private-FedLinUCB: every B rounds the server learns noisy sums of x y and x x' over all silos.

    Who adds the noise depends on the trust model. Privacy unit: one user of one round. A batch sum moves by Delta_J in
    joint l2 norm when a user with ||x|| <= 1 and y in [0, 1] is replaced (Delta_J^2 = 4.5) or removed (2); the release
    multiplies that by the square root of its squared sensitivity.

    Args:
        budget: `fb.privacy.Budget(epsilon, delta, adjacency)`, or one for every silo (silo_local only).
        batch: B, rounds between synchronisations; the last T mod B rounds are never released. Or a schedule of
            `fb.schedules`, with trust "silo_local", "silo_local_matrix" or "central": `geometric` needs fewer releases;
            `private_logdet` adapts and pays for it from the budget; `logdet` adapts and leaks (claim `none`).
        calibration: "tight" (default), "theorem" or "released", see `fb.privacy.calibrate`.
        release: a key of `fb.privacy.RELEASES`: "tree" (Algorithm 2), "prefix_tree" (Algorithm 4; the same law),
            "honaker", "sqrt_toeplitz", "blt" (a third to an eighth of the tree's noise, the more the longer the run) or
            "input_perturbation".
        trust: a key of `fb.privacy.TRUST`: "silo_local" (each silo protects its users from everybody else),
            "shuffle_amplified", "shuffle_vector_sum" (a trusted shuffler), "secagg" (secure aggregation), "central"
            (the server is trusted; with one agent, Shariff & Sheffet 2018) or "local" (nobody is; Zheng et al. 2020).
        visits: how often one user may come to her silo.
        lazy: True (default), act on synchronised statistics only (Algorithm 8): certified. False, learn inside the
            batch (Algorithm 1 as printed): replacing one user changes later actions of the batch, and its sum, by far
            more than the theorem assumes; the certificate then claims only `as_printed`.
        clip_rewards: clip rewards to [0, 1] before they enter a statistic; without it, unbounded rewards void every
            claim. Clipping biases unbounded rewards: their clipped mean is no longer linear in x, and the confidence
            width no longer proved.
        confidence: "theory" (the paper's, from bounds that hold before the first round), "known_noise" (from the law of
            the noise and the spectrum of what was released: valid as often and many times narrower) or "released" (the
            authors' constants, with theta_norm = sqrt d).
        regularizer: "shift", lambda large enough to keep V positive definite (the paper); "project", the noisy Gram
            matrix is projected on the positive semidefinite cone, free in privacy, and a smaller lambda is enough.
        messages: False, what the messages of all silos add up to is drawn at once, in their law; True, every message of
            every silo is randomised, passed on and analysed: slow, for audits.
        alpha, subgaussian, theta_norm, exploration_scale, name: as in `fed_lin_ucb`.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound to an environment, also if a feature
            vector is longer than 1 or the trust model cannot work with its size.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=100, n_arms=100, dim=10, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1))
        >>> certificate = algo.certificate(env.spec, horizon=10_000)
        >>> certificate.claim, round(certificate.noise_std, 3)
        ('certified', 6.91)

    Reference: Zhou & Chowdhury (2024), Algorithms 1, 2, 4-8 and Theorems 5.1, 5.3, 5.5.
    """
    if not isinstance(budget, Budget):
        if not isinstance(budget, Sequence) or not budget or not all(isinstance(b, Budget) for b in budget):
            raise TypeError(f"budget must be a fb.privacy.Budget or one for every silo, got {budget!r}")
        budget = tuple(budget)
    return _checked(
        name=name,
        batch=batch,
        budget=budget,
        calibration=calibration,
        release=release,
        trust=trust,
        visits=visits,
        messages=messages,
        lazy=lazy,
        clip_rewards=clip_rewards,
        confidence=confidence,
        regularizer=regularizer,
        alpha=alpha,
        subgaussian=subgaussian,
        theta_norm=theta_norm,
        exploration_scale=exploration_scale,
    )


def _checked(**fields: Any) -> FedLinUCB:
    validate.integer("visits", fields["visits"], at_least=1)
    if isinstance(fields["batch"], Schedule):
        calibration.check_schedule(fields["trust"])
        if fields["messages"]:
            raise ValueError("messages must be False with a schedule, got True")
        if isinstance(fields["batch"], LogDet) and fields["batch"].trigger != "zc24":
            raise ValueError(f"batch must have trigger 'zc24' (others need FedUCB's rho_max), got {fields['batch']!r}")
        if isinstance(fields["batch"], PrivateLogDet) and fields["budget"] is None:
            raise ValueError("batch must be a number or a schedule without a budget of its own, got private_logdet")
    elif isinstance(fields["batch"], str) or callable(fields["batch"]):
        got = repr(fields["batch"])
        raise TypeError(f"batch must be an integer or a schedule such as fb.schedules.every(25), got {got}")
    else:
        fields["batch"] = validate.integer("batch", fields["batch"], at_least=1)
    calibration.check(
        trust=fields["trust"], release=fields["release"], method=fields["calibration"], argument="calibration"
    )
    validate.one_of("confidence", fields["confidence"], _confidence.CONFIDENCE)
    validate.one_of("regularizer", fields["regularizer"], _confidence.REGULARIZERS)
    validate.probability("alpha", fields["alpha"])
    for name in ("lazy", "clip_rewards", "messages"):
        validate.boolean(name, fields[name])
    for name in ("subgaussian", "theta_norm", "exploration_scale"):
        validate.non_negative(name, fields[name])
    if fields["confidence"] == "known_noise" and fields["theta_norm"] == 0:
        raise ValueError("theta_norm must be > 0 with confidence='known_noise', got 0")
    if isinstance(fields["budget"], tuple):
        if fields["trust"] not in ("silo_local", "silo_local_matrix"):
            raise ValueError(
                f"trust must be 'silo_local' when every silo has a budget of its own, got {fields['trust']!r}"
            )
        if len({(budget.delta, budget.adjacency) for budget in fields["budget"]}) > 1:
            raise ValueError(f"budget must have one delta and one adjacency for all silos, got {fields['budget']}")
    if fields["trust"] == "local" and not fields["lazy"]:
        raise ValueError(
            "lazy must be True with trust='local': a silo sees no raw statistics it could learn from, got False"
        )
    return FedLinUCB(**fields)


FedLinUCB.factory = _checked
