"""Federated clustering of bandits with differential privacy of clusters: FCLUB and its variants."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fedbandit_jax.algos.clusters.loop import BoundFCLUB
from fedbandit_jax.algos.clusters.users import ClusteringRecipe
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import replanted, spectral
from fedbandit_jax.privacy.budget import MAX_NORM, Budget
from fedbandit_jax.privacy.replanted import Replanted, replant
from fedbandit_jax.privacy.spectral import Spectral

TRIGGERS = ("determinant", "count")
SHIFTS = ("every", "once")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FCLUB(ClusteringRecipe):
    """FCLUB: servers cluster their users, a global server merges clusters that are alike, and what they learn.

    Phases s = 1, 2, ... have 2^s rounds. When one begins, every server cuts the links of users whose estimates differ,
    ||theta_i - theta_j|| > alpha_1 (F(T_i) + F(T_j)), F(T) = sqrt((1 + ln(1 + T)) / (1 + T)); components are its local
    clusters, which show their private sums. The global server merges those of different servers with ||theta_1 -
    theta_2|| < alpha_2 (F(T_1) + F(T_2)). If anything has changed, all start anew from these sums. Between, a local
    cluster uploads when its statistics have grown by a factor U, and downloads when those of its global cluster are D
    times its own. It recommends by what it has exchanged, never by its buffer.

    - `FCLUB(budget)`: CDP-FCLUB-DC. `FCLUB()`: FCLUB-DC. `FCLUB(upload=1, download=1)`: FCLUB, always up to date.

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
        regularization, alpha, subgaussian, theta_norm, exploration_scale, name: as in `ClusteringRecipe`;
            regularization is added to every matrix where it is used.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound, if the environment's users are all new, or
            with a budget feature vectors longer than 1.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.clustered(n_users=8, n_servers=2, n_clusters=2, dim=4)
        >>> result = fb.simulate(env, fb.algos.FCLUB(), horizon=500, key=jax.random.key(0), n_seeds=2)
        >>> sorted(result.counts), result.gauges["adjusted Rand index"].shape
        (['downloads', 'uploads'], (2, 500))
        >>> private = fb.algos.FCLUB(fb.privacy.Budget(1.0, 0.1))
        >>> private.certificate(env.spec, 500).claim
        'none'
        >>> private.replace(alpha_1=float("inf"), trigger="count").certificate(env.spec, 500).claim
        'certified'

    Reference: Liu et al. (2022), Algorithms 1-5, Lemma 1. DEVIATION liu2022 Alg. 2 l. 4: a phase that renews nothing
    shows a sum with the noise of a new tree, and the tree in use goes on; as printed its noise would no longer add up
    to that of one prefix. DEVIATION liu2022 Alg. 2 l. 7: global clusters are connected components, so that two local
    clusters of one server, which are never compared, are joined if one of another server is near both. Definition 2's
    rho_min and rho_max are those of the uploads so far; Lemma 1 is not proved for that, as the number of uploads
    depends on the data.
    """

    factors = ("alpha_1", "alpha_2")

    budget: Budget | None = dataclasses.field(default=None, kw_only=False)
    upload: float = 1.01
    download: float = 1.01
    trigger: str = "determinant"
    shift: str = "every"
    alpha_1: float = 1.5
    alpha_2: float = 2.0
    max_uploads: int | None = None
    calibration: str = "tight"
    spectral: str = "quantile"
    visits: int = 1

    def __post_init__(self):
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise TypeError(f"budget must be a fb.privacy.Budget or None, got {self.budget!r}")
        for ratio in ("upload", "download"):
            if not validate.positive(ratio, getattr(self, ratio)) >= 1:
                raise ValueError(f"{ratio} must be >= 1, got {getattr(self, ratio)}")
        validate.one_of("trigger", self.trigger, TRIGGERS)
        validate.one_of("shift", self.shift, SHIFTS)
        validate.one_of("calibration", self.calibration, replanted.METHODS)
        validate.one_of("spectral", self.spectral, spectral.SPECTRAL)
        validate.integer("visits", self.visits, at_least=1)
        if self.max_uploads is not None:
            validate.integer("max_uploads", self.max_uploads, at_least=1)
        super().__post_init__()

    @property
    def label(self) -> str:
        """The paper's name."""
        together = self.upload == self.download == 1
        return ("" if self.budget is None else "CDP-") + ("FCLUB" if together else "FCLUB-DC")

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

    def bind(self, spec: Spec, horizon: int) -> BoundFCLUB:
        """Calibrate the noise, then rho."""
        common, noise = self.common(spec), self._noise(spec, horizon)
        rho, _, kappa = self._bounds(noise, spec, horizon)
        scale = (lambda ratio: ratio) if self.trigger == "count" else math.log
        numbers = dict(
            alpha_1=self.alpha_1,
            alpha_2=self.alpha_2,
            upload=scale(self.upload),
            download=scale(self.download),
            rho=rho,
            vector=kappa * math.sqrt(rho),
        )
        return BoundFCLUB(
            **{name: np.float32(number) for name, number in numbers.items()},
            max_uploads=np.int32(horizon if self.max_uploads is None else self.max_uploads),
            counts=self.trigger == "count",
            shifts=noise is not None and self.shift == "every",
            noise=noise,
            **common,
        )

    def _noise(self, spec: Spec, horizon: int) -> Replanted | None:
        """Of every local cluster."""
        if self.budget is None:
            return None
        if not 0 <= spec.max_norm <= MAX_NORM:
            raise ValueError(
                f"{self.name} needs feature vectors of norm <= 1, the environment's largest has norm "
                f"{spec.max_norm:g}: scale its features"
            )
        return replant(self.budget, leaves=self.leaves(horizon), method=self.calibration, visits=self.visits)

    def _bounds(self, noise: Replanted | None, spec: Spec, horizon: int) -> Spectral:
        """rho and a bound on ||h||, of the noise of one local cluster, at all uploads of all of them."""
        if noise is None:
            return Spectral(0.0, 0.0, 0.0)
        return spectral.bounds(
            self.spectral,
            sigma=noise.sigma,
            nodes=noise.nodes,
            dim=spec.dim,
            n_syncs=horizon,
            n_agents=spec.n_users,
            alpha=self.alpha,
            delta=noise.delta,
        )


def homo(budget: Budget | None = None, **parameters: Any) -> FCLUB:
    """Homo: FCLUB that takes all users to be alike, always up to date; parameters are those of `FCLUB`.

    Reference: Liu et al. (2022), Section 5.
    """
    name = "Homo" if budget is None else "CDP-Homo"
    return homo_dc(budget, **{"upload": 1.0, "download": 1.0, "name": name, **parameters})


def homo_dc(budget: Budget | None = None, **parameters: Any) -> FCLUB:
    """Homo-DC: the same with uploads and downloads now and then; certified with a budget and `trigger="count"`."""
    name = "Homo-DC" if budget is None else "CDP-Homo-DC"
    return FCLUB(budget, **{"alpha_1": math.inf, "alpha_2": math.inf, "name": name, **parameters})
