"""A batch of rounds with contexts drawn or looked up while they are scored, never stored: see `core.choose`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import control
from fedbandit_jax.core.backend import on_cpu
from fedbandit_jax.core.choose import choose, choose_rows
from fedbandit_jax.core.lots import Lots
from fedbandit_jax.core.scoring import Offer, Scorer
from fedbandit_jax.engine.runners.batch import Played, Streams, allowed, play_rounds
from fedbandit_jax.engine.runners.runner import Runner
from fedbandit_jax.interfaces import Environment, Round

GROUP = 128  # agents with a state that fits into a CPU's cache
VECTOR = 16  # float32 numbers of a vector register; XLA does not vectorise shorter loops


class Chosen(NamedTuple):
    """Choices of agents in a round without stored contexts."""

    x: Array  # (d, A) features of the arms
    best: Array  # (A,) largest mean reward offered
    nowhere: Array  # (A,) bool, whether no index is the largest


def play(
    runner: Runner,
    streams: Streams,
    world: Any,
    state: Any,
    rounds: Array,
    start: Array | int = 0,
    n: int | None = None,
) -> Played:
    """Plays a batch without storing contexts, in groups of agents if the algorithm is additive.

    Plays all agents, or n of them (a multiple of `GROUP`) from index `start` on.
    """
    m = n or runner.env.spec.n_agents
    start = jnp.asarray(start, jnp.uint32)
    if not runner.algo.adds or m < 2 * GROUP or not on_cpu():
        size = -(-m // VECTOR) * VECTOR if runner.algo.adds and m > GROUP // 2 and on_cpu() else m
        agents = start + jnp.arange(size, dtype=jnp.uint32)
        return play_agents(runner, streams, world, state, rounds, agents, draw)

    def group(first: Array) -> Played:
        agents = first + jnp.arange(GROUP, dtype=jnp.uint32)
        return play_agents(runner, streams, world, state, rounds, agents, draw)._replace(world=None, local=None)

    def add(total: Played, first: Array) -> tuple[Played, None]:
        part = group(first)
        records, gap = jax.tree.map(jnp.add, (total.records, total.gap), (part.records, part.gap))
        return Played(None, None, records, gap, total.wrong | part.wrong), None

    firsts = start + jnp.arange(0, m, GROUP, dtype=jnp.uint32)
    part = jax.eval_shape(lambda: group(firsts[0]))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), part)
    return lax.scan(add, nothing, firsts)[0]._replace(world=world)


def play_agents(
    runner: Runner,
    streams: Streams,
    world: Any,
    state: Any,
    rounds: Array,
    agents: Array,
    choose: Callable[[Runner, Streams, Any, Array, Scorer, Array], Chosen],
) -> Played:
    """Plays a batch for the agents with indices `agents`. Indices >= M are padding and are masked out."""
    env, algo = cast(Any, runner.env), runner.algo
    spec, exists = env.spec, agents < env.spec.n_agents
    nobody = jnp.zeros(len(agents), jnp.int32)

    def play(local, now):
        t, keys = now
        x, best, nowhere = choose(runner, keys, world, t, algo.scorer(t, local), agents)

        def answer():
            mean = env.mean_at(world, x)
            return mean, env.reward_at(keys.answers, mean, agents)

        mean, reward = control.materialize_pair(answer, t)
        reward, wrong = allowed(reward, nowhere, spec.rewards_in_unit)
        offered = Round(x.T[:, None])
        local, record = algo.learn(t, local, offered, nobody, reward)
        gap = jnp.where(exists, best - mean, 0).sum()
        return local, (jax.tree.map(lambda y: jnp.where(exists, y, 0), record), gap, (wrong & exists).any())

    local = algo.download(state, Round(jnp.zeros((len(agents), 1, spec.dim))))
    local, played = play_rounds(algo, play, local, (rounds, streams))
    return Played(world, local, *played)


def draw(runner: Runner, keys: Streams, world: Any, t: Array, scorer: Scorer, agents: Array) -> Chosen:
    """Chooses arms for agents (A,), with features drawn while they are scored."""
    env, key, last = cast(Any, runner.env), keys.users, runner.env.spec.n_arms - 1
    offer = Offer(_features, _mean, (env, world, tuple(jax.random.key_data(key)), t))
    chosen, best = choose(offer, scorer, runner.env.spec.n_arms, agents, t)
    arms = jnp.minimum(chosen, last)
    x = control.materialize(lambda: jnp.stack(env.features_at(key, world, t, arms.astype(jnp.uint32), agents)), t)
    return Chosen(x, best, arms != chosen)


def look_up(runner: Runner, keys: Streams, world: Any, t: Array, scorer: Scorer, agents: Array) -> Chosen:
    """Chooses arms for agents (M,) among rows of a table."""
    env, k = cast(Any, runner.env), runner.env.spec.n_arms
    first, count = env.listed(keys.users, world, t)
    lots = Lots.draw(keys.choices, k, len(agents))
    chosen, best = choose_rows(env.rows_at, scorer, lambda x: env.mean_at(world, x), k, lots, first, count)
    arms = jnp.minimum(chosen, count - 1)
    x = jax.vmap(lambda row: env.rows_at(row, 1)[:, 0], out_axes=1)(first + arms)
    return Chosen(x, best, arms != chosen)


def has_hooks(env: Environment, *offers: str) -> bool:
    """Returns whether an environment has `offers`, `mean_at` and `reward_at`, as recent as `observe` and `pull`."""

    def owner(name: str) -> float:  # depth of the defining class in the MRO
        return next((i for i, cls in enumerate(type(env).__mro__) if name in vars(cls)), math.inf)

    offering = max(owner(name) for name in offers)
    answering = max(owner("mean_at"), owner("reward_at"))
    return max(offering, answering) < math.inf and offering <= owner("observe") and answering <= owner("pull")


def _features(shared: tuple[Any, Any, Array, Array], arm: Array, agent: Array) -> Any:
    env, world, key, t = shared
    return env.features_at(key, world, t, arm, agent)


def _mean(shared: tuple[Any, Any, Array, Array], x: Any) -> Array:
    env, world, *_ = shared
    return env.mean_at(world, x)
