"""Base class of recipes that combine a policy, a schedule and a private mechanism."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, ClassVar, cast

import jax
import numpy as np
from typing_extensions import override

from fedbandit_jax import schedules
from fedbandit_jax.algos.loops.leaks import check_policy
from fedbandit_jax.core import memory, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.programs import need
from fedbandit_jax.interfaces import NoiseLaw, Policy, Recipe, Spec
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.bound import BoundMechanism, Exact
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism, check_norms
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.schedules import BoundSchedule, Schedule, Setting

NOISES = 3  # float64 copies of all silos' standard deviations at bind time


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyRecipe(Recipe):
    """A policy that acts on the releases of a private mechanism, at the synchronisations of a schedule.

    Args:
        policy: an `fb.Policy`, for instance `fb.algos.UCB()`, `fb.algos.Thompson()` or your own.
        schedule: one of `fb.schedules`, or B, rounds between synchronisations.
        privacy: an `fb.privacy.Mechanism`, or a budget for one with the recipe's defaults; None: no privacy.
        name: label in results; by default it follows from the class or its policy.
    """

    said: ClassVar[tuple[str, ...]] = ()  # tags of the class, see `privacy.compatibility`

    policy: Policy
    schedule: Schedule | int
    privacy: Mechanism | Budget | None = None
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.instance("policy", self.policy, Policy, "an fb.Policy")
        schedule, privacy = schedules.as_schedule(self.schedule), as_mechanism(self.privacy)
        object.__setattr__(self, "schedule", schedule)
        object.__setattr__(self, "privacy", privacy)
        compatibility.check(self.tags)
        object.__setattr__(self, "name", validate.text("name", self.label if self.name is None else self.name))

    @property
    @override
    def label(self) -> str:
        return self.title or type(self.policy).__name__

    @property
    @override
    def private(self) -> bool:
        return self.privacy is not None

    @property
    def tags(self) -> Tags:
        """Returns the tags of this recipe and its parts, for `privacy.compatibility`."""
        schedule, privacy = self.normalised
        waits = {
            "algorithm that waits for all silos": not self.supports_dropouts,
            "algorithm that needs rewards at once": not self.supports_delay,
        }
        return (
            self.policy.tags
            | schedule.tags
            | (tagged("privacy", None, {"no privacy": True}) if privacy is None else privacy.tags)
            | tagged("recipe", type(self).__name__, waits | dict.fromkeys(self.said, True))
        )

    @property
    def normalised(self) -> tuple[Schedule, Mechanism | None]:
        """The schedule and the mechanism, in place of a number or a budget."""
        return cast(Schedule, self.schedule), cast("Mechanism | None", self.privacy)

    def n_syncs(self, horizon: int) -> int:
        """Returns the most synchronisations S in T rounds."""
        schedule, _ = self.normalised
        return validate.integer(f"{type(schedule).__name__}.n_syncs", schedule.n_syncs(horizon), at_least=0)

    def calibrated(self, spec: Spec, n_agents: int, n_syncs: int, **rounds: Any) -> tuple[BoundMechanism, np.ndarray]:
        """Returns the bound mechanism of `n_agents` silos, and the noise standard deviation of every release, (S,)."""
        schedule, privacy = self.normalised
        compatibility.check(self.tags | BoundStatistic.of(spec).tags)
        if privacy is None:
            return Exact(n_agents=n_agents), np.zeros(n_syncs)
        check_norms(str(self.name), spec.max_norm)
        memory.check("n_agents", n_agents, NOISES * 8 * n_agents, "the noise of every silo")
        pure = schedule.pure(privacy.shares())
        mechanism = privacy.bind(BoundStatistic.of(spec), n_agents=n_agents, n_syncs=n_syncs, pure=pure, **rounds)
        return mechanism, mechanism.stds()

    def informed(self, spec: Spec, mechanism: BoundMechanism, n_agents: int, stds: np.ndarray) -> Any:
        """Returns the policy of `n_agents` agents, bound to the noise of its releases, and checked."""
        numbers = copy.deepcopy(jax.tree.map(np.array, mechanism))  # a policy cannot change the mechanism
        policy = self.policy.bind(NoiseLaw(n_agents, spec.dim, stds, numbers))
        need(f"{type(self.policy).__name__}.bind", isinstance(policy, Policy), "an fb.Policy", policy)
        check_policy(policy, spec)
        return policy

    def scheduled(
        self, spec: Spec, horizon: int, n_agents: int, policy: Any = None, rho: tuple[float, float] = (1.0, 1.0)
    ) -> tuple[BoundSchedule, float]:
        """Returns the bound schedule of `n_agents` agents, and the shift c of the log det that it reads.

        `rho` bounds the eigenvalues of one agent's regulariser, for schedules that read statistics. By default the
        bound `policy` states it, if it keeps a matrix.
        """
        schedule, privacy = self.normalised
        if policy is not None and policy.keeps_matrix:
            rho = policy.rho
        setting = Setting(n_agents, spec.dim, horizon, *rho, None if privacy is None else privacy.shares())
        bound = schedule.bind(setting)
        schedules.check(bound, n_agents)
        reads = tagged("schedule", schedule, {"schedule that reads users": bound.reads != "nothing"})
        compatibility.check(self.tags | reads)
        return bound, schedule.shift(setting)


FEW = 1024  # most rows of tables that cost nothing


def parts(spec: Spec, policy: Any, mechanism: BoundMechanism, stds: np.ndarray, **more: Any) -> dict[str, Any]:
    """Returns the fields of a `PolicyLoop` with S = len(stds) releases, and `more` of its subclass."""
    noisy = isinstance(mechanism, NoisyMechanism)
    return dict(
        policy=policy,
        mechanism=mechanism,
        stds=padded(stds.astype(np.float32), FEW) if noisy else np.zeros(1, np.float32),
        n_syncs=len(stds),
        spec=spec,
        **more,
    )
