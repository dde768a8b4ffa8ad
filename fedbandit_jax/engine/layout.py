"""How runs of one structure share a machine: side by side in one program, or one by one on the cores of a CPU.

A run is one configuration (of C) under one seed (of S). Both classes have the same two methods: `init` makes the worlds
and states of all runs, in a pytree of the class's own layout, and `advance` takes them through some steps and returns
metrics with leading axes (steps, S, C).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.engine.process import Process

CACHE_BYTES = 2**20  # the size of a usual second-level cache


class SideBySide:
    """Executes all runs in one program, whose leaves are stacked.

    Leaves that all configurations share (those of the environment) are also shared on the device: users are drawn once
    per seed, not once per configuration.
    """

    def __init__(self, processes: Sequence[Process], keys: Array):
        leaves, treedef, axes = _stack(processes)
        self.leaves, self.keys = jax.device_put(leaves), keys
        self.layout = _Layout(treedef, axes, len(processes))

    def init(self) -> tuple[Any, Any]:
        """Returns worlds with leading axis S, and states with leading axes (S, C), before the first step."""
        return _init()(self.leaves, self.keys, layout=self.layout)

    def advance(self, worlds: Any, states: Any, ks: np.ndarray) -> tuple[Any, Any, Any]:
        """Returns worlds and states after the steps numbered `ks`, and metrics with leading axes (steps, S, C)."""
        return _advance()(self.leaves, self.keys, worlds, states, ks, layout=self.layout)


class OneByOne:
    """Executes every run by itself, as many at a time as there are cores, so that a branch not taken costs nothing."""

    def __init__(self, processes: Sequence[Process], keys: Array):
        self.treedef = jax.tree.structure(processes[0])
        self.leaves = [jax.device_put(jax.tree.leaves(process)) for process in processes]
        self.keys = list(keys)
        self.known: set[int] = set()  # numbers of steps for which a program is compiled

    def init(self) -> tuple[Any, Any]:
        """Returns a list of S worlds, and C lists of S states, before the first step."""
        made = [[_init_one()(leaves, key, treedef=self.treedef) for key in self.keys] for leaves in self.leaves]
        return [world for world, _ in made[0]], [[state for _, state in seeds] for seeds in made]

    def advance(self, worlds: Any, states: Any, ks: np.ndarray) -> tuple[Any, Any, Any]:
        """Returns worlds and states after the steps numbered `ks`, and metrics with leading axes (steps, S, C)."""

        def run(where: tuple[int, int]) -> Any:
            c, s = where
            made = _advance_one()(self.leaves[c], self.keys[s], worlds[s], states[c][s], ks, treedef=self.treedef)
            return jax.block_until_ready(made)

        runs = list(np.ndindex(len(self.leaves), len(self.keys)))
        alone = [run(where) for where in runs[: 0 if len(ks) in self.known else 1]]  # only one thread compiles
        self.known.add(len(ks))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            done = [*alone, *pool.map(run, runs[len(alone) :])]
        rows = [done[c : c + len(self.keys)] for c in range(0, len(done), len(self.keys))]
        metrics = [jax.tree.map(lambda *x: np.stack(x, 1), *(metrics for _, _, metrics in row)) for row in rows]
        states = [[state for _, state, _ in row] for row in rows]
        return [world for world, _, _ in rows[0]], states, jax.tree.map(lambda *x: np.stack(x, 2), *metrics)


def _stack(processes: Sequence[Process]) -> tuple[list[Any], Any, tuple[int | None, ...]]:
    """Returns the leaves, the tree structure, and the axis of configurations of each leaf (None: no such axis).

    Leaves have a leading axis C, except where all configurations hold the same object.
    """
    flat = [jax.tree.leaves(process) for process in processes]
    leaves, axes = [], []
    for column in zip(*flat):
        shared = all(leaf is column[0] for leaf in column)
        leaves.append(column[0] if shared else np.stack([np.asarray(leaf) for leaf in column]))
        axes.append(None if shared else 0)
    return leaves, jax.tree.structure(processes[0]), tuple(axes)


def options() -> dict[str, Any] | None:
    """Returns options for XLA's compiler: on a CPU, vectors of 512 bits.

    By default XLA:CPU splits 512-bit registers in half; whole ones make fused float loops twice as fast.
    """
    return {"xla_cpu_prefer_vector_width": 512} if on_cpu() else None


class _Layout(NamedTuple):
    """How configurations are laid out in one compiled program; hashable."""

    treedef: Any  # tree structure of a process
    axes: tuple[int | None, ...]  # 0 for leaves that are stacked over configurations, None for shared leaves
    n_configs: int  # C

    def over_configs(self, method: str, keep: bool) -> Any:
        """Vectorises a method of the process over configurations, which share the world.

        With `keep` it is `step`, (leaves, key, world, state, k) -> (world, state, metrics), which takes states that
        have been kept; otherwise `init`, (leaves, key) -> (world, state). States and metrics have a leading axis C.
        """

        def one(leaves, *args):
            return getattr(jax.tree.unflatten(self.treedef, leaves), method)(*args)

        arguments = (None, None, 0, None) if keep else (None,)
        results = (None, 0, 0) if keep else (None, 0)
        return jax.vmap(one, (list(self.axes), *arguments), results, axis_size=self.n_configs)


@functools.cache
def _init():
    """Returns the compiled `SideBySide.init`."""

    def init(leaves, keys, *, layout):
        return jax.vmap(layout.over_configs("init", keep=False), (None, 0))(leaves, keys)

    return jax.jit(init, static_argnames="layout", compiler_options=options())


@functools.cache
def _advance():
    """Returns the compiled `SideBySide.advance`."""

    def advance(leaves, keys, worlds, states, ks, *, layout):
        step = layout.over_configs("step", keep=True)
        workspace = jax.tree.unflatten(layout.treedef, leaves).workspace
        group = _seeds_together(len(keys), worlds, states, workspace)

        def one(seed):  # some seeds take all steps before others start, so that states stay in the cache
            key, *start = seed

            def body(carry, k):
                world, state, metrics = step(leaves, key, *carry, k)
                return (world, state), metrics

            (world, state), metrics = lax.scan(body, tuple(start), ks)
            return world, state, metrics

        worlds, states, metrics = lax.map(one, (keys, worlds, states), batch_size=group)
        return worlds, states, jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), metrics)  # (steps, S, C, ...)

    return jax.jit(advance, static_argnames="layout", compiler_options=options())


def _seeds_together(n_seeds: int, worlds: Any, states: Any, workspace: int) -> int:
    """Returns how many seeds advance side by side: all, but on a CPU no more than keep their state in the cache.

    It is a divisor of their number, so that no remainder is left: XLA:CPU would compile the remainder again, and run it
    beside the rest, where two batched LAPACK calls wait for each other's threads for ever (jaxlib 0.10.2, two cores).
    """
    if not on_cpu():
        return n_seeds
    bytes_per_seed = sum(leaf.nbytes for leaf in jax.tree.leaves((worlds, states))) / n_seeds + workspace
    most = max(1, min(n_seeds, int(CACHE_BYTES / max(1, bytes_per_seed))))
    return max(group for group in range(1, most + 1) if n_seeds % group == 0)


@functools.cache
def _init_one():
    """Returns the compiled `init` of one run."""

    def init(leaves, key, *, treedef):
        return jax.tree.unflatten(treedef, leaves).init(key)

    return jax.jit(init, static_argnames="treedef", compiler_options=options())


@functools.cache
def _advance_one():
    """Returns the compiled function that takes one run through some steps."""

    def advance(leaves, key, world, state, ks, *, treedef):
        process = jax.tree.unflatten(treedef, leaves)

        def body(carry, k):
            world, state, metrics = process.step(key, *carry, k)
            return (world, state), metrics

        (world, state), metrics = lax.scan(body, (world, state), ks)
        return world, state, metrics

    return jax.jit(advance, static_argnames="treedef", compiler_options=options())
