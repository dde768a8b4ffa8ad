"""Noisy sums: the noise of all messages is drawn at once (`Aggregated`), on a grid if it is of integers (`Rounded`).

Both are bound for S synchronisations; later releases are NaN. `privacy.messages` has the same message by message.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct, whole, wide
from fedbandit_jax.privacy.accounted import AccountedMechanism
from fedbandit_jax.privacy.admission import Admitted
from fedbandit_jax.privacy.bound import MechanismState
from fedbandit_jax.privacy.packing import added, packed_size
from fedbandit_jax.privacy.sums import Steps, Sums
from fedbandit_jax.privacy.totals import UserTotals


@struct.pytree
class NoisyMechanism(AccountedMechanism):
    """A mechanism that adds up the admitted statistics exactly, and adds the noise of the trust model."""

    @property
    @override
    def needed(self) -> int:
        return self.n_agents - self.trust.dropouts if self.trust.away == "few" else 0

    @override
    def admit(self, x: Array, y: Array, seen: Any = ()) -> Admitted:
        return self.statistic.admit(x, y, seen)

    @override
    def read(self, statistics: Array, std: Array) -> Any:
        return self.statistic.read(statistics[:, :-1], statistics[:, -1], std)

    @override
    def init(self, dim: int) -> MechanismState:
        totals = None
        if self.users.total is not None:
            totals = UserTotals.none(self.n_agents, self.statistic.n_users, dim)
        return super().init(dim)._replace(totals=totals)

    @property
    @override
    def clips(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.statistic.counts or self.users.total is not None

    @property
    @override
    def weighs(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.statistic.bounds.weighted

    @property
    @override
    def dtype(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return jnp.int32 if self.statistic.bounded else jnp.float32

    @override
    def summands(self, x: Array, v: Array) -> Array:
        if not self.statistic.bounded:
            return added(x, v)
        return whole.nearest(added(x, v, self.row_step))

    @override
    def total(self, x: Array, v: Array) -> Array:
        bounded = self.statistic.bounded and not self.apart
        return whole.add_up(self.summands(x, v)) if bounded else super().total(x, v)

    @override
    def real(self, total: Array) -> Array:
        return total.astype(jnp.float32) * self.row_step if self.statistic.bounded else total

    @override
    def nothing(self, dim: int) -> Sums | Steps:
        sums = super().nothing(dim)
        if not self.statistic.bounded:
            return sums
        return Steps(wide.from_int32(jnp.zeros_like(sums.high, jnp.int32)), jnp.float32(self.row_step))

    @override
    def uplink(self, k: Array, dim: int) -> tuple[Array | int, Array | int]:
        parts = jnp.asarray(self.release.live(k)).sum()
        size = packed_size(dim)
        return self.trust.uplink(k, self.n_agents * size * parts, size)

    def _released(self, k: Array, statistics: Array) -> Array:
        return jnp.where(k <= self.release.n_syncs, statistics, jnp.nan)


@struct.sealed
@struct.pytree
class Aggregated(NoisyMechanism):
    """A mechanism that adds to the exact sums one draw with the law of the noise of all silos' messages together."""

    @override
    def init(self, dim: int) -> MechanismState:
        return super().init(dim)._replace(release=self.release.init((packed_size(dim),)))

    @override
    def step(
        self, key: Array, k: Array, state: MechanismState, total: Any, x: Array, v: Array, sends: Array | None = None
    ) -> tuple[Array, MechanismState]:
        sums = state.sums.add(total)  # pyright: ignore[reportOptionalMemberAccess]
        trust = self.trust if sends is None else self.trust.among(sends)
        noise, release = self.release.step(state.release, k, trust.noise(key, packed_size(self.statistic.dim)))
        statistics = self._released(k, sums.noisy(self.statistic.unpack(noise)))
        return statistics, state._replace(sums=sums, release=release, view=statistics)


@struct.sealed
@struct.pytree
class Rounded(NoisyMechanism):
    """A mechanism that rounds the sum over silos to a grid, lest exact digits show through the integer noise."""

    @property
    @override
    def needs_users(self) -> bool:
        return self.trust.needs_users

    @override
    def init(self, dim: int) -> MechanismState:
        size = packed_size(dim)
        release = self.release.encode_init((size,)), self.release.init((size,))
        return super().init(dim)._replace(release=release, trust=self.trust.init(size))

    @override
    def step(
        self, key: Array, k: Array, state: MechanismState, total: Any, x: Array, v: Array, sends: Array | None = None
    ) -> tuple[Array, MechanismState]:
        (encoder, decoder), sums = state.release, state.sums.add(total)  # pyright: ignore[reportOptionalMemberAccess]
        message, encoder = self.release.encode(encoder, k, self.statistic.pack(sums.high))
        law = self.trust if sends is None else self.trust.among(sends)
        noisy, trust = law.noisy_sum(key, k, state.trust, message, x, v)
        prefix, decoder = self.release.decode(decoder, k, noisy)
        statistics = self._released(k, self.statistic.unpack(prefix))
        sent = dict(sums=self.nothing(self.statistic.dim), release=(encoder, decoder), trust=trust, view=statistics)
        return statistics, state._replace(**sent)
