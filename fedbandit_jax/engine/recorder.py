"""Records functions of a `Moment` at chosen rounds.

They travel with the learner's state in tables of their final size, so memory is constant and checkpoints hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces import Algorithm, Round


class Moment(NamedTuple):
    """The argument of a recorded function: a played round, or the state at the end.

    For multi-armed algorithms it is a batch of users with its first round, and only `t`, `world`, `state` and `algo`
    are set. For clustering algorithms, with one user a round, M is 1. Rewards are those the learner observed.
    """

    t: Int[Array, ""]  # round 0, 1, ..., or T at the end
    world: Any  # the environment's draws for the seed, for instance theta*
    state: Any  # the learner's state before the round or its batch; at the end, the final state
    algo: Algorithm  # bound
    local: Any = None  # the agents' local state, see `Algorithm.download`
    offered: Round | None = None  # users and contexts
    arms: Int[Array, " M"] | None = None
    rewards: Float[Array, " M"] | None = None
    gaps: Float[Array, " M"] | None = None  # largest mean reward offered minus the played arm's
    regret: Float[Array, " M"] | None = None  # cumulative gaps of each agent, including this round


class Recording(NamedTuple):
    """The state of a runner with a recorder."""

    learner: Any
    regret: Array  # (M,) so far
    rest: Array  # (M,) Kahan compensation of the sum
    values: tuple[Any, ...]  # a pytree for every record, leaves (N, ...)


@struct.pytree
class Recorder:
    """Functions of a `Moment` and their rounds."""

    rounds: tuple[Any, ...]  # (N,) int32, increasing rounds 1, 2, ... of every record
    names: tuple[str, ...] = struct.static()
    functions: tuple[Callable[[Moment], Any], ...] = struct.static()
    final: tuple[bool, ...] = struct.static()  # whether each is called once, at the end

    def start(self, learner: Any, n_agents: int, during: Callable[[], Moment], end: Callable[[], Moment]) -> Recording:
        """Returns empty tables, with shapes traced from moments that are never computed."""

        def started(moment: Moment) -> Moment:
            return moment._replace(regret=moment.gaps)

        def table(i: int, rounds: Any) -> Any:
            found = jax.eval_shape(lambda: self._value(i, end() if self.final[i] else started(during())))
            return jax.tree.map(lambda x: jnp.zeros((len(rounds), *x.shape), x.dtype), found)

        tables = tuple(table(i, rounds) for i, rounds in enumerate(self.rounds))
        return Recording(learner, jnp.zeros(n_agents), jnp.zeros(n_agents), tables)

    def play(self, recording: Recording, moment: Moment) -> Recording:
        """Records a round, given its moment without `regret`."""
        gaps = jnp.asarray(moment.gaps) - recording.rest
        regret = recording.regret + gaps
        recording = recording._replace(regret=regret, rest=(regret - recording.regret) - gaps)
        moment = moment._replace(regret=regret)

        def put(i: int, table: Any) -> Any:
            rounds = jnp.asarray(self.rounds[i])
            place = jnp.searchsorted(rounds, moment.t + 1)
            asked = rounds.at[place].get(mode="fill", fill_value=0) == moment.t + 1
            value = self._if(asked, i, moment, table)
            place = jnp.where(asked, place, len(rounds))  # out of bounds: nothing is written
            return jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), table, value)

        return self._each(recording, False, put)

    def serve(self, recording: Recording, moment: Moment, n_rounds: Array) -> Recording:
        """Records a batch of `n_rounds` rounds with the same moment."""

        def put(i: int, table: Any) -> Any:
            rounds = jnp.asarray(self.rounds[i])
            inside = (rounds > moment.t) & (rounds <= moment.t + n_rounds)

            def where(old: Array, new: Array) -> Array:
                return jnp.where(inside.reshape(-1, *[1] * new.ndim), new, old)

            return jax.tree.map(where, table, self._value(i, moment))

        return self._each(recording, False, put)

    def end(self, recording: Recording, moment: Moment, ends: Array) -> Recording:
        """Records the end of the run, if it `ends` with this step."""

        def put(i: int, table: Any) -> Any:
            value = self._if(ends, i, moment, table)
            return jax.tree.map(lambda old, new: jnp.where(ends, new[None], old), table, value)

        return self._each(recording, True, put)

    def named(self, recording: Recording) -> Iterator[tuple[str, int, Any]]:
        """Yields the name of every recorded array, the index of its record, and the array."""
        for i, (name, table) in enumerate(zip(self.names, recording.values)):
            for path, leaf in jax.tree_util.tree_leaves_with_path(table):
                yield name + jax.tree_util.keystr(path), i, leaf

    def _each(self, recording: Recording, final: bool, put: Callable[[int, Any], Any]) -> Recording:
        tables = (put(i, table) if self.final[i] == final else table for i, table in enumerate(recording.values))
        return recording._replace(values=tuple(tables))

    def _if(self, asked: Array, i: int, moment: Moment, table: Any) -> Any:
        """Computes the value of a record if asked for, otherwise returns zeros."""
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), table)
        return lax.cond(asked, lambda: self._value(i, moment), lambda: zeros)

    def _value(self, i: int, moment: Moment) -> Any:
        """Returns the value of a record as numeric arrays; errors name the record."""
        try:
            found = self.functions[i](moment)
            if not (leaves := jax.tree.leaves(found)) or any(isinstance(leaf, (str, bytes)) for leaf in leaves):
                there = ", ".join(name for name, value in moment._asdict().items() if value is not None)
                name, got = f"record[{self.names[i]!r}]", f"{validate.shown(found)}: this moment has {there}"
                raise BadType(name, "must return an array or a pytree of arrays", found, got=got)
            return jax.tree.map(_numbers, found)
        except Exception as error:
            error.add_note(f"This happened in record[{self.names[i]!r}].")
            raise


def _numbers(leaf: Any) -> Array:
    """Converts a leaf to a numeric array; keys to their words."""
    array = jnp.asarray(leaf)
    return jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
