"""`rollout`: one run of one seed as a pure function, for `jax.jit`, `jax.vmap` and programs of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int, Key

from fedbandit_jax.core import validate
from fedbandit_jax.engine.clocks import Clock
from fedbandit_jax.engine.grid import Configuration, check_environment
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.recorder import Recording
from fedbandit_jax.engine.records import Record
from fedbandit_jax.engine.setup import bind
from fedbandit_jax.interfaces import Algorithm, Environment, Metrics, Status


class Rollout(NamedTuple):
    """What one run of one seed measured."""

    regret: Float[Array, " T"]  # cumulative, summed over agents; float32
    status: Int[Array, ""]  # bits of `fb.Status`, 0 if all is well: look at it, nothing is raised
    records: dict[str, Array]  # what `record` asked for, (its own rounds, ...)


def rollout(
    env: Environment, algo: Algorithm, key: Key[Array, ""], *, horizon: int, record: Record | None = None
) -> Rollout:
    """Plays one run of `horizon` rounds as a pure function of its arguments, which `jax.jit` and `jax.vmap` take.

    The run is that of seed i of `fb.simulate(env, algo, key=key0)` if the key is `jax.random.fold_in(key0, i)`, up to
    rounding. There are no certificates, checkpoints or progress, and no guard against a run that needs more memory than
    there is.

    Args:
        env: environment; its numbers may be traced.
        algo: algorithm, or a bound one, as `algo.bind(env.spec, horizon)` makes it, whose numbers may be traced: so one
            compiled program serves many parameters, and vmap runs them side by side. Privacy noise is then drawn from
            the key alone. So two private algorithms under one key would share their noise: give each a key of its own.
        key: typed PRNG key; may be traced.
        horizon: T, the number of rounds.
        record: as in `fb.simulate`, by default at every round.

    Returns:
        A `Rollout` with regret of shape (T,).

    Raises:
        ValueError, TypeError: an argument is wrong; the message names it and its value.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env, algo = fb.envs.gap(4, 5, 3), fb.algos.fed_lin_ucb(schedule=10)
        >>> run = jax.jit(jax.vmap(lambda key: fb.rollout(env, algo, key, horizon=50).regret))
        >>> run(jax.random.split(jax.random.key(0), 8)).shape
        (8, 50)
    """
    check_environment("env", env)
    validate.instance("algo", algo, Algorithm, "an fb.Algorithm")
    run = Run(horizon=horizon, key=key, seeds=1, record=record)
    recorder = run.recorder(np.arange(1, run.horizon + 1 if isinstance(record, Mapping) else 1))
    with jax.ensure_compile_time_eval():  # what is set up once is set up on the host, within `jit` as well
        clock, _ = bind(algo.name, Configuration(env, algo, {}), run.horizon, recorder)
    return _play(clock, key, run.horizon)


def _play(clock: Clock, key: Array, horizon: int) -> Rollout:
    def step(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Metrics]:
        world, state, metrics = clock.step(key, *carry, k)
        return (world, state), metrics

    (_, state), metrics = lax.scan(step, clock.init(key), jnp.arange(clock.n_steps))
    if metrics.rounds is None:
        gap = metrics.gap.ravel()[:horizon]
    else:  # stretches of rounds with the same gap
        gap = jnp.repeat(metrics.gap.ravel(), metrics.rounds.ravel(), total_repeat_length=horizon)
        gap = jnp.where(jnp.arange(horizon) < metrics.rounds.sum(), gap, jnp.nan)  # all rounds must have been played
    regret = jnp.cumsum(gap)
    status = lax.reduce(jnp.asarray(metrics.report.status), np.int32(0), lax.bitwise_or, (0,))
    status |= jnp.where(jnp.isfinite(regret[-1]), 0, Status.NOT_FINITE.value)
    found = clock.recorder.named(state) if clock.recorder is not None and isinstance(state, Recording) else ()
    return Rollout(regret, status, {name: array for name, _, array in found})
