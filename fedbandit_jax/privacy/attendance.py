"""Counts of users' contributions, and the exclusion of contributions beyond the bounds of the guarantee.

Whether a contribution enters depends on that user's own visits and on the public number of the batch. It never depends
on contributions. So, given the times of synchronisation, replacing all data of one user moves no other user's
contributions in or out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int

NEVER = -(2**30)


class Attendance(NamedTuple):
    """Counts of each user's contributions to a silo, and the batch of the last one."""

    count: Int[Array, "*n"]  # contributions that entered  # pyright: ignore[reportIncompatibleMethodOverride]
    last: Int[Array, "*n"]  # batch that the last one entered
    now: Int[Array, "*n"]  # visits that entered that batch

    @classmethod
    def none(cls, *shape: int) -> Attendance:
        """Returns the counts before anybody has come."""
        zeros = jnp.zeros(shape, jnp.int32)
        return cls(zeros, zeros + NEVER, zeros)

    def come(self, users: Any, k: Int[Array, ""]) -> tuple[Bool[Array, "*n"], Attendance]:
        """Returns whether one more contribution of each of these users enters batch k, and their new rows.

        Args:
            users: `fb.privacy.Users`, the bounds.
            k: number of the batch, which never falls.
        """
        again = self.last == k
        now = jnp.where(again, self.now, 0)
        enters = (self.count < users.visits) & (now < users.most) & (again | (k - self.last >= users.apart))
        new = Attendance(self.count + enters, jnp.where(enters, k, self.last), jnp.where(enters, now + 1, self.now))
        return enters, new

    def come_once(
        self, users: Any, k: Int[Array, ""], who: Int[Array, " N"], comes: Bool[Array, " N"]
    ) -> tuple[Bool[Array, " N"], Attendance]:
        """Returns which contributions of users (N,) in sequence enter batch k, and the new table (n,).

        Args:
            users: as in `come`, with at most one contribution to a batch, `users.most` = 1.
            k: as in `come`.
            who: number of the user of every contribution; users may repeat.
            comes: mask of the contributions.
        """
        none = len(who)
        turn = jnp.arange(none)
        first = jnp.full(self.count.shape, none).at[who].min(jnp.where(comes, turn, none))
        able, new = self.come(users, k)
        old = first == none
        return comes & (first[who] == turn) & able[who], Attendance(*(jnp.where(old, *rows) for rows in zip(self, new)))
