"""The recipes that combine a policy, a schedule and a private mechanism: normalised, calibrated and bound once."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, ClassVar, cast

import jax
import numpy as np
from typing_extensions import override

from fedbandit_jax import schedules
from fedbandit_jax.algos.loops.doors import check_policy
from fedbandit_jax.core import memory, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import NoiseLaw, Policy, Recipe, Spec
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.bound import BoundMechanism, Exact
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism, check_norms
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.privacy.statistic import Bounds
from fedbandit_jax.privacy.trust import TRUST, find
from fedbandit_jax.schedules import BoundSchedule, Schedule, Setting

NOISES = 3  # copies of the standard deviations of all silos, in float64, while a mechanism is bound


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyRecipe(Recipe):
    """A policy that acts on what a private mechanism releases, at synchronisations that a schedule decides about.

    Args:
        policy: an `fb.Policy`.
        schedule: one of `fb.schedules`, or B, rounds between synchronisations.
        privacy: an `fb.privacy.Mechanism`, or a budget for one with the recipe's defaults; None: no privacy.
        name: label in results; None: `label`.
    """

    by_itself: ClassVar[str] = ""  # why every silo, agent or user releases by itself, if so
    policies: ClassVar[tuple[Any, str]] = Policy, "an fb.Policy"  # what `policy` may be, and in words

    policy: Policy
    schedule: Schedule | int
    privacy: Mechanism | Budget | None = None
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.instance("policy", self.policy, *self.policies)
        schedule, privacy = schedules.as_schedule(self.schedule), as_mechanism(self.privacy)
        object.__setattr__(self, "schedule", schedule)
        object.__setattr__(self, "privacy", privacy)
        if privacy is None and np.max(schedule.pure(1.0)) > 0:
            raise BadValue("schedule", "must spend no budget without privacy", schedule)
        if self.by_itself and self.policy.needs_all_users:
            raise BadValue("policy", f"must not be {type(self.policy).__name__}, {self.by_itself}", self.policy)
        if self.by_itself and privacy is not None:
            if not find(privacy.trust).per_silo:
                able = " or ".join(repr(name) for name, model in TRUST.items() if model.per_silo)
                raise BadValue("trust", f"must be {able}, {self.by_itself}", privacy.trust)
            if len(privacy.budgets) > 1:
                raise BadValue("budget", f"must be one for all, {self.by_itself}", len(privacy.budgets))
            if privacy.users.total is not None:
                raise BadValue("total", f"must be None, {self.by_itself}", privacy.users.total)
            if getattr(self.policy, "confidence", None) == "authors":
                raise BadValue("confidence", f"must not be 'authors', {self.by_itself}", self.policy)
        object.__setattr__(self, "name", validate.text("name", self.label if self.name is None else self.name))

    @property
    @override
    def label(self) -> str:
        return type(self.policy).__name__

    @property
    @override
    def private(self) -> bool:
        return self.privacy is not None

    @property
    def normalised(self) -> tuple[Schedule, Mechanism | None]:
        """The schedule and the mechanism, which are neither a number nor a budget any more."""
        return cast(Schedule, self.schedule), cast("Mechanism | None", self.privacy)

    def n_syncs(self, horizon: int) -> int:
        """The most synchronisations S in T rounds."""
        schedule, _ = self.normalised
        return validate.integer(f"{type(schedule).__name__}.n_syncs", schedule.n_syncs(horizon), at_least=0)

    def calibrated(self, spec: Spec, n_agents: int, n_syncs: int, **rounds: Any) -> tuple[BoundMechanism, np.ndarray]:
        """The bound mechanism of `n_agents` silos, and the standard deviation of the noise of every release, (S,)."""
        schedule, privacy = self.normalised
        if privacy is None:
            return Exact(n_agents=n_agents), np.zeros(n_syncs)
        check_norms(str(self.name), spec.max_norm)
        memory.check("n_agents", n_agents, NOISES * 8 * n_agents, "the noise of every silo")
        pure = schedule.pure(privacy.shares())
        mechanism = privacy.bind(BoundStatistic.of(spec), n_agents=n_agents, n_syncs=n_syncs, pure=pure, **rounds)
        return mechanism, mechanism.stds()

    def informed(self, spec: Spec, mechanism: BoundMechanism, n_agents: int, stds: np.ndarray) -> Any:
        """The policy of `n_agents` agents, bound to the law of the noise in what its loop shows it, and checked."""
        numbers = copy.deepcopy(jax.tree.map(np.array, mechanism))  # not those that the mechanism will draw with
        policy = self.policy.bind(NoiseLaw(n_agents, spec.dim, stds, numbers))
        check_policy(policy, spec)
        return policy

    def scheduled(
        self, spec: Spec, horizon: int, n_agents: int, low: float = 1.0, high: float = 1.0
    ) -> tuple[BoundSchedule, float]:
        """The bound schedule of `n_agents` agents, and the shift c by which it reads log det.

        `low` and `high` bound the eigenvalues of one agent's regulariser, for schedules that read anything.
        """
        schedule, privacy = self.normalised
        shares = None if privacy is None else privacy.shares()
        setting = Setting(n_agents, spec.dim, horizon, low, high, shares)
        bound = schedule.bind(setting)
        schedules.check(bound, n_agents)
        return bound, schedule.shift(setting)

    def timed(self, spec: Spec, horizon: int, n_agents: int, policy: Any) -> tuple[BoundSchedule, float]:
        """The same for a bound policy, which must keep what the schedule reads."""
        schedule, privacy = self.normalised
        bounds = policy.rho if policy.keeps_matrix else ()
        bound, shift = self.scheduled(spec, horizon, n_agents, *bounds)
        if privacy is not None and Bounds.of(privacy.statistic).weighted and bound.reads != "nothing":
            raise BadValue(
                "statistic",
                "must have no weights with a schedule that reads what x x' users have added",
                privacy.statistic,
                got=f"{privacy.statistic!r} and {schedule!r}",
            )
        if privacy is not None and privacy.users.total is not None and bound.reads != "nothing":
            raise BadValue("total", "must be None with a schedule that reads what users have added", schedule)
        if not policy.keeps_matrix and bound.reads != "nothing":
            raise BadValue(
                "policy",
                "must keep a matrix, as fb.algos.UCB does, for a schedule that reads what agents have learned",
                self.policy,
                got=type(self.policy).__name__,
            )
        return bound, shift


FEW = 1024  # synchronisations, up to which tables have as many rows, as these cost nothing


def parts(spec: Spec, policy: Any, mechanism: BoundMechanism, stds: np.ndarray, **more: Any) -> dict[str, Any]:
    """The fields of a `PolicyLoop` with S = len(stds) releases, and `more` that its subclass has."""
    noisy = isinstance(mechanism, NoisyMechanism)
    return dict(
        policy=policy,
        mechanism=mechanism,
        stds=padded(stds.astype(np.float32), FEW) if noisy else np.zeros(1, np.float32),
        n_syncs=len(stds),
        spec=spec,
        **more,
    )
