"""What the server learns at every synchronisation: the sums of all batches so far, through a release and a protocol.

Channels of one interface: `Exact` (no privacy); `Aggregated` (the exact sums plus the protocol's noise, drawn at once);
`Rounded` (the same for integer protocols: the sum over silos is encoded, rounded, and integer noise added); `Messages`
(every message of every silo: randomised, sent through the third party, analysed), of the same law.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.statistic import pack, pack_users, packed_size, unpack
from fedbandit_jax.privacy.trust.protocols import Protocol

MAX_BITS = 10**9  # of message-level vector sums, one byte each


class Sums(NamedTuple):
    """Compensated sum of all batches."""

    high: Array  # (d, d + 1) W | U
    low: Array  # (d, d + 1) what `high` has too much (Kahan)

    def add(self, batch: Array) -> Sums:
        """Add one batch."""
        batch = batch - self.low
        high = self.high + batch
        return Sums(high, (high - self.high) - batch)


class ChannelState(NamedTuple):
    """A channel between two synchronisations."""

    sums: Sums | None
    release: Any
    protocol: Any
    view: Any  # what the last synchronisation showed to those who are not trusted


@struct.pytree
class Exact:
    """The sums themselves."""

    n_agents: int = struct.static()

    def init(self, dim: int) -> ChannelState:
        """Nothing sent."""
        zeros = jnp.zeros((dim, dim + 1))
        return ChannelState(Sums(zeros, zeros), (), (), zeros)

    def step(self, key: Array, k: Array, state: ChannelState, x: Array, y: Array) -> tuple[Array, ChannelState]:
        """(W | U) of all batches (d, d + 1) after batch k = 1, 2, ... of users x (B, d, M), y (B, M)."""
        return self.release_sum(key, k, state, jnp.einsum("bim,bjm->ij", x, _rows(x, y), precision="highest"), x, y)

    def release_sum(
        self, key: Array, k: Array, state: ChannelState, total: Array, x: Array, y: Array
    ) -> tuple[Array, ChannelState]:
        """As `step`, from the sum `total` (d, d + 1) over the users of batch k; x and y for those who send on their
        own.

        With x (0, d, M) and y (0, M) of nobody, only for protocols that need no users.
        """
        del key, k, x, y
        sums = state.sums.add(total)  # pyright: ignore[reportOptionalMemberAccess]
        return sums.high, state._replace(sums=sums, view=sums.high)

    def uplink(self, k: Array, dim: int) -> tuple[Array | int, Array | int]:
        """Numbers that all silos send at release k, and bits of each."""
        del k
        return self.n_agents * packed_size(dim), 32


@struct.pytree
class Aggregated(Exact):
    """The sums and the noise that the protocol's messages would have had, in law."""

    protocol: Protocol
    release: Release = struct.static()

    def init(self, dim: int) -> ChannelState:
        """No release yet."""
        state = Exact.init(self, dim)
        size = packed_size(dim)
        return state._replace(release=self.release.init((size,)), protocol=self.protocol.init(size))

    def release_sum(
        self, key: Array, k: Array, state: ChannelState, total: Array, x: Array, y: Array
    ) -> tuple[Array, ChannelState]:
        """Private (W | U), (d, d + 1)."""
        exact, state = Exact.release_sum(self, key, k, state, total, x, y)
        draw, protocol = self.protocol.noise(key, k, state.protocol, x, y)
        noise, release = self.release.step(state.release, k, draw)
        statistics = exact + unpack(noise, len(exact))
        return statistics, state._replace(release=release, protocol=protocol, view=statistics)

    def uplink(self, k: Array, dim: int) -> tuple[Array | int, Array | int]:
        """Numbers that all silos send at release k, and bits of each."""
        parts = jnp.asarray(self.release.live(k)).sum()
        size = packed_size(dim)
        return self.protocol.uplink(k, self.n_agents * size * parts, size)


@struct.pytree
class Rounded(Aggregated):
    """The sum of all silos' messages on the protocol's grid, with integer noise: an exact sum would show through it."""

    def init(self, dim: int) -> ChannelState:
        """No release yet."""
        size = packed_size(dim)
        release = (self.release.encode_init((size,)), self.release.init((size,)))
        return ChannelState(None, release, self.protocol.init(size), jnp.zeros((dim, dim + 1)))

    def release_sum(
        self, key: Array, k: Array, state: ChannelState, total: Array, x: Array, y: Array
    ) -> tuple[Array, ChannelState]:
        """Private (W | U), (d, d + 1)."""
        encoder, decoder = state.release
        message, encoder = self.release.encode(encoder, k, pack(total))
        noisy, protocol = self.protocol.noisy_sum(key, k, state.protocol, message, x, y)
        prefix, decoder = self.release.decode(decoder, k, noisy)
        statistics = unpack(prefix, x.shape[1])
        return statistics, ChannelState(None, (encoder, decoder), protocol, statistics)


@struct.pytree
class Messages(Aggregated):
    """Every message of every silo. Slower; for audits, and to convince oneself."""

    batch: int = struct.static()

    def init(self, dim: int) -> ChannelState:
        """Silos that have encoded nothing, and a server that has decoded nothing."""
        size, release = packed_size(dim), self.release
        if self.protocol.needs_users:
            bits = release.n_syncs * self.batch * self.n_agents * size * self.protocol.width
            if bits > MAX_BITS:
                raise ValueError(
                    f"messages=True would hold {bits:.3g} bits of users' messages at once, more than {MAX_BITS:.0e}: "
                    "choose fewer silos, rounds or features"
                )
        decoder = release.init((size,))
        users = jnp.zeros((release.n_syncs, self.batch, size, self.n_agents)) if self.protocol.needs_users else ()
        state = ChannelState(
            sums=None,
            release=(
                self._each(release.encode_init((size,))),
                self._each(decoder) if release.prefix_at_silo else decoder,
            ),
            protocol=users,
            view=None,
        )
        x, y = jnp.zeros((self.batch, dim, self.n_agents)), jnp.zeros((self.batch, self.n_agents))
        view = jax.eval_shape(self.step, jax.random.key(0), jnp.int32(1), state, x, y)[1].view
        return state._replace(view=jnp.zeros(view.shape, view.dtype))

    def step(self, key: Array, k: Array, state: ChannelState, x: Array, y: Array) -> tuple[Array, ChannelState]:
        """R at every silo, S between, A at the server."""
        protocol, release, m = self.protocol, self.release, self.n_agents
        silos, third, server = jax.random.split(key, 3)
        encoders, decoder = state.release
        sums = pack(jnp.einsum("bim,bjm->mij", x, _rows(x, y), precision="highest"))
        messages, encoders = jax.vmap(release.encode, (0, None, 0))(encoders, k, sums)
        users = state.protocol
        if protocol.needs_users:
            users = users.at[k - 1].set(pack_users(x, y), mode="drop")
            batches = jnp.arange(1, release.n_syncs + 1)
            inside = jnp.repeat((batches <= k) & (batches > k - (k & -k)), self.batch)
            messages = (
                jnp.moveaxis(users, 3, 0).reshape(m, len(inside), -1),
                jnp.broadcast_to(inside, (m, len(inside))),
            )
        keys = jax.random.split(silos, m)
        sent = jax.vmap(protocol.randomize, (0, 0, None, 0))(keys, jnp.arange(m), k, messages)
        if release.prefix_at_silo:
            sent, decoder = jax.vmap(release.decode, (0, None, 0))(decoder, k, sent)
        shown = protocol.third_party(third, sent)
        total = prefix = protocol.analyze(server, k, shown)
        if not release.prefix_at_silo:
            prefix, decoder = release.decode(decoder, k, total)
        view = total if protocol.shows_sum else shown
        return unpack(prefix, x.shape[1]), ChannelState(None, (encoders, decoder), users, view)

    def _each(self, state: Any) -> Any:
        """One copy for every silo."""
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.n_agents, *jnp.shape(leaf))), state)


def _rows(x: Array, y: Array) -> Array:
    """(B, d + 1, M): features and reward of every user."""
    return jnp.concatenate([x, y[:, None]], axis=1)
