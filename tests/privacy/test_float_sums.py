"""Sums over many users: what float32 rounds must not tell users apart, or is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.privacy.bound import Exact
from fedbandit_jax.privacy.statistic import Sums, too_coarse

N = 4000


def prefixes(batches, noise):
    """(high, low, noisy) after every batch, of scalars."""

    def step(sums, given):
        sums = sums.add(given[0])
        return sums, (*sums, sums.noisy(given[1]))

    start = Sums(jnp.float32(0), jnp.float32(0))
    run = jax.jit(lambda *given: jax.lax.scan(step, start, given)[1])
    return [np.asarray(one, float) for one in run(batches, noise)]


@pytest.fixture(scope="module")
def two():
    """All releases of 4,000 batches of about 67,500 users (2.7e8 in all), and those with one user more in the 100th."""
    rng = np.random.default_rng(0)
    batches = (rng.uniform(0.5, 1, N) * 9e4).astype(np.float32)
    noise = (7 * rng.standard_normal(N)).astype(np.float32)
    other = batches.copy()
    other[99] += 1
    return [(each.astype(float), noise.astype(float), *prefixes(each, noise)) for each in (batches, other)]


def test_sums_are_exact(two):
    """Against integers; what is released is the sum with its noise, rounded once."""
    for batches, noise, high, low, noisy in two:
        whole = batches * 2**8  # the last place of a float32 from 2^15 on
        assert (whole == np.round(whole)).all()
        exact = np.cumsum(whole.astype(np.int64)) / 2**8
        assert exact[-1] > 2.6e8
        np.testing.assert_allclose(high - low, exact, rtol=0, atol=1e-3)
        assert np.abs(high - exact).max() > 8  # one float32 is not enough
        np.testing.assert_array_equal(high, exact.astype(np.float32))
        right = exact + noise
        assert (np.abs(noisy - right) <= np.spacing(right.astype(np.float32)) / 2 * 1.001 + 1e-3).all()


def test_one_user_moves_all_later_sums_alike(two):
    """By 1 after she came, and by 0 before: together by no more than the sensitivity, where rounded sums move by 16."""
    (_, _, high, low, _), (_, _, her_high, her_low, _) = two
    moved = (her_high - her_low) - (high - low)
    moved_by_rounding = her_high - high
    np.testing.assert_allclose(moved, np.arange(N) >= 99, atol=2e-3)
    assert set(np.unique(moved_by_rounding[-500:])) >= {0, 16}
    differences = np.linalg.norm(np.diff(moved, prepend=0)), np.linalg.norm(np.diff(moved_by_rounding, prepend=0))
    assert differences[0] == pytest.approx(1, abs=1e-2)
    assert differences[1] > 50


def test_without_noise_the_sum_is_released(two):
    batches, _, high, *_ = two[0]
    *_, noisy = prefixes(np.float32(batches), np.zeros(N, np.float32))
    np.testing.assert_array_equal(noisy, high)


@pytest.mark.parametrize(("users", "last"), [(2**23, 1.0), (2**24, 2.0), (270_000_000, 32.0), (1000, 2.0**-14)])
def test_too_coarse(users, last):
    """A unit in the last place, by hand, is at most a 64th of the noise and a 32nd of what a user moves."""
    assert not too_coarse(users, 64 * last, 32 * last)
    for noise, move in ((63.9, 32), (1e6, 31.9)):
        assert f"sum over {users:,} users to multiples of {last:g}, too coarse" in too_coarse(
            users, noise * last, move * last
        )


@pytest.mark.parametrize(
    ("trust", "claim"),
    [("central", "none"), ("shuffle_amplified", "none"), ("silo_local", "certified"), ("local", "certified")],
)
def test_much_noise_does_not_help_whose_move_is_rounded(trust, claim):
    """At epsilon = 0.01 noise is 80 times what 4,194,304 users are rounded to, which is a quarter of what one moves.

    Among the noise of many silos, or users, of whom one alone is enough for the claim, that does not matter.
    """
    release = "input_perturbation" if trust == "local" else "tree"
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(0.01, 1e-6), release, trust)
    spec = fb.envs.sphere(2**12, 4, 3, rewards="bernoulli").spec
    algo = fb.algos.private_fed_lin_ucb(mechanism)
    assert algo.replace(schedule=2**7).certificate(spec, 2**7).claim == "certified"
    if claim == "certified":
        assert algo.replace(schedule=2**10).certificate(spec, 2**10).claim == "certified"
    else:
        with pytest.raises(
            ValueError, match="4,194,304 users to multiples of 0.5, too coarse .* users who move it by 2.12"
        ):
            algo.replace(schedule=2**10).bind(spec, 2**10)


def test_too_many_users_are_refused():
    """One batch of 2^24 users, at a server whose noise is about 7; half a year of rounds without a clock."""
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), "blt", "central")
    env = fb.envs.sphere(64, 4, 3, rewards="bernoulli")
    algo = fb.algos.private_fed_lin_ucb(mechanism).replace(schedule=2**18)
    with pytest.raises(ValueError, match="n_agents, horizon or batch must be smaller.* 16,777,216 users.* of 2, too"):
        algo.bind(env.spec, 2**20)
    assert algo.replace(schedule=2**10).certificate(env.spec, 2**20).claim == "certified"


def test_long_epochs_are_added_up_in_parts():
    """Of a year of rounds without a clock a thousand at a time, and fewer of many silos; one at least."""
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), "blt", "central")
    schedule = fb.schedules.Geometric(1.5, first=100)
    algo = fb.algos.private_fed_lin_ucb(mechanism, schedule=schedule)
    few, many, most = (fb.envs.sphere(m, 4, 3, rewards="bernoulli").spec for m in (64, 2**15, 2**21))
    for spec, longest in ((few, 1000), (many, 8)):
        assert algo.bind(spec, 2**25).mechanism.longest == longest
        assert algo.certificate(spec, 2**25).claim == "certified"
    with pytest.raises(ValueError, match="n_agents.* 2,097,152 users.* of 0.25, too coarse for noise of .* deviation"):
        algo.bind(most, 2**25)


def test_a_run_that_goes_on_hands_over_as_often(key):
    """Bound for ten rounds and run for fifty: no more than are claimed are added up in float32."""
    env = fb.envs.gap(3, 4, 5)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=fb.schedules.PrivateLogDet(1e9))
    bound = algo.bind(env.spec, 10)
    assert bound.mechanism.longest == own_rows.REFRESH
    bound = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, longest=10))
    process = RoundClock(env=env, algo=bound, horizon=50)
    step = jax.jit(process.step)
    world, state = jax.jit(process.init)(key)
    for k in range(50):
        world, state, _ = step(key, world, state, k)
        assert float(jnp.trace(state.pending[:, :5, 0])) <= 3 * 10 + 1e-3  # of vectors of norm <= 1, three in a round
    assert float(jnp.trace(state.mechanism.sums.high[:, :5])) > 3 * 30


def test_a_loop_of_fixed_batches_adds_them_up_whole():
    """Whatever the mechanism says of itself; its batch is that of the loop."""
    env = fb.envs.sphere(5000, 4, 3, rewards="bernoulli")
    algo = fb.algos.private_fed_lin_ucb(
        fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), trust="central"), schedule=1000
    )
    with pytest.raises(ValueError, match="too coarse"):
        algo.bind(env.spec, 5000)
    bound = algo.replace(schedule=10).bind(env.spec, 50)
    mechanism = dataclasses.replace(bound.mechanism, batch=None, longest=1)
    forged = dataclasses.replace(bound, batch=1000, mechanism=mechanism)
    assert "too coarse" in forged.guarantee().reason


def test_what_is_absorbed_is_released_to_the_last_bit(key):
    """Parts of 10^7 users each, in which float32 has no more digits behind the point: the sum of 300 still does."""
    mechanism = Exact(n_agents=1)
    parts = np.asarray(jax.random.uniform(key, (300, 2, 3), minval=0.0, maxval=1e7))
    state = mechanism.init(2)
    for part in parts[:-1]:
        state = mechanism.absorb(state, part)
    nobody = np.zeros((0, 2, 1)), np.zeros((0, 1))
    released, _ = mechanism.step(key, 1, state, parts[-1], *nobody)
    exact = parts.astype(float).sum(0)
    np.testing.assert_array_equal(released, exact.astype(np.float32))
    assert (np.cumsum(parts, 0, dtype=np.float32)[-1] != released).any()


def test_longer_batches_afterwards():
    env = fb.envs.sphere(64, 4, 3, rewards="bernoulli")
    bound = (
        fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1))
        .replace(schedule=fb.schedules.Geometric(1.5, first=100))
        .bind(env.spec, 2**14)
    )
    for longest, words in ((2**26, "too coarse for noise"), (999.5, "after 999.5 rounds, which is no integer")):
        found = bound.replace(longest=longest).guarantee()
        assert (found.claim, words in found.reason) == ("none", True)


def test_clusters_of_too_many_users():
    env = fb.envs.clustered(n_users=6, n_clusters=2, n_servers=2, n_arms=3, dim=3)
    algo = fb.algos.FCLUB(fb.privacy.Budget(1.0, 0.1))
    with pytest.raises(
        ValueError, match="horizon must be shorter.*2,000,000,000 users to multiples of 128, too coarse"
    ):
        algo.bind(env.spec, 2_000_000_000)


def test_sums_on_a_grid_are_not_too_coarse():
    """A sum over all silos is rounded to float32 before its low digits are made random, in batches of any length."""
    budget = fb.privacy.Budget(1.0, 0.1)
    mechanism = fb.privacy.Mechanism(budget, "input_perturbation", trust="secagg")
    spec = fb.Spec(n_agents=64, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True)
    for schedule in (2**20, fb.schedules.Geometric(2.0, first=2**20)):
        algo = fb.algos.Federated(schedule=schedule, privacy=mechanism)
        with pytest.raises(ValueError, match="too coarse for noise of standard deviation"):
            algo.bind(spec, 2**20)
    assert fb.algos.Federated(schedule=2**9, privacy=mechanism).certificate(spec, 2**9).claim == "certified"
