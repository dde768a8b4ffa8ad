"""Schedules: when they ask, what noise they add, and what they refuse."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.engine.process import RoundProcess
from fedbandit_jax.schedules import Schedule, Setting

S = fb.schedules
SETTING = Setting(4, 3, 1000, 0.5, 1.5, 2.0)


def asked(schedule, gained, horizon, setting=SETTING, key=None):
    """Rounds in which a schedule asks, given constant g_i, synchronising whenever it does."""
    bound = schedule.bind(setting._replace(horizon=horizon))
    key = jax.random.key(0) if key is None else key
    memory, last, rounds = bound.start(key, jnp.float32(1)), 0, []
    for t in range(horizon):
        if np.any(bound.requests(jax.random.fold_in(key, t), jnp.int32(t), memory, gained, jnp.int32(t + 1 - last))):
            rounds.append(t + 1)
            last = t + 1
    return rounds


def test_every():
    assert asked(S.every(7), np.zeros(4), 30) == [7, 14, 21, 28]
    assert S.every(7).n_syncs(30) == 4
    assert S.every(40).n_syncs(30) == 0


@settings(max_examples=50, deadline=None)
@given(st.floats(1.01, 10), st.integers(1, 50), st.integers(1, 5000))
def test_geometric(growth, first, horizon):
    """Strictly rising from `first`, each at least growth times the one before and at most one round more."""
    rounds = S.geometric(growth, first).rounds(horizon)
    assert len(rounds) == S.geometric(growth, first).n_syncs(horizon)
    assert (rounds <= horizon).all()
    if first <= horizon:
        assert rounds[0] == first
        assert (rounds[1:] >= rounds[:-1] * growth).all()
        assert (rounds[1:] <= np.maximum(rounds[:-1] + 1, rounds[:-1] * growth + 1)).all()
        assert max(rounds[-1] + 1, math.ceil(rounds[-1] * growth)) > horizon


def test_geometric_asks_when_it_says():
    schedule = S.geometric(1.3, 5)
    assert asked(schedule, np.zeros(4), 60) == schedule.rounds(60).tolist()


def test_logdet():
    """g = 0.1 of one agent: every ceil(D / g) rounds."""
    gained = np.array([0.0, 0.1, 0.05, 0.0])
    assert asked(S.logdet(0.55), gained, 20) == [6, 12, 18]
    assert asked(S.logdet(3.0), gained, 20) == []
    assert S.logdet().n_syncs(20) == 20
    assert S.logdet(max_syncs=7).n_syncs(20) == 7


def test_thresholds_of_the_paper():
    """Theorem 1 and Remark 1 with M = 4, d = 3, T = 1000, rho = 0.5 .. 1.5."""
    bound = S.logdet().bind(SETTING)
    assert float(bound.threshold) == pytest.approx(2 * 1000 * 3 / (math.log(3 + 1000 / 1.5) + 1))
    assert float(S.logdet("M^1.5").bind(SETTING).threshold) == pytest.approx(1000 * math.log(4000) / 12)
    assert S.logdet(trigger="dp20").shift(SETTING) == pytest.approx(4.0)
    assert S.logdet().shift(SETTING) == 0


def test_the_noise_of_above_threshold(key):
    """Discrete Laplace of scales 64/e1 and 128/e2, e1 + e2 = share * epsilon; noise 10 % smaller is rejected."""
    n, share, epsilon = 40_000, 0.25, 2.0
    bound = S.private_logdet(1.0, share=share).bind(SETTING._replace(n_agents=n, epsilon=epsilon))
    memory = bound.start(key, jnp.float32(2.0))
    assert float(memory.cap) == pytest.approx(math.log(1.5), rel=1e-5)
    e1 = share * epsilon / (1 + 2 ** (2 / 3))
    e2 = share * epsilon - e1

    def fits(draws, scale):
        """Chi-square of twenty equally likely intervals, alpha = 1e-4."""
        edges = stats.laplace.ppf(np.arange(1, 20) / 20, scale=scale)  # 64 / e1 = 330: lattice and line agree to 1/330
        counts = np.bincount(np.searchsorted(edges, draws), minlength=20)
        return stats.chisquare(counts).pvalue > 1e-4

    shift = np.asarray(memory.shift)
    assert fits(shift, 64 / e1)
    assert not fits(0.9 * shift, 64 / e1)
    # An answer's noise, from how often sums of 0 are above thresholds: P(noise >= h) is exp(-h / scale) / 2 to 1 /
    # scale.
    quiet = memory._replace(shift=jnp.zeros(n, jnp.int32))
    for h in (100, 500):
        above = dataclasses.replace(bound, threshold=np.float32(h * float(memory.cap) / 64))
        rate = float(above.requests(jax.random.fold_in(key, h), 0, quiet, jnp.zeros(n, jnp.int32), 1).mean())
        expected, error = 0.5 * math.exp(-h * e2 / 128), 4 / math.sqrt(4 * n)
        assert abs(rate - expected) < error
        if h == 500:
            assert abs(rate - 0.5 * math.exp(-h * e2 / (0.9 * 128))) > error


def test_what_one_user_adds(key):
    """At most 64 units, whatever she is and whatever float32 makes of V; rounded up, so that little is never
    nothing."""
    bound = S.private_logdet().bind(SETTING)
    memory = bound.start(key, jnp.float32(10.0))
    leverage = jnp.array([0.1, 0.05, 1e-9, 0.0, 0.2, np.inf, np.nan])
    assert bound.count(memory, leverage).tolist() == [64, 33, 1, 0, 64, 64, 64]


def test_noise_is_fresh(key):
    """Between agents, rounds and epochs."""
    bound = S.private_logdet(1e-3).bind(SETTING._replace(n_agents=50))
    one, two = (bound.start(jax.random.fold_in(key, i), jnp.float32(1)).shift for i in range(2))
    assert len(np.unique(np.concatenate([one, two]))) > 90
    memory, nothing = bound.start(key, jnp.float32(1)), jnp.zeros(50, jnp.int32)
    asked = np.stack([bound.requests(jax.random.fold_in(key, t), t, memory, nothing, 1) for t in range(20)])
    assert 0 < asked.mean() < 1
    assert len(np.unique(asked, axis=0)) == 20
    assert len(np.unique(asked, axis=1).T) > 10


def test_the_sum_that_is_read_is_a_close_bound(script, key):
    """log det (V + U) - log det V <= sum ln(1 + x' V^-1 x), of which the run's units are the rounding up."""
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), batch=S.private_logdet(1e6))
    bound = algo.bind(script.spec, 60)
    process = RoundProcess(env=script, algo=bound, horizon=60)

    def body(carry, k):
        world, state, metrics = process.step(key, *carry, k)
        return (world, state), metrics.regret

    (_, state), _ = jax.lax.scan(body, process.init(key), np.arange(60))
    assert int(state.synced) == 0
    v, rows = np.asarray(state.estimate.gram, float), np.asarray(state.settled + state.pending, float)
    log_det = np.linalg.slogdet(v + rows[:, :-1, 0])[1] - np.linalg.slogdet(v)[1]  # of all agents together
    unit = float(state.memory.cap) / S.UNITS
    assert log_det < state.counted.sum() * unit < 1.1 * log_det + 180 * unit


def test_tests_end_with_the_last_synchronisation(key):
    """Who has used up max_syncs is silent: a test that goes on after its first answer would tell more."""
    env = fb.envs.gap(3, 5, 4)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(50.0, 0.1), batch=S.private_logdet(1e-3, max_syncs=3))
    process = RoundProcess(env=env, algo=algo.bind(env.spec, 30), horizon=30)

    def body(carry, k):
        world, state, metrics = process.step(key, *carry, k)
        return (world, state), (process.algo.view(state)[2], metrics.report.rounds)

    _, (asked, rounds) = jax.lax.scan(body, process.init(key), np.arange(30))
    assert rounds.sum() == 3
    np.testing.assert_array_equal(asked.any(1), rounds == 1)


def test_shares_are_of_the_budget(key):
    """r visits spend r times the epsilon of a test; silos with budgets of their own each spend their share."""
    env = fb.envs.gap(2, 5, 4)
    schedule = S.private_logdet(5.0, share=0.2)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(3.0, 0.1), batch=schedule, visits=3)
    assert float(algo.bind(env.spec, 50).schedule.epsilon) == pytest.approx(0.2)
    (noise,) = algo.calibrate(env.spec, 50)
    assert noise.pure == pytest.approx(0.6)
    budgets = [fb.privacy.Budget(3.0, 0.1), fb.privacy.Budget(1.0, 0.1)]
    both = fb.algos.private_fed_lin_ucb(budgets, batch=schedule)
    np.testing.assert_allclose(both.bind(env.spec, 50).schedule.epsilon, [0.6, 0.2], rtol=1e-6)
    assert [noise.pure for noise in both.calibrate(env.spec, 50)] == pytest.approx([0.6, 0.2])


def test_a_schedule_of_ones_own(monkeypatch):
    """Even rounds of the first half."""

    @fb.pytree
    class BoundHalf(S.Bound):
        horizon: int

        def requests(self, key, t, memory, gained, since):
            return (t % 2 == 1) & (t < self.horizon // 2)

    class Half(Schedule):
        leaks = False

        def n_syncs(self, horizon):
            return horizon // 4

        def bind(self, setting):
            return BoundHalf(horizon=setting.horizon)

    env = fb.envs.gap(2, 5, 3)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), batch=Half())
    result = fb.simulate(env, algo, horizon=16, key=jax.random.key(0), n_seeds=1)
    assert np.flatnonzero(np.diff(result.communication["rounds"][0], prepend=0)).tolist() == [1, 3, 5, 7]
    assert result.certificate.claim == "certified"
    assert result.certificate.releases == 4
    monkeypatch.setattr(Half, "leaks", Schedule.leaks)  # unless it says so, nobody knows
    assert algo.certificate(env.spec, 16).claim == "none"


class Raw(S.LogDet):
    """Reads log-determinants and says that it does not leak."""

    leaks = False


def test_schedules_that_read_data_cannot_say_that_they_do_not():
    env, budget = fb.envs.gap(2, 5, 3), fb.privacy.Budget(1.0, 0.1)
    for algo in (
        fb.algos.private_fed_lin_ucb(budget, batch=Raw(5.0, "zc24", None)),
        fb.algos.fed_ucb(budget, schedule=Raw(5.0, "zc24", None)),
    ):
        with pytest.raises(ValueError, match=r"Raw.leaks must be True: it reads 'log_det' and spends no epsilon"):
            algo.certificate(env.spec, 20)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: S.every(0), ValueError, "batch must be >= 1, got 0"),
        (lambda: S.geometric(1.0), ValueError, "growth must be > 1, got 1.0"),
        (lambda: S.geometric(2, 0), ValueError, "first must be >= 1, got 0"),
        (lambda: S.logdet(0), ValueError, "threshold must be finite and > 0, got 0"),
        (lambda: S.logdet(-1.0), ValueError, "threshold must be finite and > 0, got -1.0"),
        (lambda: S.logdet("T"), ValueError, "threshold must be a number > 0, 'M log T' or 'M.1.5', got 'T'"),
        (lambda: S.logdet(trigger="zc"), ValueError, "trigger must be one of 'zc24', 'dp20', got 'zc'"),
        (lambda: S.private_logdet(share=0), ValueError, "share must be in \\(0, 1\\), so that .* add up to 1, got 0"),
        (lambda: S.private_logdet(share=1.5), ValueError, "share must be in \\(0, 1\\), .* got 1.5"),
        (lambda: S.private_logdet(share="0.1"), TypeError, "share must be a number >= 0, got '0.1'"),
        (lambda: S.private_logdet(max_syncs=0), ValueError, "max_syncs must be >= 1, got 0"),
        (lambda: S.private_logdet().bind(SETTING._replace(epsilon=1e-5)), ValueError, "must be at least 1e-05"),
        (lambda: S.private_logdet().bind(SETTING._replace(epsilon=None)), ValueError, "spends a share of a budget"),
    ],
)
def test_bad_schedules(make, error, words):
    with pytest.raises(error, match=words):
        make()
