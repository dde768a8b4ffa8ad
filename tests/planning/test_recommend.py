"""Recommendations: who goes through how much, who is recommended, and that it is the beginning of the real run."""

import collections
import functools
import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import ENV, PRIVATE, refused, simulate

import fedbandit_jax as fb
from fedbandit_jax.planning import recommend
from fedbandit_jax.planning.candidates import candidates
from fedbandit_jax.planning.demands import Demands
from fedbandit_jax.planning.forecast import forecast
from fedbandit_jax.planning.recommend import Begun

BUDGET, KEY = fb.privacy.Budget(1.0, 1e-5), jax.random.key(3)
SMALL = fb.envs.sphere(3, 4, 3, rewards="bernoulli")
CACHED = functools.cache(recommend.candidates)  # found once for all plans of the same demands


def plan(env=SMALL, **options):
    return fb.plan(env, BUDGET, **{"horizon": 64, "key": KEY, "seeds": 3, "max_syncs": 6, **options})


def lost(label):
    """Regret per round, by which Thompson sampling with little spread is the best, and then UCB with a tenth."""
    family = label.split(", ")[1].partition(" by ")[0]
    base = {"UCB": 3.0, "Thompson": 2.5, "Greedy": 4.0, "EpsilonGreedy": 5.0, "AdaC-OFUL": 3.5}[family]
    number = [part.rpartition(" ")[2] for part in label.split(", ") if part.startswith(("width", "scale", "explore"))]
    return base * (1 + float(number[0]) ** 2 if number else 1) * (0.5 if label.startswith("not private") else 1)


def at(label):
    """The epsilon of a label of a plan with several budgets."""
    return label.partition(", ")[0].partition(" at epsilon ")[2]


class FakeSweep:
    """Losses that are what we say, times a factor for every seed; some runs may fail."""

    def __init__(self, failing=()):
        self.asked, self.failing, self.costs = [], failing, {}

    def __call__(self, env, algos, *, horizon, key, seeds, progress, throw):
        assert throw is False
        self.asked.append((horizon, key, seeds, algos))
        rounds, found = np.arange(1, horizon + 1), {}
        for label in algos:
            status = np.array([label in self.failing] + [False] * (seeds - 1))
            regret = lost(label) * self.costs.get(at(label), 1) * np.linspace(0.9, 1.1, seeds)[:, None] * rounds
            found[label] = SimpleNamespace(rounds=rounds, regret=regret, status=status)
        return found


@pytest.fixture
def fake(monkeypatch):
    """Of every group one candidate goes further, and three in all."""
    monkeypatch.setattr(recommend, "FINALISTS", 3)
    monkeypatch.setattr(recommend, "ALIKE", 1)
    monkeypatch.setattr(recommend, "SCREENED", 0)
    for name, values in dict(SCALES=(1.0, 0.1), DRAWS=(0.25,), COINS=(5.0,)).items():
        monkeypatch.setattr(f"fedbandit_jax.planning.candidates.{name}", values)  # there are fewer to bind
    monkeypatch.setattr(recommend, "candidates", CACHED)
    monkeypatch.setattr(recommend, "sweep", sweep := FakeSweep())
    return sweep


def able(found):
    return [one for one in found.candidates if not one.excluded]


def test_the_best_of_those_that_went_through_is_recommended(fake):
    """Screening is under other seeds, and fewer of them, than those that the best are compared under."""
    found = plan()
    further = [one for one in able(found) if one.forecast.rounds == 64]
    assert len(further) == 3
    assert {one.forecast.rounds for one in able(found)[3:]} == {8}
    assert [one.group.split(", ")[1] for one in further] == ["Thompson", "UCB", "AdaC-OFUL"]
    assert found.best is able(found)[0]
    assert "scale 0.25" in found.best.label
    assert found.best.forecast.regret == pytest.approx(2.5 * (1 + 0.25**2) * 64)
    assert (found.best.forecast.seeds, able(found)[3].forecast.seeds) == (12, 3)
    assert [one.algo.privacy for one in found.reference] == [None] * len(found.reference)
    assert {type(one.algo.policy).__name__ for one in found.reference} == {"Thompson", "UCB"}
    (screened, other, few, first), (length, key, many, second) = fake.asked
    assert (screened, few, length, many) == (8, 3, 64, 12)
    assert key is KEY
    assert (jax.random.key_data(other) != jax.random.key_data(KEY)).any()
    assert {one.full for one in [*first.values(), *second.values()]} == {64}
    assert len(second) == 3 + len(found.reference)
    assert all(first[one.label].recipe == one.algo for one in able(found))


def test_the_smallest_epsilon_within_the_demand_is_recommended(fake):
    """All budgets are simulated together, and compared with one reference without privacy."""
    budgets = [fb.privacy.Budget(epsilon, 1e-5) for epsilon in (4.0, 0.5, 1.0)]
    fake.costs = {"0.5": 1.1, "1": 0.8, "4": 0.6}
    for at_most, epsilon in ((2.1, 1.0), (2.3, 0.5), (1.1, None)):
        fake.asked.clear()
        found = fb.plan(SMALL, budgets, at_most=at_most, horizon=64, key=KEY, seeds=3, max_syncs=6)
        assert [one.epsilon for one in found.choices] == [0.5, 1.0, 4.0]
        assert [found.ratio(one) for one in found.choices] == pytest.approx([2.2, 1.6, 1.2])
        assert (found.best and found.best.epsilon) == epsilon
        assert found.best in (found.candidates[0], None)
        assert found.best is None or found.best.algo.privacy.budget in budgets
        (_, _, _, screened), (_, _, _, longest) = fake.asked
        assert {at(label) for label in screened} == {"0.5", "1", "4"}
        assert sorted(at(label) for label in longest if at(label)) == ["0.5"] * 2 + ["1"] * 2 + ["4"] * 2
        assert found.trade_off() in str(found)
    assert f"{found.ratio(found.choices[-1]):.2f} times" in found.unmet()
    assert found.choices[-1].label in found.unmet()
    assert len({one.label for one in found.candidates}) == len(found.candidates)


def test_the_intervals_of_the_best_hold_together(fake, monkeypatch):
    """By the union bound, so that the one of the best holds although it was chosen."""
    asked = []
    monkeypatch.setattr(recommend, "forecast", lambda *given: asked.append(given[-1]) or forecast(*given))
    plan()
    assert set(asked) == {1, 3}
    monkeypatch.setattr(recommend, "FINALISTS", 100)
    monkeypatch.setattr(recommend, "ALIKE", 100)
    assert {one.forecast.rounds for one in able(plan())} == {64}  # few candidates are not screened
    assert [horizon for horizon, *_ in fake.asked] == [8, 64, 64]
    few, many = (forecast(np.arange(1, 65), np.ones((4, 1)) * np.arange(1, 65) * [[1], [2], [3], [4]], 64, 1e9, of)
                 for of in (1, 3))  # fmt: skip
    assert many.low < few.low
    assert few.high < many.high


@pytest.mark.parametrize(
    ("horizon", "rounds", "screened", "longest"),
    [(64, None, 64, 64), (10**6, None, 41_666, 333_333), (64, 20, 20, 20), (10**5, None, 33_333, 100_000)],
)
def test_how_much_is_simulated(fake, monkeypatch, horizon, rounds, screened, longest):
    """All candidates for as many rounds as 10^5 users need, or an eighth."""
    run = SimpleNamespace(rounds=[8], regret=np.ones((3, 1)), status=np.zeros(3))
    every = collections.defaultdict(lambda: run)
    monkeypatch.setattr(recommend, "SCREENED", 100_000)
    monkeypatch.setattr(
        recommend, "forecast", lambda at, regret, end, most, of: fb.planning.Forecast(1.0, 1.0, 1.0, at[-1], 3)
    )
    monkeypatch.setattr(FakeSweep, "__call__", lambda *_, horizon, **__: fake.asked.append(horizon) or every)
    plan(horizon=horizon, rounds=rounds)
    assert fake.asked == [screened, longest]


def test_only_the_trust_model_with_the_least_noise_is_simulated(fake):
    """The others are said to have more noise; no policy gains by that."""
    found = plan(trusted=("secagg", "shuffler"))
    assert {one.algo.privacy.trust for one in able(found)} == {"secagg"}
    why = {one.label: one.excluded for one in found.candidates if one.excluded}
    assert set(why) == {"silo_local", "shuffle_vector_sum", "central"}
    assert "times that of secagg" in why["silo_local"]


def test_it_prints_what_it_found(fake):
    text = str(found := plan())
    for one, label in ((found, found.best.label), (found.best, found.best.label)):
        assert label in repr(one)
        assert len(repr(one)) < 1000
    assert "M = 3 silos, K = 4 arms, d = 3, T = 64 rounds" in text
    assert f"Use: {found.best.label}" in text
    assert "secagg: it needs trust in secure aggregation" in text
    assert text.count("12% of T") == 2, "of a group that went no further the best is shown"
    assert text.count("100% of T") == 4
    assert "(?)" not in text
    rows = {line.split("  ")[0]: line.split("  ") for line in text.splitlines()}
    assert " 2.00 " in "  ".join(rows[found.best.label])
    assert " 1.00 " in "  ".join(rows[found.reference[0].label])
    assert "(?) so short a part" in str(plan(horizon=1000, rounds=100))


def test_nothing_meets_a_budget_whose_noise_is_not_calibrated(fake):
    found = fb.plan(SMALL, fb.privacy.Budget(1.0, 1e-40), horizon=64, key=KEY)
    assert (found.best, found.reference, fake.asked) == (None, (), [])
    assert found.unmet() in str(found)
    assert "delta must" in found.candidates[0].excluded


def test_runs_that_fail_are_not_recommended(fake):
    found = plan()
    best, labels = found.best, [one.label for one in able(found)]
    fake.failing = [best.label]
    found = plan()
    assert found.best.label != best.label
    assert {one.label: one.excluded for one in found.candidates}[best.label] == "1 of its runs failed"
    fake.failing = labels
    assert plan().best is None


def test_it_is_planned_for_the_conditions_that_are_told(monkeypatch):
    """What candidates make of them is asked in test_candidates.py."""
    asked = []
    monkeypatch.setattr(recommend, "candidates", lambda demands: asked.append(demands) or [])
    found = plan(fb.envs.delay(fb.envs.dropout(fb.envs.sphere(9, 4, 3, rewards="bernoulli"), 0.1), 9), trusted="secagg")
    assert "T = 64 rounds; silos drop out; rewards come 9 rounds late\n" in str(found)
    assert "T = 64 rounds; 34% of the silos lie\n" in str(plan(liars=0.34))
    assert [(one.spec.drops, one.spec.late, one.away, one.liars) for one in asked] == [
        (True, 9, 4, 0.0),
        (False, 0, 0, 0.34),
    ]


@pytest.mark.parametrize(
    ("argument", "conditions"),
    [
        ("liars", dict(liars=0.1)),  # of three silos that is none
        ("liars", dict(liars=0.4, env=fb.envs.dropout(SMALL, 0.1))),
        ("env", dict(env=fb.envs.delay(SMALL, 64))),
        ("unit", dict(unit="user")),  # users are not told apart
        ("unit", dict(env=fb.envs.clustered(n_users=6, n_servers=1, n_clusters=2, n_arms=4, dim=5))),  # they are
    ],
)
def test_conditions_that_cannot_be_met(argument, conditions):
    with refused(argument):
        plan(**conditions)


def test_a_run_that_has_begun_is_the_beginning_of_the_whole(same_noise):
    """With the noise of 8 synchronisations, though 4 happen."""
    begun = simulate(algo=Begun(recipe=PRIVATE, full=40), horizon=24)
    np.testing.assert_allclose(begun.regret, simulate().regret[:, :24], rtol=1e-5)
    assert Begun(recipe=PRIVATE, full=40).bind(ENV.spec, 24).n_syncs == 8
    assert begun.certificate.noise_std == PRIVATE.certificate(ENV.spec, 40).noise_std


SEEDS, TRUTH, PREDICTIONS = 4, 24, 6  # of each prediction, of the truth, and how many predictions
SETTINGS = [  # environment, (epsilon, delta), T
    (fb.envs.sphere(30, 20, 4, rewards="bernoulli"), (1.0, 1e-5), 2000),
    (fb.envs.gap(20, 2, 2, gap=0.05), (1.0, 1e-3), 4000),
]
RATIOS = (1, 2, 4, 8)  # T / T0


@pytest.mark.slow
def test_intervals_contain_the_truth():
    """Of every fourth candidate: all trust models, schedules and widths are among them."""
    inside, widths = ({ratio: [] for ratio in RATIOS} for _ in range(2))
    for i, (env, budget, horizon) in enumerate(SETTINGS):
        demands = Demands(env.spec, horizon, fb.privacy.Budget(*budget), ("silo", "secagg", "server"), None, None)
        algos = {one.label: one.algo for one in candidates(demands) if not one.excluded}
        algos = dict(list(algos.items())[::4])
        options = dict(key=jax.random.key(100 + i), seeds=TRUTH + SEEDS * PREDICTIONS, stride=horizon // 400)
        result = fb.sweep(env, algos, horizon=horizon, **options, progress=False)
        for label, ratio in itertools.product(result, RATIOS):
            regret, seen = result[label].regret, result.rounds <= horizon // ratio
            truth = regret[:TRUTH, -1].mean()
            for first in range(TRUTH, len(regret), SEEDS):
                found = forecast(result.rounds[seen], regret[first : first + SEEDS, seen], horizon)
                inside[ratio].append(found.low <= truth <= found.high)
                widths[ratio].append(found.high / found.low)
    for ratio in RATIOS:
        assert np.mean(inside[ratio]) >= 0.9, ratio
        assert np.median(widths[ratio]) < 4, "an interval says something"
