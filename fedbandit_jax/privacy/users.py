"""The privacy unit for returning users: bounds on their contributions, and the exclusion of others.

Whether a contribution enters depends on that user's own visits and on the public number of the batch. It never depends
on contributions. So, given the times of synchronisation, replacing all data of one user moves no other user's
contributions in or out.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.compatibility import Tags, tagged

MOST = 2**30  # the largest bound: int32 counts to it
NEVER = -(2**30)
TOGETHER = "together"


@struct.sealed
@dataclasses.dataclass(frozen=True)
class Users:
    """The privacy unit "one user": all contributions to a silo, within bounds that the silo enforces.

    A contribution beyond the bounds is left out of the sums. The user is still served. So the guarantee holds for any
    number of visits. In the literature this is (visits, apart)-, or k-b-, min-separated participation, here with
    several contributions to a batch.

    Args:
        visits: r, the most contributions of one user to a silo.
        per_batch: v, the most in one batch, which divides r. None means `visits`: all may be in one batch,
            and the noise is for group privacy.
        apart: b, the least distance of two batches that the user contributes to. With `apart=1` any batches are
            allowed, with `apart=5` batches 1 and 6 but not 1 and 5.
        silos: k, to how many silos one user may contribute, each within these bounds. It is a promise, as silos do not
            compare their users. With "together" the bounds are on all contributions to all silos. Then silos tell each
            other whose visits they admit. Releases are of one silo, and do not read it.

    Raises:
        ValueError, TypeError: if an argument is not such an integer, or `per_batch` does not divide `visits`.

    Example:
        >>> from fedbandit_jax.privacy import RELEASES
        >>> tree = RELEASES["tree"](80)
        >>> [tree.sensitivity_sq(users) for users in (Users(), Users(16), Users(16, 1), Users(16, 1, 5))]
        [7.0, 1792.0, 888.0, 292.0]

    Reference: Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu (2023).
    """

    visits: int = 1
    per_batch: int | None = None
    apart: int = 1
    silos: int | str = 1

    def __post_init__(self):
        for name in ("visits", "per_batch", "apart", "silos"):
            value = getattr(self, name)
            if isinstance(value, str) and name == "silos":
                if value != TOGETHER:
                    raise BadValue(name, f"must be an integer >= 1 or {TOGETHER!r}", value)
            elif value is not None or name != "per_batch":
                object.__setattr__(self, name, validate.integer(name, value, at_least=1, at_most=MOST))
        if self.visits % self.most:
            raise BadValue("per_batch", f"must divide visits = {self.visits}", self.per_batch)

    @property
    def most(self) -> int:
        """v, the most contributions to one batch."""
        return self.visits if self.per_batch is None else self.per_batch

    @property
    def bounds(self) -> tuple[int, ...]:
        """Visits, the most in one batch, apart, and silos that count separately."""
        return self.visits, self.most, self.apart, self.counts

    @property
    def counts(self) -> int:
        """k, the number of silos that each admit contributions of one user within these bounds, 1 for all together."""
        return 1 if self.silos == TOGETHER else self.silos  # pyright: ignore[reportReturnType]

    @property
    def reach(self) -> float:
        """The most silos that one user may contribute to."""
        return math.inf if self.silos == TOGETHER else self.counts

    @property
    def in_any_batches(self) -> Users:
        """Returns these bounds without `per_batch` and `apart`, because batches that are apart may be sent together."""
        return dataclasses.replace(self, per_batch=None, apart=1)

    def at(self, silos: int) -> Users:
        """Returns the bounds for users at this number of silos. At one silo there is nothing to count together."""
        return dataclasses.replace(self, silos=1) if self.silos == TOGETHER and silos == 1 else self

    @property
    def together(self) -> int:
        """Returns the most contributions of one user, at all silos."""
        return self.visits * self.counts

    @property
    def tags(self) -> Tags:
        """Returns the tags of these bounds for `privacy.compatibility`."""
        said = {"users at several silos": self.reach > 1, "users counted together": self.silos == TOGETHER}
        return tagged("silos", self.silos, said)

    @property
    def sentence(self) -> str:
        """The bounds in words, for certificates."""
        together = self.silos == TOGETHER
        at = "at all silos together" if together else "at a silo"
        words = [f"up to {self.visits} time{'s' * (self.visits > 1)} {at}"]
        if self.most < self.visits:
            words.append(f"{self.most} in a batch")
        if self.apart > 1:
            words.append(f"in batches at least {self.apart} apart")
        if not together:
            where = f"at up to {self.counts} silos" if self.counts > 1 else "always at the same silo"
            words.append(f"{where} (a promise: silos do not compare users)")
        return ", ".join(words)

    def unit(self, *, enforced: bool, returning: bool) -> str:
        """Returns the privacy unit in words, for certificates.

        Args:
            enforced: whether contributions beyond the bounds are left out.
            returning: whether the environment's users return.
        """
        if enforced:
            told = "; silos tell each other which visits they admit" * (self.silos == TOGETHER)
            return f"one user: all their contributions, {self.sentence}; contributions beyond that are left out{told}"
        if returning:
            only = "one interaction: the data of one user in one round"
            return f"{only}; users return, and several rounds of one user are not protected together"
        if self == ONCE:
            return "one user with one visit: every arrival counts as a new user, as the environment declares"
        return f"one user, who contributes {self.sentence}; this is a promise, because users are not identified"

    def batches(self, n_syncs: int) -> int:
        """Returns how many of S batches may have v contributions of one user."""
        return min(self.visits // self.most, -(-int(n_syncs) // self.apart))


ONCE = Users()


def objection_to(users: Any) -> str:
    """Returns why these are not bounds on contributions; "" if they are."""
    if not struct.is_sealed(users) or not all(type(n) is int and n >= 1 for n in users.bounds):
        return f"bounds of contributions must be integers >= 1, got {users}"
    return f"per_batch must divide visits, got {users}" if users.visits % users.most else ""


class Attendance(NamedTuple):
    """Counts of each user's contributions to a silo, and the batch of the last one."""

    count: Int[Array, "*n"]  # contributions that entered  # pyright: ignore[reportIncompatibleMethodOverride]
    last: Int[Array, "*n"]  # batch that the last one entered
    now: Int[Array, "*n"]  # visits that entered that batch

    @classmethod
    def none(cls, *shape: int) -> Attendance:
        """Returns the counts before the first visit."""
        zeros = jnp.zeros(shape, jnp.int32)
        return cls(zeros, zeros + NEVER, zeros)

    def come(self, users: Users, k: Int[Array, ""]) -> tuple[Bool[Array, "*n"], Attendance]:
        """Returns whether one more contribution of each of these users enters batch k, and their new rows.

        Args:
            users: the bounds.
            k: number of the batch, which never falls.
        """
        again = self.last == k
        now = jnp.where(again, self.now, 0)
        enters = (self.count < users.visits) & (now < users.most) & (again | (k - self.last >= users.apart))
        new = Attendance(self.count + enters, jnp.where(enters, k, self.last), jnp.where(enters, now + 1, self.now))
        return enters, new

    def come_together(
        self, users: Users, k: Int[Array, ""], who: Int[Array, " M"]
    ) -> tuple[Bool[Array, " M"], Attendance]:
        """Returns which of M contributions, taken in order, enter batch k, and the new table (n,) of all silos.

        Args:
            users, k: as in `come`.
            who: number of the user of every contribution, n or more for no user; users may repeat.
        """
        same, exists = who[:, None] == who, who < len(self.count)
        before, again = jnp.tril(same, -1).sum(1), self.last[who] == k
        now = jnp.where(again, self.now[who], 0)
        enters = (self.count[who] + before < users.visits) & (now + before < users.most)
        enters &= exists & (again | (k - self.last[who] >= users.apart))
        came = (same & enters).sum(1)  # of the same user, at all silos
        last, now = jnp.where(came > 0, k, self.last[who]), jnp.where(came > 0, now + came, self.now[who])
        rows = Attendance(self.count[who] + came, last, now)
        return enters, Attendance(*(table.at[who].set(row, mode="drop") for table, row in zip(self, rows)))

    def come_once(
        self, users: Users, k: Int[Array, ""], who: Int[Array, " N"], comes: Bool[Array, " N"]
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
