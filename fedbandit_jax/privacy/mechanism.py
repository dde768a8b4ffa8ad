"""The recipe of a private mechanism: a budget, a release and a trust model."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.programs import is_array, need, numeric
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy import compatibility, proof, releases, trust
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.bound import NoRelease
from fedbandit_jax.privacy.budget import MAX_NORM, Budget
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.noisy_sums import Aggregated, NoisyMechanism, Rounded
from fedbandit_jax.privacy.printed import Std, check_std, std_of
from fedbandit_jax.privacy.releases.toeplitz import MAX_SYNCS
from fedbandit_jax.privacy.statistic import LINEAR, Statistic, statistic_tags
from fedbandit_jax.privacy.trust import Model
from fedbandit_jax.privacy.users import ONCE, Users


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A recipe for the private release of sums over users: the statistic, the noise, and the party that adds it.

    The privacy unit is one user, with as many contributions as `unit` says, by default one. The bounds of one
    contribution are enforced where data enter. One contribution moves a batch sum by at most Delta_J in joint l2 norm.
    For (x y, x x') with ||x|| <= 1 and y in [0, 1], Delta_J^2 is 4.5 under adjacency "replace", and 2 under "zero_out".
    All messages together move by at most sqrt(kappa) Delta_J. Here kappa is the squared sensitivity of the release to
    all contributions of one user.

    Args:
        budget: `fb.privacy.Budget(epsilon, delta, adjacency)`, or a sequence of one for every silo (only with trust
            "silo_local" or "silo_local_matrix").
        release: how private sums over time are formed. It is a key of `fb.privacy.RELEASES`, or a function of S
            that returns the matrix C of your own.
            "tree" is Algorithm 2. At equal privacy "blt" has a fifth of the tree's noise variance for 16
            synchronisations, and an eighth for 400. The others are "sqrt_toeplitz" and "input_perturbation".
        trust: the party that adds the noise, and the trusted parties. It is an `fb.privacy.GaussianTrust`, or a key of
            `fb.privacy.TRUST`. With "silo_local" each silo adds noise, which protects its users from all other parties.
            With "silo_local_matrix" it adds the noise to the joint matrix of (x, y). With "shuffle_amplified" and
            "shuffle_vector_sum" a shuffler is trusted, and with "secagg" secure aggregation. With "central" the server
            is trusted and adds the noise (for one agent, Shariff & Sheffet 2018). With "local" every user adds noise,
            and no silo is trusted (Zheng et al. 2020).
        std: the standard deviation of the noise. None is the least that is proved to give the budget. It may be a
            number, a key of `fb.privacy.PRINTED` (noise as a paper prints it), or a function, see
            `fb.privacy.calibrate`. Certificates state its epsilon.
        unit: the privacy unit; it must be given if users return. With "visit" each interaction is protected by itself.
            With `fb.privacy.Users(...)` all contributions of one user are, within bounds that silos enforce. If users
            are not told apart, None means one user with one visit, and `Users(...)` is a promise.
        statistic: what a user adds, and its bounds. `fb.privacy.Linear()` is (x y, x x'), centred, scaled or truncated
            by its options. Others are `fb.privacy.Logistic()` and your `fb.privacy.Statistic`.
        dropouts: f, silos that may miss a synchronisation or reveal their share of the noise, with trust "secagg". Each
            of M silos adds 1/(M - f) of the noise's variance. If more are missing, nothing is released. Other trust
            models need no number.
        resends: whether a silo that was away adds its unsent sums to its next message. Otherwise they are lost when the
            others send. If silos drop out, every batch must be in one message, as with the release
            "input_perturbation".

    Raises:
        ValueError, TypeError: if an argument is out of range or of the wrong type, or does not support another one, see
            `privacy.compatibility`.

    Example:
        >>> Mechanism(Budget(1.0, 0.1), release="blt", trust="secagg").trust
        'secagg'

    Reference: Zhou & Chowdhury (2024), Algorithms 2, 4-7 and Theorems 5.1, 5.3, 5.5.
    """

    budget: Budget | tuple[Budget, ...]
    release: str | releases.Make = "tree"
    trust: Model = "silo_local"
    std: Std = None
    unit: str | Users | None = None
    statistic: Statistic = LINEAR
    dropouts: int = 0
    resends: bool = True

    def __post_init__(self):
        if isinstance(self.budget, list):
            object.__setattr__(self, "budget", tuple(self.budget))
        budgets = self.budgets
        if not budgets or not all(isinstance(one, Budget) for one in budgets):
            raise BadType("budget", "must be an fb.privacy.Budget, or one for every silo", self.budget)
        for name in ("delta", "adjacency"):
            values = {getattr(one, name) for one in budgets}
            if len(values) > 1:
                raise BadValue("budget", f"must have one {name} for all silos", sorted(values))
        check_std(self.std)
        if isinstance(self.unit, str) and self.unit != "visit":
            raise BadValue("unit", "must be 'visit' or fb.privacy.Users(...)", self.unit)
        if not isinstance(self.unit, (str, type(None))) and type(self.unit) is not Users:
            raise BadType("unit", "must be 'visit', fb.privacy.Users(...) or None", self.unit)
        validate.boolean("resends", self.resends)
        validate.integer("dropouts", self.dropouts, at_least=0)
        validate.instance("statistic", self.statistic, Statistic, "an fb.privacy.Statistic such as fb.privacy.Linear()")
        compatibility.check(self.tags)

    @property
    def tags(self) -> Tags:
        """Returns its tags for `privacy.compatibility`."""
        n = len(self.budgets)
        unit = {"no privacy unit": self.unit is None, "unit of returning users": isinstance(self.unit, Users)}
        return (
            trust.tags(self.trust, self.release)
            | tagged("dropouts", self.dropouts, {"dropouts > 0": self.dropouts > 0})
            | tagged("budget", n, {"several budgets": n > 1})
            | tagged("unit", self.unit, unit)
            | self.users.tags
            | statistic_tags(self.statistic)
        )

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets as a tuple: one for all silos, or M, one for each."""
        return self.budget if isinstance(self.budget, tuple) else (self.budget,)

    @property
    def users(self) -> Users:
        """The bounds on one user's contributions: `unit`, or one contribution."""
        return self.unit if isinstance(self.unit, Users) else ONCE

    def shares(self) -> np.ndarray | float:
        """Returns epsilon per visit, for all silos or (M,) for each. A private schedule takes its share of it."""
        epsilons = np.array([one.epsilon for one in self.budgets]) / self.users.together
        return epsilons if len(epsilons) > 1 else float(epsilons[0])

    def bind(
        self,
        statistic: BoundStatistic,
        *,
        n_agents: int,
        n_syncs: int,
        batch: int | None = None,
        most: int | None = None,
        longest: int = 1,
        rounds: int = 0,
        pure: np.ndarray | float = 0.0,
    ) -> NoisyMechanism | NoRelease:
        """Calibrates the noise for S synchronisations of M silos and returns the bound mechanism of a run.

        Args:
            statistic: the environment's promises; this recipe's statistic replaces the one in it.
            n_agents: M.
            n_syncs: S, the largest number of synchronisations.
            batch: B, if every batch has the same number of rounds, and None otherwise.
            most: the most rounds of a batch, if their numbers differ and are fixed in advance, and None otherwise.
            longest: the most rounds that a loop adds up before it hands them to this mechanism; B if `batch` is given.
            rounds: T; if silos drop out, the users of all rounds may be in one message.
            pure: epsilon that a private schedule spends on one visit, () for all silos or (M,) for each.

        Returns:
            `Rounded` if the trust model's noise depends on users, else `Aggregated`; `NoRelease` if n_syncs is 0.

        Raises:
            ValueError: if an argument does not go with this recipe, or sums over this many users are too coarse for the
                noise.
        """
        if len(self.budgets) not in (1, n_agents):
            raise BadValue("budget", f"must name one budget for each of {n_agents} silos", len(self.budgets))
        if isinstance(self.unit, Users) and self.users.reach < statistic.silos:
            why = f"must cover every silo of a user, by Users(..., silos={statistic.silos}) or silos='together'"
            raise BadValue("unit", why, self.users.silos, got=f"silos={self.users.silos}", others=("silos",))
        if self.dropouts >= n_agents:
            raise BadValue("dropouts", f"must be < n_agents = {n_agents}", self.dropouts)
        if n_syncs > MAX_SYNCS:
            raise BadValue("horizon", f"must allow at most {MAX_SYNCS:,} synchronisations", n_syncs, got=f"{n_syncs:,}")
        unequal = {"unequal batches": batch is None, "adaptive schedule": batch is None and most is None}
        said = self.tags | statistic.tags | tagged("batch", batch, unequal)
        compatibility.check(said | tagged("schedule", pure, {"schedule that spends budget": np.any(pure)}))
        if n_syncs == 0:
            return NoRelease(n_agents=n_agents)
        statistic = dataclasses.replace(statistic, rule=self.statistic)
        if wrong := statistic.objection():
            raise wrong
        kind, longest, first = trust.find(self.trust), batch or longest, self.budgets[0]
        known = most if batch is None and kind.batches == "fixed" else batch
        bound: NoisyMechanism = (Rounded if kind.needs_users else Aggregated)(
            n_agents=n_agents,
            trust=object.__new__(kind),  # without numbers, which are calibrated below for the other fields
            release=releases.make(self.release, n_syncs),
            statistic=statistic,
            adjacency=first.adjacency,
            epsilon=np.array([one.epsilon for one in self.budgets], float),
            delta=first.delta,
            batch=known,
            longest=longest,
            users=self.users.at(statistic.silos),
            enforced=statistic.n_users > 0 and isinstance(self.unit, Users),
            resends=self.resends,
            held=np.int32(rounds if statistic.drops and (self.resends or kind.away == "few") else 0),
        )
        mixed = {"batch in several messages": statistic.drops and bound.release.touched() > 1}
        compatibility.check(said | tagged("release", self.release, mixed))
        needs = (bound.requirement(i, pure) for i in range(len(self.budgets)))
        needs = (dataclasses.replace(need, dropouts=self.dropouts) for need in needs)
        model, *rest = (trust.calibrate(need, self.trust, std_of(self.std, need)) for need in needs)
        if rest:
            model = dataclasses.replace(model, std=np.array([one.std[0] for one in (model, *rest)]))  # pyright: ignore
        bound = dataclasses.replace(bound, trust=model)
        if isinstance(bound, Aggregated) and not struct.is_sealed(model):
            name, size = f"{type(model).__name__}.noise", bound.row_size
            drawn = jax.eval_shape(numeric(name, lambda key: model.noise(key, size)), jax.random.key(0))
            need(name, is_array(drawn, (size,), jnp.floating), f"floats of shape {(size,)}", drawn)
        if wrong := proof.coarse(bound, batch):
            others, must = ("horizon", "batch", "epsilon"), f"must be smaller, or horizon, batch, epsilon: {wrong}"
            raise BadValue("n_agents", must, n_agents, got="", others=others)
        return bound


def as_mechanism(privacy: Any, release: str = "tree", trust: str = "silo_local") -> Mechanism | None:
    """Returns the mechanism that `privacy` stands for: itself, or this release and trust for a budget alone.

    `privacy` may be a `Mechanism`, a `Budget`, a sequence of one `Budget` for every silo, or None, which is returned.
    Anything else raises a TypeError.
    """
    if privacy is None or isinstance(privacy, Mechanism):
        return privacy
    several = isinstance(privacy, (list, tuple))
    budgets = tuple(privacy) if several else (privacy,)
    if not budgets or not all(isinstance(one, Budget) for one in budgets):
        raise BadType("privacy", "must be an fb.privacy.Mechanism, an fb.privacy.Budget or None", privacy)
    return Mechanism(budgets if several else budgets[0], release, trust)


def check_norms(who: str, max_norm: float) -> None:
    """Raises ValueError, naming the algorithm `who`, unless the environment's feature vectors have norm <= 1."""
    if not 0 <= max_norm <= MAX_NORM:
        hint = f"{max_norm:g}: scale the features, and let the environment's fb.Spec say max_norm=1.0"
        raise BadValue("max_norm", f"must be in [0, 1] for {who}", max_norm, got=hint)
