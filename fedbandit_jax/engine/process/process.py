"""What a process is."""

from __future__ import annotations

from typing import Any, Protocol

from jax import Array

from fedbandit_jax.interfaces import Algorithm, Metrics


class Process(Protocol):
    """A pytree that can be stepped. The world never depends on the algorithm, so a sweep shares it."""

    @property
    def algo(self) -> Algorithm:
        """The bound algorithm that runs, from which the certificate is read."""
        ...

    @property
    def n_steps(self) -> int:
        """Steps in a run."""
        ...

    @property
    def alone(self) -> bool:
        """Does a step branch on data? On a CPU a run is then faster by itself than beside others."""
        ...

    @property
    def workspace(self) -> int:
        """Bytes that a step of one seed works on, beside its world and state."""
        ...

    def rounds_at(self, k: int) -> range | None:
        """Which rounds 0, 1, ... step k covers; None if that depends on the run, and the metrics say it."""
        ...

    def init(self, key: Array) -> tuple[Any, Any]:
        """World and learner of one seed."""
        ...

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """World, learner and metrics after step k. Draws depend on (key, round) only."""
        ...

    def check(self, label: str) -> None:
        """Do environment and algorithm fit together? Compiles nothing; raises TypeError naming what does not."""
        ...
