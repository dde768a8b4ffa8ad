"""Draws noise before the steps that use it, by a separate program for every mechanism."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from fedbandit_jax.core.backend import on_cpu, quick_options
from fedbandit_jax.engine.runners import Runner
from fedbandit_jax.engine.runners.runner import salted

PROGRAMS = 32  # mechanisms with programs in the LRU cache


class Ahead(NamedTuple):
    """The noise source of one configuration for the seeds of a piece, see `Algorithm.source`."""

    structure: Any  # of the source and the salt of its keys
    leaves: list[Any]
    keys: Array  # (G,) of the seeds, or () of one

    @classmethod
    def of(cls, runner: Runner, keys: Array, device: Any) -> Ahead:
        """Places the source of a runner on a device."""
        leaves, structure = jax.tree.flatten((runner.algo.source, runner.salt))
        return cls(structure, jax.device_put(leaves, device), keys)

    def start(self) -> Any:
        """Returns the state of the source before the first step."""
        source, _ = jax.tree.unflatten(self.structure, self.leaves)
        state = jax.eval_shape(lambda: source.release.init((source.row_size,)))
        zeros = jax.tree.map(lambda x: np.zeros((*self.keys.shape, *x.shape), x.dtype), state)
        return jax.device_put(zeros, self.keys.sharding)

    def program(self, n: int) -> Any:
        """Compiles `rows` of the source for at most n steps; a GPU always draws n."""
        return _program(self.structure, self.keys.ndim > 0, n)


@functools.lru_cache(PROGRAMS)
def _program(structure: Any, several: bool, n: int) -> Any:
    def draw(leaves, keys, state, first, count):
        source, salt = jax.tree.unflatten(structure, leaves)

        def one(key: Array, state: Any) -> tuple[Any, Any]:
            return source.rows(salted(key, "syncs", salt), state, first, count if on_cpu() else n, n)

        return (jax.vmap(one) if several else one)(keys, state)

    return jax.jit(draw, compiler_options=quick_options())
