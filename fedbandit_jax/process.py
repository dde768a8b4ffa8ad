"""From an environment and an algorithm to a process: the only thing the driver knows how to run."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax._core import random, struct
from fedbandit_jax.interfaces import Algorithm, Environment, Metrics


class Process(Protocol):
    """A pytree that can be stepped. The world never depends on the algorithm, so a sweep shares it."""

    @property
    def n_steps(self) -> int:
        """Steps in a run."""
        ...

    def rounds_at(self, k: int) -> range:
        """Which rounds 0, 1, ... step k covers."""
        ...

    def init(self, key: Array) -> tuple[Any, Any]:
        """World and learner of one seed."""
        ...

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """World, learner and metrics after step k. Draws depend on (key, round) only."""
        ...


@struct.pytree
class RoundProcess:
    """A step is a batch: B rounds in a scan, then one synchronisation.

    Four named streams per seed: the environment's draws, the rewards, the algorithm's own, and the synchronisation's
    (privacy noise). Two algorithms under one key therefore see the same users and the same reward noise.
    """

    env: Environment
    algo: Algorithm
    horizon: int = struct.static()

    @property
    def n_steps(self) -> int:
        """ceil(T / B)."""
        return -(-self.horizon // self.algo.batch)

    def rounds_at(self, k: int) -> range:
        """Batch k; the last one may be cut short by the horizon."""
        return range(k * self.algo.batch, min((k + 1) * self.algo.batch, self.horizon))

    def init(self, key: Array) -> tuple[Any, Any]:
        """A world and a fresh learner."""
        world = self.env.init(random.stream(key, "world"))
        return world, self.algo.init(random.stream(key, "learner"), self.env.spec)

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """One batch."""
        users, answers, choices, syncs = (random.stream(key, name) for name in ("users", "answers", "choices", "syncs"))
        env, algo = self.env, self.algo

        def offer(world, t):
            return env.observe(jax.random.fold_in(users, t), world, t)

        def play(carry, t):
            world, local = carry
            offered, world = offer(world, t)
            arms = algo.act(jax.random.fold_in(choices, t), t, local, offered)
            feedback = env.pull(jax.random.fold_in(answers, t), world, offered, arms)
            local, record = algo.learn(t, local, offered, arms, feedback.reward)
            return (world, local), (record, feedback.regret.sum())

        first = k * algo.batch
        local = algo.download(state, offer(world, first)[0])
        rounds = first + jnp.arange(algo.batch)
        (world, local), (records, regret) = lax.scan(play, (world, local), rounds)
        state, report = algo.sync(jax.random.fold_in(syncs, k), k, state, local, records)
        return world, state, Metrics(regret, jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), report))
