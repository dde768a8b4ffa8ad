"""Batched successive elimination once everything is known: tables, and the loop that reads them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core import struct
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces import ArmAlgorithm, Plan, Report, Spec
from fedbandit_jax.privacy.integers.ring import SumProtocol


class State(NamedTuple):
    """What the server knows."""

    active: Array  # (K,) bool
    shown: Array  # (K,) the last noisy sums, 0 where nothing was asked


@struct.pytree
class BoundElimination(ArmAlgorithm):
    """Algorithm 1 with its batch sizes and radii as tables by batch and by the number of active arms."""

    users: Any  # (S, K + 1) int32 users of an arm
    radius: Any  # (S, K + 1) float32
    protocol: SumProtocol
    round_robin: bool = struct.static()
    n_batches: int = struct.static()

    def init(self, key: Array, spec: Spec) -> State:
        """All arms are active."""
        del key
        return State(jnp.ones(spec.n_arms, bool), jnp.zeros(spec.n_arms))

    def plan(self, state: State, k: Array) -> Plan:
        """Lines 4-6. DEVIATION chowdhury2023 Alg. 1: when one arm is left its users are not asked any more."""
        n_active = state.active.sum()
        return Plan(state.active, jnp.asarray(self.users)[k, n_active], n_active > 1)

    def collect(self, key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Wide:
        """Line 8."""
        return self.protocol.collect(key, k, rewards, inside)

    def conclude(self, key: Array, k: Array, state: State, sums: Wide) -> tuple[State, Report]:
        """Lines 11-16. DEVIATION chowdhury2023 Alg. 1 l. 9-12: a batch that the horizon cuts releases no arm's sum."""
        n_active = state.active.sum()
        users, radius = (jnp.asarray(table)[k, n_active] for table in (self.users, self.radius))
        decoded = self.protocol.decode(key, k, sums)
        means = decoded.sums / users
        best = jnp.where(state.active, means - radius, -jnp.inf).max()
        active = state.active & (means + radius >= best)
        counts = {
            "eliminations": n_active - active.sum(),
            "decodings": n_active,
            "decoding failures": (decoded.failed & state.active).sum(),
        }
        sent = n_active.astype(jnp.float32) * users
        report = Report(rounds=1, floats=sent, float_bits=jnp.asarray(self.protocol.bits)[k], counts=counts)
        return State(active, jnp.where(state.active, decoded.sums, 0)), report

    def view(self, state: State) -> tuple[Array, Array]:
        """The noisy sums of a batch and what was eliminated by them."""
        return state.shown, state.active
