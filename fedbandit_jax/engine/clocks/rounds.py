"""The clock of federated agents: each serves one user in every round, and after every B rounds they synchronise."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.core import control, random, struct
from fedbandit_jax.core.backend import UNROLL_DIM, on_cpu, without_kernels
from fedbandit_jax.core.choose import Offer, Scorer, choose, choose_rows
from fedbandit_jax.engine.clocks.clock import (
    Clock,
    check_environment,
    impossible,
    is_array,
    need,
    need_same,
    need_step,
    salted,
    shapes,
    spread,
)
from fedbandit_jax.engine.recorder import Moment, Recording
from fedbandit_jax.interfaces import Algorithm, Drawn, Environment, Listed, Metrics, Rejecting, Round, Status

GROUP = 128  # agents whose state of a batch stays in a CPU's cache
DRAW_AGAIN = 3  # most configurations that draw all contexts for themselves
SMALL = 1_000  # features offered in a round, up to which programs are compiled quickly, and run about as fast
VECTOR = 16  # float32 numbers in a vector register; a loop over fewer is done one by one


class Streams(NamedTuple):
    """The keys (B,) of the rounds of a batch, in the streams that all configurations share."""

    users: Array
    answers: Array
    choices: Array


class Played(NamedTuple):
    """What a batch leaves behind before its synchronisation."""

    world: Any
    local: Any  # the agents' local state; None if they were played in groups
    records: Any  # what `Algorithm.gather` made of their records
    gap: Array  # (B,) summed over agents
    wrong: Array  # (B,) bool: whether anything was not as the environment's spec says
    recording: Recording | None = None  # what is recorded beside the curves


class Choice(NamedTuple):
    """What agents were offered in a round, and chose."""

    world: Any
    offered: Round
    arms: Array  # (M,)
    wrong: Array  # (M,) bool: who came that there is not, or was to be given an arm that is not offered


class Chosen(NamedTuple):
    """What agents chose in a round, without having been offered all contexts at once."""

    x: Array  # (d, A) features of the arms
    best: Array  # (A,) the largest mean reward that was offered
    nowhere: Array  # (A,) bool: who found no largest index


@struct.pytree
class RoundClock(Clock):
    """A clock in which a step is a batch: B rounds in a scan, then one synchronisation.

    Every seed has named streams: users, answers, choices, and synchronisations (privacy noise, `salted`); so two
    algorithms under one key see the same users and the same reward noise. An algorithm is given only users, arms and
    rewards that the environment's own spec allows; a violation sets `OUTSIDE_SPEC`. (Features are bounded
    where they enter a private statistic.) If the horizon cuts the last batch short, its further rounds are played and
    `sync` is called, but neither is recorded. With a `recorder` every agent is offered all contexts.
    """

    env: Environment
    algo: Algorithm  # bound
    shared: bool = struct.static(default=False)  # whether several configurations run beside each other

    @property
    @override
    def n_steps(self) -> int:
        return -(-self.horizon // self.algo.batch)

    @override
    def sharing(self, n_configs: int) -> RoundClock:
        return dataclasses.replace(self, shared=n_configs > DRAW_AGAIN)

    @override
    def rounds_at(self, k: int) -> range:
        return range(k * self.algo.batch, min((k + 1) * self.algo.batch, self.horizon))

    @override
    def init(self, key: Array) -> tuple[Any, Any]:
        world = self.env.init(random.stream(key, "world"))
        state = self._spread(self.algo.init(salted(key, "learner", self.salt), self.env.spec))
        if self.recorder is None:
            return world, state
        t, keys = jnp.int32(0), Streams(key, key, key)

        def during() -> Moment:
            local = self.algo.download(state, self._offer(key, world, t)[0])
            return self._turn(world, state, local, t, keys)[0]

        end = Moment(t, world, state, self.algo)
        return world, self.recorder.start(state, self.env.spec.n_agents, during, lambda: end)

    @property
    @override
    def seeds_together(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Seeds that have `GROUP` agents together, a power of two."""
        if self.lists:
            return 1
        return 2 ** max(0, (GROUP // self.env.spec.n_agents - 1).bit_length())

    @override
    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        rounds, streams = self._streams(key, k)
        state, recording = self.opened(state)
        with contextlib.nullcontext() if self.mesh is None else without_kernels():  # XLA cannot divide these
            if self.draws:
                played = self._drawn(streams, world, state, rounds)
            elif self.lists:
                agents = jnp.arange(self.env.spec.n_agents, dtype=jnp.uint32)
                played = self._group(streams, world, state, rounds, agents, self._look_up)
            else:
                played = self._offered(streams, world, state, rounds, recording)
        return self._synced(key, state, k, rounds, played)

    @override
    def part(self, key: Array, world: Any, state: Any, k: Array, first: Array, n: int) -> tuple[Any, Array, Array]:
        rounds, streams = self._streams(key, k)
        played = self._drawn(streams, world, state, rounds, first, n)
        return played.records, played.gap, played.wrong

    @override
    def join(self, key: Array, world: Any, state: Any, k: Array, parts: Sequence[Any]) -> tuple[Any, Metrics]:
        rounds, _ = self._streams(key, k)
        records, gap = jax.tree.map(lambda *x: functools.reduce(jnp.add, x), *(part[:2] for part in parts))
        wrong = functools.reduce(jnp.logical_or, [part[2] for part in parts])
        return self._synced(key, state, k, rounds, Played(world, None, records, gap, wrong))[1:]

    @override
    def divided(self, most: int) -> int | None:
        m = self.env.spec.n_agents
        if most < 2 or m < 2 * GROUP or self.mesh is not None or not (self.draws and self.algo.adds and on_cpu()):
            return None
        return -(-m // (most * GROUP)) * GROUP

    def _streams(self, key: Array, k: Array) -> tuple[Array, Streams]:
        rounds = k * self.algo.batch + jnp.arange(self.algo.batch)
        of_round = jax.vmap(jax.random.fold_in, (None, 0))
        return rounds, Streams(*(of_round(random.stream(key, name), rounds) for name in Streams._fields))

    def _synced(self, key: Array, state: Any, k: Array, rounds: Array, played: Played) -> tuple[Any, Any, Metrics]:
        syncs = salted(key, "syncs", self.salt)
        state, report = self.algo.sync(jax.random.fold_in(syncs, k), k, state, played.local, played.records)
        state = self._spread(state)
        whole = (rounds[-1] < self.horizon) | self.algo.stops_by_itself
        report = jax.tree.map(lambda x: jnp.where(whole, x, 0), report)._replace(status=report.status)
        wrong = (played.wrong & (rounds < self.horizon)).any()
        status = jnp.asarray(report.status) | jnp.where(wrong, int(Status.OUTSIDE_SPEC), 0)
        if self.recorder is not None and played.recording is not None:
            end = Moment(jnp.int32(self.horizon), played.world, state, self.algo)
            ends = (rounds[0] < self.horizon) & (rounds[-1] + 1 >= self.horizon)  # a GPU may take steps beyond it
            state = self.recorder.end(played.recording._replace(learner=state), end, ends)
        return played.world, state, Metrics(played.gap, jax.tree.map(_counter, report._replace(status=status)))

    @property
    @override
    def draws(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether contexts are drawn while they are scored, and never stored, see `core.choose`.

        Environment and algorithm must offer that; contexts that several configurations share are worth storing. Who
        came, which silos are away and what arrives is known where contexts are offered.
        """
        spec = self.env.spec
        if self.shared or self.recorder is not None or spec.fixed_contexts or spec.dim > UNROLL_DIM:
            return False
        if spec.n_users or spec.drops or spec.late:
            return False
        return has_hooks(self.env, "features_at") and struct.is_sealed(self.algo) and self.algo.scores_alone

    @property
    @override
    def emitters(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.spec.n_agents * self.env.spec.n_arms * self.env.spec.dim > SMALL

    @property
    def lists(self) -> bool:
        """Whether arms are chosen among rows of a table, which configurations may share: `core.choose.choose_rows`."""
        if (
            self.recorder is not None
            or self.mesh is not None
            or self.env.spec.fixed_contexts
            or self.env.spec.n_users
            or self.env.spec.drops
            or self.env.spec.late
            or not (on_cpu() and has_hooks(self.env, "listed", "rows_at") and cast(Listed, self.env).ragged)
        ):
            return False
        return struct.is_sealed(self.algo) and self.algo.scores_alone

    def _offered(self, streams: Streams, world: Any, state: Any, rounds: Array, recording: Recording | None) -> Played:
        """A batch by `observe`, `act` and `pull`: every agent is offered all contexts of a round."""
        algo = self.algo

        def play(carry, now):
            (world, local, recording), (t, keys) = carry, now
            moment, wrong = self._turn(world, state, local, t, keys)
            offered, arms, reward, gap = cast(Any, (moment.offered, moment.arms, moment.rewards, moment.gaps))
            local, record = algo.learn(t, local, offered, arms, reward)
            if self.recorder is not None and recording is not None:
                recording = self.recorder.play(recording, moment)
            return (moment.world, local, recording), (record, gap.sum(), wrong.any())

        local = self._spread(algo.download(state, self._offer(streams.users[0], world, rounds[0])[0]))
        (world, local, recording), played = self._rounds(play, (world, local, recording), (rounds, streams))
        return Played(world, local, *played, recording)

    def _offer(self, key: Array, world: Any, t: Array) -> tuple[Round, Array | bool, Any]:
        offered, world = self.env.observe(key, world, t)
        return *_known(self._spread(offered), self.env.spec.n_users), world

    def _spread(self, tree: Any) -> Any:
        return spread(tree, self.env.spec.n_agents, self.mesh)

    def _turn(self, world: Any, state: Any, local: Any, t: Array, keys: Streams) -> tuple[Moment, Array]:
        choice = (self._accepted if callable(getattr(self.env, "accepts", None)) else self._choice)(
            world, local, t, keys
        )
        world, offered, arms, wrong = choice
        feedback = self.env.pull(keys.answers, world, offered, arms)
        reward, wrong = _allowed(feedback.reward, wrong, self.env.spec.rewards_in_unit)
        wrong |= impossible(feedback)
        if (late := self.env.spec.late) and offered.arrives is not None:
            wrong |= (offered.arrives < 0) | (offered.arrives >= late)
        return Moment(t, world, state, self.algo, local, offered, arms, reward, feedback.gap), wrong

    def _choice(self, world: Any, local: Any, t: Array, keys: Streams) -> Choice:
        offered, strangers, world = self._offer(keys.users, world, t)
        arms, refused = _existing(self.algo.act(keys.choices, t, local, offered), offered)
        return Choice(world, offered, arms, refused | strangers)

    def _accepted(self, world: Any, local: Any, t: Array, keys: Streams) -> Choice:
        """Choices of agents who are offered other users until their arms are accepted, see `Rejecting`."""

        def attempt(i: Any, before: Choice, accepted: Array) -> tuple[Any, Choice, Array]:
            own = jax.tree.map(lambda key: jax.random.fold_in(key, i), keys)
            new = self._choice(before.world, local, t, own)
            arms, wrong = (jnp.where(accepted, *pair) for pair in zip(before[2:], new[2:]))
            accepted, world = cast(Rejecting, self.env).accepts(own.answers, new.world, arms)
            return i + 1, Choice(world, new.offered, arms, wrong), accepted

        none = jnp.zeros(self.env.spec.n_agents, bool)
        nothing = Choice(world, Round(jnp.zeros(())), none.astype(jnp.int32), none)
        refused = attempt(jnp.int32(0), nothing, none)
        return lax.while_loop(lambda carry: ~carry[2].all(), lambda carry: attempt(*carry), refused)[1]

    def _rounds(self, play: Callable[[Any, Any], Any], carry: Any, now: Any) -> tuple[Any, tuple[Any, Array, Array]]:
        """The carry after a batch, gathered records, gaps and wrongs; `play` maps (carry, now) to (carry, these)."""
        algo = self.algo
        if on_cpu():
            carry, (records, gap, wrong) = lax.scan(play, carry, now)
            return carry, (algo.gather(records), gap, wrong)

        rounds, streams = now
        b = len(rounds)

        def after(i, carry):  # nothing is cut out or put in by a copy, so that a batch is one graph
            t = rounds[0] + i
            return t, *play(carry, (t, jax.tree.map(lambda x: x[i], streams)))

        def add(i, carry):  # a GPU has many agents at once: the records of a batch would take much of its memory
            carry, total, told = carry
            _, carry, (record, *new) = after(i, carry)
            total = jax.tree.map(jnp.add, total, algo.gather(jax.tree.map(lambda y: y[None], record)))
            here = lax.iota(jnp.int32, b) == i
            return carry, total, [jnp.where(here, x, old) for old, x in zip(told, new)]

        def keep(i, carry):
            carry, told = carry
            t, carry, new = after(i, carry)
            return carry, control.put_row(told, i, new, t)

        record, *new = jax.eval_shape(lambda: play(carry, jax.tree.map(lambda x: x[0], now))[1])
        told = [jnp.zeros(b, x.dtype) for x in new]
        if not algo.adds:
            records = jax.tree.map(lambda x: jnp.zeros((b, *x.shape), x.dtype), record)
            carry, (records, gap, wrong) = lax.fori_loop(0, b, keep, (carry, (records, *told)))
            return carry, (algo.gather(records), gap, wrong)
        empty = algo.gather(jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), record))
        carry, total, (gap, wrong) = lax.fori_loop(0, b, add, (carry, empty, told))
        return carry, (total, gap, wrong)

    def _drawn(
        self, streams: Streams, world: Any, state: Any, rounds: Array, start: Array | int = 0, n: int | None = None
    ) -> Played:
        """Plays a batch without storing contexts; agents are played in groups if the algorithm can add them up.

        These are all agents, or n (a multiple of `GROUP`) of them from number `start` on.
        """
        m = n or self.env.spec.n_agents
        start = jnp.asarray(start, jnp.uint32)
        if not self.algo.adds or m < 2 * GROUP or not on_cpu():
            size = -(-m // VECTOR) * VECTOR if self.algo.adds and m > GROUP // 2 and on_cpu() else m
            agents = self._spread(start + jnp.arange(size, dtype=jnp.uint32))
            return self._group(streams, world, state, rounds, agents, self._draw)

        def group(first: Array) -> Played:
            agents = first + jnp.arange(GROUP, dtype=jnp.uint32)
            return self._group(streams, world, state, rounds, agents, self._draw)._replace(world=None, local=None)

        def add(total: Played, first: Array) -> tuple[Played, None]:
            part = group(first)
            records, gap = jax.tree.map(jnp.add, (total.records, total.gap), (part.records, part.gap))
            return Played(None, None, records, gap, total.wrong | part.wrong), None

        firsts = start + jnp.arange(0, m, GROUP, dtype=jnp.uint32)
        part = jax.eval_shape(lambda: group(firsts[0]))
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), part)
        if self.mesh is None:
            return lax.scan(add, nothing, firsts)[0]._replace(world=world)
        n = self.mesh.size  # every device plays its own groups, and what they leave behind is added up once
        firsts = jnp.arange(0, -(-m // (n * GROUP)) * n * GROUP, GROUP, dtype=jnp.uint32).reshape(n, -1)
        parts = jax.vmap(lambda firsts: lax.scan(add, nothing, firsts)[0])(spread(firsts, n, self.mesh))
        records, gap = jax.tree.map(lambda x: x.sum(0), (parts.records, parts.gap))
        return Played(world, None, records, gap, parts.wrong.any(0))

    def _draw(self, key: Array, world: Any, t: Array, scorer: Scorer, agents: Array) -> Chosen:
        env, last = cast(Drawn, self.env), self.env.spec.n_arms - 1
        offer = Offer(_features, _mean, (env, world, tuple(jax.random.key_data(key)), t))
        chosen, best = choose(offer, scorer, self.env.spec.n_arms, agents, t)
        arms = jnp.minimum(chosen, last)
        x = control.stored(lambda: jnp.stack(env.features_at(key, world, t, arms.astype(jnp.uint32), agents)), t)
        return Chosen(x, best, arms != chosen)

    def _look_up(self, key: Array, world: Any, t: Array, scorer: Scorer, agents: Array) -> Chosen:
        env = cast(Listed, self.env)
        first, count = env.listed(key, world, t)
        chosen, best = choose_rows(
            env.rows_at, scorer, lambda x: env.mean_at(world, x), self.env.spec.n_arms, first, count
        )
        arms = jnp.minimum(chosen, count - 1)
        x = jax.vmap(lambda row: env.rows_at(row, 1)[:, 0], out_axes=1)(first + arms)
        return Chosen(x, best, arms != chosen)

    def _group(
        self,
        streams: Streams,
        world: Any,
        state: Any,
        rounds: Array,
        agents: Array,
        choose: Callable[[Array, Any, Array, Scorer, Array], Chosen],
    ) -> Played:
        """Plays a batch with the agents of these numbers, who choose so; those from M on do not count."""
        env, algo = cast(Any, self.env), self.algo
        spec, exists = env.spec, agents < env.spec.n_agents
        nobody = jnp.zeros(len(agents), jnp.int32)

        def play(local, now):
            t, (users, answers, _) = now
            x, best, nowhere = choose(users, world, t, algo.scorer(t, local), agents)

            def answer():
                mean = env.mean_at(world, x)
                return mean, env.reward_at(answers, mean, agents)

            mean, reward = control.once(answer, t)
            reward, wrong = _allowed(reward, nowhere, spec.rewards_in_unit)
            offered = Round(x.T[:, None])
            local, record = algo.learn(t, local, offered, nobody, reward)
            gap = jnp.where(exists, best - mean, 0).sum()
            return local, (jax.tree.map(lambda y: jnp.where(exists, y, 0), record), gap, (wrong & exists).any())

        local = algo.download(state, Round(jnp.zeros((len(agents), 1, spec.dim))))
        local, played = self._rounds(play, local, (rounds, streams))
        return Played(world, local, *played)

    @override
    def check(self, label: str) -> None:
        env, algo, spec = self.env, self.algo, self.env.spec
        m, key, t = spec.n_agents, jax.random.key(0), jnp.int32(0)
        offered = check_environment(env)
        user = getattr(offered, "user", None)
        if spec.n_users:
            need("env.observe", is_array(user, (m,), jnp.integer), f"who came, integers of shape {(m,)}", user)
        else:
            need("env.observe", user is None, "no user: env.spec.n_users is 0, so that users are not told apart", user)
        arms, rewards = (jax.ShapeDtypeStruct((m,), kind) for kind in (jnp.int32, jnp.float32))
        who = f"{label}'s "
        state = jax.eval_shape(lambda key: algo.init(key, spec), key)
        local = jax.eval_shape(algo.download, state, offered)
        chosen = shapes(who + "act", algo.act, key, t, local, offered)
        need(who + "act", is_array(chosen, (m,), jnp.integer), f"integer arms of shape {(m,)}", chosen)
        learned = shapes(who + "learn", algo.learn, t, local, offered, arms, rewards)
        need(who + "learn", type(learned) is tuple and len(learned) == 2, "(local state, record)", learned)
        need_same(who + "learn", "a local state", local, learned[0])
        records = jax.tree.map(lambda x: jax.ShapeDtypeStruct((algo.batch, *x.shape), x.dtype), learned[1])
        gathered = jax.eval_shape(algo.gather, records)
        need_step(who + "sync", state, shapes(who + "sync", algo.sync, key, t, state, local, gathered))


def has_hooks(env: Environment, *offers: str) -> bool:
    """Whether an environment has the methods `offers`, `mean_at` and `reward_at`, not older than `observe`, `pull`."""

    def owner(name: str) -> float:  # how far up the class that defines a name is
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


def _known(offered: Round, n_users: int) -> tuple[Round, Array | bool]:
    """The offer with strangers numbered n, for whom no table has a row, and which users (M,) are strangers."""
    if offered.user is None:
        return offered, False
    strangers = (offered.user < 0) | (offered.user >= n_users)
    return offered._replace(user=jnp.where(strangers, n_users, offered.user)), strangers


def _existing(arms: Array, offered: Round) -> tuple[Array, Array]:
    """Arms clipped to 0 ... K - 1, (M,), and which (M,) are refused because they are not offered, and pay nothing."""
    exists = jnp.clip(arms, 0, offered.contexts.shape[1] - 1)
    refused = exists != arms
    if offered.mask is not None:
        refused |= ~jnp.take_along_axis(offered.mask, exists[:, None], 1)[:, 0]
    return exists, refused


def _allowed(reward: Array, refused: Array, in_unit: bool) -> tuple[Array, Array]:
    """Rewards (M,) as the spec allows them, 0 if refused or infinite, and which of them (M,) have changed."""
    wrong = refused | ~jnp.isfinite(reward)
    reward = jnp.where(wrong, 0, reward)
    if not in_unit:
        return reward, wrong
    clipped = jnp.clip(reward, 0, 1)
    return clipped, wrong | (clipped != reward)


def _counter(x: Any) -> Array:
    """A count as int32, or float32 if it is a float, as those are that int32 would not hold."""
    x = jnp.asarray(x)
    return x.astype(jnp.float32 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.int32)
