"""Federated LinUCB: Algorithms 1 and 8 of Zhou & Chowdhury (2024), for any policy, schedule and private mechanism.

Letters: M agents, d features, B rounds in a batch, S synchronisations; W = sum x x' and U = sum x y over the users of
all batches that were synchronised.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.loops.batch import BatchLoop
from fedbandit_jax.algos.loops.own_rows import REFRESH
from fedbandit_jax.algos.loops.scheduled import ScheduledLoop
from fedbandit_jax.algos.policies.ucb import UCB
from fedbandit_jax.algos.recipe import PolicyRecipe, parts
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Policy, Spec
from fedbandit_jax.privacy.statistic import USERS
from fedbandit_jax.privacy.trust import check_schedule, find
from fedbandit_jax.schedules import Every, LogDet, Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Federated(PolicyRecipe):
    """A policy that acts on what a private mechanism releases, at synchronisations that a schedule decides about.

    Released are the sums of x x' and x y over the users of all silos. Who adds the noise and who is trusted, adjacency,
    privacy unit and sensitivity are those of `privacy`, see `fb.privacy.Mechanism`; the certificate of a run states
    them.

    Args:
        policy: an `fb.Policy`, for instance `fb.algos.UCB()`, `fb.algos.Thompson()` or one of your own.
        schedule: one of `fb.schedules`, or B, rounds between synchronisations. If B does not divide the horizon T, the
            last T mod B rounds are played without a final synchronisation. With a private mechanism, schedules other
            than `Every` need trust "silo_local", "silo_local_matrix" or "central": `Geometric`, which also goes with
            "secagg", needs fewer releases; `PrivateLogDet` adapts and pays for it from the budget; `LogDet` adapts and
            leaks (claim `none`).
        privacy: an `fb.privacy.Mechanism`, or a budget for one with its defaults; None: no privacy.
        learns_in_batch: False: agents act on released statistics only (Algorithm 8). True: they also learn from their
            raw rewards inside the batch (Algorithm 1 as printed). Then replacing one user changes later actions of the
            batch, and so its sum, by far more than the theorem assumes, and the certificate claims only `as_printed`,
            unless the batch is of one round (schedule=1), where both are the same.
        name: label in results; default: the name of the policy's class.

    Raises:
        ValueError, TypeError: if an argument is not one of these; the message names it and its value. When bound to an
            environment, also if the noise cannot be calibrated or, with noise, feature vectors may be longer than 1.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt", trust="secagg")
        >>> algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=10, privacy=mechanism)
        >>> certificate = algo.certificate(env.spec, horizon=50)
        >>> certificate.claim, round(certificate.epsilon_exact, 3)
        ('certified', 1.0)

    Reference: Zhou & Chowdhury (2024), Algorithms 1 and 8.
    """

    policy: Policy = UCB()
    schedule: Schedule | int = Every(25)
    learns_in_batch: bool = False

    def __post_init__(self):
        super().__post_init__()
        schedule, privacy = self.normalised
        validate.boolean("learns_in_batch", self.learns_in_batch)
        if privacy is not None and not isinstance(schedule, Every):
            check_schedule(privacy.trust, fixed=schedule.longest(1) is not None)
        if privacy is not None and self.learns_in_batch and find(privacy.trust).hides_users:
            raise ValueError(
                f"learns_in_batch must be False with trust={privacy.trust!r}: a silo sees no raw statistics it could "
                "learn from, got True"
            )
        if isinstance(self.policy, UCB) and isinstance(schedule, LogDet) and schedule.trigger == "dp20":
            raise ValueError(
                f"schedule must not have trigger 'dp20', which needs LogDetUCB's rho_max, got {schedule!r}"
            )
        if self.learns_in_batch and isinstance(schedule, Every) and schedule.batch > REFRESH:
            raise ValueError(f"schedule must be <= {REFRESH} where agents learn in a batch, got {schedule.batch}")

    @override
    def bind(self, spec: Spec, horizon: int) -> BatchLoop | ScheduledLoop:
        (schedule, _), m = self.normalised, spec.n_agents
        batch = schedule.batch if isinstance(schedule, Every) else None
        longest = min(horizon, REFRESH, max(1, USERS // m))
        sizes = dict(batch=batch, most=schedule.longest(horizon), longest=longest)
        mechanism, stds = self.calibrated(spec, m, self.n_syncs(horizon), **sizes)
        policy = self.informed(spec, mechanism, m, stds)
        common = parts(spec, policy, mechanism, stds, learns_in_batch=self.learns_in_batch)
        if batch is not None:
            return BatchLoop(**common, batch=batch)
        if self.learns_in_batch and not policy.keeps_matrix:
            raise ValueError(
                "policy must keep a matrix, as fb.algos.UCB does, for agents that learn in a batch, got "
                f"{type(self.policy).__name__}"
            )
        chosen, shift = self.timed(spec, horizon, m, policy)
        return ScheduledLoop(**common, schedule=chosen, shift=np.float32(shift), shifts=shift > 0)
