"""Elimination for heavy tails and corrupted users: rewards are truncated at a level that grows with the batch.

After Wu, Zhou, Tao & Wang (2023), "On private and robust bandits", and Zhou & Zhang (2024), "Locally private and robust
multi-armed bandits". We read their abstracts only. Levels, radii and their proof, in the module `radius`, are ours.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.arms import radius as radii
from fedbandit_jax.algos.arms.elimination import RRSE, OfSums, batches
from fedbandit_jax.algos.arms.loop import BoundElimination
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy.compatibility import Tags, tagged

LEAST = 1e-30  # smallest truncation level
ADJACENCY = "replace (one user's reward replaced by any other finite number)"


@struct.sealed
@struct.pytree
class BoundTruncated(BoundElimination):
    """A bound `TruncatedSE`. The protocol sums (x + M) / (2 M), clipped to [0, 1]; radii are over 2 M too."""

    level: Any  # (S,) float32, the truncation level M of each batch, in units of reward

    @override
    def collect(
        self, rounding: Array, own: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]
    ) -> Wide:
        level = jnp.asarray(self.level)[k]
        kept = (jnp.where(jnp.isinf(x), x, jnp.clip(x, -level, level)) for x in rewards)  # a quotient may overflow
        first, second = (x / (2 * level) + 0.5 for x in kept)
        return self.protocol.collect(rounding, own, k, (first, second), inside)

    @override
    def guarantee(self) -> Certificate:
        found = super().guarantee()
        if found.epsilon is None:
            return found
        asked = np.asarray(self.protocol.users)
        users, level = np.maximum(asked, 1), np.resize(np.asarray(self.level, float), len(asked))
        if not ((level >= LEAST) & (level < math.inf))[asked > 0].all():
            return no_privacy("nothing is proved of truncation levels that are not positive and finite")
        stds = 2 * level * self.protocol.stds()
        each = stds / np.sqrt(users) if self.protocol.noise.per_user else stds
        std, most = float(each.max()), float(stds.max())
        return dataclasses.replace(found, adjacency=ADJACENCY, noise_std=std, server_noise_std=most)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedSE(OfSums):
    """Successive elimination of arms with heavy tails, by truncated sums whose level and noise grow with the batch.

    Rewards are any numbers X with E|X|^k <= u. In a batch with level M a user clips their reward to [-M, M]. The sum
    moves by at most 2 M if the user's reward is replaced by any other (sensitivity). So the noise of `sums`, made for
    rewards in [0, 1], is stretched by 2 M. The level balances truncation bias, sampling error, noise and corrupted
    users. If nobody is corrupted, it grows with the batch.

    All intervals hold together with probability 1 - 4.11 `failure` or more, also if a share `corruption` of users, each
    drawn by chance, reports anything. Radii never fall below the effect of these users, so close arms stay. The privacy
    unit is one user, with one contribution to one sum.

    Args:
        sums: a variant of successive elimination with radius="theory", for noise, trust model, growth and failure
            probability. The default has no privacy. Corrupted users replace rewards, or messages under
            `RRSE(corrupted="messages")`. Elsewhere a corrupted message moves a sum anywhere.
        moment: u in [1e-6, 1e12], a bound on E|X|^k of every arm.
        order: k in [1.1, 16].
        corruption: a in [0, 0.5), the largest share of corrupted users.
        level: a fixed truncation level > 0 for all batches, with its bias in the radii; None: growing levels.
        name: label in results.

    Raises:
        ValueError: as `sums`, and if `sums` has a `unit` or exact radii.

    Reference: ours, after the abstracts of Wu et al. (2023) and Zhou & Zhang (2024).
    """

    moment: float = 1.0
    order: float = 2.0
    corruption: float = 0.0
    level: float | None = None
    name: str = "Truncated SE"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        super().__post_init__()
        validate.within("moment", self.moment, 1e-6, 1e12)
        validate.within("order", self.order, 1.1, 16)
        validate.within("corruption", self.corruption, 0, 0.5)
        if self.level is not None:
            validate.within("level", validate.positive("level", self.level), 1e-6, 1e12)

    @property
    @override
    def tags(self) -> Tags:
        return (
            super().tags
            | tagged("radius", self.sums.radius, {"exact radius": self.sums.radius == "exact"})
            | tagged("algorithm", "TruncatedSE", {"truncated rewards": True})
        )

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundTruncated:
        sums, n_arms = self.sums, spec.n_arms
        sizes = batches(sums.growth, horizon)
        s, h = sums.scales(sums.asked(n_arms * len(sizes), horizon), sizes)
        stretch = sums.stretch if isinstance(sums, RRSE) else None
        reach = stretch if stretch and getattr(sums, "corrupted", "") == "messages" else 1.0
        about: dict[str, Any] = dict(n_arms=n_arms, p=sums.failure, moment=self.moment, order=self.order)
        about |= dict(share=self.corruption, level=self.level, stretch=stretch, reach=reach)
        level, radius = radii.truncated(sizes, s, h, **about)
        radius = padded((radius / (2 * level[:, None])).astype(np.float32))
        fields: dict[str, Any] = vars(self.sums.bind(spec, horizon)) | dict(level=padded(level), radius=radius)
        return BoundTruncated(**fields)
