"""Functions for `record=`, kept beside the curves, and the rounds at which they are called.

`arms` and `estimates` are examples. Any function of a `Moment` that returns an array, or a pytree of arrays, works. It
is traced as by `jax.jit`. Define it once, outside of loops, since another function object compiles again.

Records are the researcher's view. They may hold raw rewards and contexts, and no certificate covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.programs import NUMBERS
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.interfaces import Algorithm, Round
from fedbandit_jax.linalg import GaussianBelief


class Moment(NamedTuple):
    """Argument of a recorded function: a played round, or the state at the end.

    For multi-armed algorithms it is a batch of users with its first round, and only `t`, `world`, `state`, `algo` and
    `means` are set. For clustering algorithms, with one user a round, M is 1. Rewards are those the learner observed.
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
    means: Float[Array, " K"] | None = None  # mean reward of every arm, of multi-armed algorithms


Function = Callable[[Moment], Any]  # returns an array or a pytree of arrays


class Thinned(NamedTuple):
    """A function with its own rounds, made by `every` and `final`."""

    function: Function
    stride: int | Literal["log", "final"]


Record = Mapping[str, Function | Thinned]


def every(function: Function, stride: int | Literal["log"]) -> Thinned:
    """Records a function at every `stride`-th round, independently of the curves.

    Args:
        function: function of a `Moment`.
        stride: as in `fb.simulate`.

    Returns:
        A value for `record=`.

    Raises:
        TypeError, ValueError: an argument is invalid. `simulate` checks that `stride` divides the horizon.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env, algo = fb.envs.gap(4, 5, 3), fb.algos.fed_lin_ucb()
        >>> record = {"arms": fb.record.every(fb.record.arms, 25)}
        >>> result = fb.simulate(env, algo, horizon=100, key=jax.random.key(0), seeds=2, record=record)
        >>> result.records["arms"].shape, result.record_rounds["arms"]
        ((2, 4, 4), array([ 25,  50,  75, 100]))
    """
    return Thinned(_function("function", function), validate.stride(stride))


def final(function: Function = lambda moment: moment.state) -> Thinned:
    """Records a function at the end of a run, by default the learner's whole state.

    If the batch of the algorithm does not divide the horizon, the end is the end of the last batch.

    Args:
        function: function of a `Moment` with `t`, `world`, `state` and `algo`.

    Returns:
        A value for `record=`.

    Raises:
        TypeError: `function` is not a function.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env, algo = fb.envs.gap(4, 5, 3), fb.algos.fed_lin_ucb()
        >>> record = {"V": fb.record.final(lambda moment: moment.state.belief.gram)}
        >>> result = fb.simulate(env, algo, horizon=100, key=jax.random.key(0), seeds=2, record=record)
        >>> result.records["V"].shape  # (seeds, 1, d, d)
        (2, 1, 3, 3)
    """
    return Thinned(_function("function", function), "final")


def arms(moment: Moment) -> Int[Array, " M"]:
    """Returns the arm that each agent played, int32.

    Raises:
        TypeError: here and in `estimates`, if the algorithm lacks the quantity.
    """
    return _of_round("arms", moment.arms, moment)


def estimates(moment: Moment) -> Float[Array, "M d"]:
    """Returns the estimate of theta* that each agent acted on."""
    own = _belief("estimates", moment)
    theta = own.mean if isinstance(own, GaussianBelief) else own.posterior.theta.T
    return jnp.broadcast_to(theta, (len(_of_round("estimates", moment.arms, moment)), theta.shape[-1]))


def recommended(moment: Moment) -> dict[str, Array]:
    """Returns the arm that a search for the best arm recommends, whether it is one of the best, and since when.

    "arm" is int32, "right" bool, and "round" the round at which the search stopped, int32, -1 if it has not. Read
    `{"recommended": fb.record.final(fb.record.recommended)}` by `fb.best_arm`.
    """
    if not hasattr(moment.algo, "recommend") or moment.means is None:
        must = "must be of an algorithm that recommends an arm, as fb.algos.TopTwo does"
        raise validate.BadType("recommended", must, moment.algo, got=type(moment.algo).__name__)
    arm, stopped = moment.algo.recommend(moment.state)  # pyright: ignore[reportAttributeAccessIssue]
    return {"arm": arm, "right": moment.means[arm] >= moment.means.max(), "round": stopped}


def _of_round(name: str, value: Array | None, moment: Moment) -> Array:
    if value is None:
        must = "must be of single rounds, which this algorithm lacks"
        raise validate.BadType(name, must, moment.algo, got=type(moment.algo).__name__)
    return value


def _belief(name: str, moment: Moment) -> Scorer | GaussianBelief:
    """Returns the belief on which linear algorithms, and policies with a `GaussianBelief`, act in a round."""
    held = getattr(moment.local, "prepared", moment.local)  # of algorithms that learn within a batch
    if isinstance(held, GaussianBelief):
        return held
    belief = getattr(moment.local, "belief", None)
    if isinstance(belief, GaussianBelief):
        return belief
    if moment.local is None or not moment.algo.scores_alone:
        must = "must be of linear estimates, which are unknown here: write a function of moment.state or moment.local"
        raise validate.BadType(name, must, moment.algo, got=type(moment.algo).__name__)
    return moment.algo.scorer(moment.t, moment.local)


def _function(name: str, value: Any) -> Function:
    if not callable(value) or isinstance(value, type):
        raise validate.BadType(name, "must be a function of an fb.record.Moment", value)
    return value


def recorder(record: Any, at: np.ndarray, recorded: Callable[[Any], np.ndarray]) -> Recorder | None:
    """Builds the recorder for `record=`, at rounds `at` (N,) or `recorded(stride)`; None without records."""
    if record is None or (isinstance(record, Mapping) and not record):
        return None
    if not isinstance(record, Mapping):
        raise validate.BadType("record", "must map names to functions of an fb.record.Moment", record)
    rounds, functions, ends = [], [], []
    for name, value in record.items():
        if any(sign in validate.text("a name in record", name) for sign in "/["):
            raise validate.BadValue("a name in record", "must be without '/' and '['", name)
        stride = value.stride if isinstance(value, Thinned) else None
        functions.append(value.function if isinstance(value, Thinned) else _function(f"record[{name!r}]", value))
        ends.append(stride == "final")
        rounds.append((at if stride is None else at[-1:] if ends[-1] else recorded(stride)).astype(np.int32))
    return Recorder(rounds=tuple(rounds), names=tuple(record), functions=tuple(functions), final=tuple(ends))


class Recording(NamedTuple):
    """Runner and recorded values between two rounds."""

    learner: Any
    regret: Array  # (M,) so far
    rest: Array  # (M,) Kahan compensation of the sum
    values: tuple[Any, ...]  # a pytree for every record, leaves (N, ...)


@struct.pytree
class Recorder:
    """Functions of a `Moment` and their rounds.

    Records travel with the learner's state in tables of their final size, so memory is constant and checkpoints hold
    them.
    """

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
            if not (leaves := jax.tree.leaves(found)) or not all(isinstance(leaf, NUMBERS) for leaf in leaves):
                there = ", ".join(name for name, value in moment._asdict().items() if value is not None)
                name, got = f"record[{self.names[i]!r}]", f"{validate.shown(found)}: this moment has {there}"
                raise validate.BadType(name, "must return an array or a pytree of arrays", found, got=got)
            return jax.tree.map(_numbers, found)
        except Exception as error:
            error.add_note(f"This happened in record[{self.names[i]!r}].")
            raise


def _numbers(leaf: Any) -> Array:
    """Converts a leaf to a numeric array; keys to their words."""
    array = jnp.asarray(leaf)
    return jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
