"""The runner of multi-armed algorithms: in a batch, equally many users pull every active arm."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.core import control, random, struct, wide
from fedbandit_jax.core.programs import need
from fedbandit_jax.engine.record import Moment
from fedbandit_jax.engine.runners.checks import are_arrays, need_step, shapes
from fedbandit_jax.engine.runners.runner import Runner, salted
from fedbandit_jax.interfaces import ArmAlgorithm, ArmEnvironment, Metrics, Pulls, Status
from fedbandit_jax.privacy.users import Attendance

BLOCK = 2**10  # users drawn from one key
TOGETHER = 16  # blocks drawn in one turn of the loop
MAX_USERS = 2**31 - 1 - BLOCK * TOGETHER  # int32 counts users, including the last blocks' padding


class Came(NamedTuple):
    """Attendance in a batch so far, and counts of the rewards that entered its sums."""

    key: Array
    k: Array  # index of the batch
    attendance: Attendance  # (n,) of all users
    entered: Array  # (K,) int32, rewards that entered for every arm

    @classmethod
    def before(cls, attendance: Attendance | None, key: Array, k: Array, pulls: Pulls) -> Came | None:
        """Returns the record at the start of batch k; None if users are not bounded."""
        if attendance is None:
            return None
        nobody = jnp.zeros(pulls.active.shape, jnp.int32)
        return cls(jax.random.fold_in(random.stream(key, "who"), k), k, attendance, nobody)

    def more(self, unit: Any, pulled: Array, who: Array, inside: Array) -> tuple[Came, Array]:
        """Adds blocks (n,) of arms `pulled` with users `who` (n, size), some `inside`; also returns who enters."""
        flat, attendance = self.attendance.come_once(unit, self.k, who.reshape(-1), inside.reshape(-1))
        enters = flat.reshape(who.shape)
        of_arm = jnp.where(jnp.arange(len(self.entered))[:, None] == pulled, enters.sum(1, dtype=jnp.int32), 0)
        return self._replace(attendance=attendance, entered=self.entered + of_arm.sum(1, dtype=jnp.int32)), enters


@struct.pytree
class BatchedArms(Runner):
    """A runner in which a step is a batch of users; their number depends on the active arms.

    Every seed has named streams: the world, users' rewards, the order of arms, coins for rounding, shares of noise, and
    draws once per batch. The last two are privacy noise, and `salted`. User i of an arm and a batch is the same for
    every algorithm.
    """

    env: ArmEnvironment
    algo: ArmAlgorithm  # bound
    block: int = struct.static(default=BLOCK)  # users in a block, even; draws depend on it

    @property
    @override
    def n_steps(self) -> int:
        return self.algo.n_batches

    @property
    def enforces(self) -> bool:
        """Whether contributions of identified users beyond their bounds are dropped."""
        return self.algo.unit is not None and self.env.spec.n_users > 0

    @override
    def init(self, key: Array) -> tuple[Any, Any]:
        world = self.env.init(random.stream(key, "world"))
        users = jnp.int32(0)  # so far
        attendance = Attendance.none(self.env.spec.n_users) if self.enforces else None
        state = users, self.algo.init(salted(key, "learner", self.salt), self.env.spec), attendance
        if self.recorder is None:
            return world, state
        moment = Moment(jnp.int32(0), world, state[1], self.algo, means=self.env.means(world))
        return world, self.recorder.start(state, 1, lambda: moment, lambda: moment)

    @override
    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """Plays one batch; if the horizon cuts it short, nothing is collected or learned."""
        streams = (random.stream(key, name) for name in ("users", "choices"))
        noise = (salted(key, name, self.salt) for name in ("shares", "syncs"))
        *drawn, syncs = (jax.random.fold_in(one, k) for one in (*streams, *noise))
        (played, learner, attendance), recording = self.split(state)
        before = learner
        pulls = self.algo.pulls(learner, k)
        n_active = jnp.maximum(pulls.active.sum(), 1)
        rest = self.horizon - played
        whole = pulls.users <= rest // n_active
        asked = whole & pulls.asked
        row = k if pulls.row is None else pulls.row
        sums, outside, came = self._collect(drawn, world, pulls, asked, row, Came.before(attendance, key, k, pulls))
        entered = {} if came is None else {"entered": came.entered}
        concluded, report = self.algo.conclude(syncs, k, learner, sums, **entered)
        learner = jax.tree.map(lambda new, old: jnp.where(asked, new, old), concluded, learner)
        report = jax.tree.map(lambda x: jnp.where(asked, x, jnp.zeros_like(x)), report)
        report = report._replace(status=report.status | jnp.where(outside, Status.OUTSIDE_SPEC.value, 0))
        means = self.env.means(world)
        gaps = means.max() - means
        if self.algo.round_robin:
            gap = jnp.where(pulls.active, gaps, 0).sum(keepdims=True) / n_active
            rounds = jnp.where(whole, pulls.users * n_active, rest)[None]
        else:
            turns = jax.random.permutation(random.stream(key, "turns"), len(gaps))
            active, gap = pulls.active[turns], gaps[turns]
            rank = jnp.cumsum(active) - 1
            served = jnp.minimum(rest // pulls.users, n_active)  # arms with all their users; no product overflows
            some = jnp.where(rank == served, rest - served * pulls.users, 0)
            rounds = jnp.where(active, jnp.where(rank < served, pulls.users, some), 0)
        state = played + rounds.sum(), learner, None if came is None else came.attendance
        if self.recorder is not None and recording is not None:
            moment = Moment(played, world, before, self.algo, means=means)
            recording = self.recorder.serve(recording, moment, rounds.sum())
        state = self.ended(recording, state, world, learner, state[0] >= self.horizon, means)
        return world, state, Metrics(gap, report, rounds)

    def _collect(
        self, keys: list[Array], world: Any, pulls: Pulls, asked: Array, k: Array, came: Came | None
    ) -> tuple[wide.Wide, Array, Came | None]:
        """Returns the sums (K,) of `algo.collect` in a batch, whether a reward violates the spec, and attendance.

        The keys are for rewards, coins and shares of noise. Blocks of all arms form one queue, so a small batch costs
        one turn of the loop instead of K.
        """
        arms = jnp.arange(self.env.spec.n_arms)
        readers = self.algo if struct.shipped(self.env) else None  # else `_outside` reads the rewards too
        n = jnp.where(asked & pulls.active, pulls.users, 0)
        blocks = control.max_over_lanes((n + self.block - 1) // self.block)
        ends = jnp.cumsum(blocks)
        sources = [jax.vmap(jax.random.fold_in, (None, 0))(key, arms) for key in keys]

        def placed(i):
            arm = jnp.minimum((ends <= i).sum(), len(arms) - 1)  # blocks behind the queue have nobody inside
            block = i - (ends - blocks)[arm]
            first = block * self.block + jnp.arange(self.block // 2)
            return arm, block, (first < n[arm], first + self.block // 2 < n[arm])

        def of_block(i, enters=None):
            arm, block, inside = placed(i)
            source, rounding, own = (random.fold_in(key[arm], block) for key in sources)
            rewards = control.materialize_pair(lambda: self.env.answers(source, world, arm, self.block), k, readers)
            wrong = self._outside(rewards, inside)
            if enters is not None:  # dropped users still add their shares of noise
                half = self.block // 2
                rewards = jnp.where(enters[:half], rewards[0], 0), jnp.where(enters[half:], rewards[1], 0)
            return arm, self.algo.collect(rounding, own, k, rewards, inside), wrong

        def who(key, i):
            arm, block, inside = placed(i)
            own = random.fold_in(jax.random.fold_in(key, arm), block)
            return arm, self.env.comers(own, self.block), jnp.concatenate(inside)  # pyright: ignore[reportAttributeAccessIssue]

        def add_blocks(carry):
            i, total, outside, came = carry
            at = i + jnp.arange(TOGETHER)
            if came is None:
                pulled, collected, wrong = jax.vmap(of_block)(at)
            else:
                came, enters = came.more(self.algo.unit, *jax.vmap(who, (None, 0))(came.key, at))
                pulled, collected, wrong = jax.vmap(of_block)(at, enters)
            by_arm = wide.where(arms[:, None] == pulled, collected, wide.of(0))
            return i + TOGETHER, wide.add(total, wide.add_up(by_arm)), outside | wrong.any(), came

        nothing = wide.Wide(jnp.zeros(len(arms), jnp.uint32), jnp.zeros(len(arms), jnp.uint32))
        start = jnp.int32(0), nothing, jnp.bool_(False), came
        return lax.while_loop(lambda carry: carry[0] < ends[-1], add_blocks, start)[1:]

    def _outside(self, rewards: tuple[Array, Array], inside: tuple[Array, Array]) -> Array:
        """Returns whether a reward of users `inside` violates the environment's spec."""
        if struct.shipped(self.env):  # checked by tests
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
        entered = {}
        if self.enforces:
            came = shapes("env.comers", lambda key: env.comers(key, self.block), key)  # pyright: ignore[reportAttributeAccessIssue]
            need("env.comers", are_arrays(came, ((self.block,), jnp.int32)), f"int32 of shape ({self.block},)", came)
            entered = {"entered": jax.ShapeDtypeStruct(arms, jnp.int32)}
        need_step(who + "conclude", state, jax.eval_shape(algo.conclude, key, k, state, words, **entered))
