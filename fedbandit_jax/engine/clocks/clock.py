"""The base class of clocks, which run an environment and a bound algorithm step by step."""

from __future__ import annotations

from typing import Any, Self

import jax
from jax import Array
from jax.sharding import Mesh

from fedbandit_jax.core import random, struct
from fedbandit_jax.engine.recorder import Recorder
from fedbandit_jax.interfaces import Metrics


@struct.pytree
class Clock:
    """A pytree that can be stepped. Its world never depends on the algorithm, so that a sweep shares it.

    Subclasses define `n_steps`, `rounds_at`, `init`, `step` and `check`.
    """

    env: Any
    algo: Any  # bound; the certificate is read from it
    horizon: Any  # T, a number: runs of any length share a program
    salt: tuple[Any, ...] = ()  # words that set the privacy noise apart from that of other clocks, see `salted`
    recorder: Recorder | None = None  # with it, states are a `Recording`
    program: str = struct.static(default="")  # digest of the programs of parts that are not the package's
    mesh: Mesh | None = struct.static(default=None)  # devices that the agents are spread over; None: there is one

    branches = False  # whether a step branches on data; on a CPU a run is then faster by itself than beside others
    draws = True  # whether contexts are never stored
    seeds_together = 1  # how many seeds side by side fill the vector units of a CPU, and still fit into its cache

    @property
    def n_steps(self) -> int:
        """The most steps that a run may have."""
        raise NotImplementedError

    def sharing(self, n_configs: int) -> Self:
        """The clock that is to run if so many configurations share a program, this one included."""
        del n_configs
        return self

    def rounds_at(self, k: int) -> range | None:
        """The rounds 0, 1, ... that step k covers, or None if they depend on the run (see `Metrics.rounds`)."""
        raise NotImplementedError

    def init(self, key: Array) -> tuple[Any, Any]:
        """The world and the learner's state of one seed before the first step."""
        raise NotImplementedError

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """The world, the learner's state and the metrics after step k; draws depend on (key, round) only."""
        raise NotImplementedError

    def check(self, label: str) -> None:
        """Checks that environment and algorithm fit together, without compiling.

        Raises:
            TypeError: they do not; the message names the method, what it must return and what it returned.
        """
        raise NotImplementedError


def salted(key: Array, name: str, salt: tuple[Any, ...]) -> Array:
    """The key of a named stream that only clocks of equal salt share, as privacy noise needs.

    If two configurations shared their noise, the difference of what they release would show raw sums.

    Args:
        key: of the seed, from which streams without salt come too.
        name: of the stream.
        salt: uint32 words, see `fedbandit_jax.engine.identity`; without any, it is the stream that all share.
    """
    key = random.stream(key, name)
    for word in salt:
        key = jax.random.fold_in(key, word)
    return key
