"""FCLUB, federated clustering of bandits with cluster differential privacy (Liu et al. 2022), and its variants."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.clusters import phase_trees, seats
from fedbandit_jax.algos.clusters.exchange import Exchange
from fedbandit_jax.algos.clusters.fclub_loop import BoundFCLUB
from fedbandit_jax.algos.clusters.phase_trees import Replanted, replant
from fedbandit_jax.algos.clusters.seats import ClusteringRecipe
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import spectral
from fedbandit_jax.privacy.budget import Budget, matrix_sensitivity_sq
from fedbandit_jax.privacy.mechanism import check_norms
from fedbandit_jax.privacy.spectral import Spectral
from fedbandit_jax.privacy.sums import too_coarse

TRIGGERS = ("determinant", "count")  # what decides when a local cluster uploads or downloads
SPECTRAL = (*spectral.SPECTRAL, "printed")  # how rho is found
SHIFTS = ("every", "once")  # how often a multiple of rho I is added to private sums


@dataclasses.dataclass(frozen=True, kw_only=True)
class FCLUB(ClusteringRecipe):
    """FCLUB: servers cluster their own users, and a global server merges similar clusters of different servers.

    Phases s = 1, 2, ... have 2^s rounds. At the beginning of a phase every server cuts the links between its users i
    and j with ||theta_i - theta_j|| > alpha_1 (F(T_i) + F(T_j)). T_i counts the rounds of user i, and F(T) = sqrt((1 +
    ln(1 + T)) / (1 + T)). The components of the graph are the server's local clusters, and release their private sums.
    The global server merges local clusters of different servers if ||theta_1 - theta_2|| < alpha_2 (F(T_1) + F(T_2)),
    with the estimates theta and rounds T from these sums. If any cluster has changed, all start anew from these sums.
    Between these times a local cluster uploads when its statistics have grown by a factor U. It downloads when its
    global cluster's are D times its own. It recommends by the exchanged statistics, never by its buffer of rounds since
    its last upload.

    - `FCLUB(budget)` is CDP-FCLUB-DC, `FCLUB()` is FCLUB-DC without privacy, and `FCLUB(upload=1, download=1)` is
      FCLUB, which always exchanges everything.

    Trust: every server is trusted with its own users and adds the noise, a tree of Gaussian noise for every local
    cluster. The other servers and the global server are not trusted. The privacy unit is a user's data of `visits`
    rounds. Adjacency is that of the budget. One round is in at most r released tree nodes (kappa in
    `phase_trees`). So it moves all sums of a release by sqrt(r) times its move of one sum (the sensitivity). As printed
    (the default, with exactly calibrated and thus smaller noise) no epsilon holds. Local clusters and determinants
    depend on raw data. With `alpha_1=math.inf` (one local cluster per server) and `trigger="count"` the guarantee is
    certified.

    Args:
        budget: `fb.privacy.Budget(epsilon, delta, adjacency)`, or None for no noise.
        upload: U >= 1; with 1 a local cluster uploads after every round.
        download: D >= 1; with 1 a local cluster downloads as soon as it is behind.
        trigger: what must grow by these factors: the "determinant" of the statistics (as printed), or the "count" of
            their rounds, which is public.
        shift: what keeps private matrices positive definite: "every" upload adds 3 rho I (as printed), or only the
            phase's beginning adds 2 rho I ("once"). The latter suffices, as rho bounds the norm of the noise of every
            prefix sum.
        alpha_1: factor of the distance above which links are cut, > 0; with inf none is ever cut.
        alpha_2: factor of the distance below which local clusters merge, > 0; with inf all of them merge.
        max_uploads: most uploads of a tree, >= 1, for calibration; by default as many as possible.
        calibration: "tight", exact for all phases together; or "theorem", Algorithm 5, which is meant for one tree.
        spectral: how rho is found. "quantile" is from the distribution of the noise, and "theory" by the paper's
            inequality. Both are for all uploads of all clusters at once. "printed" is by equation 7, see `equation_7`.
        visits: rounds of one user that are protected together, >= 1.
        regularization, failure, subgaussian, theta_norm, exploration_scale, name: as in `ClusteringRecipe`.

    Raises:
        ValueError: when bound, also if the environment's users are not identified or, with a budget, if its feature
            vectors may be longer than 1.

    Reference: Liu et al. (2022), Algorithms 1-5, Lemma 1. DEVIATION liu2022 Alg. 2 l. 4: if no cluster changes in a
    phase, the sum released at its beginning has the noise of a new tree. But the old tree goes on. As printed, its
    noise would no longer add up to one prefix sum's. DEVIATION liu2022 Alg. 2 l. 7: global clusters are connected
    components. So a local cluster of another server joins two local clusters of one server if it is near both.
    DEVIATION liu2022 Def. 2: rho_min and rho_max are those after the uploads so far. Lemma 1 is not proved for these,
    since the number of uploads depends on the data.
    """

    factors = ("alpha_1", "alpha_2")

    budget: Budget | None = dataclasses.field(default=None, kw_only=False)
    upload: float = 1.01
    download: float = 1.01  # pyright: ignore[reportIncompatibleMethodOverride]
    trigger: str = "determinant"
    shift: str = "every"
    alpha_1: float = 1.5
    alpha_2: float = 2.0
    max_uploads: int | None = None
    calibration: str = "tight"
    spectral: str = "quantile"
    visits: int = 1

    def __post_init__(self):
        validate.instance("budget", self.budget, (Budget, type(None)), "an fb.privacy.Budget or None")
        for ratio in ("upload", "download"):
            validate.within(ratio, getattr(self, ratio), 1, validate.LARGEST_FLOAT)
        validate.one_of("trigger", self.trigger, TRIGGERS)
        validate.one_of("shift", self.shift, SHIFTS)
        validate.one_of("calibration", self.calibration, phase_trees.METHODS)
        validate.one_of("spectral", self.spectral, SPECTRAL)
        validate.integer("visits", self.visits, at_least=1)
        if self.max_uploads is not None:
            validate.integer("max_uploads", self.max_uploads, at_least=1)
        super().__post_init__()

    @property
    @override
    def label(self) -> str:
        private = "" if self.budget is None else "CDP-"
        alike = "Homo" if self.alpha_1 == self.alpha_2 == math.inf else "FCLUB"
        return f"{private}{alike}" + ("" if self.upload == self.download == 1 else "-DC")

    @property
    @override
    def private(self) -> bool:
        return self.budget is not None

    def leaves(self, horizon: int) -> tuple[int, ...]:
        """Returns the number of leaves of a local cluster's tree in each of the phases that begin in T rounds.

        A tree has one leaf for earlier data. It has one more for every possible upload before the next phase. If
        `alpha_1` and `alpha_2` are infinite, no cluster ever changes. The first tree goes on through all phases, and
        later trees only release their first leaf.
        """
        n_phases = int(horizon + 1).bit_length() - 1
        rounds = (min(2**s, horizon - (2**s - 2)) for s in range(1, n_phases + 1))
        most = horizon if self.max_uploads is None else self.max_uploads
        if self.trigger == "count" and self.upload > 1:  # each upload multiplies the rounds known by U
            most = min(most, 2 + math.floor(math.log(horizon) / math.log(self.upload)))
        if self.alpha_1 == self.alpha_2 == math.inf:
            return (1 + min(most, horizon), *[1] * (n_phases - 1))
        return tuple(1 + min(most, count) for count in rounds)

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundFCLUB:
        common, noise = seats.common(spec, self, str(self.name)), self._noise(spec, horizon)
        rho, _, kappa = bounds(noise, self.spectral, spec, horizon, self.failure)
        scale = (lambda ratio: ratio) if self.trigger == "count" else math.log
        exchange = Exchange(
            regularization=common.pop("regularization"),
            rho=np.float32(rho),
            noise=noise,
            shifts=noise is not None and self.shift == "every",
            upload=np.float32(scale(self.upload)),
            download=np.float32(scale(self.download)),
            max_uploads=np.int32(horizon if self.max_uploads is None else self.max_uploads),
            counts=self.trigger == "count",
        )
        factors = {name: np.float32(getattr(self, name)) for name in self.factors}
        vector = np.float32(kappa * math.sqrt(rho))
        return BoundFCLUB(exchange=exchange, vector=vector, spec=spec, **factors, **common)

    def _noise(self, spec: Spec, horizon: int) -> Replanted | None:
        if self.budget is None:
            return None
        check_norms(str(self.name), spec.max_norm)
        validate.integer("dim", spec.dim, at_least=1, at_most=phase_trees.MAX_DIM)
        noise = replant(self.budget, leaves=self.leaves(horizon), method=self.calibration, visits=self.visits)
        move = self.visits * math.sqrt(matrix_sensitivity_sq(self.budget.adjacency))
        if wrong := too_coarse(horizon, noise.sigma, move):
            raise BadValue(
                "horizon", f"must be shorter, or epsilon smaller: {wrong}", horizon, got="", others=("epsilon",)
            )
        return noise


def bounds(noise: Replanted | None, how: str, spec: Spec, horizon: int, failure: float) -> Spectral:
    """Returns rho, 3 rho and kappa for all uploads of all local clusters, found as `FCLUB.spectral` says.

    With probability 1 - failure / 2 the noise H on sum x x' has norm <= rho, and the noise h on sum x y has norm <=
    kappa sqrt(rho). (If rho is as printed, only the latter is proved.)
    """
    if noise is None:
        return Spectral(0.0, 0.0, 0.0)
    printed = how == "printed"
    found = spectral.bounds(
        "quantile" if printed else how,
        sigma=noise.sigma,
        nodes=noise.nodes,
        dim=spec.dim,
        n_syncs=horizon,
        n_agents=spec.n_users,
        failure=failure,
        delta=noise.delta,
    )
    if not printed:
        return found
    rho = equation_7(noise.epsilon, noise.delta, noise.depth, spec.dim, spec.n_users, failure)
    return Spectral(rho, 3 * rho, found.kappa * math.sqrt(found.rho_min / rho))


def equation_7(epsilon: float, delta: float, depth: int, dim: int, n_clusters: int, failure: float) -> float:
    """Computes equation 7, rho = 8 sqrt(2 nu) ln(4/delta) (4 sqrt d + 2 ln(2 m L / failure)) / epsilon, for trees of
    depth nu.

    In the paper it bounds the norm of the noise H of every prefix sum, "by concentration of random matrices". That
    bounds sqrt 2 sigma (4 sqrt d + ...) for a matrix of standard deviation sigma, which is 8 sqrt nu ln(2/delta) /
    epsilon for *one* node. H is a sum over up to nu nodes, so a factor sqrt nu is missing. (Dubey & Pentland 2020,
    Section 4.3, and the authors' code have it.) A union bound over t is missing, too. For the noise in the paper's text
    (7) is false if d is large and nu > 8 (ln(4/delta) / ln(2/delta))^2, which is 12 at delta = 0.1. The noise of
    Algorithm 5 is less by sqrt(ln(2/delta)). For it (7) holds at the paper's size. There 4 sqrt d is twice the size of
    a norm.

    DEVIATION liu2022 Eq. 7: the algorithm does not know m. It takes n, which bounds the number of local clusters, in
    place of m L.
    """
    log_term = 4 * math.sqrt(dim) + 2 * math.log(2 * n_clusters / failure)
    return 8 * math.sqrt(2 * depth) * math.log(4 / delta) * log_term / epsilon
