"""Algorithms that learn noisy sums of rewards of arms, and the loop of successive elimination."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops.ledger import LEFT_OUT
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces import ArmAlgorithm, Pulls, Report, Spec
from fedbandit_jax.privacy.integers.proof import certificate_of_sums
from fedbandit_jax.privacy.integers.ring import RingSum
from fedbandit_jax.privacy.users import Users

ALL = 2**30  # users of a batch that asks nobody: everyone to the horizon


@struct.pytree
class SumLoop(ArmAlgorithm):
    """Base class of algorithms that learn only noisy sums of rewards, by a protocol."""

    protocol: RingSum  # draws the noise and proves what it gives
    epsilon: struct.Number  # the epsilon asked for, infinite without privacy
    delta: struct.Number  # the delta at which the certificate is stated
    spec: Spec = struct.static()  # of the environment that it is bound to

    @override
    def collect(
        self, rounding: Array, own: Array, k: Array, rewards: tuple[Array, Array], inside: tuple[Array, Array]
    ) -> Wide:
        return self.protocol.collect(rounding, own, k, rewards, inside)

    def guarantee(self) -> Certificate:
        """Returns the protocol's guarantee for the users of `spec`, each in one sum, or in `unit.visits`."""
        protocol = self.protocol
        if not struct.is_sealed(protocol):
            return no_privacy(f"nothing is proved of {type(protocol).__name__}, a user-defined protocol")
        leaves, structure = jax.tree.flatten(protocol)
        numbers = tuple((x.tobytes(), x.dtype.str, x.shape) for x in map(np.asarray, leaves))
        return _guarantee(
            structure, numbers, float(self.epsilon), float(self.delta), self.unit, bool(self.spec.n_users)
        )


@functools.lru_cache(maxsize=64)
def _guarantee(structure: Any, numbers: tuple[Any, ...], *asked: Any) -> Certificate:
    # Accounting takes tens of milliseconds; runs with other seeds share the protocol.
    leaves = [np.frombuffer(held, dtype).reshape(shape) for held, dtype, shape in numbers]
    return certificate_of_sums(jax.tree.unflatten(structure, leaves), *asked)


class EliminationState(NamedTuple):
    """Server of `BoundElimination` between two batches."""

    active: Array  # (K,) bool, arms that may still be the best
    shown: Array  # (K,) noisy sums of rewards of the last batch, 0 for arms that were not pulled


@struct.sealed
@struct.pytree
class BoundElimination(SumLoop):
    """Algorithm 1 with tables of batch sizes and radii, for an environment and a horizon.

    A table has a row for each of S batches, is `padded`, and has a column for every number 0 ... K of active arms.
    """

    n_batches: struct.Number  # pyright: ignore[reportIncompatibleVariableOverride]  # S
    users: Any  # (S, K + 1) int32, users who pull each active arm
    radius: Any  # (S, K + 1) float32, half the width of a confidence interval, in units of reward
    round_robin: bool = struct.static()  # whether arms take turns user by user
    unit: Users | None = struct.static(default=None)  # None: each interaction is protected by itself

    @override
    def init(self, key: Array, spec: Spec) -> EliminationState:
        return EliminationState(jnp.ones(spec.n_arms, bool), jnp.zeros(spec.n_arms))

    def pulls(self, state: EliminationState, k: Array) -> Pulls:
        """Returns the arms of batch k, and the users of each (Algorithm 1, lines 4-6).

        DEVIATION chowdhury2023 Alg. 1: if one arm is left, users still pull it. Their rewards are not collected.
        """
        n_active = state.active.sum()
        users = jnp.asarray(self.users)[k, n_active]
        return Pulls(state.active, users, (n_active > 1) & self.protocol.admits(k, users))

    def conclude(
        self, key: Array, k: Array, state: EliminationState, sums: Wide, entered: Array | None = None
    ) -> tuple[EliminationState, Report]:
        """Decodes the sums (K,) of batch k, and drops arms that are worse than another (Algorithm 1, lines 11-16).

        DEVIATION chowdhury2023 Alg. 1 l. 9-12: a batch that the horizon cuts short releases no sum, of any arm.

        If m of l rewards enter, their sum deviates from m times the mean by at most l radii. Hoeffding's bound for m is
        below the bound for l. The noise is the same.
        """
        n_active = state.active.sum()
        users, radius = (jnp.asarray(table)[k, n_active] for table in (self.users, self.radius))
        decoded = self.protocol.decode(key, k, sums)
        left_out = {}
        if entered is None:
            means = decoded.sums / users
        else:
            means = decoded.sums / jnp.maximum(entered, 1)
            radius = jnp.where(entered > 0, radius * users / jnp.maximum(entered, 1), jnp.inf)
            left_out = {LEFT_OUT: jnp.where(state.active, users - entered, 0).sum()}
        active = self.kept(key, state.active, means, radius)
        counts = {
            "eliminations": n_active - active.sum(),
            "decodings": n_active,
            "decoding failures": (decoded.failed & state.active).sum(),
            **left_out,
        }
        sent = n_active.astype(jnp.float32) * users
        report = Report(rounds=1, floats=sent, float_bits=jnp.asarray(self.protocol.bits)[k], counts=counts)
        return EliminationState(active, jnp.where(state.active, decoded.sums, 0)), report

    def kept(self, key: Array, active: Array, means: Array, radius: Array) -> Array:
        """Returns which of the active arms (K,) are left after a batch, by their noisy means."""
        best = jnp.where(active, means - radius, -jnp.inf).max()
        return active & (means + radius >= best)

    @override
    def view(self, state: EliminationState) -> tuple[Array, Array]:
        return state.shown, state.active
