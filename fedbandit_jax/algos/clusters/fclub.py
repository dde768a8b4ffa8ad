"""Federated clustering of bandits with differential privacy of clusters: FCLUB and its variants."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fedbandit_jax.algos.clusters import _users
from fedbandit_jax.algos.clusters._fclub import BoundFCLUB
from fedbandit_jax.algos.linear import _spectral
from fedbandit_jax.algos.linear._budgeted import Budgeted
from fedbandit_jax.algos.linear._spectral import Spectral
from fedbandit_jax.certificate import Certificate, Claim, no_privacy
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import replanted
from fedbandit_jax.privacy.budget import ADJACENCY, MAX_NORM, Budget
from fedbandit_jax.privacy.replanted import Replanted, replant

TRIGGERS = ("determinant", "count")
SHIFTS = ("every", "once")
TRUST = (
    "servers: each adds its own noise to the sums of its clusters and is trusted with its own users; the global server "
    "and other servers are not trusted"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FCLUB(Budgeted, _users.Recipe):
    """See `fclub`."""

    private = ("shift", "max_uploads", "calibration", "spectral", "visits")

    budget: Budget | None
    upload: float
    download: float
    trigger: str
    shift: str
    alpha_1: float
    alpha_2: float
    max_uploads: int | None
    calibration: str
    spectral: str
    visits: int

    def leaves(self, horizon: int) -> tuple[int, ...]:
        """Of the tree of every phase: one, and one for every upload there may be before the next phase. If all users
        are taken to be alike nothing is ever renewed: the first tree goes on, later ones show their first leaf.
        """
        n_phases = int(horizon + 1).bit_length() - 1
        rounds = (min(2**s, horizon - (2**s - 2)) for s in range(1, n_phases + 1))
        most = horizon if self.max_uploads is None else self.max_uploads
        if self.trigger == "count" and self.upload > 1:  # each multiplies the rounds known by U
            most = min(most, 2 + math.floor(math.log(horizon) / math.log(self.upload)))
        if self.alpha_1 == self.alpha_2 == math.inf:
            return (1 + min(most, horizon), *[1] * (n_phases - 1))
        return tuple(1 + min(most, count) for count in rounds)

    def noise(self, spec: Spec, horizon: int) -> Replanted | None:
        """Of every local cluster."""
        if self.budget is None:
            return None
        if not 0 <= spec.max_norm <= MAX_NORM:
            raise ValueError(
                f"{self.name} needs feature vectors of norm <= 1, the environment's largest has norm "
                f"{spec.max_norm:g}: scale its features"
            )
        return replant(self.budget, leaves=self.leaves(horizon), method=self.calibration, visits=self.visits)

    def bounds(self, noise: Replanted | None, spec: Spec, horizon: int) -> Spectral:
        """rho and a bound on ||h||, of the noise of one local cluster, at all uploads of all of them."""
        if noise is None:
            return Spectral(0.0, 0.0, 0.0)
        return _spectral.bounds(
            self.spectral,
            sigma=noise.sigma,
            nodes=noise.nodes,
            dim=spec.dim,
            n_syncs=horizon,
            n_agents=spec.n_users,
            alpha=self.alpha,
            delta=noise.budget.delta,
        )

    def bind(self, spec: Spec, horizon: int) -> BoundFCLUB:
        """Calibrate the noise, then rho."""
        common, noise = self.common(spec), self.noise(spec, horizon)
        rho, _, kappa = self.bounds(noise, spec, horizon)
        scale = (lambda ratio: ratio) if self.trigger == "count" else math.log
        numbers = dict(
            alpha_1=self.alpha_1,
            alpha_2=self.alpha_2,
            upload=scale(self.upload),
            download=scale(self.download),
            std=0.0 if noise is None else noise.std,
            rho=rho,
            vector=kappa * math.sqrt(rho),
        )
        return BoundFCLUB(
            **{name: np.float32(number) for name, number in numbers.items()},
            max_uploads=np.int32(horizon if self.max_uploads is None else self.max_uploads),
            counts=self.trigger == "count",
            shifts=noise is not None and self.shift == "every",
            private=noise is not None,
            **common,
        )

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """What this run proves."""
        noise = self.noise(spec, horizon)
        if noise is None:
            return no_privacy("not a private algorithm: no noise is added")
        leaks = self._leaks()
        claim, reason = _claim(noise, leaks)
        bounded_to = "once" if self.visits == 1 else f"{self.visits} times"
        return Certificate(
            claim=claim,
            reason=reason,
            trust=TRUST,
            adjacency=f"{noise.budget.adjacency} ({ADJACENCY[noise.budget.adjacency]})",
            unit="what one user of another server did in a round (cluster differential privacy); who comes "
            f"{bounded_to} is protected altogether",
            epsilon=noise.budget.epsilon,
            delta=noise.budget.delta,
            epsilon_exact=math.inf if leaks else noise.epsilon_exact,
            accountant=noise.accountant,
            noise_std=noise.sigma,
            noise_whose="of a node of a local cluster's tree, sqrt 2 of it on the diagonal",
            server_noise_std=noise.sigma * math.sqrt(2 * noise.nodes * (spec.n_users if leaks else spec.n_servers)),
            releases=sum(noise.leaves),
            releases_per_user=noise.releases_per_user,
            not_covered=(
                "when and at which server users come, and how many of a cluster's rounds are in its sums",
                *leaks,
                "recommendations at the user's own server, to others of her cluster: that server is trusted",
                "features longer than the environment declares",
                "uploads that are put off as a matrix is not positive definite, which rho makes very unlikely",
                "what only a simulator sees: regret curves, checkpoints",
                "floating-point attacks: noise is pseudo-random, all arithmetic and its rounding float32",
            ),
        )

    def _leaks(self) -> tuple[str, ...]:
        """What is decided by raw statistics, and seen."""
        clusters = ("which users are in one local cluster, which the server finds from raw estimates",)
        uploads = ("when a local cluster uploads, which depends on the determinant of raw statistics",)
        return (clusters if self.alpha_1 < math.inf else ()) + (uploads if self.trigger == "determinant" else ())


def _claim(noise: Replanted, leaks: tuple[str, ...]) -> tuple[Claim, str]:
    gives = f"{noise.method!r} noise gives epsilon = {noise.epsilon_exact:.4g} at delta = {noise.budget.delta:g}"
    if leaks:
        return "none", (
            f"not covered by noise: {'; '.join(leaks)}; so no epsilon holds. Were all that fixed in advance, {gives}, "
            "all phases together"
        )
    if not noise.sound:
        return "none", f"{gives} for all phases together, not {noise.budget.epsilon:g}"
    return "certified", (
        "noise of known law is on every sum that leaves a server; who is in a local cluster is fixed, when it uploads "
        "depends on who comes alone, and only earlier releases steer it"
    )


def fclub(
    budget: Budget | None = None,
    *,
    upload: float = 1.01,
    download: float = 1.01,
    trigger: str = "determinant",
    shift: str = "every",
    alpha_1: float = 1.5,
    alpha_2: float = 2.0,
    max_uploads: int | None = None,
    calibration: str = "tight",
    spectral: str = "quantile",
    visits: int = 1,
    regularization: float = 1.0,
    alpha: float = 0.01,
    subgaussian: float = 0.5,
    theta_norm: float = 1.0,
    exploration_scale: float = 1.0,
    name: str | None = None,
) -> FCLUB:
    """FCLUB: servers cluster their users, a global server merges clusters that are alike, and what they learn.

    Phases s = 1, 2, ... have 2^s rounds. When one begins, every server cuts the links of users whose estimates differ,
    ||theta_i - theta_j|| > alpha_1 (F(T_i) + F(T_j)), F(T) = sqrt((1 + ln(1 + T)) / (1 + T)); components are its local
    clusters, which show their private sums. The global server merges those of different servers with ||theta_1 -
    theta_2|| < alpha_2 (F(T_1) + F(T_2)). If anything has changed, all start anew from these sums. Between, a local
    cluster uploads when its statistics have grown by a factor U, and downloads when those of its global cluster are D
    times its own. It recommends by what it has exchanged, never by its buffer.

    - `fclub(budget)`: CDP-FCLUB-DC. `fclub()`: FCLUB-DC. `fclub(upload=1, download=1)`: FCLUB, always up to date.

    Trust: every server is trusted with its own users and adds the noise, the others and the global server are not. As
    printed (the default, but for exact and so less noise) no epsilon holds: local clusters and determinants are raw.
    With `alpha_1=math.inf` (all users of a server are one local cluster) and `trigger="count"` it is certified.

    Args:
        budget: `fb.privacy.Budget(epsilon, delta, adjacency)`; None: no noise.
        upload: U >= 1.
        download: D >= 1.
        trigger: what must grow, the "determinant" of the statistics (as printed) or the "count" of rounds in them,
            which tells nothing about what users did.
        shift: add 3 rho I at "every" upload (as printed), or only the 2 rho I "once": rho bounds the norm of a prefix's
            noise, whatever the prefix, so that this is enough for S to be positive definite.
        alpha_1: factor of the distance at which links are cut, > 0; inf: never.
        alpha_2: factor of the distance below which clusters merge, > 0; inf: always.
        max_uploads: most uploads of a tree, >= 1; noise is calibrated for so many. Default: as many as there can be.
        calibration: "tight", exact for all phases together; "theorem", Algorithm 5, for one tree.
        spectral: rho from the law of the noise ("quantile"), or by the inequality behind equation 7 ("theory"), for
            whole prefixes at all uploads of all clusters: at the paper's size four times (7), which is for one node.
        visits: rounds of one user that are protected together.
        regularization: lambda, added to every matrix where it is used.
        alpha: probability that a confidence set fails, in (0, 1).
        subgaussian: R, sub-Gaussian constant of the reward noise (1/2 for rewards in [0, 1]).
        theta_norm: S, bound on ||theta*||.
        exploration_scale: factor on the confidence width.
        name: label in results; default as above.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound, if the environment's users are all new, or
            with a budget feature vectors longer than 1.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=8, n_servers=2, n_clusters=2, dim=4)
        >>> result = fb.simulate(env, fb.algos.fclub(), horizon=500, key=jax.random.key(0), n_seeds=2)
        >>> sorted(result.counts), result.gauges["adjusted Rand index"].shape
        (['downloads', 'uploads'], (2, 500))
        >>> private = fb.algos.fclub(fb.privacy.Budget(1.0, 0.1))
        >>> private.certificate(env.spec, 500).claim
        'none'
        >>> private.replace(alpha_1=float("inf"), trigger="count").certificate(env.spec, 500).claim
        'certified'

    Reference: Liu et al. (2022), Algorithms 1-5, Lemma 1. DEVIATION liu2022 Alg. 2 l. 4: a phase that renews nothing
    shows a sum with the noise of a new tree, and the tree in use goes on; as printed its noise would no longer add up
    to that of one prefix. Definition 2's rho_min and rho_max are those of the uploads so far; Lemma 1 is not proved for
    that, as the number of uploads depends on the data.
    """
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget must be a fb.privacy.Budget or None, got {budget!r}")
    given: dict[str, Any] = locals()
    for ratio in ("upload", "download"):
        if not (validate.positive(ratio, given[ratio]) >= 1):
            raise ValueError(f"{ratio} must be >= 1, got {given[ratio]}")
    together = upload == download == 1
    return FCLUB(
        **_users.checked(given, ("CDP-" if budget else "") + ("FCLUB" if together else "FCLUB-DC")),
        budget=budget,
        upload=float(upload),
        download=float(download),
        trigger=validate.one_of("trigger", trigger, TRIGGERS),
        shift=validate.one_of("shift", shift, SHIFTS),
        alpha_1=_users.threshold("alpha_1", alpha_1),
        alpha_2=_users.threshold("alpha_2", alpha_2),
        max_uploads=max_uploads if max_uploads is None else validate.integer("max_uploads", max_uploads, at_least=1),
        calibration=validate.one_of("calibration", calibration, replanted.METHODS),
        spectral=validate.one_of("spectral", spectral, _spectral.SPECTRAL),
        visits=validate.integer("visits", visits, at_least=1),
    )


def homo(**parameters: Any) -> FCLUB:
    """Homo: FCLUB that takes all users to be alike, always up to date; parameters are those of `fclub`.

    Reference: Liu et al. (2022), Section 5.
    """
    name = "Homo" if parameters.get("budget") is None else "CDP-Homo"
    return homo_dc(**{"upload": 1.0, "download": 1.0, "name": name, **parameters})


def homo_dc(budget: Budget | None = None, **parameters: Any) -> FCLUB:
    """Homo-DC: the same with uploads and downloads now and then; certified with a budget and `trigger="count"`."""
    name = "Homo-DC" if budget is None else "CDP-Homo-DC"
    return fclub(budget, **{"alpha_1": math.inf, "alpha_2": math.inf, "name": name, **parameters})


FCLUB.factory = fclub
