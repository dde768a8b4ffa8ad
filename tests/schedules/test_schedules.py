"""Schedules: when they ask, what they cost, and what those of one's own may do."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import recalibrated, refused

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.schedules import Setting

S = fb.schedules
SETTING = Setting(4, 3, 1000, 0.5, 1.5, 2.0)
BUDGET = fb.privacy.Budget(1.0, 0.1)
SPEC = fb.envs.gap(2, 5, 3).spec
KEY = jax.random.key(0)
GAINED = np.array([0.0, 0.1, 0.05, 0.0])  # g = 0.1 of one agent: every ceil(D / g) rounds


START = jax.jit(lambda bound: bound.start(KEY, jnp.float32(1)))
ASKS = jax.jit(lambda bound, t, *given: bound.requests(KEY, t, *given))


class Squares(S.Fixed):
    def rounds(self, horizon):
        return np.arange(1, math.isqrt(horizon) + 1) ** 2


class Listed(S.Fixed):
    def __init__(self, listed):
        self.listed = listed

    def rounds(self, horizon):
        return self.listed


def private(schedule, privacy=BUDGET):
    """Private-FedLinUCB under this schedule."""
    return fb.algos.private_fed_lin_ucb(privacy, schedule=schedule)


def asked(schedule, horizon):
    """Rounds in which a schedule asks, given constant g_i, synchronising whenever it does; noise is below one unit."""
    gained = np.int32(100 * GAINED) if isinstance(schedule, S.PrivateLogDet) else GAINED
    bound = schedule.bind(SETTING._replace(horizon=horizon, epsilon=1e6))
    memory, last, rounds = START(bound), 0, []
    for t in range(horizon):
        if np.any(ASKS(bound, t, memory, gained, t + 1 - last)):
            rounds.append(t + 1)
            last = t + 1
    return rounds


@pytest.mark.parametrize(
    ("schedule", "horizon", "rounds"),
    [
        (S.Every(7), 30, [7, 14, 21, 28]),
        (S.Every(40), 30, []),
        (S.Geometric(1.3, 5), 30, [5, 7, 10, 13, 17, 23, 30]),
        (S.Geometric(1.01, 3), 7, [3, 4, 5, 6, 7]),
        (S.Every(np.uint8(200)), 700, [200, 400, 600]),  # 8 bits have no 400
        (S.Geometric(np.float16(1.5), np.uint8(200)), 700, [200, 300, 450, 675]),
        (Squares(), 30, [1, 4, 9, 16, 25]),
        *((Listed(none), 30, []) for none in ([], (), np.array([]), jnp.array([]))),
        (S.LogDet(0.55), 20, [6, 12, 18]),
        (S.LogDet(3.0), 20, []),
        (S.LogDet(0.55, "he22"), 200, []),
        (S.LogDet(0.09, "he22"), 5, [1, 2, 3, 4, 5]),
        (S.PrivateLogDet(0.55), 20, [6, 12, 18]),
        (S.PrivateLogDet(0.55, trigger="he22"), 20, []),
    ],
)
def test_when_they_ask(schedule, horizon, rounds):
    """Never more often than they say, and after no longer a batch, if they know it in advance."""
    assert asked(schedule, horizon) == rounds
    longest = schedule.longest(horizon)
    if isinstance(schedule, S.LogDet | S.PrivateLogDet):
        assert len(rounds) <= schedule.n_syncs(horizon) == horizon
        assert longest is None
        for most, n_syncs in ((2, 2), (horizon, horizon), (horizon + 1, horizon), (10 * horizon, horizon)):
            assert dataclasses.replace(schedule, max_syncs=most).n_syncs(horizon) == n_syncs
        return
    assert len(rounds) == schedule.n_syncs(horizon)
    assert longest == (max(np.diff([0, *rounds])) if rounds else min(getattr(schedule, "batch", 0), horizon))
    within = S.timing(schedule.bind(SETTING._replace(horizon=horizon))).longest
    assert within == (schedule.batch if isinstance(schedule, S.Every) else longest)


def test_a_tie_with_the_threshold_is_decided_as_it_is_printed():
    """det(V + U) > (1 + alpha) det V (He et al.), ">=" (Dubey & Pentland): rounding of float32 decides neither."""
    x = np.random.default_rng(0).standard_normal((10_000, 10)).astype(np.float32)
    gained = np.log1p((np.square(x / np.linalg.norm(x, axis=1, keepdims=True))).sum(1))
    assert gained.dtype == np.float32
    assert 0.1 < (gained > np.float32(math.log(2))).mean() < 0.9, "rounding goes both ways"
    since = np.int32(1)
    strict = S.LogDet(math.log(2), "he22").bind(SETTING)
    assert not strict.requests(None, 0, None, gained, since).any()
    assert strict.requests(None, 0, None, gained * np.float32(1 + 3e-6), since).all()
    for waited in (1, 2, 3):
        reached = S.LogDet(waited * math.log(2)).bind(SETTING)
        assert reached.requests(None, 0, None, gained, np.int32(waited)).all()
        assert not reached.requests(None, 0, None, gained * np.float32(1 - 3e-6), np.int32(waited)).any()


def test_thresholds_of_the_paper():
    """Theorem 1 and Remark 1 with M = 4, d = 3, T = 1000, rho = 0.5 .. 1.5."""
    bound = S.LogDet().bind(SETTING)
    assert float(bound.threshold) == pytest.approx(2 * 1000 * 3 / (math.log(3 + 1000 / 1.5) + 1))
    assert float(S.LogDet("M^1.5").bind(SETTING).threshold) == pytest.approx(1000 * math.log(4000) / 12)
    assert S.LogDet(trigger="dp20").shift(SETTING) == pytest.approx(4.0)
    assert S.LogDet().shift(SETTING) == 0


def test_shares_are_of_the_budget():
    """r visits spend r times the epsilon of a test; silos with budgets of their own each spend their share."""
    schedule, three = S.PrivateLogDet(5.0, share=0.2), fb.privacy.Budget(3.0, 0.1)
    bound = private(schedule, fb.privacy.Mechanism(three, unit=fb.privacy.Users(3))).bind(SPEC, 50)
    assert float(bound.schedule.epsilon) == pytest.approx(0.2)
    assert certify(bound).epsilon_exact == pytest.approx(3.0, rel=1e-6)
    rounding = bound.mechanism.statistic.rounding(2 * bound.mechanism.longest)
    alone = fb.privacy.calibrate(three, users=fb.privacy.Users(3), n_syncs=50)
    alone = recalibrated(alone, pure=3 * 0.2, rounding=rounding)
    np.testing.assert_allclose(bound.mechanism.trust.std, alone.model.std[0])
    budgets = [three, BUDGET]
    both = private(schedule, budgets).bind(SPEC, 50)
    np.testing.assert_allclose(both.schedule.epsilon, [0.6, 0.2], rtol=1e-6)
    plain = [fb.privacy.calibrate(budget, n_syncs=50) for budget in budgets]
    pure = [0.2 * budget.epsilon for budget in budgets]
    each = [recalibrated(one, pure=its, rounding=rounding).model.std[0] for one, its in zip(plain, pure)]
    np.testing.assert_allclose(both.mechanism.trust.std, each, rtol=1e-6)
    assert both.mechanism.trust.sum_std() == pytest.approx(np.linalg.norm(each), rel=1e-6)
    found = certify(both)
    assert (found.claim, found.epsilon) == ("certified", 3.0)
    asked, _, given = zip(*found.per_silo)
    assert asked == (3.0, 1.0) == pytest.approx(given, rel=1e-6)
    with refused("share * epsilon"):
        schedule.bind(SETTING._replace(epsilon=1e-5))


@dataclasses.dataclass(frozen=True)
class Own(S.Schedule):
    """A schedule that binds to this."""

    bound: object

    def n_syncs(self, horizon):
        return horizon // 4

    def bind(self, setting):
        return self.bound


def bound(asks, **members):
    """A bound schedule of one's own that asks by a function of t and of what it reads, which is nothing by default."""
    members["requests"] = lambda self, key, t, memory, gained, since: asks(t, gained)
    return fb.pytree(type("Odd", (S.BoundSchedule,), members))()


def half(t, gained):
    """Even rounds of the first half of 16."""
    return (t % 2 == 1) & (t < 8)


def much(t, gained):
    return gained >= 0.5


@pytest.mark.parametrize(
    "listed", [[50, 60], [5, 5, 10], [10, 5], [0, 5], np.array([[5, 10]]), [1.5, 7.2], None, [[1], [2, 3]]], ids=repr
)
def test_listed_rounds_rise_within_the_horizon(listed):
    """Noise is calibrated for as many releases as there are numbers."""
    schedule = Listed(listed)
    for use in (schedule.n_syncs, schedule.longest, lambda horizon: schedule.bind(SETTING._replace(horizon=horizon))):
        with refused("Listed.rounds"):
            use(40)


def test_a_fixed_schedule_of_ones_own():
    """It is the list of its rounds, and so goes with secure aggregation."""
    mechanism = fb.privacy.Mechanism(BUDGET, trust="secagg")
    algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=Squares(), privacy=mechanism)
    certified = algo.bind(SPEC, 30)
    assert (certified.mechanism.batch, certified.mechanism.release.n_syncs) == (9, 5)
    assert certified.guarantee().claim == "certified"


WRONG = {
    "requests": [
        *(lambda t: t, lambda t: 1.0 * t, lambda t: jnp.zeros(7, bool), lambda t: None, lambda t: "yes"),
        *(lambda t: (t > 3, t > 4), lambda t: [True, False]),
    ],
    "start": ["nothing", {"a": 1.0, "b": object()}],
    "count": [jnp.zeros(2), jnp.zeros(3, jnp.int32), [1, 2]],
    "reads": ["everything"],
}


@pytest.mark.parametrize("method", WRONG)
def test_what_methods_return_is_checked(method):
    """A bool, or one for each agent; a memory of numbers; a count of int32 for each; one of three statistics."""
    good = {"reads": "users", "count": lambda self, memory, leverage: jnp.ones(2, jnp.int32)}
    assert private(Own(bound(half, **good))).certificate(SPEC, 20).claim == "none"
    for value in WRONG[method]:
        asks = (lambda t, gained, value=value: value(t)) if method == "requests" else half
        wrong = {
            "start": lambda self, key, floor, value=value: value,
            "count": lambda self, memory, leverage, value=value: value,
            "reads": value,
        }
        members = {**good, method: wrong.get(method)}
        with refused(f"Odd.{method}"):
            private(Own(bound(asks, **members))).bind(SPEC, 20)


def test_a_schedule_that_calls_the_host_does_not_run():
    """Nor one that reads what it says that it does not: it is handed None."""

    def hears(t, gained):
        return jax.pure_callback(lambda t: np.bool_(True), jax.ShapeDtypeStruct((), bool), t)

    with refused("Odd.requests"):
        private(Own(bound(hears))).certificate(SPEC, 20)
    with pytest.raises(TypeError, match="NoneType"):
        private(Own(bound(much))).certificate(SPEC, 20)
    assert private(Own(bound(half))).certificate(SPEC, 20).claim == "certified"


def test_what_a_schedule_makes_is_checked():
    """Releases are counted in integers, and what is bound is a bound schedule."""

    class Halves(S.Every):
        def n_syncs(self, horizon):
            return horizon / 2

    with refused("Halves.n_syncs", 10.0):
        private(Halves(2)).bind(SPEC, 20)
    with refused("a schedule's bind"):
        private(Own({})).bind(SPEC, 20)
    with refused("schedule"):  # not a pytree
        private(Own(type("Bare", (S.BoundSchedule,), {})())).bind(SPEC, 20)
