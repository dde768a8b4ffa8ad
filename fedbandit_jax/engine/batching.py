"""Batched execution of runs with the same structure, in pieces: one program for some of the S seeds.

On a CPU, pieces are small enough for the cache. A pool of threads runs as many as there are cores. Branches on data
run one seed at a time, so branches not taken cost nothing. If there are fewer pieces than cores, the agents of a piece
are divided as well, and joined at synchronisations. On accelerators there is one piece for each device. Leaves shared
by all C configurations, such as the environment's, are stored once on a device. Users are drawn once per seed.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.core import control, lapack, memory, programs
from fedbandit_jax.core.backend import loop_options, on_cpu, quick_options
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine.runners import Runner
from fedbandit_jax.engine.runners.runner import salted

PROGRAMS = 32  # layouts, or mechanisms, with programs in the LRU cache
WAITING = 1.15  # most time relative to pieces that keep all workers busy

# method of a runner -> axes of its arguments over seeds and over configurations, and of its results over the latter
AXES: dict[str, tuple[Any, Any, Any]] = {
    "init": ((0,), (None,), (None, 0)),
    "step": ((0, 0, 0, None), (None, None, 0, None), (None, 0, 0)),
    "part": ((0, 0, 0, None, None), (None, None, 0, None, None), 0),
    "join": ((0, 0, 0, None, 0), (None, None, 0, None, 0), (0, 0)),
}


class Ahead(NamedTuple):
    """Noise source of one configuration for the seeds of a piece, see `Algorithm.source`.

    A separate program for every mechanism draws the noise before the steps that use it.
    """

    structure: Any  # of the source and the salt of its keys
    leaves: list[Any]
    keys: Array  # (G,) of the seeds, or () of one

    @classmethod
    def of(cls, runner: Runner, keys: Array, device: Any) -> Ahead:
        """Places the source of a runner on a device."""
        leaves, structure = jax.tree.flatten((runner.algo.source, runner.salt))
        return cls(structure, jax.device_put(leaves, device), keys)

    @property
    def form(self) -> Any:
        """The structure and the shapes, which decide the program."""
        return self.structure, *((leaf.shape, leaf.dtype) for leaf in self.leaves)

    def start(self) -> Any:
        """Returns the state of the source before the first step."""
        source, _ = jax.tree.unflatten(self.structure, self.leaves)
        state = jax.eval_shape(_start, source)
        zeros = jax.tree.map(lambda x: np.zeros((*self.keys.shape, *x.shape), x.dtype), state)
        return jax.device_put(zeros, self.keys.sharding)

    def program(self, n: int) -> Any:
        """Compiles `rows` of the source for at most n steps. A GPU always draws n."""
        return _noise(self.structure, self.keys.ndim > 0, n)


def _start(source: Any) -> Any:
    return source.release.init((source.row_size,))  # a function, which JAX traces once for sources of one form


class Piece(NamedTuple):
    """Some seeds of some configurations, on one device."""

    configs: slice  # indices of configurations
    seeds: slice  # indices of seeds
    leaves: list[Any]  # of the runners, stacked over configurations if they differ
    keys: Array  # (G,) of the seeds, padded with the last one, so that one program serves all pieces
    layout: Layout
    ahead: list[Ahead]  # noise source of every configuration; empty if steps draw the noise


class Layout(NamedTuple):
    """Static layout of the runs of a piece, hashable. States omit axes of length 1."""

    treedef: Any  # tree structure of a runner
    axes: tuple[int | None, ...]  # 0 for leaves that are stacked over configurations, None for shared leaves
    n_configs: int
    n_seeds: int  # G
    emitters: bool  # as in `Hints`
    part: int | None  # agents of one worker in a step, if several workers share it

    def over_runs(self, method: str, **fixed: Any) -> Any:
        """Vectorises a method of the runner over G seeds and C configurations, which share the world.

        Worlds have a leading axis G. States, parts and metrics have G and C. `rows` holds the noise drawn before the
        steps, one entry for each configuration with a leading axis G.
        """

        def run(leaves, rows, *arguments):
            runner = jax.tree.unflatten(self.treedef, leaves)
            return getattr(runner if rows is None else runner.given(rows), method)(*arguments, **fixed)

        seeds, configs, results = AXES[method]
        if self.n_configs > 1:
            run = jax.vmap(run, (list(self.axes), 0, *configs), results, axis_size=self.n_configs)
        if self.n_seeds > 1:
            run = jax.vmap(run, (None, 0, *seeds))

        def over(leaves, *arguments, rows=()):
            many, axis = len(rows) > 1, int(self.n_seeds > 1)
            several = jax.tree.map(lambda *x: jnp.stack(x, axis), *rows) if many else next(iter(rows), None)
            return run(leaves, several, *arguments)

        return over


class Pieces:
    """All runs of runners that share a program. States are lists with one entry for each piece."""

    def __init__(self, runners: Sequence[Runner], keys: Array):
        self.n_configs, self.n_seeds, self.memory = len(runners), len(keys), memory.limit()
        runner, devices = runners[0], jax.local_devices()
        self.recorder = runner.recorder
        alone = runner.rejects or (runner.hints.branches and on_cpu())  # worlds of rejection depend on arms played
        self.workers = len(devices)
        size = -(-len(keys) // len(devices))
        if on_cpu():
            self.workers = max(_cores(), len(devices))
            size = _together(len(keys), runner.hints.seeds, self.workers)
        groups = [[runner] for runner in runners] if alone else [runners]
        part = runner.divided(self.workers // (len(groups) * -(-len(keys) // size)))
        self.firsts = range(0, runner.env.spec.n_agents, part or runner.env.spec.n_agents)
        words, impl = np.asarray(jax.random.key_data(keys)), jax.random.key_impl(keys)
        self.pieces = []
        for c, group in enumerate(groups):
            leaves, treedef, axes = _stack([runner.played for runner in group])
            layout = Layout(treedef, axes, len(group), size, runner.hints.emitters, part)
            there = [jax.device_put(leaves, device) for device in devices]
            for first in range(0, len(keys), size):
                which = len(self.pieces) % len(devices)
                some = words[np.minimum(np.arange(first, first + size), len(keys) - 1)]  # NumPy, to compile nothing
                some = jax.device_put(some if size > 1 else some[0], devices[which])
                some = jax.random.wrap_key_data(some, impl=impl)
                seeds, configs = slice(first, min(first + size, len(keys))), slice(c, c + len(group))
                ahead = [Ahead.of(one, some, devices[which]) for one in group if one.algo.source is not None]
                self.pieces.append(Piece(configs, seeds, there[which], some, layout, ahead))

    def init(self) -> list[Any]:
        """Returns (worlds, states, states of the noise sources) of every piece before the first step."""
        starts = [[one.start() for one in piece.ahead] for piece in self.pieces]
        return [(*_init(piece.layout)(piece.leaves, piece.keys), start) for piece, start in zip(self.pieces, starts)]

    def compile(self, capacity: int) -> None:
        """Compiles the programs of `init` and `advance` without running them."""
        piece = self.pieces[0]
        states = self._made(_init(piece.layout), piece.leaves, piece.keys)
        made: dict[Any, Any] = {}  # by structure and shapes, which most mechanisms of a sweep share
        for one in piece.ahead:
            if one.form not in made:
                zero = np.int32(0)
                made[one.form] = self._made(one.program(capacity), one.leaves, one.keys, one.start(), zero, zero)[0]
        rows = [made[one.form] for one in piece.ahead]
        given, k = (piece.leaves, piece.keys, *states), np.int32(0)
        if piece.layout.part:
            part = _parts(piece.layout, "part", n=piece.layout.part).trace(*given, k, np.uint32(0))
            parts = [part.out_info] * len(self.firsts)
            traced = [part, _parts(piece.layout, "join").trace(*given, k, parts, rows=rows)]
        else:
            traced = [_advance(piece.layout).trace(*given, *_steps(range(0), capacity), rows=rows)]
        for one in traced:
            self._fit(one.lower().compile())
        if any(map(lapack.factorises_several, programs.equations(traced[0].jaxpr))):
            self.workers = 1  # must not run concurrently, see `core.lapack`

    def _made(self, function: Any, *arguments: Any) -> Any:
        program = function.lower(*arguments).compile()
        self._fit(program)
        return jax.tree.map(
            lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where, weak_type=x.weak_type),
            jax.eval_shape(function, *arguments),
            program.output_shardings,
        )

    def _fit(self, program: Any) -> None:
        """Limits the workers to the available memory; raises `ValueError` if it is too small for one.

        Only XLA knows the temporary memory of a program. A piece uses the memory of one accelerator.
        """
        alone = 1 if on_cpu() else jax.local_device_count()  # devices with separate memory
        size, most = _size(program.runtime_executable()), self.memory / alone
        if size > most:
            layout = self.pieces[0].layout
            shape = f"{layout.n_seeds} seeds of {layout.n_configs} configurations"
            must, got = f"must fit into {memory.shown(most)} of memory", memory.shown(size)
            raise BadValue(("env", "algorithms", "seeds"), must, got, got=f"{got} for the compiled program of {shape}")
        self.workers = min(self.workers, alone * max(1, int(most // max(size, 1))))

    def records(self, states: list[Any]) -> dict[str, np.ndarray]:
        """Returns the records of all runs: name -> array (C, S, N, ...)."""
        if self.recorder is None:
            return {}
        found: dict[str, np.ndarray] = {}
        for piece, (_, state, _) in zip(self.pieces, states):
            for name, _, array in self.recorder.named(state):
                part = np.swapaxes(_axes(np.asarray(array)[None], piece)[0], 0, 1)
                whole = found.setdefault(name, np.empty((self.n_configs, self.n_seeds, *part.shape[2:]), part.dtype))
                whole[piece.configs, piece.seeds] = part
        return found

    def advance(self, pool: Executor, states: list[Any], ks: range, capacity: int) -> tuple[list[Any], Any]:
        """Advances all pieces by the steps `ks`, at most `capacity`. Returns states and metrics (steps, S, C, ...)."""

        def run(which: int) -> Any:
            piece, (world, state, drawn) = self.pieces[which], states[which]
            first = np.int32(ks.start), np.int32(len(ks))
            both = [
                one.program(capacity)(one.leaves, one.keys, before, *first) for one, before in zip(piece.ahead, drawn)
            ]
            rows, drawn = [rows for rows, _ in both], [after for _, after in both]
            if piece.layout.part:
                *after, metrics = self._in_parts(pool, piece, world, state, rows, ks)
            else:
                advance, steps = _advance(piece.layout), _steps(ks, capacity)
                *after, metrics = advance(piece.leaves, piece.keys, world, state, *steps, rows=rows)
            return (*after, drawn), jax.tree.map(lambda x: _axes(np.asarray(x)[: len(ks)], piece), metrics)

        done = list(pool.map(run, range(len(self.pieces))))

        def whole(*parts: np.ndarray) -> np.ndarray:
            metric = np.empty((len(ks), self.n_seeds, self.n_configs, *parts[0].shape[3:]), parts[0].dtype)
            for piece, part in zip(self.pieces, parts):
                metric[:, piece.seeds, piece.configs] = part
            return metric

        return [after for after, _ in done], jax.tree.map(whole, *(metrics for _, metrics in done))

    def _in_parts(
        self, pool: Executor, piece: Piece, world: Any, state: Any, rows: list[Any], ks: range
    ) -> tuple[Any, Any, Any]:
        given, stepped = (piece.leaves, piece.keys, world), []
        for k in ks:

            def play(first: int, k: int = k, state: Any = state) -> Any:
                return _parts(piece.layout, "part", n=piece.layout.part)(*given, state, np.int32(k), np.uint32(first))

            if self.workers == 1:
                parts = list(map(play, self.firsts))
            else:  # this thread plays the first part
                others = [pool.submit(play, first) for first in self.firsts[1:]]
                parts = [play(0), *(one.result() for one in others)]
            state, metrics = _parts(piece.layout, "join")(*given, state, np.int32(k), parts, rows=rows)
            stepped.append(metrics)
        return world, state, jax.tree.map(lambda *x: np.stack(x), *stepped)


def _together(n_seeds: int, most: int, workers: int) -> int:
    """Returns the seeds of a piece: the largest power of two up to `most` that keeps workers nearly always busy."""

    def turns(size: int) -> int:
        return size * math.ceil(math.ceil(n_seeds / size) / workers)

    sizes = [2**i for i in reversed(range(most.bit_length()))]
    return next(size for size in sizes if turns(size) <= WAITING * min(map(turns, sizes)))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _axes(metric: np.ndarray, piece: Piece) -> np.ndarray:
    """Reshapes a metric to (steps, seeds, configurations, ...), without padding seeds."""
    after = (piece.layout.n_seeds, piece.layout.n_configs)
    shape = metric.shape[1 + sum(n > 1 for n in after) :]
    return metric.reshape(len(metric), *after, *shape)[:, : piece.seeds.stop - piece.seeds.start]


def _steps(ks: range, capacity: int) -> tuple[Any, Any]:
    """Returns the arguments `count` and `ks` of a program for at most `capacity` steps."""
    return np.int32(len(ks)), np.arange(ks.start, ks.start + capacity, dtype=np.int32)


def _stack(runners: Sequence[Runner]) -> tuple[list[Any], Any, tuple[int | None, ...]]:
    """Stacks runners: leaves, tree structure, and the axis C of each leaf. It is None if all share one object."""
    flat = [jax.tree.leaves(runner) for runner in runners]
    leaves, axes = [], []
    for column in zip(*flat):
        shared = all(leaf is column[0] for leaf in column)
        leaves.append(column[0] if shared else np.stack([np.asarray(leaf) for leaf in column]))
        axes.append(None if shared else 0)
    return leaves, jax.tree.structure(runners[0]), tuple(axes)


@functools.lru_cache(PROGRAMS)
def _noise(structure: Any, several: bool, n: int) -> Any:
    def draw(leaves, keys, state, first, count):
        source, salt = jax.tree.unflatten(structure, leaves)

        def one(key: Array, state: Any) -> tuple[Any, Any]:
            return source.rows(salted(key, "syncs", salt), state, first, count if on_cpu() else n, n)

        return (jax.vmap(one) if several else one)(keys, state)

    return jax.jit(draw, compiler_options=quick_options())


@functools.lru_cache(4 * PROGRAMS)
def _size(executable: Any) -> int:
    """Returns the bytes of temporary arrays and results; XLA takes milliseconds to tell."""
    sizes = executable.get_compiled_memory_stats()
    return sizes.temp_size_in_bytes + sizes.output_size_in_bytes


@functools.lru_cache(PROGRAMS)
def _init(layout: Layout):
    return jax.jit(layout.over_runs("init"), compiler_options=quick_options())  # runs once


@functools.lru_cache(2 * PROGRAMS)
def _parts(layout: Layout, method: str, **fixed: Any):
    return jax.jit(layout.over_runs(method, **fixed), compiler_options=loop_options(layout.emitters))


@functools.lru_cache(PROGRAMS)
def _advance(layout: Layout):
    """Compiles the function that takes a piece through the first `count` of the steps `ks`.

    On a GPU it takes all of them, a number known without asking the host. `advance` drops the surplus.
    """

    def advance(leaves, keys, world, state, count, ks, rows=()):
        step = jax.jit(layout.over_runs("step"))  # traced once, for the shapes of metrics and for the loop

        def turn(i, carry):
            run, metrics = carry
            k = ks[i] if on_cpu() else ks[0] + i
            *run, new = step(leaves, keys, *run, k, rows=rows)
            return tuple(run), control.put_row(metrics, i, new, k)

        shapes = jax.eval_shape(functools.partial(step, rows=rows), leaves, keys, world, state, ks[0])[-1]
        empty = jax.tree.map(lambda x: jnp.zeros((len(ks), *x.shape), x.dtype), shapes)
        steps = count if on_cpu() else len(ks)
        (world, state), metrics = lax.fori_loop(0, steps, turn, ((world, state), empty))
        return world, state, metrics

    return jax.jit(advance, compiler_options=loop_options(layout.emitters))
