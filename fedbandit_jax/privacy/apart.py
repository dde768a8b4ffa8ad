"""Mechanisms with a server that adds up every silo's private prefix sums by a robust rule.

Prefix sums are post-processing of messages. With them a silo that lies always does no more harm than one that lies
once. A release has sqrt(M) times the noise of one prefix sum, times the `cost` of the rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import struct
from fedbandit_jax.privacy.bound import BoundMechanism, Exact, MechanismState, NoRelease, Stepped, Timing
from fedbandit_jax.privacy.byzantine import AGGREGATES, ATTACKS, Liars, cost
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.noisy_sums import Aggregated, NoisyMechanism
from fedbandit_jax.privacy.packing import pack, packed_size, unpack


@struct.sealed
@struct.pytree
class Server:
    """A server that is shown M messages, some of them lies, and adds them up by a rule."""

    lying: Any  # (M,) 1 for silos that lie
    attack: struct.Number  # which of `ATTACKS` it is
    aggregate: str = struct.static()  # a key of `AGGREGATES`

    def shown(self, key: Array, sent: Array, sums: Array) -> Array:
        """Returns the silos' messages with lies, (M, D), from the true ones, packed and as [W | U], (M, d, d + 1)."""
        lies = jnp.stack([attack(key, sent, sums) for attack in ATTACKS.values()])
        return jnp.where(jnp.asarray(self.lying)[:, None] > 0, lies[self.attack], sent)

    def total(self, shown: Array) -> Array:
        """Returns the estimate of the sum over all M silos, (D,)."""
        return len(shown) * AGGREGATES[self.aggregate](shown)


@struct.sealed
@struct.pytree
class ExactApart(Exact):
    """A mechanism without privacy; the server is shown every silo's exact sums."""

    apart = True

    server: Server

    @override
    def init(self, dim: int) -> MechanismState:
        return super().init(dim)._replace(view=jnp.zeros((self.n_agents, packed_size(dim))))

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        state = self.absorb(state, total)
        each = state.sums.high
        shown = self.server.shown(key, pack(each), each)
        return unpack(self.server.total(shown), each.shape[1]), state._replace(view=shown)


@struct.sealed
@struct.pytree
class Apart(NoisyMechanism):
    """A silo-local mechanism; the server is shown every silo's private prefix sum.

    So users have the guarantee of `SiloLocal`, however other silos and the server behave.
    """

    apart = shows_silos = True

    server: Server

    @property
    @override
    def tags(self) -> Tags:
        return super().tags | tagged("aggregate", self.server.aggregate, {"server shown silos": True})

    @override
    def stds(self) -> np.ndarray:
        size = packed_size(self.statistic.dim)
        return super().stds() * cost(self.server.aggregate, self.n_agents, size)

    @override
    def init(self, dim: int) -> MechanismState:
        shape = self.n_agents, packed_size(dim)
        return super().init(dim)._replace(release=self.release.init(shape), view=jnp.zeros(shape))

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        noises, lies = jax.random.split(key)
        state, m = self.absorb(state, total), self.n_agents
        nothing = jnp.zeros((m, packed_size(self.statistic.dim)))
        fresh = jax.vmap(self.trust.randomize, (0, 0, None, 0))(jax.random.split(noises, m), jnp.arange(m), k, nothing)
        noise, release = self.release.decode(state.release, k, fresh)
        each = state.sums.noisy(self.statistic.unpack(noise))
        shown = self.server.shown(lies, self.statistic.pack(each), each)
        statistics = self._released(k, self.statistic.unpack(self.server.total(shown)))
        view = jnp.where(k <= self.release.n_syncs, shown, state.view)
        return statistics, state._replace(release=release, view=view)

    @override
    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        found = super().guarantee(timing, batch)
        if found.claim == "none" or not np.any(self.server.lying):
            return found
        return dataclasses.replace(found, not_covered=(*found.not_covered, "users of silos that lie"))

    def plain(self) -> Apart:
        """Returns the same mechanism with the plain sum of honest silos, so all noise is Gaussian."""
        server = dataclasses.replace(self.server, lying=0 * self.server.lying, aggregate="sum")
        return dataclasses.replace(self, server=server)

    @override
    def _why(self, timing: Timing) -> Iterator[str]:
        yield from super()._why(timing)
        yield f"the server's rule {self.server.aggregate!r} for single noised messages is post-processing of them"

    @override
    def _misfit(self, timing: Timing, batch: int | None) -> str:
        if not struct.is_sealed(self.server):
            return f"{type(self.server).__name__} is a server of its own"
        return super()._misfit(timing, batch)


def shown_apart(mechanism: BoundMechanism, aggregate: str, liars: Liars | None) -> BoundMechanism:
    """Returns the same mechanism with a server that sees every silo's sums and adds them up by a rule.

    Args:
        mechanism: `Aggregated` noise of silos, `Exact`, or `NoRelease`, which is returned.
        aggregate: a key of `AGGREGATES`.
        liars: silos that lie to the server, if any.

    Raises:
        ValueError: if `liars` names a silo that does not exist.
    """
    if isinstance(mechanism, NoRelease):
        return mechanism
    liars = liars or Liars(0.0)
    attack = np.int32(list(ATTACKS).index(liars.attack))
    server = Server(lying=liars.mask(mechanism.n_agents), attack=attack, aggregate=aggregate)
    assert type(mechanism) in (Exact, Aggregated)
    kind: Any = ExactApart if type(mechanism) is Exact else Apart
    return kind(**{one.name: getattr(mechanism, one.name) for one in dataclasses.fields(mechanism)}, server=server)
