"""Mechanisms that claim privacy they do not have, one for each way of getting it wrong. Every audit must catch them.

`fedbandit audit --controls tests/audits/broken.py` runs them beside the shipped ones.
"""

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.audits import (
    BUDGET,
    N_SYNCS,
    Case,
    above_threshold,
    arms,
    brink,
    clusters,
    linear,
    scheduled,
    sums_of_users,
    timing,
    transcript,
)
from fedbandit_jax.core import wide
from fedbandit_jax.privacy.channel import Aggregated
from fedbandit_jax.privacy.integers.noise import PolyaNoise, SkellamNoise
from fedbandit_jax.privacy.noise import polya
from fedbandit_jax.privacy.replanted import Replanted
from fedbandit_jax.privacy.trust import SiloLocal, VectorSum
from fedbandit_jax.schedules import UNITS, BoundPrivateLogDet


def turned(kind, value, **changes):
    """The same fields in another class, or other fields."""
    return kind(**{field.name: getattr(value, field.name) for field in fields(value)} | changes)


def private(*, batch=2, **options):
    """Private-FedLinUCB under a mechanism with these options."""
    return fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(BUDGET, **options), schedule=batch)


def honest(*, n_agents=1, batch=2, **options):
    return linear(private(batch=batch, **options), n_agents=n_agents)


def damaged(name, change, *, n_agents=1, batch=2, **options):
    """The honest case of these options, run with `change(mechanism)` in place of its mechanism."""
    algo = private(batch=batch, **options)
    env = fb.envs.script(np.zeros((1, n_agents, 1, 2)), np.zeros((1, n_agents, 1)))
    horizon = N_SYNCS * batch
    bound = algo.bind(replace(env.spec, max_norm=1.0), horizon)
    bound = replace(bound, mechanism=change(bound.mechanism))
    return replace(linear(algo, n_agents=n_agents), name=name, mechanism=transcript(bound, env, horizon))


def trusting(change):
    """A change of the trust model alone."""
    return lambda mechanism: replace(mechanism, trust=change(mechanism.trust))


def scaled(name, factor, **options):
    """Gaussian noise of the wrong size."""
    change = trusting(lambda trust: replace(trust, std=trust.std * np.float32(factor)))
    return damaged(name, change, **options)


def broken_kappa():
    """kappa = 1: the tree's composition over levels forgotten."""
    return scaled("kappa = 1", 0.5)  # kappa = 4 at S = 8


def broken_adjacency():
    """Delta_J^2 = 2, the sensitivity of removing a user, where users are replaced."""
    return scaled("sensitivity of add_remove", (2 / 4.5) ** 0.5)


def broken_sensitivity():
    """Half of the sensitivity."""
    return scaled("half the sensitivity", 0.5, release="sqrt_toeplitz")


def broken_blt():
    """BLT noise scaled as if one user were in one message."""
    return scaled("blt without its sensitivity", 4.5**0.5 / 2.7808, release="blt")


def broken_variance():
    """sqrt(sigma) for sigma."""
    return scaled("standard deviation for variance", 0.4)


def broken_visits():
    """Users who come three times, calibrated for once."""
    three, once = honest(batch=3, visits=3), honest(batch=3)
    return replace(three, name="returning users", mechanism=once.mechanism)


@fb.pytree
class Forgotten(Aggregated):
    """Draws its noise and does not add it."""

    def step(self, key, k, state, x, y):
        _, after = Aggregated.step(self, key, k, state, x, y)
        return after.sums.high, after._replace(view=after.sums.high)


@fb.pytree
class Constant(Aggregated):
    """One draw for every release of every run: the key is never used."""

    def step(self, key, k, state, x, y):
        return Aggregated.step(self, jax.random.key(7), k, state, x, y)


@fb.pytree
class SharedByReleases(Aggregated):
    """The first release's key in all others."""

    def init(self, dim):
        return Aggregated.init(self, dim)._replace(trust=jnp.zeros(2, jnp.uint32))

    def step(self, key, k, state, x, y):
        first = jnp.where(k == 1, jax.random.key_data(key), state.trust)
        statistics, after = Aggregated.step(self, jax.random.wrap_key_data(first), k, state, x, y)
        return statistics, after._replace(trust=first)


@fb.pytree
class SharedByEntries(SiloLocal):
    """One draw for all entries."""

    def noise(self, key, size):
        return jnp.broadcast_to(SiloLocal.noise(self, key, 1), (size,))


def broken_never_added():
    """Noise drawn, reported, and not added."""
    return damaged("noise never added", lambda mechanism: turned(Forgotten, mechanism))


def broken_missing_key():
    """Randomness that falls back to a constant."""
    return damaged("constant key", lambda mechanism: turned(Constant, mechanism))


def broken_shared_by_entries():
    """One draw shared by all entries of the statistics."""
    return damaged("one draw for all entries", trusting(lambda trust: SharedByEntries(std=trust.std)))


def broken_shared_by_releases():
    """One draw shared by all releases."""
    return damaged("one draw for all releases", lambda mechanism: turned(SharedByReleases, mechanism))


def broken_half_the_silos():
    """Secure aggregation in which most silos add no share of the noise."""
    change = trusting(lambda trust: replace(trust, share=trust.share / np.float32(2)))
    return damaged("three of four silos add no noise", change, n_agents=4, trust="secagg", release="blt")


def broken_vector_sum():
    """A quarter of the noise bits."""
    change = trusting(lambda trust: replace(trust, b=np.ceil(trust.b / 4)))
    return damaged("a quarter of the bits", change, n_agents=3, trust="shuffle_vector_sum")


def two_armed(name, algo, first_user, other_user, batch, answers=1.0):
    """Users who choose between e1 and e2; the first has `first_user` twice, or `other_user`; certified, it says."""
    horizon = N_SYNCS * batch

    def data(user, answer):
        contexts = np.broadcast_to(np.eye(2, dtype=np.float32), (horizon, 1, 2, 2)).copy()
        contexts[0, 0] = user
        rewards = np.ones((horizon, 1, 2), np.float32)
        rewards[0] = answer
        return contexts, rewards

    one, other = data(first_user, 1.0), data(other_user, answers)
    env = fb.envs.script(*one)
    env = replace(env, spec=replace(env.spec, rewards_in_unit=False))  # nobody promised
    case = linear(algo.replace(learns_in_batch=False, clip_rewards=True), n_agents=1)
    mechanism = transcript(algo.bind(env.spec, horizon), env, horizon)
    return replace(case, name=name, mechanism=mechanism, data=one, neighbour=other)


def broken_cascade():
    """Algorithm 1 as printed: agents learn from raw data inside the batch, and one user steers all later ones."""
    algo = private(batch=16).replace(learns_in_batch=True, exploration_scale=0.0)
    return two_armed("batch cascade", algo, [1, 0], [0, 1], 16)


def broken_clipping():
    """Unbounded rewards, unclipped."""
    return two_armed("unclipped rewards", private(clip_rewards=False), [1, 0], [1, 0], 2, answers=50.0)


@fb.pytree
class AdaptiveSchedule(fb.Algorithm):
    """Synchronises when the raw Gram matrix has grown (Dubey & Pentland 2020); shows nothing but when."""

    batch: int = fb.static(default=1)

    def init(self, key, spec):
        return jnp.eye(2), jnp.eye(2), jnp.bool_(False)

    def act(self, key, t, local, offered):
        return jnp.zeros(1, jnp.int32)

    def learn(self, t, local, offered, arms, rewards):
        gram, synced, _ = local
        x = offered.contexts[0, 0]
        gram = gram + jnp.outer(x, x)
        due = jnp.linalg.det(gram) > 2.8 * jnp.linalg.det(synced)
        return (gram, jnp.where(due, gram, synced), due), None

    def view(self, state):
        return state[2]


def broken_adaptive_schedule():
    """The schedule alone leaks: one user more or less in a direction moves the first synchronisation."""
    case = honest(batch=1)
    env = fb.envs.script(*case.data)
    bare = Case(
        name="adaptive schedule",
        mechanism=transcript(AdaptiveSchedule(), env, N_SYNCS),
        data=case.data,
        neighbour=case.neighbour,
        epsilon=BUDGET.epsilon,
        delta=BUDGET.delta,
        fixed_control_flow=True,
    )
    return bare


def broken_fed_ucb():
    """Algorithm 1 of Dubey & Pentland (2020) as printed: Example 3.1 of Zhou & Chowdhury (2024)."""
    algo = fb.algos.fed_ucb(BUDGET)
    algo = algo.replace(schedule=fb.schedules.LogDet(brink(algo)))
    return timing(algo, name="FedUCB, timing")


def broken_threshold():
    """Sparse vector without noise on the threshold: every round tells a little more."""
    return above_threshold(
        fb.schedules.PrivateLogDet(1e-3, share=0.5),
        epsilon=2.0,
        name="threshold without noise",
        change=lambda bound: turned(Quiet, bound),
    )


def broken_floor():
    """Sparse vector with the sensitivity of a larger V: a fifth of the noise."""
    schedule = fb.schedules.PrivateLogDet(1e-3, share=0.5)
    return above_threshold(
        schedule,
        epsilon=2.0,
        name="tests with too little noise",
        change=lambda bound: replace(bound, epsilon=5 * bound.epsilon),
    )


def broken_tests():
    """A certified run whose tests forget their noise: it is not hidden behind that of the releases."""
    budget = fb.privacy.Budget(2.0, 0.1, "add_remove")
    schedule = fb.schedules.PrivateLogDet(share=0.5, max_syncs=2)
    algo = fb.algos.fed_ucb(budget, schedule=schedule, learns_in_batch=False)
    algo = algo.replace(threshold=brink(algo))
    honest = scheduled(algo, n_agents=2, horizon=4, name="private_logdet without noise")
    env = fb.envs.script(*honest.data)
    bound = algo.bind(env.spec, 4)
    bound = replace(bound, schedule=turned(Silent, bound.schedule))
    return replace(honest, mechanism=transcript(bound, env, 4))


@fb.pytree
class Quiet(BoundPrivateLogDet):
    """AboveThreshold whose threshold is known."""

    def start(self, key, floor):
        memory = super().start(key, floor)
        return memory._replace(shift=jnp.zeros_like(memory.shift))


@fb.pytree
class Silent(Quiet):
    """No noise on the answers either."""

    def requests(self, key, t, memory, gained, since):
        return memory.cap * gained / UNITS >= self.threshold / since


@fb.pytree
class NarrowCounter(VectorSum):
    """Users of a node counted in eight bits, as `jnp.bitwise_count` counts: 300 of them become 44."""

    def _node(self, k):
        level = jnp.bitwise_count((k & -k) - 1)
        return level, self.n_batch * (jnp.uint8(1) << level)


def broken_counter():
    """Noise for the wrong number of users: an overflow that this library once had."""
    change = trusting(lambda trust: turned(NarrowCounter, trust))
    return damaged("users counted in 8 bits", change, n_agents=30, batch=10, trust="shuffle_vector_sum")


def damaged_sum(name, noise_class, *, mechanism="discrete_laplace", messages=True):
    """The honest case of a mechanism for sums, run with other noise; `noise_class` has the fields of the honest one."""
    growth, horizon = (16, 32) if messages else (4, 44)
    algo = fb.algos.SuccessiveElimination(
        epsilon=1.0, mechanism=mechanism, trust="secagg", growth=growth, delta=1e-2, messages=messages
    )
    spec = fb.Spec(n_agents=1, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True)
    bound = algo.bind(spec, horizon)
    noise = turned(noise_class, bound.protocol.noise)
    bound = replace(bound, protocol=replace(bound.protocol, noise=noise))
    return replace(arms(algo), name=name, mechanism=sums_of_users(bound, horizon))


def broken_inverted_polya():
    """Gamma with (1 - beta) / beta for its scale, as in released code: hardly any noise."""

    @fb.pytree
    class Inverted(PolyaNoise):
        def share(self, key, k, n, shape):
            beta = jnp.exp(-1 / jnp.asarray(self.scale)[k])
            wrong = -1 / jnp.log(1 - beta)  # the scale whose beta is 1 - beta
            plus, minus = (polya(half, 1 / n, wrong, shape) for half in jax.random.split(key))
            return plus - minus

    return damaged_sum("inverted Polya scale", Inverted)


def broken_shared_noise():
    """One draw for all arms of a batch: their difference has no noise."""

    @fb.pytree
    class Shared(PolyaNoise):
        def total(self, key, k, n, shape):
            one = super().total(key, k, n, ())
            return wide.Wide(*(jnp.broadcast_to(word, shape) for word in one))

    return damaged_sum("noise shared across arms", Shared, messages=False)


def broken_half_the_users():
    """Shares are made for twice as many users as come."""

    @fb.pytree
    class Half(PolyaNoise):
        def share(self, key, k, n, shape):
            return super().share(key, k, 2 * n, shape)

    return damaged_sum("half the users missing", Half)


def broken_skellam_variance():
    """g / epsilon^2 in place of g^2 / epsilon^2."""

    @fb.pytree
    class Small(SkellamNoise):
        def total(self, key, k, n, shape):
            return SkellamNoise(variance=jnp.sqrt(jnp.asarray(self.variance))).total(key, k, n, shape)

    return damaged_sum("Skellam variance g / eps^2", Small, mechanism="skellam", messages=False)


def broken_noise_of_the_first_batch():
    """The scale of batch 1 in every batch, whose users move sums by more steps each time."""

    @fb.pytree
    class First(PolyaNoise):
        def total(self, key, k, n, shape):
            return super().total(key, jnp.int32(0), n, shape)

    return damaged_sum("first batch's noise scale", First, messages=False)


def broken_constant_key():
    """The same draw in every batch: batch 1, where all rewards are known, tells what it is."""

    @fb.pytree
    class Constant(PolyaNoise):
        def total(self, key, k, n, shape):
            return super().total(jax.random.key(0), k, n, shape)

    return damaged_sum("noise from a constant key", Constant, messages=False)


def broken_no_noise_in_sums():
    """Drawn, never added."""

    @fb.pytree
    class Nothing(PolyaNoise):
        def total(self, key, k, n, shape):
            return jax.tree.map(jnp.zeros_like, super().total(key, k, n, shape))

    return damaged_sum("noise of sums never added", Nothing, messages=False)


def damaged_clusters(name, change, *, horizon=6, **options):
    """The honest case of federated clusters, run with `change(noise)` in place of its trees."""
    algo = fb.algos.homo_dc(fb.privacy.Budget(1.0, 0.1), trigger="count", **options)
    return clusters(algo, horizon=horizon, name=name, change=lambda bound: replace(bound, noise=change(bound.noise)))


@fb.pytree
class Replayed(Replanted):
    """Every phase plants the tree of the first."""

    def first(self, key, phase, slot, dim):
        return Replanted.first(self, key, jnp.ones_like(phase), slot, dim)

    def change(self, key, phase, slot, k, dim):
        return Replanted.change(self, key, jnp.ones_like(phase), slot, k, dim)


@fb.pytree
class OneForAll(Replanted):
    """All local clusters have the same tree."""

    def first(self, key, phase, slot, dim):
        return Replanted.first(self, key, phase, jnp.zeros_like(slot), dim)

    def change(self, key, phase, slot, k, dim):
        return Replanted.change(self, key, phase, jnp.zeros_like(slot), k, dim)


@fb.pytree
class BareUploads(Replanted):
    """What is uploaded has no noise; what is shown when phases begin has."""

    def change(self, key, phase, slot, k, dim):
        return jnp.zeros((dim, dim + 1))


def broken_replayed_tree():
    """A phase's tree reused in the next one: the difference of two releases has no noise."""
    return damaged_clusters("tree of the first phase", lambda noise: turned(Replayed, noise))


def broken_tree_of_all_clusters():
    """One draw for all local clusters: what another one shows takes the noise off."""
    return damaged_clusters("one tree for all clusters", lambda noise: turned(OneForAll, noise))


def broken_uploads():
    """Noise at the beginning of phases only."""
    return damaged_clusters("bare uploads", lambda noise: turned(BareUploads, noise))


def broken_one_tree():
    """Noise calibrated for the largest tree, composition over phases forgotten."""

    def change(noise):
        return replace(noise, std=noise.std * np.float32((1 / 3) ** 0.5))  # two leaves, and one in each later phase

    return damaged_clusters("one phase's noise", change, horizon=14, max_uploads=1)


def broken_cluster_variance():
    """sqrt(sigma) for sigma."""
    return damaged_clusters("std for variance, clusters", lambda noise: replace(noise, std=np.sqrt(noise.std)))


def broken_cluster_bias():
    """Noise on the features, and none on the rewards."""

    def change(noise):
        return replace(noise, std=noise.std * np.float32([1, 1, 0]))

    return damaged_clusters("clusters without noise on x y", change)
