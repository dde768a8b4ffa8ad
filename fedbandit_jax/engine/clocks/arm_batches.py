"""The clock of multi-armed algorithms: in a batch every active arm is pulled by equally many users."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.core import control, random, struct, wide
from fedbandit_jax.engine.clocks.clock import Clock, are_arrays, need, need_step, salted, shapes
from fedbandit_jax.engine.recorder import Moment
from fedbandit_jax.interfaces import ArmAlgorithm, ArmEnvironment, Metrics, Pulls, Status

BLOCK = 2**10  # users who are drawn from one key
TOGETHER = 16  # blocks drawn at once: enough to be worth a turn of the loop
MAX_USERS = 2**31 - 1 - BLOCK * TOGETHER  # int32 counts them, and those of the last blocks


@struct.pytree
class ArmBatchClock(Clock):
    """A clock in which a step is a batch of users; their number depends on which arms are still active.

    Every seed has named streams: the world, users' rewards, the coins by which they round, their shares of the noise,
    and what is drawn once per batch. The last two are privacy noise, and `salted`. User i of an arm and a batch is the
    same for every algorithm.
    """

    env: ArmEnvironment
    algo: ArmAlgorithm  # bound
    block: int = struct.static(default=BLOCK)  # users in a block, even; draws depend on it

    @property
    @override
    def n_steps(self) -> int:
        return self.algo.n_batches

    @override
    def rounds_at(self, k: int) -> None:
        return None  # how many users a batch has depends on how many arms are active

    @override
    def init(self, key: Array) -> tuple[Any, Any]:
        world = self.env.init(random.stream(key, "world"))
        users = jnp.int32(0)  # so far
        state = users, self.algo.init(salted(key, "learner", self.salt), self.env.spec)
        if self.recorder is None:
            return world, state
        moment = Moment(jnp.int32(0), world, state[1], self.algo)
        return world, self.recorder.start(state, 1, lambda: moment, lambda: moment)

    @override
    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """Plays one batch; if the horizon cuts it short, nothing is collected or learned."""
        streams = (random.stream(key, name) for name in ("users", "choices"))
        noise = (salted(key, name, self.salt) for name in ("shares", "syncs"))
        *drawn, syncs = (jax.random.fold_in(one, k) for one in (*streams, *noise))
        (played, learner), recording = self.opened(state)
        before = learner
        pulls = self.algo.pulls(learner, k)
        n_active = jnp.maximum(pulls.active.sum(), 1)
        rest = self.horizon - played
        whole = pulls.users <= rest // n_active
        asked = whole & pulls.asked
        sums, outside = self._collect(drawn, world, pulls, asked, k if pulls.row is None else pulls.row)
        concluded, report = self.algo.conclude(syncs, k, learner, sums)
        learner = jax.tree.map(lambda new, old: jnp.where(asked, new, old), concluded, learner)
        report = jax.tree.map(lambda x: jnp.where(asked, x, jnp.zeros_like(x)), report)
        report = report._replace(status=report.status | jnp.where(outside, Status.OUTSIDE_SPEC.value, 0))
        means = self.env.means(world)
        gaps = means.max() - means
        if self.algo.round_robin:
            gap = jnp.where(pulls.active, gaps, 0).sum(keepdims=True) / n_active
            rounds = jnp.where(whole, pulls.users * n_active, rest)[None]
        else:
            rank = jnp.cumsum(pulls.active) - 1
            served = jnp.minimum(rest // pulls.users, n_active)  # arms all of whose users come; no product overflows
            some = jnp.where(rank == served, rest - served * pulls.users, 0)
            gap, rounds = gaps, jnp.where(pulls.active, jnp.where(rank < served, pulls.users, some), 0)
        state = played + rounds.sum(), learner
        if self.recorder is not None and recording is not None:
            recording = self.recorder.serve(recording, Moment(played, world, before, self.algo), rounds.sum())
            end = Moment(jnp.int32(self.horizon), world, learner, self.algo)
            state = self.recorder.end(recording._replace(learner=state), end, state[0] >= self.horizon)
        return world, state, Metrics(gap, report, rounds)

    def _collect(self, keys: list[Array], world: Any, pulls: Pulls, asked: Array, k: Array) -> tuple[wide.Wide, Array]:
        """The sums (K,) that `algo.collect` makes of one batch, and whether any reward violates the spec.

        The keys are of rewards, coins and shares of the noise. The blocks of all arms form one queue, so that a small
        batch costs one turn of the loop instead of K.
        """
        arms = jnp.arange(self.env.spec.n_arms)
        readers = self.algo if struct.shipped(self.env) else None  # `_outside` reads the rewards of others, too
        n = jnp.where(asked & pulls.active, pulls.users, 0)
        blocks = control.largest((n + self.block - 1) // self.block)
        ends = jnp.cumsum(blocks)
        sources = [jax.vmap(jax.random.fold_in, (None, 0))(key, arms) for key in keys]

        def of_block(i):
            arm = jnp.minimum((ends <= i).sum(), len(arms) - 1)  # blocks behind the queue have nobody inside
            block = i - (ends - blocks)[arm]
            source, rounding, own = (random.fold_in(key[arm], block) for key in sources)
            rewards = control.once(lambda: self.env.answers(source, world, arm, self.block), k, readers)
            first = block * self.block + jnp.arange(self.block // 2)
            inside = first < n[arm], first + self.block // 2 < n[arm]
            wrong = self._outside(rewards, inside)
            return arm, self.algo.collect(rounding, own, k, rewards, inside), wrong

        def add_blocks(carry):
            i, total, outside = carry
            pulled, collected, wrong = jax.vmap(of_block)(i + jnp.arange(TOGETHER))
            by_arm = wide.where(arms[:, None] == pulled, collected, wide.of(0))
            return i + TOGETHER, wide.add(total, wide.add_up(by_arm)), outside | wrong.any()

        nothing = wide.Wide(jnp.zeros(len(arms), jnp.uint32), jnp.zeros(len(arms), jnp.uint32))
        start = jnp.int32(0), nothing, jnp.bool_(False)
        return lax.while_loop(lambda carry: carry[0] < ends[-1], add_blocks, start)[1:]

    def _outside(self, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Array:
        """Whether any reward of those users who are `inside` is not what the environment's spec declares."""
        if struct.shipped(self.env):  # tests look
            return jnp.bool_(False)
        unit = self.env.spec.rewards_in_unit
        fine = (((x >= 0) & (x <= 1) if unit else jnp.isfinite(x)) | ~i for x, i in zip(rewards, inside))
        return ~jnp.logical_and(*fine).all()

    @override
    def check(self, label: str) -> None:
        env, algo, spec = self.env, self.algo, self.env.spec
        key, k, arm = jax.random.key(0), jnp.int32(0), jnp.int32(0)
        arms, half = (spec.n_arms,), (self.block // 2,)
        floats = half, jnp.floating
        words = jax.eval_shape(lambda: wide.Wide(jnp.zeros(arms, jnp.uint32), jnp.zeros(arms, jnp.uint32)))
        world = jax.eval_shape(env.init, key)
        means = jax.eval_shape(env.means, world)
        need("env.means", are_arrays(means, (arms, jnp.floating)), f"floats of shape {arms}", means)
        rewards = shapes("env.answers", lambda key, world: env.answers(key, world, arm, self.block), key, world)
        need("env.answers", are_arrays(rewards, floats, floats), f"two float arrays of shape {half}", rewards)
        who = f"{label}'s "
        state = jax.eval_shape(lambda key: algo.init(key, spec), key)
        pulls = jax.eval_shape(algo.pulls, state, k)
        row = [((), jnp.int32)] * (getattr(pulls, "row", None) is not None)
        fine = are_arrays(pulls, (arms, jnp.bool_), ((), jnp.int32), ((), jnp.bool_), *row)
        need(who + "pulls", fine, "fb.Pulls(active (K,) bool, users int32, asked bool, row int32 or None)", pulls)
        inside = (jax.ShapeDtypeStruct(half, jnp.bool_),) * 2
        collected = jax.eval_shape(algo.collect, key, key, k, rewards, inside)
        need(who + "collect", are_arrays(collected, *[((), jnp.uint32)] * 2), "one Wide", collected)
        need_step(who + "conclude", state, jax.eval_shape(algo.conclude, key, k, state, words))
