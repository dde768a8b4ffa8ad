"""The noise of every single message: the same sums by the whole protocol, M times as slow.

For Gaussian trust models it has exactly the law of `Aggregated`. For integer noise it has that law up to the factors
that the trust model states. Certificates are about the protocol with single messages.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.bound import MechanismState, Stepped, Timing
from fedbandit_jax.privacy.integers.ring import RingSum, misfit
from fedbandit_jax.privacy.noisy_sums import Aggregated, NoisyMechanism, Rounded
from fedbandit_jax.privacy.packing import pack_users, packed_size
from fedbandit_jax.privacy.trust.model import Trust

MAX_BITS = 10**9  # the most bits of users' messages that `Messages` holds at once; each takes one byte
WHERE = "are made of single visits, in batches of one size, by silos that are always there"


@struct.sealed
@struct.pytree
class Messages(NoisyMechanism):
    """A mechanism that randomises every message of every silo, passes them on, and analyses them."""

    needs_users = shows_silos = True

    @override
    def init(self, dim: int) -> MechanismState:
        size, release, batch = packed_size(dim), self.release, self.batch or 0
        users = ()
        if self.trust.needs_users:
            users = jnp.zeros((release.size, batch, size, self.n_agents))  # pyright: ignore[reportAttributeAccessIssue]
        zeros, encoder = jnp.zeros((dim, dim + 1)), release.encode_init((size,))
        encoders = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.n_agents, *jnp.shape(leaf))), encoder)
        seen = self.read(zeros, jnp.float32(0))
        state = MechanismState(None, (encoders, release.init((size,))), users, None, seen)
        x, v = jnp.zeros((batch, dim, self.n_agents)), jnp.zeros((batch, self.n_agents))
        view = jax.eval_shape(self.step, jax.random.key(0), jnp.int32(1), state, zeros, x, v)[1].view
        return state._replace(view=jnp.zeros(view.shape, view.dtype))

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        if not len(x) and self.batch:
            raise NotImplementedError("Messages.step: messages are made of users, of whom none is given")
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
            messages = jnp.moveaxis(users, 3, 0).reshape(m, len(inside), -1), jnp.broadcast_to(inside, (m, len(inside)))
        keys = jax.random.split(silos, m)
        sent = jax.vmap(trust.randomize, (0, 0, None, 0))(keys, jnp.arange(m), k, messages)
        shown = trust.third_party(third, sent)
        total = trust.analyze(server, k, shown)
        prefix, decoder = release.decode(decoder, k, total)
        view = total if trust.shows_sum else shown
        if state.view is not None:
            view = jnp.where(k <= release.n_syncs, view, state.view)
        return self._released(k, self.statistic.unpack(prefix)), MechanismState(None, (encoders, decoder), users, view)

    @override
    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        if not timing.fixed or self.batch is None or self.statistic.drops:
            return no_privacy(f"nothing is proved of this mechanism: single messages {WHERE}")
        return super().guarantee(timing, batch)


def by_message(bound: Any) -> Any:
    """Returns the same bound algorithm, with every message of every silo randomised, passed on and analysed.

    Args:
        bound: a loop in batches of one size, or its mechanism, with noise drawn at once. It may also be an algorithm
            for arms. Users then draw their shares of the noise.

    Raises:
        ValueError: if there are no such messages, or they have too many bits.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=2, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=10)
        >>> bound = fb.audits.by_message(algo.bind(env.spec, horizon=50))
        >>> fb.interfaces.certify(bound).claim, type(bound.mechanism).__name__
        ('certified', 'Messages')
    """
    if isinstance(protocol := getattr(bound, "protocol", None), RingSum):
        return dataclasses.replace(bound, protocol=_shared(protocol))
    if not isinstance(bound, NoisyMechanism) and getattr(bound, "equal_batches", None):
        return dataclasses.replace(bound, mechanism=by_message(bound.mechanism))
    made = type(bound) in (Aggregated, Rounded) and type(bound.trust).randomize is not Trust.randomize
    if not made or bound.batch is None or bound.statistic.drops:
        raise BadValue("bound", f"must have messages, which {WHERE}", bound, got=type(bound).__name__)
    if bound.trust.needs_users:
        nodes: Any = bound.release
        bits = nodes.size * bound.batch * bound.n_agents * packed_size(bound.statistic.dim) * bound.trust.width
        if bits > MAX_BITS:
            got = f"{bits:.3g}: choose fewer silos, rounds or features"
            raise BadValue("bound", f"must have at most {MAX_BITS:.0e} bits of messages", bound, got=got)
    return Messages(**{field.name: getattr(bound, field.name) for field in dataclasses.fields(bound)})


def _shared(protocol: RingSum) -> RingSum:
    """Returns the protocol in which every user draws a share of the noise."""
    for k in range(len(protocol.users)):
        _, steps, modulus = protocol.sizes(k)
        if wrong := misfit(protocol.noise, k, steps, modulus, messages=True):
            names, condition, why = wrong
            raise BadValue("bound", f"must have messages that fit: {names[0]} {condition}", protocol, got=why)
    return dataclasses.replace(protocol, messages=True)
