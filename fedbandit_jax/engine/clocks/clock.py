"""The base class of clocks, and their common parts: salted streams, and agents over devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from fedbandit_jax.core import random, struct
from fedbandit_jax.engine.recorder import Recorder, Recording
from fedbandit_jax.interfaces import Metrics

AXIS = "agents"  # of a mesh of devices
ROWS = 2**20  # most numbers of noise that are drawn for a run before it is played on


@struct.pytree
class Clock:
    """A pytree that can be stepped. Its world never depends on the algorithm, so that a sweep shares it.

    Subclasses define `step_rounds` or `n_steps`, and `init`, `step` and `check`.
    """

    env: Any
    algo: Any  # bound; the certificate is read from it
    horizon: Any  # T, a number: runs of any length share a program
    salt: tuple[Any, ...] = ()  # words that set the privacy noise apart from that of other clocks, see `salted`
    recorder: Recorder | None = None  # with it, states are a `Recording`
    program: str = struct.static(default="")  # digest of the programs of parts that are not the package's
    mesh: Mesh | None = struct.static(default=None)  # devices that the agents are spread over; None: there is one

    step_rounds = 0  # rounds of every step but the last; 0 if they depend on the run, see `Metrics.rounds`
    branches = False  # whether a step branches on data; on a CPU a run is then faster by itself than beside others
    stores = False  # whether the contexts of a round are stored
    drawable = False  # whether fresh arms could be drawn while they are scored, and the first of the best is played
    emitters = False  # whether XLA:CPU is to use its fusion emitters, which take half as long again to compile
    seeds_abreast = 1  # how many seeds side by side fill the vector units of a CPU, and still fit into its cache

    @property
    def rejects(self) -> bool:
        """Whether the environment accepts or rejects arms, as the spec says that the certificate is about."""
        return getattr(self.algo, "spec", self.env.spec).rejects and callable(getattr(self.env, "accepts", None))

    @property
    def n_steps(self) -> int:
        """The most steps that a run may have."""
        return -(-self.horizon // self.step_rounds)

    @property
    def source(self) -> Any:
        """What draws the noise of steps before they are played, see `Algorithm.source`; None: steps draw it."""
        return self.algo.source

    @property
    def n_rows(self) -> int:
        """The most steps whose noise is drawn before they are played; 0 if it is not."""
        return 0 if self.source is None else max(1, ROWS // self.source.row_size)

    @property
    def played(self) -> Self:
        """The clock whose steps are played, which is `given` the noise of its source: others may share its program."""
        return self if self.source is None else self.given(None)

    def given(self, rows: Any) -> Self:
        """The same clock with noise that was drawn before."""
        return dataclasses.replace(self, algo=self.algo.given(rows))

    def sharing(self, n_configs: int) -> Self:
        """The clock that is to run if so many configurations share a program, this one included."""
        return self

    def init(self, key: Array) -> tuple[Any, Any]:
        """The world and the learner's state of one seed before the first step."""
        raise NotImplementedError

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """The world, the learner's state and the metrics after step k; draws depend on (key, round) only."""
        raise NotImplementedError

    def divided(self, most: int) -> int | None:
        """The number of agents in a part of a step, if it can be cut into up to `most` parts, and None if not."""
        return None

    def part(self, key: Array, world: Any, state: Any, k: Array, first: Array, n: int) -> Any:
        """The part of step k, if it is `divided`, of the n agents from number `first` on."""
        raise NotImplementedError

    def join(self, key: Array, world: Any, state: Any, k: Array, parts: Sequence[Any]) -> tuple[Any, Metrics]:
        """The learner's state and the metrics after step k, whose `part`s have been played; the world stays."""
        raise NotImplementedError

    def opened(self, state: Any) -> tuple[Any, Recording | None]:
        """The state without its records, and the recording that it came in, if there is a recorder."""
        return (state, None) if self.recorder is None else (state.learner, state)

    def spread(self, tree: Any) -> Any:
        """Divides arrays that have an axis of all agents over the devices, see the function of this name."""
        return spread(tree, self.env.spec.n_agents, self.mesh)

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


def signature(clock: Clock) -> Any:
    """A hashable value; clocks for which it is equal run in one compiled program."""
    leaves, treedef = jax.tree.flatten(clock)
    return treedef, tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)


def mesh() -> Mesh:
    """All devices of this process in a row."""
    return Mesh(np.array(jax.local_devices()), (AXIS,), axis_types=(AxisType.Auto,))


def spread(tree: Any, n_agents: int, over: Mesh | None) -> Any:
    """Divides every array that has an axis of `n_agents` along the last such axis; without devices it changes nothing.

    XLA then divides the program likewise, and devices talk only where agents do. An axis of that length by accident is
    divided, too, which changes no number.
    """
    if over is None:
        return tree

    def one(x: Array) -> Array:
        axes = [axis for axis, length in enumerate(x.shape) if length == n_agents]
        if not axes or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return x
        where = PartitionSpec(*[None] * axes[-1], AXIS)
        return jax.lax.with_sharding_constraint(x, NamedSharding(over, where))

    return jax.tree.map(one, tree)
