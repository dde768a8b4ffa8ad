"""A clock of arrivals: one user a round, who comes again, and about whom something is remembered."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import metrics, random, ridge, struct
from fedbandit_jax.engine.process._checks import admit, check_environment, is_array, need, same
from fedbandit_jax.interfaces import ClusteringAlgorithm, Feedback, Metrics, Partition, Report, Round, Status, Users

BLOCK = 16, 256  # fewest and most rounds of a step
MAX_ARRIVALS = 2**24  # float32 counts them


@struct.pytree
class ArrivalProcess:
    """A step is a block of rounds. Who comes, what is offered and what every arm would pay is drawn for all of them at
    once, before the first is served: the loop over rounds is left with what depends on what was learned.

    An algorithm is given nothing but what the environment's own spec allows, and what was not is a status bit,
    `OUTSIDE_SPEC`. A user who does not exist is number n, for whom no table has a row: JAX drops what is written there.

    What is counted is counted when a step ends. Four named streams per seed, as in `RoundProcess`: users, answers,
    choices and synchronisations (privacy noise).
    """

    env: Users
    algo: ClusteringAlgorithm
    horizon: int = struct.static()

    @property
    def block(self) -> int:
        """Rounds of a step: draws do not depend on it, but what gauges show is recorded after steps."""
        return min(max(BLOCK[0], self.horizon // 64), BLOCK[1])

    @property
    def n_steps(self) -> int:
        """Blocks."""
        return -(-self.horizon // self.block)

    def rounds_at(self, k: int) -> range:
        """Block k; the last one may be cut short by the horizon."""
        return range(k * self.block, min((k + 1) * self.block, self.horizon))

    @property
    def alone(self) -> bool:
        """Uploads, downloads, splits and merges happen now and then."""
        return True

    @property
    def workspace(self) -> int:
        """What a block is offered."""
        return 4 * self.block * self.env.spec.n_arms * (self.env.spec.dim + 2)

    def init(self, key: Array) -> tuple[Any, Any]:
        """A world and a fresh learner."""
        world = self.env.init(random.stream(key, "world"))
        return world, self.algo.init(random.stream(key, "learner"), self.env.spec)

    def step(self, key: Array, world: Any, state: Any, k: Array) -> tuple[Any, Any, Metrics]:
        """One block."""
        syncs, choices = random.stream(key, "syncs"), random.stream(key, "choices")
        first = k * self.block
        offered, feedback, outside = self._draw(key, world, first + jnp.arange(self.block))

        def play(i, carry):
            state, gaps, total = carry
            t = first + i
            state, before = self.algo.begin(syncs, t, state)
            now, answers = jax.tree.map(lambda x: x[i], (offered, feedback))
            assert now.user is not None
            user, contexts = now.user[0], now.contexts[0]
            index = self.algo.index(choices, t, state, user, contexts)
            if now.mask is not None:
                index = jnp.where(now.mask[0], index, -jnp.inf)
            arm = ridge.first_argmax(index)  # none of them if an index is not a number
            offers = arm < len(index) if now.mask is None else (arm < len(index)) & now.mask[0, arm]
            reward = jnp.where(offers, answers.reward[arm], 0)
            state, after = self.algo.serve(syncs, t, state, user, contexts[arm], reward)
            total = _add(_add(total, before), after)
            wrong = jnp.where(offers & ~outside[i, arm], 0, int(Status.OUTSIDE_SPEC))
            total = total._replace(status=total.status | wrong)
            return state, gaps.at[i].set(answers.gap[arm]), total

        reports = jax.eval_shape(lambda: self._reports(syncs, state, offered))
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), reports)
        start = state, jnp.zeros(self.block), nothing
        state, gaps, report = lax.fori_loop(0, jnp.minimum(self.block, self.horizon - first), play, start)
        return world, state, Metrics(gaps, report, gauges=self._gauges(world, state))

    def _draw(self, key: Array, world: Any, rounds: Array) -> tuple[Round, Feedback, Array]:
        """What is offered in these rounds, and what each of the K arms would pay: (B, K) rewards and gaps.

        And where the spec was broken, (B, K). The arms of a user who does not exist pay nothing, and cost nothing.
        """
        users, answers = (random.stream(key, name) for name in ("users", "answers"))

        def one(t):
            offered, _ = self.env.observe(jax.random.fold_in(users, t), world, t)
            source = jax.random.fold_in(answers, t)
            pull = jax.vmap(lambda arm: self.env.pull(source, world, offered, arm[None]))
            reward, gap = (x[:, 0] for x in pull(jnp.arange(self.env.spec.n_arms)))
            assert offered.user is not None
            exists = (offered.user[0] >= 0) & (offered.user[0] < self.env.spec.n_users)
            contexts, reward, outside = admit(self.env.spec, offered.contexts, reward[None])
            offered = offered._replace(contexts=contexts, user=jnp.where(exists, offered.user, self.env.spec.n_users))
            feedback = Feedback(jnp.where(exists, reward[0], 0), jnp.where(exists, gap, 0))
            return offered, feedback, outside[0] | ~exists

        return jax.vmap(one)(rounds)

    def _reports(self, key: Array, state: Any, offered: Round) -> Report:
        """Of a round: shapes only."""
        _, before = self.algo.begin(key, jnp.int32(0), state)
        x = offered.contexts[0, 0, 0]
        _, after = self.algo.serve(key, jnp.int32(0), state, jnp.int32(0), x, jnp.float32(0))
        return _add(before, after)

    def _gauges(self, world: Any, state: Any) -> dict[str, Array]:
        """How right the clusters are, and how many; on servers: in the mean of all servers, each by itself."""
        found, spec = self.algo.partition(state), self.env.spec
        truth, m = self.env.clusters(world), self.env.n_clusters
        return {
            "adjusted Rand index": metrics.adjusted_rand(found.shared, truth, m),
            "adjusted Rand index on servers": metrics.mean_adjusted_rand(found.local, truth, m, spec.n_servers),
            "clusters": metrics.n_labels(found.shared),
        }

    def check(self, label: str) -> None:
        """Do environment and algorithm keep to the shapes of `interfaces`?"""
        env, algo, spec = self.env, self.algo, self.env.spec
        k, d = spec.n_arms, spec.dim
        key, t = jax.random.key(0), jnp.int32(0)
        offer = jax.eval_shape(env.observe, key, jax.eval_shape(env.init, key), t)[0]
        user = getattr(offer, "user", None)
        need("env.observe", is_array(user, (1,), jnp.integer), "the user who came, integers of shape (1,)", user)
        world, _ = check_environment(env)
        truth = jax.eval_shape(env.clusters, world)
        need(
            "env.clusters", is_array(truth, (spec.n_users,), jnp.integer), f"integers of shape {(spec.n_users,)}", truth
        )
        moved = jax.make_jaxpr(lambda world: env.observe(key, world, t)[1])(world).jaxpr
        need("env.observe", list(moved.outvars) == list(moved.invars), "the world as it is", "another")
        who = f"{label}'s "
        state = jax.eval_shape(lambda key: algo.init(key, spec), key)
        x, y = jax.ShapeDtypeStruct((d,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32)
        index = jax.eval_shape(algo.index, key, t, state, t, jax.ShapeDtypeStruct((k, d), jnp.float32))
        need(who + "index", is_array(index, (k,), jnp.floating), f"floats of shape {(k,)}", index)
        for name, call in (("begin", (t, state)), ("serve", (t, state, t, x, y))):
            made = jax.eval_shape(getattr(algo, name), key, *call)
            fine = type(made) is tuple and len(made) == 2 and isinstance(made[1], Report)
            need(who + name, fine, "(state, fb.Report)", made)
            same(who + name, "a state", state, made[0])
        found = jax.eval_shape(algo.partition, state)
        need(who + "partition", isinstance(found, Partition), "fb.Partition(local, shared)", found)
        for name, labels in zip(("local", "shared"), found):
            fine = is_array(labels, (spec.n_users,), jnp.integer)
            need(who + "partition", fine, f"integer {name} labels of shape {(spec.n_users,)}", labels)


def _add(one: Report, two: Report) -> Report:
    """Of both together."""
    counts = {n: one.counts.get(n, 0) + two.counts.get(n, 0) for n in sorted({*one.counts, *two.counts})}
    return Report(
        rounds=jnp.asarray(one.rounds) + two.rounds,
        floats=jnp.asarray(one.floats) + two.floats,
        float_bits=jnp.maximum(one.float_bits, two.float_bits),
        status=jnp.asarray(one.status) | two.status,
        counts=counts,
    )
