"""Schedules that are fixed in advance: every B rounds, or ever more rarely."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import struct, validate
from fedbandit_jax.schedules.schedule import BoundSchedule, Schedule, Setting


@struct.pytree
class BoundEvery(BoundSchedule):
    """See `Every`."""

    sentence = "fixed in advance, not private"

    batch: struct.Number

    def requests(self, key: Array, t: Array, memory: Any, gained: Array, since: Array) -> Array:
        """At the end of every batch."""
        del key, memory, gained, since
        return (t + 1) % self.batch == 0


@dataclasses.dataclass(frozen=True)
class Every(Schedule):
    """Every B rounds; `Every(1)` is the O(M T) communication of Dubey & Pentland (2020), Remark 1.

    Args:
        batch: B >= 1, rounds. If B does not divide the horizon, the last T mod B rounds are never synchronised.

    >>> Every(25).n_syncs(1_000)
    40
    """

    batch: int = 25

    def __post_init__(self):
        validate.integer("schedule", self.batch, at_least=1)

    def n_syncs(self, horizon: int) -> int:
        """floor(T / B)."""
        return horizon // self.batch

    def bind(self, setting: Setting) -> BoundEvery:
        """Any setting."""
        del setting
        return BoundEvery(batch=np.int32(min(self.batch, 2**31 - 1)))


@struct.pytree
class BoundGeometric(BoundSchedule):
    """See `Geometric`."""

    sentence = "fixed in advance, not private"

    rounds: Any  # (S,) rounds 1, 2, ... after which to synchronise

    def requests(self, key: Array, t: Array, memory: Any, gained: Array, since: Array) -> Array:
        """In these rounds."""
        del key, memory, gained, since
        return (jnp.asarray(self.rounds) == t + 1).any()


@dataclasses.dataclass(frozen=True)
class Geometric(Schedule):
    """After `first` rounds, then whenever the number of rounds has grown by a factor: O(log T) rounds, fixed in
    advance.

    The information of T rounds is there after ln(T) / ln(growth) synchronisations, each 1 / growth or more of it fresh
    at the next, and a tree over so few has few levels.

    Args:
        growth: factor, in [1.001, 10^6].
        first: rounds before the first synchronisation, >= 1.

    >>> Geometric(1.5, first=10).rounds(100).tolist()
    [10, 15, 23, 35, 53, 80]
    """

    growth: float = 2.0
    first: int = 1

    def __post_init__(self):
        if not validate.positive("growth", self.growth) > 1:
            raise ValueError(f"growth must be > 1, got {self.growth!r}")
        validate.within("growth", self.growth, 1.001, 1e6)
        validate.integer("first", self.first, at_least=1)

    def rounds(self, horizon: int) -> np.ndarray:
        """After which to synchronise, rising, none after T."""
        rounds, t = [], self.first
        while t <= horizon:
            rounds.append(t)
            t = max(t + 1, math.ceil(t * self.growth))
        return np.array(rounds, np.int32)

    def n_syncs(self, horizon: int) -> int:
        """About first / (growth - 1) + ln(T / first) / ln(growth)."""
        return len(self.rounds(horizon))

    def bind(self, setting: Setting) -> BoundGeometric:
        """Any setting."""
        return BoundGeometric(rounds=self.rounds(setting.horizon))


def as_schedule(schedule: Schedule | int) -> Schedule:
    """A number of rounds is `Every` so many."""
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, (int, np.integer)) and not isinstance(schedule, bool):
        return Every(int(schedule))
    raise TypeError(f"schedule must be one of fb.schedules or a number of rounds, got {schedule!r}")
