"""Mechanisms with noise: their exact sums, and the draws that are added to them. Their proof is in `proof`.

The noise of all messages is drawn at once (`Aggregated`), or from users if it depends on them (`Rounded`). Both are
bound for S synchronisations; later releases are NaN. `audits.messages` draws message by message. Noise that depends on
no data may be drawn before the loop that adds it (`WithRows`). One compiled loop then serves all.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import control, struct, whole, wide
from fedbandit_jax.core.programs import call
from fedbandit_jax.privacy import proof
from fedbandit_jax.privacy.admission import Admitted, BoundStatistic
from fedbandit_jax.privacy.bound import MechanismState, PrivateMechanism, Stepped, Timing
from fedbandit_jax.privacy.packing import added, packed_size
from fedbandit_jax.privacy.statistic import LINEAR, Linear
from fedbandit_jax.privacy.sums import Steps, Sums

PROVED = ("epsilon", "delta", "adjacency", "held", "batch")  # fields that only the proof reads
Rows = tuple[Array, Array]  # noise (N, D) of N releases, and the numbers sent for each with their bits, (N, 2)


class Limit(NamedTuple):
    """Size of a release, the only field left after its noise is drawn."""

    n_syncs: struct.Number  # S


@struct.pytree
class NoisyMechanism(PrivateMechanism):
    """A mechanism that adds up the admitted statistics exactly, and adds the noise of the trust model."""

    @override
    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        return proof.certificate(self, timing, batch)

    @property
    @override
    def needed(self) -> int:
        return self.n_agents - self.trust.dropouts if self.trust.away == "few" else 0

    @override
    def objection(self, spec: Any) -> str:
        other = not struct.is_sealed(self.statistic)
        if other or dataclasses.replace(self.statistic, rule=LINEAR) != BoundStatistic.of(spec):
            return super().objection(spec) or f"the mechanism is bound to another statistic, not for {spec}"
        return super().objection(spec)

    @override
    def admit(self, x: Array, y: Array, seen: Any = ()) -> Admitted:
        return self.statistic.admit(x, y, seen)

    @override
    def read(self, statistics: Array, std: Array) -> Any:
        return call(self.statistic.rule, "read", statistics[:, :-1], statistics[:, -1], std)

    @property
    @override
    def clips(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        rule = self.statistic.rule  # rewards in [0, 1] are clipped without notice
        return self.statistic.bounded and not (type(rule) is Linear and (rule.low, rule.high) == (0, 1))

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
        bounded = self.statistic.bounded and not self.per_silo
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
        size = packed_size(dim)
        return self.trust.uplink(k, self.n_agents * size, size)

    def given(self, rows: Rows | None) -> WithRows:
        """Returns the same sums with these rows to add. Only S is left of release and trust model."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(NoisyMechanism)}
        fields |= dict.fromkeys(("trust", *PROVED)) | {"release": Limit(self.release.n_syncs)}
        return WithRows(**fields, drawn=rows)

    def _released(self, k: Array, statistics: Array) -> Array:
        return jnp.where(k <= self.release.n_syncs, statistics, jnp.nan)

    def _plus(self, k: Array, state: Any, total: Any, noise: Array) -> Stepped:
        sums = state.sums.add(total)
        statistics = self._released(k, sums.noisy(self.statistic.unpack(noise)))
        return statistics, state._replace(sums=sums, view=statistics)


@struct.sealed
@struct.pytree
class Aggregated(NoisyMechanism):
    """A mechanism that adds to the exact sums one draw, with the law of all silos' noise together."""

    @override
    def init(self, dim: int) -> MechanismState:
        return super().init(dim)._replace(release=self.release.init((packed_size(dim),)))

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        trust = self.trust if sends is None else self.trust.among(sends)
        noise, release = self.release.decode(state.release, k, trust.noise(key, self.row_size))
        return self._plus(k, state._replace(release=release), total, noise)

    @property
    @override
    def source(self) -> Aggregated | None:
        known = type(self) is Aggregated  # a subclass may add other noise
        return dataclasses.replace(self, **dict.fromkeys(PROVED)) if known else None

    @property
    def row_size(self) -> int:
        """D, the count of numbers in the noise of a release."""
        return packed_size(self.statistic.dim)

    def rows(self, key: Array, release: Any, first: Array, count: Array | int, n: int) -> tuple[Rows, Any]:
        """Draws the noise of `count` <= n releases from number `first` + 1 on, with release k + 1 in row k modulo n.

        Args:
            key: of all releases; number k + 1 has k folded in.
            release: the state of the release; `first` = 0 resets it.
        """
        start = self.release.init((self.row_size,))
        release = jax.tree.map(lambda new, old: jnp.where(first == 0, new, old), start, release)

        def draw(i: Array, carry: tuple[Rows, Any]) -> tuple[Rows, Any]:
            (rows, release), k = carry, first + i
            fresh = self.trust.noise(jax.random.fold_in(key, k), self.row_size)
            noise, release = self.release.decode(release, k + 1, fresh)
            sent = jnp.stack([*map(jnp.float32, self.uplink(k + 1, self.statistic.dim))])
            return control.put_row(rows, k % n, (noise, sent), k), release

        empty = jnp.zeros((n, self.row_size)), jnp.zeros((n, 2))
        return lax.fori_loop(0, count, draw, (empty, release))


@struct.pytree
class WithRows(NoisyMechanism):
    """A mechanism with noise that `Aggregated.rows` drew before. Only the source of the noise can certify it."""

    drawn: Rows | None

    @override
    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        return no_privacy("nothing is proved of noise that was drawn elsewhere")

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        return self._plus(k, state, total, self._row(k)[0])

    @override
    def uplink(self, k: Array, dim: int) -> tuple[Array | int, Array | int]:
        numbers, bits = self._row(k)[1]
        return numbers, bits

    def _row(self, k: Array) -> Rows:
        assert self.drawn is not None
        return jax.tree.map(lambda rows: rows[(k - 1) % len(rows)], self.drawn)


@struct.sealed
@struct.pytree
class Rounded(NoisyMechanism):
    """A mechanism with noise that depends on the users. It rounds the sum to a grid, which hides exact digits."""

    needs_users = True

    trust: Any  # `VectorSum`, whose `noisy_sum` is given users

    @override
    def init(self, dim: int) -> MechanismState:
        size = packed_size(dim)
        release = self.release.encode_init((size,)), self.release.init((size,))
        return super().init(dim)._replace(release=release, trust=self.trust.init(size))

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        (encoder, decoder), sums = state.release, state.sums.add(total)
        message, encoder = self.release.encode(encoder, k, self.statistic.pack(sums.high))
        noisy, trust = self.trust.noisy_sum(key, k, state.trust, message, x, v)
        prefix, decoder = self.release.decode(decoder, k, noisy)
        statistics = self._released(k, self.statistic.unpack(prefix))
        sent = dict(sums=self.nothing(self.statistic.dim), release=(encoder, decoder), trust=trust, view=statistics)
        return statistics, state._replace(**sent)
