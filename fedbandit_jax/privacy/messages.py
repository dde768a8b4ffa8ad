"""The mechanism message by message: what every silo, the third party and the server do at a synchronisation.

`Messages` is slower than `Aggregated` and `Rounded` by a factor of M; audits look at what it shows. It has exactly the
law of `Aggregated` for Gaussian trust models. For "secagg" and "shuffle_vector_sum" it has that of `Rounded` up to what
these classes state, and certificates are about the protocol with single messages, which runs here.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.bound import BoundMechanism, MechanismState, rows
from fedbandit_jax.privacy.statistic import pack_users, packed_size

MAX_BITS = 10**9  # the most bits of users' messages that `Messages` holds at once; each takes one byte


@struct.sealed
@struct.pytree
class Messages(BoundMechanism):
    """A mechanism that randomises every message of every silo, which is slow: it is meant for audits and tests."""

    fixed_batches = True

    @override
    def init(self, dim: int) -> MechanismState:
        size, release = packed_size(dim), self.release
        batch = self.batch or 0  # `Mechanism.bind` makes `Messages` only for batches of one known size
        if self.trust.needs_users:
            bits = release.n_syncs * batch * self.n_agents * size * self.trust.width
            if bits > MAX_BITS:
                raise ValueError(
                    f"messages=True would hold {bits:.3g} bits of users' messages at once, more than {MAX_BITS:.0e}: "
                    "choose fewer silos, rounds or features"
                )
        decoder = release.init((size,))
        users = jnp.zeros((release.n_syncs, batch, size, self.n_agents)) if self.trust.needs_users else ()
        state = MechanismState(
            sums=None,
            release=(
                self._each(release.encode_init((size,))),
                self._each(decoder) if release.prefix_at_silo else decoder,
            ),
            trust=users,
            view=None,
        )
        x, y = jnp.zeros((batch, dim, self.n_agents)), jnp.zeros((batch, self.n_agents))
        zeros = jnp.zeros((dim, dim + 1))
        view = jax.eval_shape(self.step, jax.random.key(0), jnp.int32(1), state, zeros, x, y)[1].view
        return state._replace(view=jnp.zeros(view.shape, view.dtype))

    @property
    @override
    def needs_users(self) -> bool:
        return True

    @override
    def step(
        self, key: Array, k: Array, state: MechanismState, total: Array, x: Array, y: Array
    ) -> tuple[Array, MechanismState]:
        if not len(x) and self.batch:
            raise NotImplementedError(
                "Messages.step: messages are made of the users of every silo, of whom none is given"
            )
        trust, release, m = self.trust, self.release, self.n_agents
        silos, third, server = jax.random.split(key, 3)
        encoders, decoder = state.release
        sums = self.statistic.pack(jnp.einsum("bim,bjm->mij", x, rows(x, y), precision="highest"))
        messages, encoders = jax.vmap(release.encode, (0, None, 0))(encoders, k, sums)
        users = state.trust
        if trust.needs_users:
            users = users.at[k - 1].set(pack_users(x, y), mode="drop")
            batches = jnp.arange(1, release.n_syncs + 1)
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
