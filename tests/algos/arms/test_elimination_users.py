"""Users who return to arms: some are left out of a batch's sums; means, radii and claims without them."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import INIT, STEP
from helpers import deep

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.ledger import LEFT_OUT
from fedbandit_jax.core import random, wide
from fedbandit_jax.engine.runners import BatchedArms
from fedbandit_jax.interfaces import certify

K, N, T, BLOCK = 3, 7, 3 * (2 + 4 + 8 + 16) + 5, 4
ARMS, USERS = fb.envs.arms(means=[0.2, 0.5, 0.6], rewards="bernoulli"), fb.privacy.Users
SPEC = dataclasses.replace(ARMS.spec, n_users=N)
UNITS = [USERS(3, 1, 2), USERS(10, 1)]


def elimination(unit, epsilon=400.0, kind=fb.algos.DistDPSE):
    """With hardly any noise, so that sums can be read."""
    return kind(epsilon, unit=unit)


@fb.pytree
class Written:
    """User i of arm a and of a block has the reward `rewards[a, i]`, and is user `who[a, i]`."""

    rewards: np.ndarray
    who: np.ndarray
    spec: fb.Spec = fb.static(default=SPEC)

    def init(self, key):
        return jnp.int32(0)

    def means(self, world):
        return jnp.full(K, 0.5)

    def answers(self, key, world, arm, size):
        row = jnp.asarray(self.rewards)[arm]
        return row[: size // 2], row[size // 2 :]

    def comers(self, key, size):
        return jnp.asarray(self.who)[jax.random.randint(key, (), 0, len(self.who))]


def batches(env, algo, key):
    """The sums (K,) of every batch as the protocol collects them, counts, and the last state; no arm is dropped."""
    bound = algo.bind(env.spec, T)
    bound = dataclasses.replace(bound, radius=np.full_like(bound.radius, 10.0))
    runner, seen = BatchedArms(env=env, algo=bound, horizon=T, block=BLOCK), []
    assert runner.enforces
    world, state = INIT(runner, key)
    for k in range(4):
        _, state, metrics = STEP(runner, key, world, state, jnp.int32(k))
        seen.append((np.asarray(state[1].shown), metrics.report.counts))
    return seen, state


@pytest.mark.parametrize("unit", deep(UNITS, keep={0}))
def test_sums_and_means_are_of_those_who_enter(unit):
    """By hand: users of a batch one after the other, in the order of arms; others count as 0, and are counted."""
    rng, key = np.random.default_rng(0), jax.random.key(4)
    rewards, who = rng.uniform(0, 1, (K, BLOCK)).astype(np.float32), rng.integers(0, N, (50, BLOCK), np.int32)
    env, table = Written(rewards=rewards, who=who), {}
    seen, state = batches(env, elimination(unit), key)
    comers = jax.jit(
        lambda k, arm, block: env.comers(
            random.fold_in(jax.random.fold_in(jax.random.fold_in(random.stream(key, "who"), k), arm), block), BLOCK
        )
    )
    for k, (shown, counts) in enumerate(seen):
        size, sums, left_out = 2 ** (k + 1), np.zeros(K), 0
        for arm, block in itertools.product(range(K), range(-(-size // BLOCK))):
            who = comers(k, arm, block)
            for i in range(min(BLOCK, size - block * BLOCK)):
                mine = table.setdefault(int(who[i]), [])
                enters = len(mine) < unit.visits and all(k - other >= unit.apart for other in mine)
                mine += [k] * enters
                sums[arm] += enters * rewards[arm, i]
                left_out += not enters
        np.testing.assert_allclose(shown, sums, atol=0.1 * size**0.5)  # rounding of rewards to steps, and noise
        assert int(counts[LEFT_OUT]) == left_out > 0
    np.testing.assert_array_equal(state[2].count, [len(table.get(user, [])) for user in range(N)])


@pytest.mark.parametrize(("kind", "share"), [(fb.algos.DistDPSE, 1 / 16), (fb.algos.DistRDPSE, 1 / 4)])
def test_the_budget_is_for_all_sums_of_one_user(kind, share):
    """Noise is that of a share of epsilon, and the certificate composes r = 16 sums of it."""
    algo, one = elimination(USERS(16, 1), 2.0, kind), elimination(None, 2.0 * share, kind)
    bound = algo.bind(SPEC, 5000)
    np.testing.assert_array_equal(bound.protocol.stds(), one.bind(SPEC, 5000).protocol.stds())
    found, single = algo.certificate(SPEC, 5000), one.certificate(SPEC, 5000)
    assert found.claim == "certified"
    assert "up to 16 times at a silo, 1 in a batch" in found.unit
    assert algo.certificate(ARMS.spec, 5000).unit.endswith("as is promised: users are not told apart here")
    assert (found.epsilon, found.releases_per_user, found.visits) == (2.0, 16.0, ())
    assert found.renyi == tuple((alpha, pytest.approx(16 * value)) for alpha, value in single.renyi)
    if kind is fb.algos.DistDPSE:
        assert found.epsilon_exact == pytest.approx(16 * single.epsilon_exact)
        assert 1.9 < found.epsilon_exact <= 2.0
    else:
        assert single.epsilon_exact < found.epsilon_exact < 16 * single.epsilon_exact
        once = elimination(None, 2.0, kind).certificate(SPEC, 5000)  # Renyi DP of all is that of one
        assert found.epsilon_exact == pytest.approx(once.epsilon_exact, rel=0.1)
    anywhere = elimination(USERS(16, 1, silos="together"), 2.0, kind).certificate(SPEC, 5000)
    assert dataclasses.replace(anywhere, unit=found.unit) == found  # one table has all users in any case
    assert "up to 16 times at all silos together" in anywhere.unit
    for unit in (USERS(17, 1), USERS(16, per_batch=2), USERS(16, per_batch=1, silos=5)):
        assert certify(dataclasses.replace(bound, unit=unit)).claim == "none"


def test_few_rewards_make_wide_radii():
    """Interval of m rewards of l users: l / m times as wide; and infinite without any reward."""
    bound = elimination(USERS(2, 1)).bind(SPEC, T)
    bound = dataclasses.replace(bound, radius=np.full_like(bound.radius, 0.1))
    state, conclude = bound.init(None, SPEC), jax.jit(bound.conclude)

    def kept(sums, entered):
        steps = int(np.asarray(bound.protocol.steps)[2])  # of the batch of 8 users
        collected = wide.Wide(jnp.zeros(K, jnp.uint32), jnp.asarray(np.multiply(sums, steps).astype(np.uint32)))
        after, _ = conclude(jax.random.key(0), jnp.int32(2), state, collected, jnp.asarray(entered, jnp.int32))
        return np.asarray(after.active).tolist()

    assert kept([0, 4, 8], [8, 8, 8]) == [False, False, True]
    assert kept([0, 2, 2], [8, 4, 2]) == [False, True, True]  # 0 + 0.1, 0.5 + 0.2 and 1 - 0.4
    assert kept([0, 4, 8], [0, 8, 8]) == [True, False, True]
