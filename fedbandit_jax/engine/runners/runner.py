"""The base class of runners, with salted streams."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import random, struct
from fedbandit_jax.engine.record import Moment, Recorder, Recording
from fedbandit_jax.interfaces import Metrics

ROWS = 2**20  # most numbers of noise drawn before the steps of a run


class Hints(NamedTuple):
    """Properties of a runner on which speed and memory depend, but no number."""

    contexts: str = ""  # "stored", "drawn" while they are scored, or rows of a "table"; "" without contexts
    branches: bool = False  # whether steps branch on data, which on a CPU is faster without vmap
    emitters: bool = False  # whether XLA:CPU uses its fusion emitters, which take half as long again to compile
    seeds: int = 1  # seeds that fill the vector units of a CPU, and still fit into its cache


@struct.pytree
class Runner:
    """A pytree that can be stepped. Its world never depends on the algorithm, so a sweep shares it.

    Subclasses define `rounds_per_step` or `n_steps`, and `init`, `step` and `check`.
    """

    env: Any
    algo: Any  # bound; the certificate is read from it
    horizon: Any  # T, a number: runs of any length share a program
    salt: tuple[Any, ...] = ()  # words that separate its privacy noise, see `salted`
    recorder: Recorder | None = None  # if given, states are a `Recording`
    program: str = struct.static(default="")  # digest of the programs of user-defined parts

    rounds_per_step = 0  # rounds of every step but the last; 0 if they depend on the run, see `Metrics.rounds`
    hints = Hints()
    drawable = False  # whether contexts can be drawn while they are scored; the first best arm is then played

    @property
    def rejects(self) -> bool:
        """Whether the environment accepts or rejects arms, as declared by the spec of the certificate."""
        return getattr(self.algo, "spec", self.env.spec).rejects and callable(getattr(self.env, "accepts", None))

    @property
    def n_steps(self) -> int:
        """Most steps of a run."""
        return -(-self.horizon // self.rounds_per_step)

    @property
    def played(self) -> Self:
        """The runner to compile, to be `given` the noise of its algorithm's `source`; others may share its program."""
        return self if self.algo.source is None else self.given(None)

    def given(self, rows: Any) -> Self:
        """Returns the runner with noise drawn before."""
        return dataclasses.replace(self, algo=self.algo.given(rows))

    def sharing(self, n_configs: int) -> Self:
        """Returns the variant of this runner for a program shared by `n_configs` configurations."""
        return self

    def init(self, key: Array) -> tuple[Any, Any]:
        """Returns the world and the learner's state of one seed before the first step."""
        raise NotImplementedError

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """Plays step k; returns world, learner's state and metrics. Draws depend on (key, round) only."""
        raise NotImplementedError

    def divided(self, most: int) -> int | None:
        """Returns the number of agents in a part, for up to `most` parts of a step; None if indivisible.

        A divisible runner has `part` and `join` besides `step`.
        """
        return None

    def split(self, state: Any) -> tuple[Any, Recording | None]:
        """Splits a state into the learner's state and the recording that holds it, if any."""
        return (state, None) if self.recorder is None else (state.learner, state)

    def ended(
        self, recording: Recording | None, state: Any, world: Any, learner: Any, ends: Array, means: Any = None
    ) -> Any:
        """Returns the state after a step, or the recording that holds it, in which the run may end."""
        if self.recorder is None or recording is None:
            return state
        end = Moment(jnp.int32(self.horizon), world, learner, self.algo, means=means)
        return self.recorder.end(recording._replace(learner=state), end, ends)

    def check(self, label: str) -> None:
        """Checks that environment and algorithm fit together, without compilation.

        Raises:
            TypeError: they do not; the message names the method, expected and actual return value.
        """
        raise NotImplementedError


def salted(key: Array, name: str, salt: tuple[Any, ...]) -> Array:
    """Returns the key of a named stream that only runners of equal salt share, as privacy noise requires.

    If two configurations shared noise, the difference of their releases would reveal raw sums.

    Args:
        key: of the seed, shared with streams without salt.
        name: of the stream.
        salt: uint32 words, see `fedbandit_jax.engine.identity`; without any, all runners share the stream.
    """
    key = random.stream(key, name)
    for word in salt:
        key = jax.random.fold_in(key, word)
    return key


def signature(runner: Runner) -> Any:
    """Returns a hashable value; runners with equal signatures share a compiled program."""
    leaves, treedef = jax.tree.flatten(runner)
    return treedef, tuple((np.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)
