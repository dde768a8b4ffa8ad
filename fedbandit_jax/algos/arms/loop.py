"""Batched successive elimination once everything is known: tables, and the loop that reads them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from fedbandit_jax.certificate import Certificate, Raw, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces import ArmAlgorithm, Plan, Report, Spec
from fedbandit_jax.privacy.integers.ring import SumProtocol


class EliminationState(NamedTuple):
    """What the server knows."""

    active: Array  # (K,) bool
    shown: Array  # (K,) the last noisy sums, 0 where nothing was asked


@struct.sealed
@struct.pytree
class BoundElimination(ArmAlgorithm):
    """Algorithm 1 with its batch sizes and radii as tables by batch and by the number of active arms."""

    users: Any  # (S, K + 1) int32 users of an arm
    radius: Any  # (S, K + 1) float32
    protocol: SumProtocol
    epsilon: struct.Number  # asked for
    delta: struct.Number  # at which the certificate is stated
    users_return: bool = struct.static()  # by the environment's own account
    round_robin: bool = struct.static()

    @property
    def n_batches(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """S."""
        return len(self.users)

    def init(self, key: Array, spec: Spec) -> EliminationState:
        """All arms are active."""
        del key
        return EliminationState(jnp.ones(spec.n_arms, bool), jnp.zeros(spec.n_arms))

    def plan(self, state: EliminationState, k: Array) -> Plan:
        """Lines 4-6. DEVIATION chowdhury2023 Alg. 1: when one arm is left its users are not asked any more."""
        n_active = state.active.sum()
        users = jnp.asarray(self.users)[k, n_active]
        return Plan(state.active, users, (n_active > 1) & self.protocol.admits(k, users))

    def collect(self, key: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Wide:
        """Line 8."""
        return self.protocol.collect(key, k, rewards, inside)

    def conclude(self, key: Array, k: Array, state: EliminationState, sums: Wide) -> tuple[EliminationState, Report]:
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
        return EliminationState(active, jnp.where(state.active, decoded.sums, 0)), report

    def view(self, state: EliminationState) -> tuple[Array, Array]:
        """The noisy sums of a batch and what was eliminated by them."""
        return state.shown, state.active

    @property
    def raw(self) -> tuple[Raw, ...]:
        """No door: rewards enter the protocol, and everything else follows from its sums."""
        return ()

    def guarantee(self) -> Certificate:
        """The protocol's, for all batches that `plan` may ask."""
        if not struct.is_sealed(self.protocol):
            return no_privacy(f"{type(self.protocol).__name__} is a protocol of its own, of which nothing is proved")
        found = self.protocol.guarantee(float(self.epsilon), float(self.delta))
        if self.users_return and found.epsilon is not None:
            unit = "what one user did in one round: users return, for more see visits"
            found = dataclasses.replace(found, unit=unit)
        return found.through(self.raw)
