"""Noisy sums, with noise drawn at once (`Aggregated`, on a grid `Rounded`) or message by message (`Messages`).

All are bound for S synchronisations; later releases are NaN.

For Gaussian trust models `Messages` has exactly the law of `Aggregated`; for integer noise it has that of `Rounded` up
to what the trust model states, and certificates are about the protocol with single messages. It is slower by a factor
of M; audits look at its view.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct, whole, wide
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.accounted import AccountedMechanism
from fedbandit_jax.privacy.admission import Admitted
from fedbandit_jax.privacy.bound import MechanismState
from fedbandit_jax.privacy.packing import added, pack_users, packed_size
from fedbandit_jax.privacy.sums import Steps, Sums
from fedbandit_jax.privacy.totals import UserTotals

MAX_BITS = 10**9  # the most bits of users' messages that `Messages` holds at once; each takes one byte


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


@struct.sealed
@struct.pytree
class Messages(NoisyMechanism):
    """A mechanism that randomises every message of every silo, which is slow: it is meant for audits and tests."""

    fixed_batches = True

    @override
    def init(self, dim: int) -> MechanismState:
        size, release = packed_size(dim), self.release
        batch = self.batch or 0  # `Mechanism.bind` makes `Messages` only for batches of one known size
        users = ()
        if self.trust.needs_users:
            most = release.size  # pyright: ignore[reportAttributeAccessIssue] - of a `Tree`
            bits = most * batch * self.n_agents * size * self.trust.width
            if bits > MAX_BITS:
                raise BadValue(
                    "messages",
                    f"must be False where messages have more than {MAX_BITS:.0e} bits at once",
                    True,
                    got=f"{bits:.3g} bits: choose fewer silos, rounds or features",
                )
            users = jnp.zeros((most, batch, size, self.n_agents))
        decoder = release.init((size,))
        state = MechanismState(
            sums=None,
            release=(
                self._each(release.encode_init((size,))),
                self._each(decoder) if release.prefix_at_silo else decoder,
            ),
            trust=users,
            view=None,
            seen=self.read(jnp.zeros((dim, dim + 1)), jnp.float32(0)),
        )
        x, v = jnp.zeros((batch, dim, self.n_agents)), jnp.zeros((batch, self.n_agents))
        zeros = jnp.zeros((dim, dim + 1))
        view = jax.eval_shape(self.step, jax.random.key(0), jnp.int32(1), state, zeros, x, v)[1].view
        return state._replace(view=jnp.zeros(view.shape, view.dtype))

    @property
    @override
    def needs_users(self) -> bool:
        return True

    @override
    def step(
        self, key: Array, k: Array, state: MechanismState, total: Any, x: Array, v: Array, sends: Array | None = None
    ) -> tuple[Array, MechanismState]:
        if not len(x) and self.batch:
            raise NotImplementedError(
                "Messages.step: messages are made of the users of every silo, of whom none is given"
            )
        trust, release, m = self.trust, self.release, self.n_agents
        silos, third, server = jax.random.split(key, 3)
        encoders, decoder = state.release
        sums = self.statistic.pack(jnp.moveaxis(self.real(self.summands(x, v).sum(0)), -1, 0))
        messages, encoders = jax.vmap(release.encode, (0, None, 0))(encoders, k, sums)
        users = state.trust
        if trust.needs_users:
            users = users.at[k - 1].set(pack_users(x, v), mode="drop")
            batches = jnp.arange(1, len(users) + 1)
            inside = jnp.repeat((batches <= k) & (batches > k - (k & -k)), x.shape[0])
            messages = (
                jnp.moveaxis(users, 3, 0).reshape(m, len(inside), -1),
                jnp.broadcast_to(inside, (m, len(inside))),
            )
        keys = jax.random.split(silos, m)
        sent = jax.vmap(trust.randomize, (0, 0, None, 0))(keys, jnp.arange(m), k, messages)
        if release.prefix_at_silo:
            sent, decoder = jax.vmap(release.decode, (0, None, 0))(decoder, k, sent)
        shown = trust.third_party(third, sent)
        total = prefix = trust.analyze(server, k, shown)
        if not release.prefix_at_silo:
            prefix, decoder = release.decode(decoder, k, total)
        view = total if trust.shows_sum else shown
        if state.view is not None:
            view = jnp.where(k <= release.n_syncs, view, state.view)
        return self._released(k, self.statistic.unpack(prefix)), MechanismState(None, (encoders, decoder), users, view)

    def _each(self, state: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.n_agents, *jnp.shape(leaf))), state)
