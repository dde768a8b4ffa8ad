"""The runner of clustering algorithms: one identified user arrives in each round, and may return."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.core import graph, lots, random, struct
from fedbandit_jax.core.programs import is_array, need, numeric
from fedbandit_jax.engine.record import Moment
from fedbandit_jax.engine.runners.batch import allowed, impossible
from fedbandit_jax.engine.runners.checks import check_environment, need_step, shapes
from fedbandit_jax.engine.runners.runner import Hints, Runner, salted
from fedbandit_jax.interfaces import (
    ArrivalAlgorithm,
    ArrivalEnvironment,
    Feedback,
    Metrics,
    Report,
    Round,
    Spec,
    Status,
)

BLOCK = 64  # rounds in a step: amortises its overhead; gauges are recorded after steps
SLACK = 1e-5  # tolerance of norms, for float32 rounding
MAX_ARRIVALS = 2**24  # most rounds that float32 counts exactly


@struct.pytree
class Sequential(Runner):
    """A runner in which a step is a block of rounds with one user each.

    Offers and the rewards of all arms are drawn for a whole block. An algorithm sees only values that the environment's
    spec allows; a violation sets the status bit `OUTSIDE_SPEC`. Invalid users get the index n, out of bounds of every
    table, so JAX drops writes there. Streams are as in `Synchronous`.
    """

    env: ArrivalEnvironment
    algo: ArrivalAlgorithm  # bound
    block: int = struct.static(default=BLOCK)  # rounds in a step; draws do not depend on it

    hints = Hints(branches=True)  # uploads, downloads, splits and merges are rare

    @property
    @override
    def rounds_per_step(self) -> int:
        return self.block

    @override
    def init(self, key: Array) -> tuple[Any, Any]:
        world = self.env.init(random.stream(key, "world"))
        state = self.algo.init(salted(key, "learner", self.salt), self.env.spec)
        if self.recorder is None:
            return world, state
        end = Moment(jnp.int32(0), world, state, self.algo)

        def during() -> Moment:
            offered, feedback, _ = self._draw(key, world, jnp.zeros(1, jnp.int32))
            offered, feedback = jax.tree.map(lambda x: x[0], (offered, feedback))
            return end._replace(offered=offered, arms=jnp.zeros(1, jnp.int32),
                                rewards=feedback.reward[:1], gaps=feedback.gap[:1])  # fmt: skip

        return world, self.recorder.start(state, 1, during, lambda: end)

    @override
    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        syncs, choices = salted(key, "syncs", self.salt), random.stream(key, "choices")
        first = k * self.block
        state, recording = self.split(state)
        offered, feedback, outside = self._draw(key, world, first + jnp.arange(self.block))

        def play(i, carry):
            state, gaps, total, recording = carry
            t = first + i
            state, before = self.algo.begin(syncs, t, state)
            now, answers = jax.tree.map(lambda x: x[i], (offered, feedback))
            assert now.user is not None
            user, contexts = now.user[0], now.contexts[0]
            index = self.algo.index(choices, t, state, user, contexts)
            if now.mask is not None:
                index = jnp.where(now.mask[0], index, -jnp.inf)
            arm = lots.best(random.fold_in(choices, t), index[:, None])[0]  # out of range if an index is NaN
            offers = arm < len(index) if now.mask is None else (arm < len(index)) & now.mask[0, arm]
            reward = jnp.where(offers, answers.reward[arm], 0)
            if self.recorder is not None and recording is not None:
                one = Moment(t, world, state, self.algo, None, now, arm[None].astype(jnp.int32), reward[None])
                recording = self.recorder.play(recording, one._replace(gaps=answers.gap[arm][None]))
            state, after = self.algo.serve(syncs, t, state, user, contexts[arm], reward)
            total = _add(_add(total, before), after)
            wrong = jnp.where(offers & ~outside[i, arm], 0, int(Status.OUTSIDE_SPEC))
            total = total._replace(status=total.status | wrong)
            return state, gaps.at[i].set(answers.gap[arm]), total, recording

        reports = jax.eval_shape(lambda: self._reports(syncs, state, offered))
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), reports)
        start = state, jnp.zeros(self.block), nothing, recording
        state, gaps, report, recording = lax.fori_loop(0, jnp.minimum(self.block, self.horizon - first), play, start)
        metrics = Metrics(gaps, report, gauges=self._gauges(world, state))
        return world, self.ended(recording, state, world, state, first + self.block >= self.horizon), metrics

    def _draw(self, key: Array, world: Any, rounds: Array) -> tuple[Round, Feedback, Array]:
        """Returns offers of these rounds (B,), rewards and gaps of all arms (B, K), and violations of the spec (B, K).

        The arms of an invalid user have reward and gap 0.
        """
        users, answers = (random.stream(key, name) for name in ("users", "answers"))

        def one(t):
            offered, _ = self.env.observe(jax.random.fold_in(users, t), world, t)
            source = jax.random.fold_in(answers, t)
            pull = jax.vmap(lambda arm: self.env.pull(source, world, offered, arm[None]))
            pulled = jax.tree.map(lambda x: x[:, 0], pull(jnp.arange(self.env.spec.n_arms)))
            reward, gap = pulled
            assert offered.user is not None
            exists = (offered.user[0] >= 0) & (offered.user[0] < self.env.spec.n_users)
            contexts, reward, outside = admit(self.env.spec, offered.contexts, reward[None])
            offered = offered._replace(contexts=contexts, user=jnp.where(exists, offered.user, self.env.spec.n_users))
            feedback = Feedback(jnp.where(exists, reward[0], 0), jnp.where(exists, gap, 0))
            return offered, feedback, outside[0] | ~exists | impossible(pulled)

        return jax.vmap(one)(rounds)

    def _reports(self, key: Array, state: Any, offered: Round) -> Report:
        """Returns a report with the shapes of a round's; its values mean nothing."""
        _, before = self.algo.begin(key, jnp.int32(0), state)
        x = offered.contexts[0, 0, 0]
        _, after = self.algo.serve(key, jnp.int32(0), state, jnp.int32(0), x, jnp.float32(0))
        return _add(before, after)

    def _gauges(self, world: Any, state: Any) -> dict[str, Array]:
        """Returns the agreement of clusters with the truth, and their number."""
        found = self.algo.partition(state)
        rand = graph.adjusted_rand(found, self.env.clusters(world), self.env.n_clusters)
        return {"adjusted Rand index": rand, "clusters": graph.n_labels(found)}

    @override
    def check(self, label: str) -> None:
        env, algo, spec = self.env, self.algo, self.env.spec
        k, users = spec.n_arms, (spec.n_users,)
        key, t = jax.random.key(0), jnp.int32(0)
        world = jax.eval_shape(env.init, key)
        user = getattr(jax.eval_shape(env.observe, key, world, t)[0], "user", None)
        need("env.observe", is_array(user, (1,), jnp.integer), "the user, integers of shape (1,)", user)
        check_environment(env)
        truth = jax.eval_shape(env.clusters, world)
        need("env.clusters", is_array(truth, users, jnp.integer), f"integers of shape {users}", truth)
        moved = jax.make_jaxpr(lambda world: env.observe(key, world, t)[1])(world).jaxpr
        need("env.observe", list(moved.outvars) == list(moved.invars), "the world as it is", "another")
        who = f"{label}'s "
        state = jax.eval_shape(numeric(who + "init", lambda key: algo.init(key, spec)), key)
        contexts = jax.ShapeDtypeStruct((k, spec.dim), jnp.float32)
        index = shapes(who + "index", algo.index, key, t, state, t, contexts)
        need(who + "index", is_array(index, (k,), jnp.floating), f"floats of shape {(k,)}", index)
        need_step(who + "begin", state, shapes(who + "begin", algo.begin, key, t, state))
        x, reward = jax.ShapeDtypeStruct((spec.dim,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32)
        need_step(who + "serve", state, shapes(who + "serve", algo.serve, key, t, state, t, x, reward))
        found = jax.eval_shape(numeric(who + "partition", algo.partition), state)
        need(who + "partition", is_array(found, users, jnp.integer), f"integer labels of shape {users}", found)


def admit(spec: Spec, contexts: Array, rewards: Array) -> tuple[Array, Array, Array]:
    """Enforces the spec on features (..., d) and rewards (...); also returns where they violated it, (...) bool.

    Scales long vectors, clips rewards to [0, 1] if the spec declares it, and replaces non-finite values by 0.
    """
    contexts, rewards = contexts.astype(jnp.float32), rewards.astype(jnp.float32)
    square = (contexts * contexts).sum(-1)
    long, finite = square > (spec.max_norm + SLACK) ** 2, jnp.isfinite(square)
    scale = jnp.where(long & finite, spec.max_norm / jnp.sqrt(square), 1)
    given, wrong = allowed(rewards, jnp.bool_(False), spec.rewards_in_unit)
    return jnp.where(finite[..., None], contexts * scale[..., None], 0), given, wrong | long | ~finite


def _add(one: Report, two: Report) -> Report:
    counts = {n: one.counts.get(n, 0) + two.counts.get(n, 0) for n in sorted({*one.counts, *two.counts})}
    return Report(
        rounds=jnp.asarray(one.rounds) + two.rounds,
        floats=jnp.asarray(one.floats) + two.floats,
        float_bits=jnp.maximum(one.float_bits, two.float_bits),
        status=jnp.asarray(one.status) | two.status,
        counts=counts,
    )
