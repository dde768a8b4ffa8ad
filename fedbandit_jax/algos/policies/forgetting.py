"""Policies that forget: any policy, on discounted sums."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax.algos.policies.widths import LEAST_FAILURE, Exploration
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.interfaces import NoiseLaw, Policy, Released, Round
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import tagged
from fedbandit_jax.privacy.releases import Discounted


class Remembered(NamedTuple):
    """Belief of a policy that forgets."""

    seen: Float[Array, " n"]  # the entries of the last release [W | U], and the number of users in it
    kept: Float[Array, " n"]  # the discounted sum of these
    rounds: Int[Array, ""]  # weighted users of each of the M agents, rounded up
    within: Any  # the belief of the policy within


class Recalled(NamedTuple):
    """Input for `indices` in a batch."""

    rounds: Int[Array, ""]  # as in `Remembered`
    within: Any  # that of the policy within


@struct.pytree
class OwnForgetting(Policy):
    """A bound `Forgetting` around a user-defined policy, asked for one user at a time."""

    needs_all_users = True

    policy: Any  # the policy within, bound
    memory: Discounted
    stds: Any  # (S,) of the noise in weighted sums
    n_agents: struct.Number  # M

    def start(self, dim: int) -> Remembered:
        """Returns the inner policy's belief before any data, and empty sums."""
        nothing = jnp.zeros(dim * (dim + 1) + 1)
        return Remembered(nothing, nothing, jnp.int32(0), self.policy.start(dim))

    @override
    def update(self, k: Int[Array, ""], belief: Remembered, released: Released) -> Remembered:
        seen = jnp.append(jnp.concatenate([released.gram, released.bias[:, None]], 1), released.count)
        kept = self.memory.add(belief.kept, seen - belief.seen)
        sums, count, std = kept[:-1].reshape(released.dim, -1), kept[-1], jnp.asarray(self.stds)[k]
        within = self.policy.update(k, belief.within, Released(sums[:, :-1], sums[:, -1], count, std))
        return Remembered(seen, kept, jnp.ceil(count / self.n_agents).astype(jnp.int32), within)

    @override
    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: Remembered, contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        return self.policy.index(key, belief.rounds, belief.within, contexts)


@struct.sealed
@struct.pytree
class BoundForgetting(OwnForgetting):
    """A bound `Forgetting` around a policy of this package."""

    @property
    def rule(self) -> Any:
        """The first part that is not sealed, so that it is seen, or the rule of the policy."""
        for part in (self.policy, self.memory):
            if not struct.is_sealed(part):
                return part
        return getattr(self.policy, "rule", None)

    @override
    def prepare(self, belief: Remembered, offered: Round, fixed_contexts: bool) -> Recalled:
        return Recalled(belief.rounds, self.policy.prepare(belief.within, offered, fixed_contexts))

    @override
    def indices(
        self, key: Key[Array, ""], t: Int[Array, ""], prepared: Recalled, offered: Round
    ) -> Float[Array, "K M"]:
        return self.policy.indices(key, prepared.rounds, prepared.within, offered)

    @property
    @override
    def scores_alone(self) -> bool:
        return struct.is_sealed(self) and self.policy.scores_alone

    @override
    def scorer(self, t: Int[Array, ""], prepared: Recalled) -> Scorer:
        return self.policy.scorer(prepared.rounds, prepared.within)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forgetting(Policy):
    """Any policy on sums that discount old batches, for a drifting environment.

    Weighted sums of batches are post-processing of releases, under any release, trust model and schedule. The inner
    policy gets the weighted number of users and the true noise standard deviation, which depends on the release.
    `fb.privacy.Discounted` is also the release for these sums. Its rounds t are an agent's weighted number of users,
    rounded up.

    With `UCB` this is D-LinUCB, with noise. If the environment does not drift, its widths hold as
    before. Weights are at most 1 and fixed before the first round. So let V = lambda I + sum w x x'. The
    self-normalised bound on sum w x eta holds in the norm of lambda I + sum w^2 x x' <= V. Every release has its own
    martingale, so `failure` is divided by the number S of releases. No width includes drift.

    Args:
        policy: a policy on released sums, such as `UCB`, `Greedy`, `EpsilonGreedy`, `Thompson` or your own with
            `index`. `PhasedElimination` and `LogDetUCB` need prefix sums and are refused.
        memory: `fb.privacy.Discounted(decay)`.

    Raises:
        ValueError: when bound, also if there are more than 2,048 synchronisations with noise.

    Reference: Russac, Vernade & Cappé (2019), Algorithm 1, in batches. V replaces the two matrices of its bonus, as in
        Wang, Zhao & Zhou (2023).
    """

    needs_all_users = True

    policy: Policy
    memory: Discounted

    def __post_init__(self):
        validate.instance("policy", self.policy, Policy, "an fb.Policy")
        if type(self.memory) is not Discounted:
            raise BadType("memory", "must be fb.privacy.Discounted(...)", self.memory)
        compatibility.check(self.policy.tags | tagged("memory", self.memory, {"policy that forgets": True}))

    @override
    def bind(self, law: NoiseLaw) -> OwnForgetting:
        stds, policy = law.stds, self.policy
        if len(stds) and stds.any():
            release = law.mechanism.release
            stds = stds * np.sqrt(self.memory.variance(release) / release.prefix_variance())
        if isinstance(policy, Exploration):
            share = validate.within("failure / S", policy.failure / max(len(stds), 1), LEAST_FAILURE, 1)
            policy = dataclasses.replace(policy, failure=share)
        bound = policy.bind(law._replace(stds=stds))
        kind = BoundForgetting if struct.is_sealed(bound) else OwnForgetting
        if kind is OwnForgetting and type(bound).index is Policy.index:
            raise BadValue("policy", "must define `index`, for one user at a time", bound, got=type(bound).__name__)
        return kind(
            policy=bound,
            memory=self.memory,
            stds=padded(stds.astype(np.float32)) if len(stds) else np.zeros(1, np.float32),
            n_agents=np.float32(law.n_agents),
        )
