"""Thompson sampling on noisy sums. Samples are post-processing.

Ours. In `ThompsonArms` every sample of an exact sum spends privacy. Here the sum of a phase gets noise once.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.arms.loop import AdaCState, BoundAdaC
from fedbandit_jax.algos.arms.recipe import OneArm
from fedbandit_jax.algos.arms.thompson import check_posterior, phases
from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces import Report, Spec

FIRST = 100  # least users of an arm's first phase by default


@struct.sealed
@struct.pytree
class BoundPhasedThompson(BoundAdaC):
    """A bound `PhasedThompson`. A `radius` is the standard deviation of a sample, and lots of arms are normal."""

    forgets = False

    @override
    def index(self, state: AdaCState) -> Array:
        last, users = jnp.maximum(state.asked - 1, 0), jnp.cumsum(jnp.asarray(self.users, jnp.float32))
        sample = state.sums / (users[last] + 1) + jnp.asarray(self.radius)[last] * state.lot
        return jnp.where(state.asked > 0, sample, jnp.inf)

    @override
    def conclude(
        self, key: Array, k: Array, state: AdaCState, sums: Wide, entered: Array | None = None
    ) -> tuple[AdaCState, Report]:
        after, report = super().conclude(key, k, state, sums, entered)
        return after._replace(lot=jax.random.normal(random.stream(key, "samples"), state.lot.shape)), report


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasedThompson(OneArm):
    """Plays the arm of the largest sample from posteriors of noisy sums, in growing phases, each released once. Ours.

    After each phase an arm with N users has the sample S / (N + 1) + Z. Here S is the sum of its noisy sums, and Z is
    Gaussian with variance (c (N + 1) + V) / (N + 1)^2. V is the variance of the noise in S. Privacy is as in `OneArm`.

    Args:
        sums, name: as in `OneArm`; radii and growth of the variant are not used.
        first: b, users of an arm's first phase. None: 60 / epsilon, or its square for local noise, at least 100 and at
            most T / (2 K). With fewer, noise may hide the best arm for long, as it is sampled only once per phase.
        growth: factor in [1, 16] between the users of an arm before and after a phase, which has two users or more.
        variance: c in [1e-6, 1e6]. Rewards in [0, 1] have a variance of at most 1/4.

    Raises:
        ValueError: when bound, also if T has fewer than K b users.
    """

    first: int | None = None
    growth: float = 1.5
    variance: float = 0.25
    name: str = "Phased Thompson"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        if self.first is not None:
            validate.integer("first", self.first, at_least=1)
        check_posterior(self)
        super().__post_init__()

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundPhasedThompson:
        first = self.first
        if first is None:
            needed = (60 / getattr(self.sums, "epsilon", math.inf)) ** (1 + getattr(self.sums.law, "per_user", False))
            first = math.ceil(min(max(needed, FIRST), max(horizon / (2 * spec.n_arms), 1)))
        sizes = np.maximum(phases(first, self.growth, horizon, spec.n_arms), 2)  # as a shuffler needs
        _, fields = self.released(spec, horizon, sizes)
        users, noise = np.cumsum(sizes) + 1.0, np.cumsum(fields["protocol"].stds()[: len(sizes)] ** 2)
        radius = np.sqrt(self.variance * users + noise) / users
        return BoundPhasedThompson(radius=padded(radius.astype(np.float32)), **fields)
