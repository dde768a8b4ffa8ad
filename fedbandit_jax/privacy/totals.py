"""Clipped totals of users in a batch: one bounded summand per user, however often she comes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from fedbandit_jax.core import whole
from fedbandit_jax.privacy.packing import added


class UserTotals(NamedTuple):
    """Running totals of every silo's users in the present batch, and the public average and counts of all visits.

    Let r be the [w x x' | x v] of a visit and m the average of all visits, as it was last released. A user whose visits
    in a batch are r_1, ..., r_n adds their total z = sum (r_i - m), clipped to norm C: z min(1, C / ||z||), in the norm
    of packed statistics. So whatever she did in that batch, or had she done anything else there, two such totals are at
    most 2 C apart. The sum over visits, not less their average, is what is released and m times the number of visits,
    which is public as who comes when is.

    m depends on releases alone. It is theirs, less the noise by James & Stein (1961), by the number of visits: with
    noise of standard deviation s on each of D entries, a release Z counts as max(0, 1 - (D - 2) s^2 / ||Z||^2) Z.

    Reference: ours; clipped means of users are in Huang, Liu, Nikolov & Zhu (2023), ROBIN.
    """

    running: Float[Array, "M n d d+1"]  # z of every user of every silo, of the last batch that she came to
    sent: Int[Array, "M n d d+1"]  # what she added to the sums of that batch, in steps
    centre: Float[Array, "d d+1"]  # m
    offset: Float[Array, "d d+1"]  # sum of m over all visits before this batch
    before: Int[Array, ""]  # visits before this batch
    entered: Int[Array, ""]  # visits in this batch

    @classmethod
    def none(cls, n_agents: int, n_users: int, dim: int) -> UserTotals:
        """Nobody has come yet."""
        zeros, nothing = jnp.zeros((n_agents, n_users, dim, dim + 1)), jnp.zeros((dim, dim + 1))
        return cls(zeros, zeros.astype(jnp.int32), nothing, nothing, jnp.int32(0), jnp.int32(0))

    def add(
        self,
        mechanism: Any,
        user: Int[Array, " M"],
        enters: Bool[Array, " M"],
        first: Bool[Array, " M"],
        x: Float[Array, "d M"],
        v: Array,
    ) -> tuple[UserTotals, Int[Array, "d d+1"], Int[Array, ""]]:
        """The totals after one more visit to every silo, the change of the sum over users, and the number clipped.

        Args:
            mechanism: the `NoisyMechanism` whose sums these are.
            user: who came.
            enters: whether her visit counts.
            first: whether it is her first one in this batch.
            x, v: features and responses, as the mechanism admits them.
        """
        at, most = (jnp.arange(len(user)), user), mechanism.users.total
        before, sent = (jnp.where(first[:, None, None], 0, table[at]) for table in (self.running, self.sent))
        after = before + jnp.moveaxis(added(x, v), -1, 0) - self.centre
        norm = jnp.linalg.norm(mechanism.statistic.pack(after), axis=-1)
        share = jnp.minimum(1, most / jnp.maximum(norm, most))
        new = whole.nearest(after * share[:, None, None] / mechanism.row_step)
        at = at[0], jnp.where(enters, user, self.running.shape[1])
        totals = self._replace(
            running=self.running.at[at].set(after, mode="drop"),
            sent=self.sent.at[at].set(new, mode="drop"),
            entered=self.entered + enters.sum(dtype=jnp.int32),
        )
        change = jnp.where(enters[:, None, None], new - sent, 0).sum(0)
        return totals, change, (enters & (norm > most)).sum(dtype=jnp.int32)

    def release(self, mechanism: Any, released: Float[Array, "d d+1"], std: Array) -> tuple[Array, UserTotals]:
        """The sum over visits that a release of totals stands for, and the totals as the next batch begins.

        Args:
            mechanism: as in `add`.
            released: sum of clipped totals of all batches, with noise.
            std: standard deviation of the noise on the diagonal of W.
        """
        offset, visits = self.offset + self.entered * self.centre, self.before + self.entered
        statistics = released + offset
        packed = mechanism.statistic.pack(statistics)
        noise = (len(packed) - 2) * (std * mechanism.statistic.gram_scale) ** 2
        share = jnp.maximum(0, 1 - noise / jnp.maximum((packed**2).sum(), 1e-30))
        centre = jnp.nan_to_num(statistics * share / jnp.maximum(visits, 1))
        return statistics, self._replace(centre=centre, offset=offset, before=visits, entered=jnp.int32(0))
