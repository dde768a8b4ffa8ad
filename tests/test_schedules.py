"""Schedules: when they ask, what noise they add, and what they refuse."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedbandit_jax as fb
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


def test_thresholds_of_the_paper():
    """Theorem 1 and Remark 1 with M = 4, d = 3, T = 1000, rho = 0.5 .. 1.5."""
    bound = S.logdet().bind(SETTING)
    assert float(bound.threshold) == pytest.approx(2 * 1000 * 3 / (math.log(3 + 1000 / 1.5) + 1))
    assert float(S.logdet("M^1.5").bind(SETTING).threshold) == pytest.approx(1000 * math.log(4000) / 12)
    assert S.logdet(trigger="dp20").shift(SETTING) == pytest.approx(4.0)
    assert S.logdet().shift(SETTING) == 0


@pytest.mark.parametrize("floor", [0.5, 30.0])
def test_the_noise_of_above_threshold(key, floor):
    """Laplace with scales D/e1 and 2D/e2, D = ln(1 + 1/floor), e1 + e2 = share * epsilon; 10 % off is rejected."""
    n, share, epsilon = 40_000, 0.25, 2.0
    bound = S.private_logdet(1.0, share=share).bind(SETTING._replace(n_agents=n, epsilon=epsilon))
    memory = bound.start(key, jnp.float32(floor))
    sensitivity, e1 = math.log1p(1 / floor), share * epsilon / (1 + 2 ** (2 / 3))
    e2 = share * epsilon - e1
    assert e2 / e1 == pytest.approx(2 ** (2 / 3))
    assert sensitivity / e1 <= float(memory.scale) * e2 / e1 / 2 <= 1.001 * sensitivity / e1
    # P(g + noise >= D/Dt + noise') as a function of g, against the law of a difference of two Laplace variables
    shift = np.asarray(memory.shift)
    assert stats.kstest(shift * e1 / sensitivity, "laplace").pvalue > 1e-4
    assert stats.kstest(1.1 * shift * e1 / sensitivity, "laplace").pvalue < 1e-4
    quiet = memory._replace(shift=jnp.zeros(n))
    for gained in (0.0, 1.0, 1.5):
        requests = bound.requests(jax.random.fold_in(key, 1), 0, quiet, jnp.full(n, gained), jnp.int32(1))
        for factor, fits in ((1.0, True), (1.1, gained == 1.0)):
            expected = stats.laplace.sf(1 - gained, scale=factor * 2 * sensitivity / e2)
            error = math.sqrt(expected * (1 - expected) / n)
            off = abs(float(requests.mean()) - expected) > 4 * error
            if factor == 1 or (0.05 < expected < 0.4 and abs(1 - gained) > sensitivity):
                assert off != fits, (gained, factor, expected)


def test_noise_is_fresh(key):
    """Between agents, rounds and epochs."""
    bound = S.private_logdet(1.0).bind(SETTING._replace(n_agents=50))
    one, two = (bound.start(jax.random.fold_in(key, i), jnp.float32(1)).shift for i in range(2))
    assert len(np.unique(np.concatenate([one, two]))) == 100
    memory = bound.start(key, jnp.float32(1))
    wide = [bound.requests(jax.random.fold_in(key, t), t, memory, jnp.zeros(50), jnp.int32(1)) for t in range(20)]
    assert 0 < np.stack(wide).mean() < 1
    assert len(np.unique(np.stack(wide), axis=0)) == 20
    assert len(np.unique(np.stack(wide), axis=1).T) > 10


def test_one_user_moves_a_log_determinant_by_no_more_than_declared():
    """sup over U of |log det (V + U + x x') - log det (V + U)| is ln(1 + 1 / lambda_min(V)), at U = 0."""
    rng = np.random.default_rng(3)

    def log_det(matrix):
        return np.linalg.slogdet(matrix)[1]

    for _ in range(200):
        d = int(rng.integers(1, 6))
        a = rng.standard_normal((d, d + 2))
        v, rows = a @ a.T + 0.1 * np.eye(d), rng.standard_normal((int(rng.integers(0, 5)), d))
        x, other = (z / np.linalg.norm(z) for z in rng.standard_normal((2, d)))
        u, bound = rows.T @ rows, np.log1p(1 / np.linalg.eigvalsh(v)[0])
        assert abs(log_det(v + u + np.outer(x, x)) - log_det(v + u)) <= bound + 1e-9
        assert abs(log_det(v + u + np.outer(x, x)) - log_det(v + u + np.outer(other, other))) <= bound + 1e-9
        worst = np.linalg.eigh(v)[1][:, 0]
        assert log_det(v + np.outer(worst, worst)) - log_det(v) == pytest.approx(bound)


def test_the_algorithm_knows_a_floor(key):
    """What it takes for lambda_min(V) is no larger, and not far below."""
    env = fb.envs.gap(3, 5, 6)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(50.0, 0.1), batch=S.private_logdet(5.0, max_syncs=20))
    bound = algo.bind(env.spec, 200)
    state = bound.init(key, env.spec)
    sensitivities = []
    rng = np.random.default_rng(0)
    for _ in range(20):
        a = rng.standard_normal((6, 9))
        v = (a @ a.T + 0.5 * np.eye(6)).astype(np.float32)
        estimate = state.estimate._replace(
            posterior=state.estimate.posterior._replace(inverse=jnp.linalg.inv(v)[..., None])
        )
        memory = bound._epoch(key, state._replace(estimate=estimate)).memory
        e2 = float(bound.schedule.epsilon) * 2 ** (2 / 3) / (1 + 2 ** (2 / 3))
        exact = np.log1p(1 / np.linalg.eigvalsh(v.astype(float))[0])
        sensitivities.append(float(memory.scale) * e2 / 2 / exact)
    assert min(sensitivities) >= 1
    assert max(sensitivities) < 2


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


def test_a_schedule_of_ones_own():
    """Even rounds of the first half."""

    @fb.pytree
    class BoundHalf(S.Bound):
        horizon: int

        def requests(self, key, t, memory, gained, since):
            return (t % 2 == 1) & (t < self.horizon // 2)

    class Half(Schedule):
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


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: S.every(0), ValueError, "batch must be >= 1, got 0"),
        (lambda: S.geometric(1.0), ValueError, "growth must be > 1, got 1.0"),
        (lambda: S.geometric(2, 0), ValueError, "first must be >= 1, got 0"),
        (lambda: S.logdet(0), ValueError, "threshold must be finite and > 0, got 0"),
        (lambda: S.logdet(-1.0), ValueError, "threshold must be finite and > 0, got -1.0"),
        (lambda: S.logdet("T"), ValueError, "threshold must be one of 'M log T', 'M\\^1.5', got 'T'"),
        (lambda: S.logdet(trigger="zc"), ValueError, "trigger must be one of 'zc24', 'dp20', got 'zc'"),
        (lambda: S.private_logdet(share=0), ValueError, "share must be in \\(0, 1\\), so that .* add up to 1, got 0"),
        (lambda: S.private_logdet(share=1.5), ValueError, "share must be in \\(0, 1\\), .* got 1.5"),
        (lambda: S.private_logdet(share="0.1"), TypeError, "share must be a number >= 0, got '0.1'"),
        (lambda: S.private_logdet(max_syncs=0), ValueError, "max_syncs must be >= 1, got 0"),
        (lambda: S.private_logdet().bind(SETTING._replace(epsilon=None)), ValueError, "spends a share of a budget"),
    ],
)
def test_bad_schedules(make, error, words):
    with pytest.raises(error, match=words):
        make()
