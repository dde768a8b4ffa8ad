"""AdaC-UCB of Azize & Basu (2024): one arm at a time, in batches that double, by sums of the last batch alone.

An arm that is asked about for the j-th time, j = 1, 2, ..., is pulled by 2^j users, whose noisy sum is released once.
Its mean is estimated by that sum alone, and older sums are forgotten, so that every user is in one sum.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.arms.elimination import DELTA, SuccessiveElimination, batches, check_arms
from fedbandit_jax.algos.arms.elimination_loop import SumLoop
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces import Pulls, Recipe, Report, Spec
from fedbandit_jax.privacy.integers.mechanisms import MECHANISMS
from fedbandit_jax.privacy.tails import check_delta


class AdaCState(NamedTuple):
    """The state of the server between two batches."""

    asked: Array  # (K,) int32, how often every arm was asked about
    sums: Array  # (K,) the noisy sum of every arm's last batch
    pulled: Array  # (K,) bool, which arm the last batch was about


@struct.sealed
@struct.pytree
class BoundAdaC(SumLoop):
    """A bound `AdaCUCB`: tables have a row for every number of times j = 1, ..., J that an arm can be asked about."""

    users: Any  # (J,) int32, users of an arm that is asked about for the j-th time
    radius: Any  # (J,) float32, half the width of its confidence interval, in units of reward

    @property
    def n_batches(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The most batches there can be, K J."""
        return len(self.users) * self.spec.n_arms

    @override
    def init(self, key: Array, spec: Spec) -> AdaCState:
        nothing = jnp.zeros(spec.n_arms)
        return AdaCState(nothing.astype(jnp.int32), nothing, nothing > 0)

    @override
    def pulls(self, state: AdaCState, k: Array) -> Pulls:
        last = jnp.maximum(state.asked - 1, 0)
        users, radius = jnp.asarray(self.users), jnp.asarray(self.radius)
        bound = jnp.where(state.asked > 0, state.sums / users[last] + radius[last], jnp.inf)
        best = bound.argmax()
        row = self._row(state, best)
        return Pulls(jnp.arange(len(bound)) == best, users[row], self.protocol.admits(row, users[row]), row)

    def _row(self, state: AdaCState, arm: Array) -> Array:
        return jnp.minimum(state.asked[arm], len(self.users) - 1)

    @override
    def conclude(self, key: Array, k: Array, state: AdaCState, sums: Wide) -> tuple[AdaCState, Report]:
        pulls = self.pulls(state, k)
        pulled, row = pulls.active, self._row(state, pulls.active.argmax())
        decoded = self.protocol.decode(key, row, sums)
        report = Report(
            rounds=1,
            floats=pulls.users.astype(jnp.float32),
            float_bits=jnp.asarray(self.protocol.bits)[row],
            counts={"decodings": 1, "decoding failures": (decoded.failed & pulled).sum()},
        )
        return AdaCState(state.asked + pulled, jnp.where(pulled, decoded.sums, state.sums), pulled), report

    def view(self, state: AdaCState) -> tuple[Array, Array]:
        """The release of the last batch: its noisy sum (K,), 0 for other arms, and which arm it was of (K,)."""
        return jnp.where(state.pulled, state.sums, 0), state.pulled


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaCUCB(Recipe):
    """Plays the arm of the largest upper confidence bound, in batches that double, each of which is released once.

    The server learns one sum of rewards in [0, 1] per batch, which is about one arm, through the protocols of
    `SuccessiveElimination`; `trust` says who adds the noise, and who is trusted. The privacy unit is one user, who
    comes once and is in one sum. Adjacency is replacement of that user's reward by any other in [0, 1], which moves the
    sum by at most 1 (the sensitivity).

    Confidence intervals are those of `SuccessiveElimination(radius="exact")`: all of them together hold with
    probability 1 - 3 `failure`.

    Args:
        epsilon: privacy parameter in [1e-9, 500]; what it promises depends on the mechanism, see
            `SuccessiveElimination`. None without privacy.
        mechanism, trust: the law of the noise and who adds it, a row of the table of `SuccessiveElimination` except
            that of DP-SE.
        scale: s in [1, 2^24] of Skellam and discrete Gaussian noise, as there.
        failure: p in (0, 0.3].
        delta: the delta in (0, 1) at which the certificate states (epsilon, delta); None: 1e-6.
        name: label in results.

    Raises:
        ValueError: as `SuccessiveElimination`.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.arms(n_arms=5, instance="easy")
        >>> algo = fb.algos.AdaCUCB(epsilon=0.5, mechanism="discrete_laplace", trust="secagg")
        >>> certificate = algo.certificate(env.spec, horizon=20_000)
        >>> certificate.claim, certificate.notion, round(certificate.epsilon_exact, 3)
        ('certified', 'pure DP', 0.5)

    Reference: Azize & Basu (2024), "Concentrated differential privacy for bandits", AdaC-UCB.
    """

    # DEVIATION azize2024 AdaC-UCB: the confidence width is from the exact law of the noise, for a failure probability
    # that does not fall with t; noise is that of integer mechanisms; and first batches have two users, not one.
    epsilon: float | None = None
    mechanism: str = "none"
    trust: str = "none"
    scale: float | None = None
    failure: float = 0.1
    delta: float | None = None
    name: str = "AdaC-UCB"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        pair = validate.text("mechanism", self.mechanism), validate.text("trust", self.trust)
        if pair not in [("none", "none"), *MECHANISMS]:
            raise ValueError(f"mechanism and trust must be one of {[('none', 'none'), *MECHANISMS]}, got {pair!r}")
        validate.text("name", self.name)
        self._sums()

    def _sums(self) -> SuccessiveElimination:
        names = ("epsilon", "mechanism", "trust", "scale", "failure", "delta")
        return SuccessiveElimination(radius="exact", **{name: getattr(self, name) for name in names})

    @override
    def parameters(self) -> tuple[str, ...]:
        used = self._sums().parameters()
        return tuple(name for name in super().parameters() if name in used)

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundAdaC:
        n_arms, sums = spec.n_arms, self._sums()
        check_arms(self.name, n_arms, horizon)
        sizes = batches(2, horizon)
        mechanism = sums.integers(n_arms * len(sizes), horizon)
        protocol = sums.protocol(mechanism, np.where(np.cumsum(sizes) <= horizon, sizes, 0).astype(np.int32))
        delta = DELTA if self.delta is None else self.delta
        if self.epsilon is not None:
            check_delta(delta, protocol.missing)
        return BoundAdaC(
            users=np.minimum(sizes, 2**31 - 1).astype(np.int32),
            radius=sums.radii(mechanism, sizes, n_arms)[:, n_arms].astype(np.float32),
            protocol=protocol,
            epsilon=math.inf if self.epsilon is None else float(self.epsilon),
            delta=float(delta),
            spec=spec,
        )
