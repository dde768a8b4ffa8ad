"""Returning users with a private stream each, served by pooled releases of similar users."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.clusters.grouping import Mixture
from fedbandit_jax.algos.clusters.streams import BoundGrouped, Grouping
from fedbandit_jax.algos.loops.own_rows import REFRESH
from fedbandit_jax.algos.policies.greedy import Greedy
from fedbandit_jax.algos.recipe import PolicyRecipe, parts
from fedbandit_jax.core import struct
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces import Policy, Spec
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism
from fedbandit_jax.privacy.trust import find
from fedbandit_jax.schedules import Geometric, Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouped(PolicyRecipe):
    """Serves returning users by the pooled releases of similar users, with a private stream for every user.

    A user's sums of x x' and x y are only in the user's own stream. All streams release at the same times, fixed in
    advance. Groups, pooled sums and arms follow from releases and from visit counts, which are public. So all of it is
    post-processing, and a run is certified.

    The server that keeps a user's data adds the noise and is trusted with them. No other party is. The privacy unit is
    one interaction, i.e. one round of a user, or all rounds of a user. Adjacency and sensitivity are those of the
    mechanism, which needs a `unit`. Arrivals are public. On average a user has an n-th of all rounds. The sums of m
    users have sqrt m times the noise of one. So groups must be large, and releases few.

    Args:
        grouping: `fb.algos.Mixture()`, or `fb.algos.Alone()` (one model for each user), or `fb.algos.Together()`.
        policy: an `fb.Policy`, which gets a user's pooled sums. Widths for sums of similar users
            (`confidence="known_noise"`) need not hold for what `Mixture` pools of different users.
        schedule: one of `fb.schedules` that reads nothing, in rounds of all users together, or a number of rounds.
        privacy: an `fb.privacy.Mechanism` with trust "silo_local" or "silo_local_matrix", or a budget for BLT noise
            that protects each interaction by itself; None: no privacy.
        name: label in results; default: the name of the grouping's class.

    Raises:
        ValueError: when bound, also if the environment's users do not return.

    Reference: ours. Clusters of users are from Gentile, Li & Zappella (2014). The noise is from Zhou & Chowdhury
    (2024), Algorithm 2, with a silo for each user.
    """

    said = ("recipe of single senders", "stream of every user")

    grouping: Grouping = Mixture()
    policy: Policy = Greedy()
    schedule: Schedule | int = Geometric(1.2, first=100)

    def __post_init__(self):
        if not (isinstance(self.grouping, Grouping) and struct.is_sealed(self.grouping)):
            must = "must be fb.algos.Mixture(), Alone() or Together(), as nothing is proved of others"
            raise BadType("grouping", must, self.grouping)
        if isinstance(self.privacy, Budget):
            object.__setattr__(self, "privacy", Mechanism(self.privacy, "blt", unit="visit"))
        super().__post_init__()

    @property
    @override
    def label(self) -> str:
        return type(self.grouping).__name__

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundGrouped:
        spec.need_users(str(self.name))
        _, privacy = self.normalised
        bound, _ = self.scheduled(spec, horizon, 1)
        mechanism, stds = self.calibrated(spec, 1, self.n_syncs(horizon), longest=REFRESH)
        bias_scale = 1.0
        if privacy is not None:
            bias_scale = privacy.statistic.gram_scale / (math.sqrt(2) if find(privacy.trust).joint_matrix else 1)
        most = stds * math.sqrt(spec.n_users)
        return BoundGrouped(
            **parts(spec, self.informed(spec, mechanism, 1, most), mechanism, stds),
            grouping=self.grouping.bind(spec),
            schedule=bound,
            bias_scale=np.float32(bias_scale),
        )
