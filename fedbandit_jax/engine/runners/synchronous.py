"""The runner of federated agents: each serves one user a round, and they synchronise after every B rounds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import random, struct
from fedbandit_jax.core.backend import UNROLL_DIM, on_cpu
from fedbandit_jax.core.programs import is_array, need, need_same, numeric
from fedbandit_jax.engine.record import Moment
from fedbandit_jax.engine.runners import drawn, stored
from fedbandit_jax.engine.runners.batch import Played, Streams
from fedbandit_jax.engine.runners.checks import check_environment, need_step, shapes
from fedbandit_jax.engine.runners.runner import Hints, Runner, salted
from fedbandit_jax.interfaces import Algorithm, Environment, Metrics, Status

DRAW_AGAIN = 3  # most configurations that each draw all contexts
SMALL = 1_000  # features of a round, up to which quick compilation costs no speed


@struct.pytree
class Synchronous(Runner):
    """A runner in which a step is a batch: B rounds in a scan, then one synchronisation.

    Every seed has named streams: users, answers, choices, and synchronisations (privacy noise, `salted`). So two
    algorithms under one key see the same users and reward noise. An algorithm sees only users, arms and rewards that
    the environment's spec allows; a violation sets `OUTSIDE_SPEC`. (Private statistics bound the features.) If the
    horizon cuts the last batch short, its further rounds are played and `sync` is called, but neither is recorded.
    With a `recorder` every agent is offered all contexts.
    """

    env: Environment
    algo: Algorithm  # bound
    shared: bool = struct.static(default=False)  # whether several configurations run side by side

    @property
    @override
    def rounds_per_step(self) -> int:
        return self.algo.batch

    @override
    def sharing(self, n_configs: int) -> Synchronous:
        return dataclasses.replace(self, shared=n_configs > DRAW_AGAIN)

    @override
    def init(self, key: Array) -> tuple[Any, Any]:
        world = self.env.init(random.stream(key, "world"))
        state = self.algo.init(salted(key, "learner", self.salt), self.env.spec)
        if self.recorder is None:
            return world, state
        t, keys = jnp.int32(0), Streams(key, key, key)

        def during() -> Moment:
            local = self.algo.download(state, stored.offer(self, key, world, t)[0])
            return stored.play_round(self, world, state, local, t, keys)[0]

        end = Moment(t, world, state, self.algo)
        return world, self.recorder.start(state, self.env.spec.n_agents, during, lambda: end)

    @property
    @override
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How a round is played, and as many seeds as together have `drawn.GROUP` agents, a power of two, at least 2.

        Arms of a table are played seed by seed.
        """
        spec, contexts = self.env.spec, "stored"
        if self.recorder is None:
            if self.drawable and not self.shared:
                contexts = "drawn"
            elif on_cpu() and drawn.has_hooks(self.env, "listed", "rows_at"):
                contexts = "table" if cast(Any, self.env).ragged and self.scores_alone else "stored"
        seeds = 2 ** max(0, (drawn.GROUP // spec.n_agents - 1).bit_length())
        wide = spec.n_agents * spec.n_arms * spec.dim > SMALL
        return Hints(contexts, emitters=wide, seeds=1 if contexts == "table" else seeds)

    @override
    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        rounds, streams = self._streams(key, k)
        state, recording = self.split(state)
        if (contexts := self.hints.contexts) == "drawn":
            played = drawn.play(self, streams, world, state, rounds)
        elif contexts == "table":
            agents = jnp.arange(self.env.spec.n_agents, dtype=jnp.uint32)
            played = drawn.play_agents(self, streams, world, state, rounds, agents, drawn.look_up)
        else:
            played = stored.play(self, streams, world, state, rounds, recording)
        return self._synced(key, state, k, rounds, played)

    def part(self, key: Array, world: Any, state: Any, k: Array, first: Array, n: int) -> tuple[Any, Array, Array]:
        """Plays step k for the n agents from index `first` on, if the runner is `divided`."""
        rounds, streams = self._streams(key, k)
        played = drawn.play(self, streams, world, state, rounds, first, n)
        return played.records, played.gap, played.wrong

    def join(self, key: Array, world: Any, state: Any, k: Array, parts: Sequence[Any]) -> tuple[Any, Metrics]:
        """Joins the parts of step k into the learner's state and metrics; the world is unchanged."""
        rounds, _ = self._streams(key, k)
        records, gap = jax.tree.map(lambda *x: functools.reduce(jnp.add, x), *(part[:2] for part in parts))
        wrong = functools.reduce(jnp.logical_or, [part[2] for part in parts])
        return self._synced(key, state, k, rounds, Played(world, None, records, gap, wrong))[1:]

    @override
    def divided(self, most: int) -> int | None:
        m = self.env.spec.n_agents
        if most < 2 or m < 2 * drawn.GROUP or not (self.algo.adds and on_cpu()) or self.hints.contexts != "drawn":
            return None
        return -(-m // (most * drawn.GROUP)) * drawn.GROUP

    def _streams(self, key: Array, k: Array) -> tuple[Array, Streams]:
        rounds = k * self.algo.batch + jnp.arange(self.algo.batch)
        of_round = jax.vmap(jax.random.fold_in, (None, 0))
        return rounds, Streams(*(of_round(random.stream(key, name), rounds) for name in Streams._fields))

    def _synced(self, key: Array, state: Any, k: Array, rounds: Array, played: Played) -> tuple[Any, Any, Metrics]:
        syncs = salted(key, "syncs", self.salt)
        state, report = self.algo.sync(jax.random.fold_in(syncs, k), k, state, played.local, played.records)
        whole = (rounds[-1] < self.horizon) | self.algo.stops_by_itself
        report = jax.tree.map(lambda x: jnp.where(whole, x, 0), report)._replace(status=report.status)
        wrong = (played.wrong & (rounds < self.horizon)).any()
        status = jnp.asarray(report.status) | jnp.where(wrong, int(Status.OUTSIDE_SPEC), 0)
        ends = (rounds[0] < self.horizon) & (rounds[-1] + 1 >= self.horizon)  # a GPU may take further steps
        state = self.ended(played.recording, state, played.world, state, ends)
        return played.world, state, Metrics(played.gap, jax.tree.map(_counter, report._replace(status=status)))

    @property
    def scores_alone(self) -> bool:
        """Whether the batch needs no `observe`, the only source of users, drop-outs and delayed rewards."""
        spec = self.env.spec
        if spec.fixed_contexts or spec.n_users or spec.drops or spec.late:
            return False
        return struct.is_sealed(self.algo) and self.algo.scores_alone

    @property
    @override
    def drawable(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.spec.dim <= UNROLL_DIM and drawn.has_hooks(self.env, "features_at") and self.scores_alone

    @override
    def check(self, label: str) -> None:
        env, algo, spec = self.env, self.algo, self.env.spec
        m, key, t = spec.n_agents, jax.random.key(0), jnp.int32(0)
        offered = check_environment(env)
        arms, rewards = (jax.ShapeDtypeStruct((m,), kind) for kind in (jnp.int32, jnp.float32))
        who = f"{label}'s "
        state = jax.eval_shape(numeric(who + "init", lambda key: algo.init(key, spec)), key)
        local = jax.eval_shape(algo.download, state, offered)
        chosen = shapes(who + "act", algo.act, key, t, local, offered)
        need(who + "act", is_array(chosen, (m,), jnp.integer), f"integer arms of shape {(m,)}", chosen)
        learned = shapes(who + "learn", algo.learn, t, local, offered, arms, rewards)
        need(who + "learn", type(learned) is tuple and len(learned) == 2, "(local state, record)", learned)
        need_same(who + "learn", "a local state", local, learned[0])
        records = jax.tree.map(lambda x: jax.ShapeDtypeStruct((algo.batch, *x.shape), x.dtype), learned[1])
        gathered = jax.eval_shape(algo.gather, records)
        need_step(who + "sync", state, shapes(who + "sync", algo.sync, key, t, state, local, gathered))


def _counter(x: Any) -> Array:
    """Converts a count to int32, or float32 if it is a float that may exceed int32."""
    x = jnp.asarray(x)
    return x.astype(jnp.float32 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.int32)
