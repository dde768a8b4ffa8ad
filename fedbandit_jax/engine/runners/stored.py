"""A batch of rounds in which every agent is offered all contexts: `observe`, `act` and `pull`."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import ridge
from fedbandit_jax.engine.record import Moment, Recording
from fedbandit_jax.engine.runners.batch import Played, Streams, allowed, impossible, play_rounds
from fedbandit_jax.engine.runners.runner import Runner
from fedbandit_jax.interfaces import Round


class Choice(NamedTuple):
    """Arms offered in a round, and the agents' choices."""

    world: Any
    offered: Round
    arms: Array  # (M,)
    wrong: Array  # (M,) bool, whether the user is invalid or the arm not offered


def play(
    runner: Runner, streams: Streams, world: Any, state: Any, rounds: Array, recording: Recording | None
) -> Played:
    """Plays a batch from a world and a state, and records it if given a recording."""
    algo, recorder = runner.algo, runner.recorder

    def play_one(carry, now):
        (world, local, recording), (t, keys) = carry, now
        moment, wrong = play_round(runner, world, state, local, t, keys)
        offered, arms, reward, gap = cast(Any, (moment.offered, moment.arms, moment.rewards, moment.gaps))
        local, record = algo.learn(t, local, offered, arms, reward)
        if recorder is not None and recording is not None:
            recording = recorder.play(recording, moment)
        return (moment.world, local, recording), (record, gap.sum(), wrong.any())

    first, *_ = offer(runner, streams.users[0], world, rounds[0])
    local = algo.download(state, first)
    (world, local, recording), played = play_rounds(algo, play_one, (world, local, recording), (rounds, streams))
    return Played(world, local, *played, recording)


def play_round(runner: Runner, world: Any, state: Any, local: Any, t: Array, keys: Streams) -> tuple[Moment, Array]:
    """Plays one round; returns it and the agents (M,) that met a violation of the spec."""
    env = runner.env
    choose = _accepted if runner.rejects else _choice
    world, offered, arms, wrong = choose(runner, world, local, t, keys)
    feedback = env.pull(keys.answers, world, offered, arms)
    reward, wrong = allowed(feedback.reward, wrong, env.spec.rewards_in_unit)
    wrong |= impossible(feedback)
    if (late := env.spec.late) and offered.arrives is not None:
        wrong |= (offered.arrives < 0) | (offered.arrives >= late)
    return Moment(t, world, state, runner.algo, local, offered, arms, reward, feedback.gap), wrong


def offer(runner: Runner, key: Array, world: Any, t: Array) -> tuple[Round, Array | bool, Any]:
    """Returns the offer of round t, the agents (M,) with invalid users, and the world after it."""
    offered, world = runner.env.observe(key, world, t)
    return *_known(offered, runner.env.spec.n_users), world


def _choice(runner: Runner, world: Any, local: Any, t: Array, keys: Streams) -> Choice:
    offered, strangers, world = offer(runner, keys.users, world, t)
    chosen = _first(runner, t, local, offered) if runner.drawable else runner.algo.act(keys.choices, t, local, offered)
    arms = jnp.clip(chosen, 0, offered.contexts.shape[1] - 1)
    refused = arms != chosen  # not offered, so it pays nothing
    if offered.mask is not None:
        refused |= ~jnp.take_along_axis(offered.mask, arms[:, None], 1)[:, 0]
    return Choice(world, offered, arms, refused | strangers)


def _first(runner: Runner, t: Array, local: Any, offered: Round) -> Array:
    """Returns the first best arms, as `drawn.draw` does for the same contexts."""
    worth = runner.algo.scorer(t, local).worth(list(ridge.transposed(offered.contexts)))
    return ridge.first_argmax(worth if offered.mask is None else jnp.where(offered.mask.T, worth, -jnp.inf))


def _accepted(runner: Runner, world: Any, local: Any, t: Array, keys: Streams) -> Choice:
    """Returns choices of agents that are offered users until their arms are accepted, see `fb.envs.rejection`."""

    def attempt(i: Any, before: Choice, accepted: Array) -> tuple[Any, Choice, Array]:
        own = jax.tree.map(lambda key: jax.random.fold_in(key, i), keys)
        new = _choice(runner, before.world, local, t, own)
        arms, wrong = (jnp.where(accepted, *pair) for pair in zip(before[2:], new[2:]))
        accepted, world = cast(Any, runner.env).accepts(own.answers, new.world, arms)
        return i + 1, Choice(world, new.offered, arms, wrong), accepted

    none = jnp.zeros(runner.env.spec.n_agents, bool)
    nothing = Choice(world, Round(jnp.zeros(())), none.astype(jnp.int32), none)
    refused = attempt(jnp.int32(0), nothing, none)
    return lax.while_loop(lambda carry: ~carry[2].all(), lambda carry: attempt(*carry), refused)[1]


def _known(offered: Round, n_users: int) -> tuple[Round, Array | bool]:
    """Replaces invalid users by n, out of bounds of every table; also returns which (M,) are invalid."""
    if offered.user is None:
        return offered, False
    strangers = (offered.user < 0) | (offered.user >= n_users)
    return offered._replace(user=jnp.where(strangers, n_users, offered.user)), strangers
