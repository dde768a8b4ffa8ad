"""The protocol of a process, i.e. of an environment and a bound algorithm that are run step by step."""

from __future__ import annotations

from typing import Any, Protocol

import jax
from jax import Array
from jax.sharding import Mesh

from fedbandit_jax.core import random
from fedbandit_jax.engine.recorder import Recorder
from fedbandit_jax.interfaces import Algorithm, Environment, Metrics


class Clock(Protocol):
    """A pytree that can be stepped. Its world never depends on the algorithm, so that a sweep shares it."""

    @property
    def salt(self) -> tuple[Any, ...]:
        """Returns the words that set the privacy noise of this process apart from others', see `salted`."""
        ...

    @property
    def recorder(self) -> Recorder | None:
        """Returns what keeps records; with it, states are `Kept`."""
        ...

    @property
    def mesh(self) -> Mesh | None:
        """Returns the devices that the agents of every run are spread over, if they are."""
        ...

    @property
    def env(self) -> Environment:
        """Returns the environment, i.e. the world and its users."""
        ...

    @property
    def algo(self) -> Algorithm:
        """Returns the bound algorithm that runs, from which the certificate is read."""
        ...

    @property
    def n_steps(self) -> int:
        """Returns the number of steps in a run."""
        ...

    @property
    def alone(self) -> bool:
        """Returns whether a step branches on data; on a CPU a run is then faster by itself than beside others."""
        ...

    @property
    def draws(self) -> bool:
        """Returns whether contexts are never stored."""
        ...

    @property
    def seeds_together(self) -> int:
        """Returns how many seeds side by side fill the vector units of a CPU, and still fit into its cache."""
        ...

    def beside(self, n_configs: int) -> Clock:
        """Returns the process that is to run if so many configurations share a program, this one included."""
        ...

    def rounds_at(self, k: int) -> range | None:
        """Returns the rounds 0, 1, ... that step k covers, or None if they depend on the run (see `Metrics.rounds`)."""
        ...

    def init(self, key: Array) -> tuple[Any, Any]:
        """Returns the world and the learner's state of one seed before the first step."""
        ...

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """Returns the world, the learner's state and the metrics after step k; draws depend on (key, round) only."""
        ...

    def check(self, label: str) -> None:
        """Checks that environment and algorithm fit together, without compiling.

        Raises:
            TypeError: they do not; the message names the method, what it must return and what it returned.
        """
        ...


def salted(key: Array, name: str, salt: tuple[Any, ...]) -> Array:
    """Returns the key of a named stream that only processes of equal salt share, as privacy noise needs.

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
