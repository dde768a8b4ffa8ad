"""Functions for `record=`, kept beside the curves, and the rounds at which they are called.

The functions below are examples. Any function of a `Moment` that returns an array, or a pytree of arrays, works. It is
traced as by `jax.jit`. Define it once, outside of loops, since another function object compiles again.

Records are the researcher's view. They may hold raw rewards and contexts, and no certificate covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from fedbandit_jax.core import ridge, validate
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.engine.recorder import Moment as Moment
from fedbandit_jax.engine.recorder import Recorder
from fedbandit_jax.linalg import GaussianBelief

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


def regret(moment: Moment) -> Float[Array, " M"]:
    """Returns the cumulative regret of each agent, float32, in units of reward.

    Raises:
        TypeError: here and in the functions below, if the algorithm or environment lacks the quantity.
    """
    return _of_round("regret", moment.regret, moment)


def arms(moment: Moment) -> Int[Array, " M"]:
    """Returns the arm that each agent played, int32."""
    return _of_round("arms", moment.arms, moment)


def rewards(moment: Moment) -> Float[Array, " M"]:
    """Returns the reward that each agent observed, float32."""
    return _of_round("rewards", moment.rewards, moment)


def estimates(moment: Moment) -> Float[Array, "M d"]:
    """Returns the estimate of theta* that each agent acted on."""
    own = _belief("estimates", moment)
    theta = own.mean if isinstance(own, GaussianBelief) else own.posterior.theta.T
    return jnp.broadcast_to(theta, (len(_of_round("estimates", moment.arms, moment)), theta.shape[-1]))


def widths(moment: Moment) -> Float[Array, " M"]:
    """Returns the confidence width of the arm that each agent played, beta_t ||x||_{V^-1}.

    For Thompson sampling it is the standard deviation of the mean reward under the posterior of scale 1.
    """
    own = _belief("widths", moment)
    assert moment.offered is not None
    assert moment.arms is not None
    x = ridge.take(moment.offered.contexts, moment.arms)  # (d, M)
    if isinstance(own, GaussianBelief):
        return own.std(x.T)
    return own.width * jnp.sqrt(jnp.maximum(ridge.form(x, own.posterior.inverse), 0))


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
