"""Federated LinUCB with a fixed batch, private or not: Algorithms 1, 2, 4 and 8 of Zhou & Chowdhury (2024).

Letters: M agents, B batch, S = floor(T/B) synchronisations, W = sum x x' and U = sum x y of the synchronised batches,
sigma_0 the standard deviation of one silo's noise, kappa the number of tree levels.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax._core import ridge, struct, validate
from fedbandit_jax._core.ridge import Posterior
from fedbandit_jax.algos import _confidence, _local
from fedbandit_jax.algos._certify import nothing_released, server_std, silo_local
from fedbandit_jax.algos._confidence import Width
from fedbandit_jax.algos._local import Local, Record
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.interfaces import Algorithm, Report, Round, Spec, Status
from fedbandit_jax.privacy import calibration, releases
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.calibration import Calibration, calibrate
from fedbandit_jax.privacy.noise import symmetric_gaussian
from fedbandit_jax.privacy.releases import Release

TRUST = ("silo_local",)
PRIVATE = ("calibration", "release", "trust", "clip_rewards", "regularizer")  # parameters about privacy noise
REFRESH = 1000  # Sherman-Morrison steps that float32 bears between two Cholesky solves
MAX_NORM = 1 + 1e-6  # float32 unit vectors; the noise is inflated to match


class ServerState(NamedTuple):
    """What the server holds between synchronisations."""

    sums: Array  # (d, d + 1) noise-free W | U of the synchronised batches
    lost: Array  # (d, d + 1) low-order part of `sums` (Kahan)
    release: Any  # state of the continual release
    posterior: Posterior  # A = 1, from the privatised statistics
    status: Array  # `Status` bits


@struct.pytree
class BoundFedLinUCB(Algorithm):
    """Fixed-batch federated LinUCB for a known environment and horizon; without `release` it is not private."""

    regularization: struct.Number
    width: Width
    noise_std: struct.Number  # of the sum over silos of one release
    spec: Spec = struct.static()
    batch: int = struct.static()
    n_syncs: int = struct.static()
    lazy: bool = struct.static()
    clip_rewards: bool = struct.static()
    project: bool = struct.static()
    release: Release | None = struct.static()

    def init(self, key: Array, spec: Spec) -> ServerState:
        """W = 0, U = 0: every agent starts from lambda I."""
        del key
        zeros = jnp.zeros((spec.dim, spec.dim + 1))
        posterior, _ = self._solve(zeros)
        return ServerState(
            zeros, zeros, self.release.init(zeros.shape) if self.release else None, posterior, jnp.int32(0)
        )

    def download(self, state: ServerState, offered: Round) -> Local:
        """All agents share the server's estimate; each gets a copy of its own unless nobody learns in the batch."""
        posterior = state.posterior if self.lazy else ridge.tile(state.posterior, self.spec.n_agents)
        return _local.start(posterior, offered, self.spec.fixed_contexts)

    def act(self, key: Array, t: Array, local: Local, offered: Round) -> Array:
        """Algorithm 1 line 6."""
        del key
        return _local.act(local, offered, self.width(t))

    def learn(self, t: Array, local: Local, offered: Round, arms: Array, rewards: Array):
        """Algorithm 1 line 7 (local update), or Algorithm 8 lines 5 and 8 (only remember) when lazy."""
        del t
        y = jnp.clip(jnp.nan_to_num(rewards), 0, 1) if self.clip_rewards else rewards
        record = Record(ridge.take(offered.contexts, arms), y)
        return (local if self.lazy else _local.learn(local, offered, record)), record

    def sync(self, key: Array, k: Array, state: ServerState, local: Local, records: Record):
        """Algorithm 1 lines 9-18: release k + 1 of the batch sums, then one Cholesky solve for all agents.

        The server only uses sums over silos, so the M silos' independent N(0, sigma_0^2) draws are drawn as one of
        variance M sigma_0^2, which is exact in law.
        """
        del local
        d = self.spec.dim
        rows = jnp.concatenate([records.x, records.y[:, None]], axis=1)  # (B, d + 1, M)
        batch_sums = jnp.einsum("bim,bjm->ij", records.x, rows) - state.lost
        sums = state.sums + batch_sums
        lost = (sums - state.sums) - batch_sums
        statistics, release_state = sums, state.release
        if self.release is not None:
            noise, release_state = self.release.step(state.release, k + 1, self.noise_std * symmetric_gaussian(key, d))
            statistics = sums + noise
        fresh, ok = self._solve(statistics)
        posterior = ridge.where(ok, fresh, state.posterior)
        happens = k < self.n_syncs  # nothing is released after an incomplete batch, and nobody acts on it
        status = state.status | jnp.where(ok[0] | ~happens, 0, Status.NO_ESTIMATE)
        # Up: d(d+1)/2 + d numbers from each of M silos; down: the same to each.
        report = Report(
            rounds=jnp.where(happens, 1, 0),
            floats=jnp.where(happens, self.spec.n_agents * d * (d + 3), 0),
            status=status,
        )
        return ServerState(sums, lost, release_state, posterior, status), report

    def _solve(self, statistics: Array) -> tuple[Posterior, Array]:
        gram, bias = statistics[:, :-1], statistics[:, -1]
        if self.project:
            gram = ridge.project_psd(gram)
        v = self.regularization * jnp.eye(len(gram)) + gram
        return ridge.solve(v[None], bias[None])


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedLinUCB(Algorithm):
    """See `fed_lin_ucb` and `private_fed_lin_ucb`."""

    name: str
    batch: int
    budget: Budget | None
    calibration: str
    release: str
    trust: str
    lazy: bool
    clip_rewards: bool
    confidence: str
    regularizer: str
    alpha: float
    subgaussian: float
    theta_norm: float
    exploration_scale: float

    def parameters(self) -> tuple[str, ...]:
        """What may vary: the fields of the budget if there is one, and of what is not about privacy in any case."""
        own = tuple(name for name in super().parameters() if name != "budget")
        if self.budget is None:
            return tuple(name for name in own if name not in PRIVATE)
        return (*own, *(field.name for field in dataclasses.fields(Budget)))

    def replace(self, **changes: Any) -> FedLinUCB:
        """Checked copy; epsilon, delta and adjacency change the budget."""
        unknown = set(changes) - set(self.parameters())
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(sorted(unknown))}")
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        inner = {name: changes.pop(name) for name in tuple(changes) if name not in fields}
        if self.budget is not None:
            fields["budget"] = dataclasses.replace(self.budget, **inner)
        return _checked(**{**fields, **changes})

    def _check(self, spec: Spec) -> None:
        """Is there a bound on what one user contributes?"""
        if self.budget is not None and not 0 <= spec.max_norm <= MAX_NORM:
            raise ValueError(
                f"{self.name} needs feature vectors of norm <= 1, the environment's largest has norm "
                f"{spec.max_norm:g}: scale its features"
            )

    def calibrate(self, horizon: int) -> Calibration | None:
        """Noise of one silo, or None when there is nothing to protect or no synchronisation in `horizon` rounds."""
        n_syncs = horizon // self.batch
        if self.budget is None or n_syncs == 0:
            return None
        return calibrate(self.budget, n_syncs=n_syncs, release=self.release, method=self.calibration)

    def bind(self, spec: Spec, horizon: int) -> BoundFedLinUCB:
        """Calibrate the noise, then the regulariser and the width that it calls for."""
        self._check(spec)
        if not self.lazy and self.batch > REFRESH:
            raise ValueError(f"batch must be <= {REFRESH} unless lazy=True, got {self.batch}")
        noise = self.calibrate(horizon)
        sigma = noise.sigma if noise else 0.0
        release = releases.make(self.release, noise.n_syncs) if noise else None
        common: dict[str, Any] = dict(
            n_agents=spec.n_agents,
            dim=spec.dim,
            alpha=self.alpha,
            subgaussian=self.subgaussian,
            exploration_scale=self.exploration_scale,
        )
        if self.confidence == "theory":
            lam, width = _confidence.theory(
                **common,
                n_syncs=horizon // self.batch,
                server_std=server_std(sigma, spec, release),
                theta_norm=self.theta_norm,
                regularizer=self.regularizer,
            )
        else:
            levels = noise.releases_per_user if noise else 0
            lam, width = _confidence.released(**common, levels=levels, sigma=sigma)
        return BoundFedLinUCB(
            regularization=np.float32(lam),
            width=width,
            noise_std=np.float32(MAX_NORM**2 * math.sqrt(spec.n_agents) * sigma),
            spec=spec,
            batch=self.batch,
            n_syncs=horizon // self.batch,
            lazy=self.lazy,
            clip_rewards=self.clip_rewards,
            project=self.regularizer == "project",
            release=release,
        )

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """What this run proves: exact Gaussian accounting of the releases one user touches."""
        if self.budget is None:
            return no_privacy("not a private algorithm: no noise is added")
        self._check(spec)
        noise = self.calibrate(horizon)
        if noise is None:
            return nothing_released(f"{horizon} rounds are less than one batch", lazy=self.lazy)
        return silo_local(noise, spec, lazy=self.lazy, clip_rewards=self.clip_rewards)


def fed_lin_ucb(
    *,
    batch: int = 25,
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
        lazy: False, agents learn inside the batch (Algorithm 1); True, only at synchronisations (Algorithm 8).
        alpha: probability that the confidence set fails, in (0, 1).
        subgaussian: R, sub-Gaussian constant of the reward noise (1/2 for rewards in [0, 1]).
        theta_norm: S, bound on ||theta*||; used by confidence="theory".
        exploration_scale: factor on beta_t (the authors' `crs`: 1 on synthetic data, 0.1 on real data).
        confidence: "theory" or "released" (the authors' constants: lambda = sqrt M).
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
    budget: Budget,
    *,
    batch: int = 25,
    calibration: str = "tight",
    release: str = "tree",
    trust: str = "silo_local",
    lazy: bool = True,
    clip_rewards: bool = True,
    confidence: str = "theory",
    regularizer: str = "shift",
    alpha: float = 0.01,
    subgaussian: float = 0.5,
    theta_norm: float = 1.0,
    exploration_scale: float = 1.0,
    name: str = "Private-FedLinUCB",
) -> FedLinUCB:
    """Private-FedLinUCB: every B rounds each silo releases noisy sums of x y and x x'; the server adds them up.

    Noise is added by each silo to its own release (trust model: silo-local, nobody else is trusted). Privacy unit: one
    user of one round. A batch sum moves by Delta_J in joint l2 norm when a user with ||x|| <= 1 and y in [0, 1] is
    replaced (Delta_J^2 = 4.5) or removed (2); the release multiplies that by the square root of the releases per user.

    Args:
        budget: `fb.privacy.Budget(epsilon, delta, adjacency)`.
        batch: B, rounds between synchronisations; the last T mod B rounds are never released.
        calibration: "tight" (exact, the default), "theorem" or "released", see `fb.privacy.calibrate`.
        release: "tree" (Algorithm 2) or "prefix_tree" (Algorithm 4; the same law).
        trust: "silo_local".
        lazy: True (default), act on synchronised statistics only (Algorithm 8): certified. False, learn inside the
            batch (Algorithm 1 as printed): replacing one user changes later actions of the batch, and its sum, by far
            more than the theorem assumes; the certificate then claims only `as_printed`.
        clip_rewards: clip rewards to [0, 1] before they enter a statistic; without it, unbounded rewards void every
            claim. Clipping biases unbounded rewards: their clipped mean is no longer linear in x, and the confidence
            width no longer proved.
        confidence: "theory" or "released" (the authors' constants, with theta_norm = sqrt d).
        regularizer: "shift", lambda large enough to keep V positive definite (the paper); "project", the noisy Gram
            matrix is projected on the positive semidefinite cone, free in privacy, and half of lambda is enough.
        alpha, subgaussian, theta_norm, exploration_scale, name: as in `fed_lin_ucb`.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound to an environment, also if a feature
            vector is longer than 1.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=100, n_arms=100, dim=10, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1))
        >>> certificate = algo.certificate(env.spec, horizon=10_000)
        >>> certificate.claim, round(certificate.noise_std, 3)
        ('certified', 6.91)

    Reference: Zhou & Chowdhury (2024), Algorithms 1, 2, 4, 8 and Theorem 5.1.
    """
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a fb.privacy.Budget, got {budget!r}")
    return _checked(
        name=name,
        batch=batch,
        budget=budget,
        calibration=calibration,
        release=release,
        trust=trust,
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
    validate.integer("batch", fields["batch"], at_least=1)
    validate.one_of("calibration", fields["calibration"], calibration.METHODS)
    validate.one_of("release", fields["release"], releases.RELEASES)
    validate.one_of("trust", fields["trust"], TRUST)
    validate.one_of("confidence", fields["confidence"], _confidence.CONFIDENCE)
    validate.one_of("regularizer", fields["regularizer"], _confidence.REGULARIZERS)
    validate.probability("alpha", fields["alpha"])
    for name in ("lazy", "clip_rewards"):
        validate.boolean(name, fields[name])
    for name in ("subgaussian", "theta_norm", "exploration_scale"):
        validate.non_negative(name, fields[name])
    return FedLinUCB(**fields)
