"""Schedules that are fixed in advance: every B rounds, ever more rarely, or after listed rounds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, Key
from typing_extensions import override

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.bound import Timing
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.schedules.schedule import Asked, BoundSchedule, Schedule, Setting, Since


@struct.sealed
@struct.pytree
class BoundEvery(BoundSchedule):
    """A bound `Every`: asks for a synchronisation at the end of every batch."""

    sentence = "fixed in advance, so it tells nothing about users"

    batch: struct.Number  # B

    @override
    def requests(self, key: Key[Array, ""], t: Int[Array, ""], memory: Any, gained: Any, since: Since) -> Asked:
        return (t + 1) % self.batch == 0

    @override
    def timing(self) -> Timing:
        return Timing(self.sentence, fixed=False, longest=_longest(np.abs(self.batch).reshape(1)))


@dataclasses.dataclass(frozen=True)
class Every(Schedule):
    """Synchronises every B rounds; `Every(1)` is the O(M T) communication of Dubey & Pentland (2020), Remark 1.

    Args:
        batch: B >= 1, rounds between two synchronisations. If B does not divide the horizon T, the last T mod B rounds
            are never synchronised.

    Example:
        >>> Every(25).n_syncs(1_000)
        40
    """

    batch: int = 25

    def __post_init__(self):
        object.__setattr__(self, "batch", validate.integer("batch", self.batch, at_least=1))

    @override
    def n_syncs(self, horizon: int) -> int:
        return horizon // self.batch

    @override
    def longest(self, horizon: int) -> int:
        return min(self.batch, horizon)

    @property
    @override
    def tags(self) -> Tags:
        return {}

    @override
    def bind(self, setting: Setting) -> BoundEvery:
        return BoundEvery(batch=np.int32(self.batch))


@struct.sealed
@struct.pytree
class BoundFixed(BoundSchedule):
    """A bound `Fixed`: asks for a synchronisation after the listed rounds."""

    sentence = "fixed in advance, so it tells nothing about users"

    rounds: Int[Array | np.ndarray, " S"]  # numbers of rounds played after which to synchronise

    @override
    def requests(self, key: Key[Array, ""], t: Int[Array, ""], memory: Any, gained: Any, since: Since) -> Asked:
        return (jnp.asarray(self.rounds) == t + 1).any()

    @override
    def timing(self) -> Timing:
        total = int(np.max(self.rounds, initial=0))
        return Timing(self.sentence, fixed=False, longest=_longest(self.rounds), total=total)


class Fixed(Schedule):
    """A schedule of rounds listed in advance: subclass it and define `rounds`.

    It also suits trust models with proofs for a largest batch, such as "secagg".

    Example:
        >>> class Squares(Fixed):
        ...     def rounds(self, horizon):
        ...         return np.arange(1, math.isqrt(horizon) + 1) ** 2
        >>> Squares().n_syncs(100), Squares().longest(100)
        (10, 19)
    """

    def rounds(self, horizon: int) -> Int[np.ndarray, " S"]:
        """Returns numbers of rounds after which silos synchronise in T = `horizon` rounds, rising and at most T."""
        raise NotImplementedError(f"{type(self).__name__}.rounds")

    @override
    def n_syncs(self, horizon: int) -> int:
        return len(self._rounds(horizon))

    @override
    def longest(self, horizon: int) -> int:
        return _longest(self._rounds(horizon)) or 0

    @property
    @override
    def tags(self) -> Tags:
        return tagged("schedule", self, {"unequal batches": True})

    @override
    def bind(self, setting: Setting) -> BoundFixed:
        return BoundFixed(rounds=padded(self._rounds(setting.horizon).astype(np.int32), 64))

    def _rounds(self, horizon: int) -> Int[np.ndarray, " S"]:
        name, given = f"{type(self).__name__}.rounds", self.rounds(horizon)
        none = given.size == 0 if hasattr(given, "size") else given in ([], ())  # an empty list is one of floats
        rounds = validate.integer_array(name, np.zeros(0, int) if none else given)
        if (np.diff(rounds, prepend=0, append=horizon + 1) <= 0).any():
            raise BadValue(name, f"must rise from 1 or more to horizon = {horizon} or less", rounds)
        return rounds


@dataclasses.dataclass(frozen=True)
class Geometric(Fixed):
    """Synchronises after `first` rounds and then whenever the number of rounds has grown by a factor.

    These are O(log T) synchronisations, at most 1 + ln(T / first) / ln(growth), fixed in advance. The last release
    always covers about 1 / growth of the rounds, or more. A tree over so few releases has few levels.

    Args:
        growth: factor by which the number of rounds grows, in [1.001, 10^6].
        first: rounds before the first synchronisation, >= 1.

    Example:
        >>> Geometric(1.5, first=10).rounds(100).tolist()
        [10, 15, 23, 35, 53, 80]
    """

    growth: float = 2.0
    first: int = 1

    def __post_init__(self):
        validate.within("growth", self.growth, 1.001, 1e6)
        object.__setattr__(self, "first", validate.integer("first", self.first, at_least=1))

    @override
    def rounds(self, horizon: int) -> Int[np.ndarray, " S"]:
        rounds, t = [], self.first
        while t <= horizon:
            rounds.append(t)
            t = max(t + 1, math.ceil(t * float(self.growth)))
        return np.array(rounds, np.int32)


def _longest(rounds: Int[Array | np.ndarray, " S"]) -> int | None:
    """Returns the most rounds of a batch that ends after one of these; None if they are no integers."""
    ends = np.unique(np.asarray(rounds))
    if not np.issubdtype(ends.dtype, np.integer):
        return None
    return int(np.diff(ends[ends > 0], prepend=0).max(initial=0))


def as_schedule(schedule: Schedule | int) -> Schedule:
    """Returns a schedule unchanged, and a number B of rounds as `Every(B)`."""
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, (int, np.integer)) and not isinstance(schedule, bool):
        return Every(validate.integer("schedule", schedule, at_least=1))
    raise BadType("schedule", "must be one of fb.schedules or a number of rounds", schedule)
