"""AdaC-UCB of Azize & Basu (2024): one arm at a time, in growing batches, by sums of the last batch alone.

The j-th batch of an arm has growth^j users, j = 1, 2, ..., and releases one noisy sum. The last sum alone estimates the
arm's mean. Older sums are forgotten, so every user is in one sum.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.arms.elimination import SE, OfSums, batches, check_arms, slots
from fedbandit_jax.algos.arms.loop import SumLoop
from fedbandit_jax.core import random, struct
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces import Pulls, Report, Spec
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.integers.noise import Asked


class AdaCState(NamedTuple):
    """Server of `BoundAdaC` between two batches."""

    asked: Array  # (K,) int32, batches of every arm
    sums: Array  # (K,) the noisy sum of every arm's last batch, or of all its batches
    pulled: Array  # (K,) bool, the arm of the last batch
    lot: Array  # (K,) lots of the arms; the least breaks ties
    shown: Array  # (K,) the last release, 0 for other arms

    def best(self, index: Array) -> Array:
        """Returns the arm with the largest of indices (K,)."""
        return jnp.where(index == index.max(), self.lot, jnp.inf).argmin()

    def users(self, sizes: Array) -> Array:
        """Returns the users (K,) in all batches of every arm, int32, from the sizes (J,) of batches."""
        return jnp.pad(jnp.cumsum(jnp.asarray(sizes)), (1, 0))[self.asked]


@struct.sealed
@struct.pytree
class BoundAdaC(SumLoop):
    """A bound `AdaCUCB`. Tables are `padded` and have a row for every batch j = 1, ..., J of an arm."""

    forgets: ClassVar[bool] = True  # whether an arm's last sum replaces the one before

    times: struct.Number  # J
    users: Any  # (J,) int32, users of an arm's j-th batch
    radius: Any  # (J,) float32, half the width of its confidence interval, in units of reward

    @property
    def n_batches(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The most batches, K J."""
        return self.times * self.spec.n_arms

    @override
    def init(self, key: Array, spec: Spec) -> AdaCState:
        nothing = jnp.zeros(spec.n_arms)
        lot = random.uniform(random.stream(key, "ties"), (spec.n_arms,))
        return AdaCState(nothing.astype(jnp.int32), nothing, nothing > 0, lot, nothing)

    def index(self, state: AdaCState) -> Array:
        """Returns the indices (K,) of arms: upper confidence bounds, infinite for arms without users."""
        last = jnp.maximum(state.asked - 1, 0)
        users, radius = jnp.asarray(self.users), jnp.asarray(self.radius)
        return jnp.where(state.asked > 0, state.sums / users[last] + radius[last], jnp.inf)

    @override
    def pulls(self, state: AdaCState, k: Array) -> Pulls:
        index, users = self.index(state), jnp.asarray(self.users)
        best = state.best(index)
        row = self._row(state, best)
        return Pulls(jnp.arange(len(index)) == best, users[row], self.protocol.admits(row, users[row]), row)

    def _row(self, state: AdaCState, arm: Array) -> Array:
        return jnp.minimum(state.asked[arm], len(self.users) - 1)

    @override
    def conclude(
        self, key: Array, k: Array, state: AdaCState, sums: Wide, entered: Array | None = None
    ) -> tuple[AdaCState, Report]:
        pulls = self.pulls(state, k)
        pulled, row = pulls.active, self._row(state, pulls.active.argmax())
        decoded = self.protocol.decode(key, row, sums)
        report = Report(
            rounds=1,
            floats=pulls.users.astype(jnp.float32),
            float_bits=jnp.asarray(self.protocol.bits)[row],
            counts={"decodings": 1, "decoding failures": (decoded.failed & pulled).sum()},
        )
        shown = jnp.where(pulled, decoded.sums, 0)
        kept = jnp.where(pulled, shown, state.sums) if self.forgets else state.sums + shown
        return AdaCState(state.asked + pulled, kept, pulled, state.lot, shown), report

    @override
    def view(self, state: AdaCState) -> tuple[Array, Array]:
        return state.shown, state.pulled


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneArm(OfSums):
    """Base class of recipes with one arm a batch.

    The server learns one sum of rewards in [0, 1] per batch, about one arm, by the protocol of `sums`. The privacy unit
    is one user, with one contribution to one sum. Adjacency is replacement of that user's reward by any other in [0,
    1]. It moves the sum by at most 1 (the sensitivity).

    Args:
        sums, name: as in `OfSums`.

    Raises:
        ValueError: as `sums`, and if `sums` has a `unit`.
    """

    @property
    @override
    def tags(self) -> Tags:
        return super().tags | tagged("sums", self.sums.title, {"one arm at a time": True})

    def released(self, spec: Spec, horizon: int, sizes: np.ndarray) -> tuple[Asked, dict[str, Any]]:
        """Returns what the noise is made for, and the fields of a `BoundAdaC` except radii, for batches of `sizes`."""
        check_arms(str(self.name), spec.n_arms, horizon)
        asked = self.sums.asked(spec.n_arms * len(sizes), horizon)
        protocol = self.sums.protocol(asked, slots(np.where(np.cumsum(sizes) <= horizon, sizes, 0)))
        promised = self.sums.promised(protocol)
        fields = dict(protocol=protocol, epsilon=promised["epsilon"], delta=promised["delta"], spec=spec)
        return asked, fields | dict(times=len(sizes), users=padded(sizes.astype(np.int32)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaCUCB(OneArm):
    """Plays the arm of the largest upper confidence bound, in growing batches, each released once.

    Privacy is as in `OneArm`.

    Args:
        sums: as in `OneArm`, also for confidence radii and the growth of batches.
        name: label in results.

    Reference: Azize & Basu (2024), "Concentrated differential privacy for bandits", AdaC-UCB. With Laplace noise, for
    pure DP, it is AdaP-UCB of Azize & Basu (2022), "When privacy meets partial information". DEVIATION azize2024
    AdaC-UCB: the failure probability of the width does not fall with t. Noise is integer noise. First batches have two
    users, not one.
    """

    sums: SE = dataclasses.field(default=SE(radius="exact"), kw_only=False)
    name: str = "AdaC-UCB"  # pyright: ignore[reportIncompatibleVariableOverride]

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundAdaC:
        sizes = batches(self.sums.growth, horizon)
        asked, fields = self.released(spec, horizon, sizes)
        radius = self.sums.radii(asked, sizes, spec.n_arms)[:, spec.n_arms]
        return BoundAdaC(radius=padded(radius.astype(np.float32)), **fields)
