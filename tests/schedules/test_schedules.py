"""Schedules: when they ask, what noise they add, and what they refuse."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import gaps, stepped
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.interfaces import certify
from fedbandit_jax.schedules import Setting

S = fb.schedules
SETTING = Setting(4, 3, 1000, 0.5, 1.5, 2.0)


def private(privacy, schedule):
    """Private-FedLinUCB under this schedule."""
    return fb.algos.private_fed_lin_ucb(privacy, schedule=schedule)


START = jax.jit(lambda bound, key, floor: bound.start(key, floor))
ASK = jax.jit(lambda bound, key, t, memory, gained, since: bound.requests(key, t, memory, gained, since))


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
    assert asked(S.Every(7), np.zeros(4), 30) == [7, 14, 21, 28]
    assert S.Every(7).n_syncs(30) == 4
    assert S.Every(40).n_syncs(30) == 0
    assert (S.Every(7).longest(30), S.Every(40).longest(30), S.LogDet().longest(30)) == (7, 30, None)
    assert S.timing(S.Every(7).bind(SETTING)).longest == 7


@settings(max_examples=50, deadline=None)
@given(st.floats(1.01, 10), st.integers(1, 50), st.integers(1, 5000))
def test_geometric(growth, first, horizon):
    """Strictly rising from `first`, each at least growth times the one before and at most one round more."""
    rounds = S.Geometric(growth, first).rounds(horizon)
    assert len(rounds) == S.Geometric(growth, first).n_syncs(horizon)
    assert (rounds <= horizon).all()
    if first <= horizon:
        assert rounds[0] == first
        assert (rounds[1:] >= rounds[:-1] * growth).all()
        assert (rounds[1:] <= np.maximum(rounds[:-1] + 1, rounds[:-1] * growth + 1)).all()
        assert max(rounds[-1] + 1, math.ceil(rounds[-1] * growth)) > horizon
        assert S.Geometric(growth, first).longest(horizon) == max(np.diff([0, *rounds]))


def test_numbers_of_numpy_are_numbers():
    """Of 8 and 16 bits, which have no thousand."""
    assert S.Every(np.uint8(25)).n_syncs(1000) == 40
    assert S.Every(np.uint8(25)) == S.Every(25)
    wide = S.Geometric(np.float16(1.5), first=np.uint8(10)).rounds(1_000_000)
    np.testing.assert_array_equal(wide, S.Geometric(1.5, first=10).rounds(1_000_000))
    for schedule in (S.LogDet(max_syncs=np.uint8(9)), S.PrivateLogDet(max_syncs=np.uint8(9))):
        assert (type(schedule.n_syncs(1000)), schedule.n_syncs(1000)) == (int, 9)


def test_geometric_asks_when_it_says():
    schedule = S.Geometric(1.3, 5)
    assert asked(schedule, np.zeros(4), 60) == schedule.rounds(60).tolist()


def test_the_longest_batch_is_read_from_the_rounds_that_decide():
    """In any order, where some never come: rounds 30, 7, 7 and 0 end batches of 7 and of 23 rounds."""
    bound = S.Geometric().bind(SETTING)
    assert S.timing(bound).longest == 512 - 256
    for rounds, longest in (([30, 7, 7, 0], 23), ([9], 9), ([], 0)):
        assert S.timing(dataclasses.replace(bound, rounds=np.array(rounds, np.int32))).longest == longest


def test_logdet():
    """g = 0.1 of one agent: every ceil(D / g) rounds."""
    gained = np.array([0.0, 0.1, 0.05, 0.0])
    assert asked(S.LogDet(0.55), gained, 20) == [6, 12, 18]
    assert asked(S.LogDet(3.0), gained, 20) == []
    assert asked(S.LogDet(0.55, "he22"), gained, 200) == []
    assert asked(S.LogDet(0.09, "he22"), gained, 5) == [1, 2, 3, 4, 5]
    assert S.LogDet().n_syncs(20) == 20
    assert S.LogDet(max_syncs=7).n_syncs(20) == 7


def test_a_tie_with_the_threshold_is_decided_as_it_is_printed():
    """Line 8 of He et al. has det(V + U) > (1 + alpha) det V, and det(I + x x') = 2 for a unit vector x.

    Dubey & Pentland (2020), Algorithm 1, have ">=". Rounding of float32 decides neither.
    """
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


def test_the_noise_of_above_threshold(key):
    """Discrete Laplace of scale 64 / (share * epsilon), on thresholds and on sums; noise 10 % smaller is rejected."""
    n, share, epsilon = 40_000, 0.25, 2.0
    bound = S.PrivateLogDet(1.0, share=share).bind(SETTING._replace(n_agents=n, epsilon=epsilon))
    memory = START(bound, key, 2.0)
    assert float(memory.cap) == pytest.approx(math.log(1.5), rel=1e-5)
    scale = 64 / 0.5

    def fits(draws, scale):
        """Chi-square of twenty equally likely intervals, alpha = 1e-4."""
        edges = stats.laplace.ppf(np.arange(1, 20) / 20, scale=scale)  # lattice and line agree to 1/128
        counts = np.bincount(np.searchsorted(edges, draws), minlength=20)
        return stats.chisquare(counts).pvalue > 1e-4

    shift = np.asarray(memory.shift)
    assert fits(shift, scale)
    assert not fits(0.9 * shift, scale)
    # An answer's noise, from how often sums of 0 are above thresholds: P(noise >= h) is exp(-h / scale) / 2 to 1 /
    # scale.
    quiet = memory._replace(shift=np.zeros(n, np.int32))
    for h in (100, 200):
        above = dataclasses.replace(bound, threshold=np.float32(h * float(memory.cap) / 64))
        rate = np.asarray(ASK(above, jax.random.fold_in(key, h), 0, quiet, np.zeros(n, np.int32), 1)).mean()
        expected, error = 0.5 * math.exp(-h / scale), 4 / math.sqrt(4 * n)
        assert abs(rate - expected) < error
        if h == 200:
            assert abs(rate - 0.5 * math.exp(-h / (0.9 * scale))) > error


def test_what_one_user_adds(key):
    """At most 64 units, whatever she is and whatever float32 makes of V; rounded up, so that little is never
    nothing."""
    bound = S.PrivateLogDet().bind(SETTING)
    memory = START(bound, key, 10.0)
    leverage = np.array([0.1, 0.05, 1e-9, 0.0, 0.2, np.inf, np.nan], np.float32)
    assert jax.jit(bound.count)(memory, leverage).tolist() == [64, 33, 1, 0, 64, 64, 64]


@pytest.mark.slow
def test_noise_is_fresh(key):
    """Between agents, rounds and epochs."""
    bound = S.PrivateLogDet(1e-3).bind(SETTING._replace(n_agents=50))
    one, two = (bound.start(jax.random.fold_in(key, i), jnp.float32(1)).shift for i in range(2))
    assert len(np.unique(np.concatenate([one, two]))) > 90
    memory, nothing = bound.start(key, jnp.float32(1)), jnp.zeros(50, jnp.int32)
    asked = np.stack([bound.requests(jax.random.fold_in(key, t), t, memory, nothing, 1) for t in range(20)])
    assert 0 < asked.mean() < 1
    assert len(np.unique(asked, axis=0)) == 20
    assert len(np.unique(asked, axis=1).T) > 10


@pytest.mark.slow
def test_the_sum_that_is_read_is_a_close_bound(script, key):
    """log det (V + U) - log det V <= sum ln(1 + x' V^-1 x), of which the run's units are the rounding up."""
    algo = private(fb.privacy.Budget(1.0, 0.1), S.PrivateLogDet(1e6))
    bound = algo.bind(script.spec, 61)  # after as many rounds what is pending is handed over
    state, _ = stepped(gaps, RoundClock(env=script, algo=bound, horizon=60), np.arange(60), key)
    assert int(state.synced) == 0
    v, rows = (np.asarray(x, float) for x in (state.belief.gram, bound.mechanism.real(state.pending)))
    log_det = np.linalg.slogdet(v + rows[:, :-1, 0])[1] - np.linalg.slogdet(v)[1]  # of all agents together
    unit = float(state.memory.cap) / S.UNITS
    assert log_det < state.counted.sum() * unit < 1.1 * log_det + 180 * unit


@pytest.mark.slow
def test_tests_end_with_the_last_synchronisation(key):
    """Who has used up max_syncs is silent: a test that goes on after its first answer would tell more."""
    env = fb.envs.gap(3, 5, 4)
    algo = private(fb.privacy.Budget(50.0, 0.1), S.PrivateLogDet(1e-3, max_syncs=3))
    clock = RoundClock(env=env, algo=algo.bind(env.spec, 30), horizon=30)
    _, (asked, rounds) = stepped(lambda state, now: (state.asked, now.report.rounds), clock, np.arange(30), key)
    assert rounds.sum() == 3
    np.testing.assert_array_equal(asked.any(1), rounds == 1)


def test_shares_are_of_the_budget():
    """r visits spend r times the epsilon of a test; silos with budgets of their own each spend their share."""
    spec = fb.envs.gap(2, 5, 4).spec
    schedule = S.PrivateLogDet(5.0, share=0.2)
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(3.0, 0.1), unit=fb.privacy.Users(3))
    bound = private(mechanism, schedule).bind(spec, 50)
    assert float(bound.schedule.epsilon) == pytest.approx(0.2)
    assert certify(bound).schedule.endswith("(epsilon = 0.6)")
    assert certify(bound).epsilon_exact == pytest.approx(3.0, rel=1e-6)
    rounding = bound.mechanism.statistic.rounding(2 * bound.mechanism.longest)
    alone = fb.privacy.calibrate(
        fb.privacy.Budget(3.0, 0.1), n_syncs=50, users=fb.privacy.Users(3), pure=0.2, rounding=rounding
    )
    np.testing.assert_allclose(bound.mechanism.trust.std, alone.model.std[0])
    budgets = [fb.privacy.Budget(3.0, 0.1), fb.privacy.Budget(1.0, 0.1)]
    both = private(budgets, schedule).bind(spec, 50)
    np.testing.assert_allclose(both.schedule.epsilon, [0.6, 0.2], rtol=1e-6)
    one = dict(n_syncs=50, rounding=rounding)
    each = [fb.privacy.calibrate(b, pure=0.2 * b.epsilon, **one).model.std[0] for b in budgets]
    np.testing.assert_allclose(both.mechanism.trust.std, each, rtol=1e-6)
    assert [row[2] for row in certify(both).per_silo] == pytest.approx([3.0, 1.0], rel=1e-6)


def test_tests_are_charged_for_what_they_draw():
    """Of a bound run: less noise on the tests is more epsilon, and another class of tests leaks."""
    spec = fb.envs.gap(2, 5, 4).spec
    bound = private(fb.privacy.Budget(3.0, 0.1), S.PrivateLogDet(5.0, share=0.2)).bind(spec, 50)
    assert certify(bound).claim == "certified"
    louder = certify(dataclasses.replace(bound, schedule=dataclasses.replace(bound.schedule, epsilon=np.float32(6.0))))
    assert louder.claim == "none"
    assert louder.epsilon_exact > 6
    assert "(epsilon = 6)" in louder.schedule
    fields = {field.name: getattr(bound.schedule, field.name) for field in dataclasses.fields(bound.schedule)}
    assert S.timing(Quiet(**fields)).pure == 0  # what it says of itself is not asked
    quiet = certify(dataclasses.replace(bound, schedule=Quiet(**fields)))
    assert (quiet.claim, quiet.epsilon_exact) == ("none", np.inf)
    assert "the schedule leaks" in quiet.reason


@fb.pytree
class Quiet(S.BoundPrivateLogDet):
    """AboveThreshold without noise on the threshold, which says that it costs what the honest one does."""

    def start(self, key, floor):
        memory = super().start(key, floor)
        return memory._replace(shift=jnp.zeros_like(memory.shift))

    def timing(self):
        return super().timing()._replace(pure=1e-12)


@fb.pytree
class BoundHalf(S.BoundSchedule):
    """Even rounds of the first half."""

    horizon: int

    def requests(self, key, t, memory, gained, since):
        return (t % 2 == 1) & (t < self.horizon // 2)


@fb.pytree
class Greedy(BoundHalf):
    """Looks at what it says that it does not read."""

    def requests(self, key, t, memory, gained, since):
        return gained > 0


@fb.pytree
class Reader(BoundHalf):
    """Reads determinants, and says so."""

    reads = "log_det"

    def requests(self, key, t, memory, gained, since):
        return gained >= 0.5 / since


@fb.pytree
class Denier(Reader):
    """And denies it where it counts."""

    @property
    def raw(self):
        return ()

    def timing(self):
        return super().timing()._replace(fixed=True, pure=0.0)


@dataclasses.dataclass(frozen=True)
class Half(S.Schedule):
    kind: type = BoundHalf

    def n_syncs(self, horizon):
        return horizon // 4

    def bind(self, setting):
        return self.kind(horizon=setting.horizon)


@pytest.mark.slow
def test_a_schedule_of_ones_own(key):
    """Certified, for it is handed nothing that its users' data decide; and no more is released than it said."""
    env = fb.envs.gap(2, 5, 3)
    algo = private(fb.privacy.Budget(1.0, 0.1), Half())
    result = fb.simulate(env, algo, horizon=16, key=key, seeds=1)
    assert np.flatnonzero(np.diff(result.communication["rounds"][0], prepend=0)).tolist() == [1, 3, 5, 7]
    assert result.certificate.claim == "certified"
    assert result.certificate.releases == 4
    assert result.certificate.schedule == "of the caller's own"


class Squares(S.Fixed):
    def rounds(self, horizon):
        return np.arange(1, math.isqrt(horizon) + 1) ** 2


class Listed(S.Fixed):
    def __init__(self, listed):
        self.listed = listed

    def rounds(self, horizon):
        return self.listed


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        *(([50, 60], ValueError), ([5, 5, 10], ValueError), ([10, 5], ValueError), ([0, 5], ValueError)),
        *((np.array([[5, 10]]), ValueError), ([1.5, 7.2], TypeError), (None, TypeError), ([[1], [2, 3]], TypeError)),
    ],
)
def test_listed_rounds_rise_within_the_horizon(listed, error):
    """Noise is calibrated for as many releases as there are numbers."""
    schedule = Listed(listed)
    for use in (schedule.n_syncs, schedule.longest, lambda horizon: schedule.bind(SETTING._replace(horizon=horizon))):
        with pytest.raises(error, match=r"Listed\.rounds must (rise from 1|be an array of integers|have 1 dimension)"):
            use(40)


@pytest.mark.parametrize("none", [[], (), np.array([]), jnp.array([])])
def test_no_round_may_be_listed(none):
    schedule = Listed(none)
    assert (schedule.n_syncs(40), schedule.longest(40)) == (0, 0)


class SaysSo(Half):
    """Says that its batches are short, which nobody has proved."""

    def longest(self, horizon):
        return 1


def test_a_fixed_schedule_of_ones_own(key):
    """It is the list of its rounds, and so goes with secure aggregation; what only says that it is fixed does not."""
    env = fb.envs.gap(2, 5, 3)
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), trust="secagg")
    algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=Squares(), privacy=mechanism)
    bound = algo.bind(env.spec, 30)
    assert (bound.mechanism.batch, bound.mechanism.release.n_syncs) == (9, 5)
    assert asked(Squares(), np.zeros(4), 30) == [1, 4, 9, 16, 25]
    assert bound.guarantee().claim == "certified"
    with pytest.raises(ValueError, match="schedule whose batches are not fixed in advance, got 'secagg'"):
        algo.replace(schedule=SaysSo())


def test_a_schedule_is_handed_no_more_than_it_reads():
    """What says that it reads nothing is handed None, so that a mistake shows before anything runs."""
    algo = private(fb.privacy.Budget(1.0, 0.1), Half(Greedy))
    with pytest.raises(TypeError, match="NoneType"):
        algo.certificate(fb.envs.gap(2, 5, 3).spec, 20)


@dataclasses.dataclass(frozen=True)
class Bound(S.Schedule):
    """A schedule that binds to this."""

    bound: object

    def n_syncs(self, horizon):
        return 2

    def bind(self, setting):
        return self.bound


def asks(answer):
    """A schedule that reads nothing, and returns this."""
    made = type("Own", (S.BoundSchedule,), {"requests": lambda self, key, t, memory, gained, since: answer(t)})
    return private(fb.privacy.Budget(1.0, 0.1), Bound(fb.pytree(made)()))


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (lambda t: t, r"int32 of shape \(\)"),
        (lambda t: 1.0 * t, r"float32 of shape \(\)"),
        (lambda t: jnp.zeros(7, bool), r"bool of shape \(7,\)"),
        (lambda t: None, "None"),
        (lambda t: "yes", "'yes'"),
        (lambda t: (t > 3, t > 4), r"\(ShapeDtypeStruct\(shape=\(\), dtype=bool\), "),
        (lambda t: [True, False], r"\[ShapeDtypeStruct"),
    ],
)
def test_who_asks_is_a_bool(answer, got):
    with pytest.raises(TypeError, match=f"Own.requests must return a bool, or one for each of 2 agents, got {got}"):
        asks(answer).bind(fb.envs.gap(2, 5, 3).spec, 20)


@pytest.mark.parametrize(
    ("method", "answer", "error"),
    [
        ("start", "nothing", "Odd.start must return a pytree of numbers, got 'nothing'"),
        ("start", {"a": 1.0, "b": object()}, "Odd.start must return a pytree of numbers, got {'a': .*object"),
        ("count", jnp.zeros(2), r"Odd.count must return int32 of shape \(2,\), got float32 of shape \(2,\)"),
        ("count", jnp.zeros(3, jnp.int32), r"Odd.count must return int32 of shape \(2,\), got int32 of shape \(3,\)"),
        ("count", [1, 2], r"Odd.count must return int32 of shape \(2,\), got \[Shape"),
    ],
)
def test_what_a_schedule_remembers_and_counts_are_numbers(method, answer, error):
    @fb.pytree
    class Odd(S.BoundSchedule):
        reads = "users"

        def start(self, key, floor):
            return answer if method == "start" else ()

        def count(self, memory, leverage):
            return answer if method == "count" else jnp.ones(2, jnp.int32)

        def requests(self, key, t, memory, gained, since):
            return gained > 3

    with pytest.raises(TypeError, match=error):
        private(fb.privacy.Budget(1.0, 0.1), Bound(Odd())).bind(fb.envs.gap(2, 5, 3).spec, 20)


def test_a_schedule_that_calls_the_host_does_not_run():
    def hears(t):
        return jax.pure_callback(lambda t: np.bool_(True), jax.ShapeDtypeStruct((), bool), t)

    spec = fb.envs.gap(2, 5, 3).spec
    with pytest.raises(TypeError, match="Own.requests must compute its result .* got pure_callback"):
        asks(hears).certificate(spec, 20)
    assert asks(lambda t: t > 3).certificate(spec, 20).claim == "certified"


def test_releases_are_counted_in_integers():
    class Half(S.Every):
        def n_syncs(self, horizon):
            return horizon / 2

    with pytest.raises(TypeError, match=r"Half.n_syncs must be an integer >= 0, got 10.0"):
        private(fb.privacy.Budget(1.0, 0.1), Half(2)).bind(fb.envs.gap(2, 5, 3).spec, 20)


@pytest.mark.parametrize("kind", [Reader, Denier])
@pytest.mark.parametrize("make", [fb.algos.private_fed_lin_ucb, fb.algos.fed_ucb])
def test_schedules_that_read_data_leak(kind, make):
    """Whatever they say of themselves."""
    algo = make(fb.privacy.Budget(1.0, 0.1), schedule=Half(kind), learns_in_batch=False)
    found = algo.certificate(fb.envs.gap(2, 5, 3).spec, 20)
    assert (found.claim, found.epsilon_exact) == ("none", np.inf)


def test_schedules_are_checked_when_bound():
    class Nosy(BoundHalf):
        reads = "everything"

    spec = fb.envs.gap(2, 5, 3).spec
    with pytest.raises(ValueError, match="Nosy.reads must be one of 'nothing', 'log_det', 'users', got 'everything'"):
        private(fb.privacy.Budget(1.0, 0.1), Half(Nosy)).bind(spec, 20)
    with pytest.raises(TypeError, match="a schedule's bind must return an fb.schedules.BoundSchedule, got"):
        private(fb.privacy.Budget(1.0, 0.1), Half(dict)).bind(spec, 20)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: S.Every(0), ValueError, "batch must be >= 1, got 0"),
        (lambda: S.Geometric(1.0), ValueError, r"growth must be in \[1.001, 1000000\], got 1.0"),
        (lambda: S.Geometric(2, 0), ValueError, "first must be >= 1, got 0"),
        (lambda: S.LogDet(0), ValueError, "threshold must be finite and > 0, got 0"),
        (lambda: S.LogDet(-1.0), ValueError, "threshold must be finite and > 0, got -1.0"),
        (lambda: S.LogDet("T"), ValueError, "threshold must be a number > 0, 'M log T' or 'M.1.5', got 'T'"),
        (lambda: S.LogDet(trigger="zc"), ValueError, "trigger must be one of 'zc24', 'dp20', 'he22', got 'zc'"),
        (lambda: S.PrivateLogDet(trigger="dp20"), ValueError, "trigger must be one of 'zc24', 'he22', got 'dp20'"),
        (lambda: S.PrivateLogDet(share=0), ValueError, "share must be in \\(0, 1\\), so that .* add up to 1, got 0"),
        (lambda: S.PrivateLogDet(share=1.5), ValueError, "share must be in \\(0, 1\\), .* got 1.5"),
        (lambda: S.PrivateLogDet(share="0.1"), TypeError, "share must be a number >= 0, got '0.1'"),
        (lambda: S.PrivateLogDet(max_syncs=0), ValueError, "max_syncs must be >= 1, got 0"),
        (lambda: S.PrivateLogDet().bind(SETTING._replace(epsilon=1e-5)), ValueError, "must be at least 1e-05"),
        (lambda: S.PrivateLogDet().bind(SETTING._replace(epsilon=None)), ValueError, "spends a share of a budget"),
    ],
)
def test_bad_schedules(make, error, words):
    with pytest.raises(error, match=words):
        make()
