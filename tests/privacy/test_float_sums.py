"""Sums over many users: what float32 rounds must not tell users apart, or is refused."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from honest import BUDGET, changed

import fedbandit_jax as fb
from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.core import wide
from fedbandit_jax.engine.runners import Synchronous
from fedbandit_jax.privacy import proof
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.bound import Exact, Timing
from fedbandit_jax.privacy.sums import Steps, Sums, too_coarse

N = 4000


@jax.jit
def prefixes(batches, noise):
    """(high, low, noisy) after every batch, of scalars."""

    def step(sums, given):
        sums = sums.add(given[0])
        return sums, (*sums, sums.noisy(given[1]))

    return jax.lax.scan(step, Sums(jnp.float32(0), jnp.float32(0)), (batches, noise))[1]


def test_sums_are_exact_and_one_user_moves_all_later_ones_alike():
    """Against integers, for 2.7e8 users; one user moves all later releases by 1 together, and rounded sums by 16."""
    rng, whole = np.random.default_rng(0), 2**8  # the last place of a float32 from 2^15 on
    batches = (rng.uniform(0.5, 1, N) * 9e4).astype(np.float32)
    noise = (7 * rng.standard_normal(N)).astype(np.float32)
    hers = batches + np.float32(np.arange(N) == 99)
    (high, low, noisy), (her_high, her_low, _) = (
        [np.asarray(one, float) for one in prefixes(each, noise)] for each in (batches, hers)
    )
    exact = np.cumsum(np.int64(batches.astype(float) * whole)) / whole
    assert exact[-1] > 2.6e8
    np.testing.assert_allclose(high - low, exact, rtol=0, atol=1e-3)
    assert np.abs(high - exact).max() > 8  # one float32 is not enough
    np.testing.assert_array_equal(high, exact.astype(np.float32))
    np.testing.assert_array_equal(prefixes(batches, 0 * noise)[2], high)
    assert (np.abs(noisy - exact - noise) <= np.spacing((exact + noise).astype(np.float32)) / 2 * 1.001 + 1e-3).all()
    moved, moved_by_rounding = (her_high - her_low) - (high - low), her_high - high
    np.testing.assert_allclose(moved, np.arange(N) >= 99, atol=2e-3)
    assert set(np.unique(moved_by_rounding[-500:])) >= {0, 16}
    assert np.linalg.norm(np.diff(moved, prepend=0)) == pytest.approx(1, abs=1e-2)
    assert np.linalg.norm(np.diff(moved_by_rounding, prepend=0)) > 50


@pytest.mark.parametrize(("users", "last"), [(2**23, 1.0), (2**24, 2.0), (270_000_000, 32.0), (1000, 2.0**-14)])
def test_too_coarse(users, last):
    """A unit in the last place, by hand, is at most a 64th of the noise and a 32nd of what a user moves."""
    assert not too_coarse(users, 64 * last, 32 * last)
    for noise, move in ((63.9, 32), (1e6, 31.9)):
        assert f"sum over {users:,} users to multiples of {last:g}, too coarse" in too_coarse(
            users, noise * last, move * last
        )


# ---------------------------------------------------------------------------------------------------------------------
# Sums of a private mechanism, in whole steps.


def neighbours(n, at):
    """Features (2, n) and rewards (n,) of n users, and those with user `at` turned by 120 degrees: as far as can be."""
    rng = np.random.default_rng(0)
    angle, y = rng.uniform(0, 2 * np.pi, n), rng.uniform(0, 1, n).astype(np.float32)
    y[at] = 1
    other = angle.copy()
    other[at] += 2 * np.pi / 3
    return [(np.stack([np.cos(a), np.sin(a)]).astype(np.float32), y) for a in (angle, other)]


def central(n_agents, batch, dim=2):
    mechanism = fb.privacy.Mechanism(BUDGET, "blt", "central")
    algo = fb.algos.private_fed_lin_ucb(mechanism, schedule=batch)
    spec = fb.envs.sphere(n_agents, 4, dim, rewards="bernoulli").spec
    return algo.bind(spec, 4 * batch)


def test_one_of_half_a_million_users_moves_their_sum_by_her_own_row():
    """In whatever order they are added up. In float32 she moves it further than any sensitivity allows."""
    n = 2**19
    mechanism = central(64, n // 64).mechanism
    assert mechanism.row_step == 2.0**-11
    total = jax.jit(lambda x, y: mechanism.total(jnp.moveaxis(x.reshape(2, -1, 64), 1, 0), y.reshape(-1, 64)))
    single = jax.jit(lambda x, y: Exact(n_agents=1).total(x[None], y[None]))
    one, two = neighbours(n, 1234)
    rows = np.concatenate([one[0], one[1][None]])
    whole = np.round(one[0][:, None].astype(float) / mechanism.row_step * rows).astype(int).sum(-1)
    assert abs(np.asarray(total(*one)) - whole).max() <= n * 2**-12  # products that float32 may round to a tie
    order = np.random.default_rng(1).permutation(n)
    np.testing.assert_array_equal(total(one[0][:, order], one[1][order]), total(*one))

    def distance(a, b):
        change = np.asarray(a, float) - np.asarray(b, float)
        return np.linalg.norm(change)  # (d, d + 1): that of the packed form

    moved = distance(mechanism.row_step * total(*one), mechanism.row_step * total(*two))
    assert moved == pytest.approx(math.sqrt(4.5), abs=mechanism.statistic.rounding(n))
    further = [distance(*(single(*each) for each in neighbours(n, at))) for at in range(0, n, n // 8)]
    assert max(further) > 1.002 * math.sqrt(4.5)


def test_rounding_is_charged():
    """By hand: a step, and what float32 rounds a product to, in d (d + 1) entries. Without it epsilon is exceeded."""
    bound = central(64, 2**13)
    mechanism, certificate = bound.mechanism, bound.guarantee()
    more = (2.0**-11 + 2.0**-24) * math.sqrt(6)
    assert (certificate.claim, round(certificate.epsilon_exact, 5)) == ("certified", 1)
    plain = central(1, 1).mechanism
    assert mechanism.stds()[0] / plain.stds()[0] == pytest.approx(1 + more / math.sqrt(4.5), rel=1e-6)
    found = bound.replace(trust=plain.trust).guarantee()
    assert found.claim == "none"
    assert found.epsilon_exact > 1 + 0.5 * more / math.sqrt(4.5)


def test_steps_are_exact():
    """Against Python's integers; noise is rounded to steps, so that all that is released is sum plus noise, rounded."""
    step, n = 2.0**-11, 300
    rng = np.random.default_rng(0)
    batches = rng.integers(-(2**31), 2**31 - 1, (n, 1, 2), dtype=np.int32)
    noise = np.float32(1e5 * rng.standard_normal((n, 1, 2)))
    sums = Steps(wide.from_int32(np.zeros((1, 2), np.int32)), np.float32(step))

    def run(sums, given):
        sums = sums.add(given[0])
        return sums, (sums.whole, sums.add(given[1]).whole, sums.noisy(given[1]))

    last, (exact, noised, shown) = jax.jit(lambda *given: jax.lax.scan(run, sums, given))(batches, noise)
    prefix = np.cumsum(batches.astype(object), 0)
    np.testing.assert_array_equal(wide.to_int(exact), prefix)
    z = np.round(noise.astype(float) / step).astype(int).astype(object)
    np.testing.assert_array_equal(wide.to_int(noised), prefix + z)
    np.testing.assert_allclose(shown, (prefix + z).astype(float) * step, rtol=2**-22)
    np.testing.assert_allclose(last.high, prefix[-1].astype(float) * step, rtol=2**-22)


def test_sums_that_no_integer_holds():
    assert central(2**12, 2**10).guarantee().claim == "certified"  # 4,194,304 users in a batch
    with pytest.raises(ValueError, match="2,147,483,648"):
        central(2**20, 2**11)
    loud = changed(central(1, 1), "mechanism.trust", std=np.float32(1e12))
    assert "64-bit integers do not hold so much noise" in loud.guarantee().reason


def test_rewards_that_are_not_bounded_are_added_up_as_they_are():
    """Nothing is claimed then, and no integer is large enough for all."""
    mechanism = fb.privacy.Mechanism(BUDGET, statistic=fb.privacy.Linear(clip=False))
    env = fb.envs.script(np.ones((4, 2, 1, 1)), np.full((4, 2, 1), 1e6))
    bound = fb.algos.private_fed_lin_ucb(mechanism, schedule=2).bind(env.spec, 4)
    total = jax.jit(bound.mechanism.total)(np.ones((2, 1, 2), np.float32), np.full((2, 2), 1e6, np.float32))
    assert (total.tolist(), bound.guarantee().claim) == ([[4, 4e6]], "none")


def test_long_epochs_are_added_up_in_parts():
    """Of a year of rounds without a clock a thousand at a time, and fewer of many silos; one at least."""
    mechanism = fb.privacy.Mechanism(BUDGET, "blt", "central")
    schedule = fb.schedules.Geometric(1.5, first=100)
    algo = fb.algos.private_fed_lin_ucb(mechanism, schedule=schedule)
    for m, longest in ((64, 1000), (2**15, 8), (2**21, 1)):
        spec = fb.envs.sphere(m, 4, 3, rewards="bernoulli").spec
        assert algo.bind(spec, 2**25).mechanism.longest == longest
        assert algo.certificate(spec, 2**25).claim == "certified"


def test_a_run_that_goes_on_hands_over_as_often(key):
    """No more rounds than are claimed are added up in float32, however long a run goes on without a release."""
    env = fb.envs.gap(3, 4, 5)
    schedule = fb.schedules.Geometric(2.0, first=40)
    bound = fb.algos.Federated(policy=fb.algos.Greedy(), privacy=BUDGET, schedule=schedule).bind(env.spec, 80)
    assert bound.mechanism.longest == own_rows.REFRESH
    bound = changed(bound, "mechanism", longest=10)
    process = Synchronous(env=env, algo=bound, horizon=30)
    step, real, high = jax.jit(process.step), jax.jit(bound.mechanism.real), jax.jit(lambda sums: sums.high)
    world, state = jax.jit(process.init)(key)
    for k in range(30):
        world, state, _ = step(key, world, state, k)
        assert np.trace(real(state.ledger.pending)[:, :5, 0]) <= 3 * 10 + 1e-3  # of norm <= 1, three in a round
    assert np.trace(high(state.ledger.mechanism.sums)[:, :5]) > 3 * 15


def test_batches_longer_than_is_claimed():
    """A loop of fixed batches adds them up whole, whatever the mechanism says of itself; its batch is the loop's."""
    bound = central(64, 10)
    mechanism = dataclasses.replace(bound.mechanism, batch=None, longest=1)
    forged = dataclasses.replace(bound, batch=1000, mechanism=mechanism)
    assert "adds up at most 1 rounds at a time, and runs with batches of 1000" in forged.guarantee().reason
    spec = fb.envs.sphere(64, 4, 3, rewards="bernoulli").spec
    algo = fb.algos.private_fed_lin_ucb(BUDGET).replace(schedule=fb.schedules.Geometric(1.5, first=100))
    for longest, words in ((2**26, "gives epsilon = "), (2**20, "gives epsilon = 1."), (999.5, "must be an integer")):
        found = algo.bind(spec, 2**14).replace(longest=longest).guarantee()
        assert (found.claim, words in found.reason) == ("none", True)


def test_what_float32_adds_up_is_too_coarse():
    """A sum over all silos is rounded to float32 before its low digits are random; what silos send is float32."""
    mechanism = fb.privacy.Mechanism(BUDGET, "input_perturbation", trust="secagg")
    spec = fb.Spec(n_agents=64, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True)
    for schedule in (2**20, fb.schedules.Geometric(2.0, first=2**20)):
        algo = fb.algos.Federated(schedule=schedule, privacy=mechanism)
        with pytest.raises(ValueError, match="too coarse"):
            algo.bind(spec, 2**20)
    env = fb.envs.clustered(n_users=6, n_clusters=2, n_servers=2, n_arms=3, dim=3)
    with pytest.raises(ValueError, match="too coarse"):
        fb.algos.FCLUB(BUDGET).bind(env.spec, 2_000_000_000)
    mechanism = fb.privacy.Mechanism(BUDGET, "tree", trust="central")
    bound = mechanism.bind(BoundStatistic(2, unit_rewards=True), n_agents=2, n_syncs=4, batch=2)
    bound = fb.audits.by_message(bound)
    assert not proof.coarse(bound, 2)
    long = dataclasses.replace(bound, batch=2**28, longest=2**28)
    assert "too coarse for noise" in proof.coarse(long, 2**28)
    timing = Timing("fixed in advance")
    found = [one.guarantee(timing, one.batch) for one in (bound, long)]
    assert [(one.claim, math.isfinite(one.epsilon_exact)) for one in found] == [("certified", True), ("none", False)]
