"""Users who return to arms: who is left out of a batch's sums, what is learned without them, and what is claimed."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import INIT, STEP
from helpers import deep, refused

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.loop import LEFT_OUT
from fedbandit_jax.core import random, wide
from fedbandit_jax.engine.clocks import ArmBatchClock
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.attendance import Attendance

K, N, T, BLOCK = 3, 7, 3 * (2 + 4 + 8 + 16) + 5, 4
ARMS = fb.envs.arms(means=[0.2, 0.5, 0.6], rewards="bernoulli")
UNITS = [fb.privacy.Users(2, 1), fb.privacy.Users(3, 1, 2), fb.privacy.Users(10, 1)]


def elimination(unit, epsilon=400.0, **options):
    """With hardly any noise, so that sums can be read."""
    how = dict(mechanism="discrete_laplace", trust="secagg") | options
    return fb.algos.SuccessiveElimination(epsilon=epsilon, unit=unit, **how)


@fb.pytree
class Written:
    """User i of arm a and of a block has the reward `rewards[a, i]`, and is user `who[a, i]`."""

    rewards: np.ndarray
    who: np.ndarray
    spec: fb.Spec = fb.static()

    def init(self, key):
        return jnp.int32(0)

    def means(self, world):
        return jnp.full(K, 0.5)

    def answers(self, key, world, arm, size):
        row = jnp.asarray(self.rewards)[arm]
        return row[: size // 2], row[size // 2 :]

    def comers(self, key, size):
        drawn = jax.random.randint(key, (), 0, len(self.who))
        return jnp.asarray(self.who)[drawn]


def written(seed=0):
    rng = np.random.default_rng(seed)
    spec = dataclasses.replace(ARMS.spec, n_users=N)
    rewards, who = rng.uniform(0, 1, (K, BLOCK)).astype(np.float32), rng.integers(0, N, (50, BLOCK), np.int32)
    return Written(rewards=rewards, who=who, spec=spec)


@pytest.mark.parametrize("unit", UNITS)
def test_a_table_of_many_is_one_after_the_other(unit):
    rng = np.random.default_rng(0)
    one = many = Attendance.none(5)
    come, once = jax.jit(Attendance.come, static_argnums=1), jax.jit(Attendance.come_once, static_argnums=1)
    for k in (0, 0, 1, 3, 4, 6, 9):
        who, comes = rng.integers(0, 5, 9), rng.random(9) < 0.7
        found, many = once(many, unit, jnp.int32(k), jnp.asarray(who), jnp.asarray(comes))
        for user, there, entered in zip(who, comes, found):
            row = Attendance(*(column[user] for column in one))
            enters, new = come(row, unit, jnp.int32(k))
            assert bool(entered) == (bool(enters) and bool(there))
            if there:
                one = Attendance(*(column.at[user].set(value) for column, value in zip(one, new)))
        for mine, other in zip(one, many):
            np.testing.assert_array_equal(mine, other)


def batches(env, algo):
    """The sums (K,) of every batch as the protocol collects them, who came, and what was learned; no arm is dropped."""
    bound = algo.bind(env.spec, T)
    bound = dataclasses.replace(bound, radius=np.full_like(bound.radius, 10.0))
    clock = ArmBatchClock(env=env, algo=bound, horizon=T, block=BLOCK)
    key, seen = jax.random.key(4), []
    world, state = INIT(clock, key)
    for k in range(4):
        _, state, metrics = STEP(clock, key, world, state, jnp.int32(k))
        seen.append((np.asarray(state[1].shown), metrics.report.counts))
    return seen, state


@pytest.mark.parametrize("unit", deep(UNITS, keep={1}))
def test_sums_and_means_are_of_those_who_enter(unit):
    """By hand: users of a batch one after the other, in the order of arms; others count as 0, and are counted."""
    env, algo = written(), elimination(unit)
    clock = ArmBatchClock(env=env, algo=algo.bind(env.spec, T), horizon=T, block=BLOCK)
    seen, state = batches(env, algo)
    table, key = {}, jax.random.key(4)
    for k, (shown, counts) in enumerate(seen):
        size, sums, left_out = 2 ** (k + 1), np.zeros(K), 0
        stream = jax.random.fold_in(random.stream(key, "who"), k)
        for arm, block in itertools.product(range(K), range(-(-size // BLOCK))):
            who = env.comers(random.fold_in(jax.random.fold_in(stream, arm), block), BLOCK)
            for i in range(min(BLOCK, size - block * BLOCK)):
                mine = table.setdefault(int(who[i]), [])
                enters = len(mine) < unit.visits and all(k - other >= unit.apart for other in mine)
                mine += [k] * enters
                sums[arm] += enters * env.rewards[arm, i]
                left_out += not enters
        np.testing.assert_allclose(shown, sums, atol=0.1 * size**0.5)  # rounding of rewards to steps, and noise
        assert int(counts[LEFT_OUT]) == left_out > 0
    np.testing.assert_array_equal(state[2].count, [len(table.get(user, [])) for user in range(N)])
    assert clock.enforces


@pytest.mark.parametrize("unit", deep(UNITS[:2], keep={1}))
def test_one_user_moves_no_more_sums_than_she_may(unit):
    """All rewards of user 0 replaced, who is the first and the last of every block: r sums move, each by 1 at most."""
    env, shown = written(), []
    for hers in (0.0, 1.0):
        rewards = np.full((K, BLOCK), 0.5, np.float32)
        rewards[:, [0, -1]] = hers
        world = Written(rewards=rewards, who=np.array([[0, 1, 2, 0]], np.int32), spec=env.spec)
        seen, _ = batches(world, elimination(unit))
        shown.append(np.stack([sums for sums, _ in seen]))
    moved = np.abs(shown[0] - shown[1])  # she comes 45 times
    np.testing.assert_allclose(moved[moved > 0], 1, atol=1e-4)
    assert np.count_nonzero(moved) == 2  # of batches 0, 1, 2, 3 these are 0 and 1, or 0 and 2
    assert (np.count_nonzero(moved, axis=1) <= 1).all()


@pytest.mark.parametrize(
    ("mechanism", "share"),
    [("discrete_laplace", lambda r: 1 / r), ("skellam", lambda r: r**-0.5)],
    ids=["pure", "Renyi"],
)
def test_the_budget_is_for_all_sums_of_one_user(mechanism, share):
    """Noise is that of a share of epsilon, and the certificate composes r sums of it."""
    spec, unit = dataclasses.replace(ARMS.spec, n_users=N), fb.privacy.Users(16, 1)
    algo = elimination(unit, 2.0, mechanism=mechanism)
    one = elimination(None, 2.0 * share(16), mechanism=mechanism)
    bound = algo.bind(spec, 5000)
    np.testing.assert_array_equal(bound.protocol.stds(), one.bind(spec, 5000).protocol.stds())
    found, single = algo.certificate(spec, 5000), one.certificate(spec, 5000)
    assert found.claim == "certified"
    assert found.unit == (
        "one user: all that she contributes, up to 16 times at a silo, 1 in a batch, always at the same silo "
        "(a promise: silos do not compare users); what is "
        "beyond is left out"
    )
    assert (found.epsilon, found.releases_per_user, found.visits) == (2.0, 16.0, ())
    assert found.renyi == tuple((alpha, pytest.approx(16 * value)) for alpha, value in single.renyi)
    if mechanism == "discrete_laplace":
        assert found.epsilon_exact == pytest.approx(16 * single.epsilon_exact)
        assert 1.9 < found.epsilon_exact <= 2.0
    else:
        assert single.epsilon_exact < found.epsilon_exact < 16 * single.epsilon_exact
        once = elimination(None, 2.0, mechanism=mechanism).certificate(spec, 5000)  # Renyi DP of all is that of one
        assert found.epsilon_exact == pytest.approx(once.epsilon_exact, rel=0.1)
    often = certify(dataclasses.replace(bound, unit=fb.privacy.Users(17, 1)))
    assert (often.claim, "more than" in often.reason) == ("none", True)
    for more in (dict(per_batch=2), dict(per_batch=1, silos=5), dict(total=1.0)):
        other = certify(dataclasses.replace(bound, unit=fb.privacy.Users(16, **more)))
        assert (other.claim, "nothing is proved of users in sums" in other.reason) == ("none", True)
    promised = algo.certificate(ARMS.spec, 5000)
    assert promised.unit.endswith("as is promised: users are not told apart here")


def test_few_rewards_make_wide_radii():
    """Interval of m rewards of l users: l / m times as wide; and infinite without any reward."""
    spec = dataclasses.replace(ARMS.spec, n_users=N)
    bound = elimination(fb.privacy.Users(2, 1)).bind(spec, T)
    bound = dataclasses.replace(bound, radius=np.full_like(bound.radius, 0.1))
    state, conclude = bound.init(None, spec), jax.jit(bound.conclude)

    def kept(sums, entered):
        steps = int(np.asarray(bound.protocol.steps)[2])  # of the batch of 8 users
        collected = wide.Wide(jnp.zeros(K, jnp.uint32), jnp.asarray(np.multiply(sums, steps).astype(np.uint32)))
        after, _ = conclude(jax.random.key(0), jnp.int32(2), state, collected, jnp.asarray(entered, jnp.int32))
        return np.asarray(after.active).tolist()

    assert kept([0, 4, 8], [8, 8, 8]) == [False, False, True]
    assert kept([0, 2, 2], [8, 4, 2]) == [False, True, True]  # 0 + 0.1, 0.5 + 0.2 and 1 - 0.4
    assert kept([0, 4, 8], [0, 8, 8]) == [True, False, True]


def test_a_run_leaves_out_and_still_finds_the_best_arm(key):
    """Of 3,000 users who come three times each, with two contributions: fewer rewards, and the best arm stays."""
    env = fb.envs.returning(fb.envs.arms(means=[0.1, 0.2, 0.9], rewards="bernoulli"), 3000)
    result = fb.simulate(env, elimination(fb.privacy.Users(2, 1), 4.0), horizon=9000, stride=9000, key=key, seeds=2)
    assert (result.counts[LEFT_OUT][:, -1] > 0).all()
    assert (result.regret[:, -1] < 0.25 * 9000 * 0.5).all()  # of uniform play
    free = elimination(None, 4.0).certificate(env.spec, 9000)
    assert "one interaction" in free.unit


def test_refusals():
    users = fb.privacy.Users
    for unit in (users(3), users(3, 1, 1, 2), "visit"):
        with refused("unit", unit):
            elimination(unit)
    with refused("unit", users(3, 1)):
        fb.algos.SuccessiveElimination(unit=users(3, 1))
    with refused("epsilon") as found:
        elimination(users(1000, 1), 1e-8).bind(ARMS.spec, 100)
    assert "1,000 visits" in str(found.value)

    @fb.pytree
    class Wrong(fb.envs.ReturningArms):
        def comers(self, key, size):
            return jnp.zeros(size)

    env = fb.envs.returning(ARMS, 9)
    env = Wrong(**{field.name: getattr(env, field.name) for field in dataclasses.fields(env)})
    with refused("env.comers"):
        fb.simulate(env, elimination(users(3, 1)), horizon=100, key=jax.random.key(0), seeds=1)
