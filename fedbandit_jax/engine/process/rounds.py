"""The process of federated agents: each serves one user in every round, and after every B rounds they synchronise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import random, struct
from fedbandit_jax.engine.process._checks import check_environment, is_array, need, same
from fedbandit_jax.engine.process.process import salted
from fedbandit_jax.interfaces import Algorithm, Environment, Metrics, Report, Round, Status


@struct.pytree
class RoundProcess:
    """A process in which a step is a batch: B rounds in a scan, then one synchronisation.

    Every seed has four named streams: the environment's draws, the rewards, the algorithm's own draws, and those of
    synchronisations (privacy noise). Two algorithms under one key therefore see the same users and the same reward
    noise. What is drawn at synchronisations, or before the first round, is `salted`.

    What passes between the two parts is checked here in every round: an algorithm is given only users, arms and
    rewards that the environment's own spec allows, and a violation sets the status bit `OUTSIDE_SPEC`. (Features are
    bounded where they enter a private statistic.) If the horizon cuts the last batch short, its further rounds are
    played and `sync` is called, but neither is recorded.
    """

    env: Environment
    algo: Algorithm  # bound
    horizon: int = struct.static()  # T
    salt: tuple[Any, ...] = ()

    @property
    def n_steps(self) -> int:
        """Returns the number of batches, ceil(T / B)."""
        return -(-self.horizon // self.algo.batch)

    def rounds_at(self, k: int) -> range:
        """Returns the rounds of batch k; the last batch may be cut short by the horizon."""
        return range(k * self.algo.batch, min((k + 1) * self.algo.batch, self.horizon))

    def init(self, key: Array) -> tuple[Any, Any]:
        """Returns a world and the state of a fresh learner."""
        world = self.env.init(random.stream(key, "world"))
        return world, self.algo.init(salted(key, "learner", self.salt), self.env.spec)

    @property
    def alone(self) -> bool:
        """Returns False: runs are best executed side by side."""
        return False

    @property
    def workspace(self) -> int:
        """Returns 0: beside the state, a step keeps nothing from round to round."""
        return 0

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """Plays one batch and its synchronisation."""
        users, answers, choices = (random.stream(key, name) for name in ("users", "answers", "choices"))
        syncs = salted(key, "syncs", self.salt)
        env, algo = self.env, self.algo

        def offer(world, t):
            offered, world = env.observe(jax.random.fold_in(users, t), world, t)
            return *_known(offered, env.spec.n_users), world

        def play(carry, t):
            world, local = carry
            offered, strangers, world = offer(world, t)
            arms = algo.act(jax.random.fold_in(choices, t), t, local, offered)
            arms, refused = _existing(arms, offered)
            feedback = env.pull(jax.random.fold_in(answers, t), world, offered, arms)
            reward, wrong = _allowed(feedback.reward, refused | strangers, env.spec.rewards_in_unit)
            local, record = algo.learn(t, local, offered, arms, reward)
            return (world, local), (record, feedback.gap.sum(), wrong.any() & (t < self.horizon))

        first = k * algo.batch
        local = algo.download(state, offer(world, first)[0])
        rounds = first + jnp.arange(algo.batch)
        (world, local), (records, gap, wrong) = lax.scan(play, (world, local), rounds)
        state, report = algo.sync(jax.random.fold_in(syncs, k), k, state, local, records)
        whole = first + algo.batch <= self.horizon
        report = jax.tree.map(lambda x: jnp.where(whole, x, 0), report)._replace(status=report.status)
        status = jnp.asarray(report.status) | jnp.where(wrong.any(), int(Status.OUTSIDE_SPEC), 0)
        return world, state, Metrics(gap, jax.tree.map(_counter, report._replace(status=status)))

    def check(self, label: str) -> None:
        """Checks that environment and algorithm keep to the shapes of `interfaces`, as `Process.check` says."""
        check(self, label)


def _known(offered: Round, n_users: int) -> tuple[Round, Array | bool]:
    """Returns the offer with users 0 ... n - 1, and which users (M,) are not among these.

    Such a stranger is given the number n, for which no table has a row.
    """
    if offered.user is None:
        return offered, False
    strangers = (offered.user < 0) | (offered.user >= n_users)
    return offered._replace(user=jnp.where(strangers, n_users, offered.user)), strangers


def _existing(arms: Array, offered: Round) -> tuple[Array, Array]:
    """Returns arms 0 ... K - 1, (M,), and whether each agent's choice (M,) is refused because it is not offered.

    An arm out of range becomes the nearest one. A refused arm is played, and pays the learner nothing.
    """
    exists = jnp.clip(arms, 0, offered.contexts.shape[1] - 1)
    refused = exists != arms
    if offered.mask is not None:
        refused |= ~jnp.take_along_axis(offered.mask, exists[:, None], 1)[:, 0]
    return exists, refused


def _allowed(reward: Array, refused: Array, in_unit: bool) -> tuple[Array, Array]:
    """Returns the rewards (M,) that the learner is given, and which of them (M,) are not those that came.

    A refused or infinite reward becomes 0, and others are clipped to [0, 1] if the spec declares that.
    """
    wrong = refused | ~jnp.isfinite(reward)
    reward = jnp.where(wrong, 0, reward)
    if not in_unit:
        return reward, wrong
    clipped = jnp.clip(reward, 0, 1)
    return clipped, wrong | (clipped != reward)


def _counter(x: Any) -> Array:
    """Converts a count to int32, or to float32 if it is a float already, for counts that int32 would not hold."""
    x = jnp.asarray(x)
    return x.astype(jnp.float32 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.int32)


def check(process: RoundProcess, label: str) -> None:
    """Traces every method once, compiling nothing, and checks the shapes of what it returns.

    Raises:
        TypeError: a method returns something else than it must; the message names all three.
    """
    env, algo, spec = process.env, process.algo, process.env.spec
    m, key, t = spec.n_agents, jax.random.key(0), jnp.int32(0)
    _, offered = check_environment(env)
    user = getattr(offered, "user", None)
    if spec.n_users:
        need("env.observe", is_array(user, (m,), jnp.integer), f"who came, integers of shape {(m,)}", user)
    else:
        need("env.observe", user is None, "no user: env.spec.n_users is 0, so that users are not told apart", user)
    arms, rewards = (jax.ShapeDtypeStruct((m,), kind) for kind in (jnp.int32, jnp.float32))
    who = f"{label}'s "
    state = jax.eval_shape(lambda key: algo.init(key, spec), key)
    local = jax.eval_shape(algo.download, state, offered)
    chosen = jax.eval_shape(algo.act, key, t, local, offered)
    need(who + "act", is_array(chosen, (m,), jnp.integer), f"integer arms of shape {(m,)}", chosen)
    learned = jax.eval_shape(algo.learn, t, local, offered, arms, rewards)
    need(who + "learn", type(learned) is tuple and len(learned) == 2, "(local state, record)", learned)
    same(who + "learn", "a local state", local, learned[0])
    records = jax.tree.map(lambda x: jax.ShapeDtypeStruct((algo.batch, *x.shape), x.dtype), learned[1])
    synced = jax.eval_shape(algo.sync, key, t, state, local, records)
    need(who + "sync", type(synced) is tuple and len(synced) == 2 and isinstance(synced[1], Report),
         "(state, fb.Report)", synced)  # fmt: skip
    same(who + "sync", "a state", state, synced[0])
