"""Recommendations: who goes through how much, who is recommended, and that it is the beginning of the real run."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import ENV, PRIVATE, simulate

import fedbandit_jax as fb
from fedbandit_jax.planning import recommend
from fedbandit_jax.planning.recommend import Begun

BUDGET, KEY = fb.privacy.Budget(1.0, 1e-5), jax.random.key(3)
SMALL = fb.envs.sphere(3, 4, 3, rewards="bernoulli")
GROUPS = "silo_local, every 10 rounds", "silo_local, from round 1 by 2.006"


def plan(env=SMALL, **options):
    return fb.plan(env, BUDGET, **{"horizon": 64, "key": KEY, "seeds": 3, "max_syncs": 6, **options})


class FakeSweep:
    """Losses that are what we say, times a factor for every seed; some runs may fail."""

    def __init__(self, failing=()):
        self.asked, self.failing = [], failing

    def __call__(self, env, algos, *, horizon, key, seeds, progress, throw):
        assert (key is KEY, throw) == (True, False)
        self.asked.append((horizon, algos))
        rounds, found = np.arange(1, horizon + 1), {}
        for label in algos:
            loss = 1.0 if label.startswith("not private") else 3.0 if "every" in label else 2.0
            loss *= 1 + float(label.rpartition(" ")[2]) ** 2
            status = np.array([label in self.failing] + [False] * (seeds - 1))
            regret = loss * np.array([0.9, 1.0, 1.1])[:seeds, None] * rounds
            found[label] = SimpleNamespace(rounds=rounds, regret=regret, status=status)
        return found


@pytest.fixture
def fake(monkeypatch):
    """Of two groups the worse one goes no further."""
    monkeypatch.setattr(recommend, "FINALISTS", 1)
    monkeypatch.setattr(recommend, "sweep", sweep := FakeSweep())
    return sweep


def able(found):
    return [one for one in found.candidates if not one.excluded]


def test_the_best_of_those_that_went_through_is_recommended(fake):
    found = plan()
    assert [one.forecast.rounds for one in able(found)] == [64, 64, 64, 8, 8, 8]
    assert {one.algo.schedule for one in able(found)[:3]} == {fb.schedules.Geometric(2.006, first=1)}
    assert [one.algo.policy.exploration_scale for one in able(found)] == [0.1, 0.3, 1.0] * 2
    assert found.best is able(found)[0]
    assert found.best.forecast.regret == pytest.approx(2 * 1.01 * 64)
    assert [one.algo.privacy for one in found.reference] == [None] * 3
    assert found.reference[0].forecast.regret == pytest.approx(1.01 * 64)
    (screened, first), (length, second) = fake.asked
    assert (screened, len(first), length, len(second)) == (8, 6, 64, 6)
    assert {one.full for one in [*first.values(), *second.values()]} == {64}
    assert [first[one.label].recipe for one in able(found)[3:]] == [one.algo for one in able(found)[3:]]


def test_few_groups_are_not_screened(fake, monkeypatch):
    monkeypatch.setattr(recommend, "FINALISTS", 2)
    assert {one.forecast.rounds for one in able(plan())} == {64}
    assert [horizon for horizon, _ in fake.asked] == [64]


@pytest.mark.parametrize(("horizon", "rounds", "longest"), [(64, None, 64), (10**6, None, 333_333), (64, 20, 20)])
def test_how_much_is_simulated(fake, monkeypatch, horizon, rounds, longest):
    monkeypatch.setattr(
        recommend, "forecast", lambda at, regret, end, most: fb.planning.Forecast(1.0, 1.0, 1.0, at[-1], 3)
    )
    monkeypatch.setattr(FakeSweep, "__call__", lambda *_, horizon, **__: fake.asked.append(horizon) or Everything())
    plan(horizon=horizon, rounds=rounds)
    assert fake.asked == [max(8, longest // 8), longest]


class Everything:
    def __getitem__(self, label):
        return SimpleNamespace(rounds=[8], regret=np.ones((3, 1)), status=np.zeros(3))


def test_it_prints_what_it_found(fake):
    text = str(found := plan())
    assert "M = 3 silos, K = 4 arms, d = 3, T = 64 rounds" in text
    assert f"recommended: {found.best.label}" in text
    assert "secagg: it needs trust in secure aggregation" in text
    assert "noise gives   epsilon = 1 at delta = 1e-05" in text
    assert text.count("12% of T") == 1, "of a group that went no further the best is shown"
    assert text.count("100% of T") == 4
    assert "(?)" not in text
    rows = {line.split("  ")[0]: line.split("  ") for line in text.splitlines()}
    assert " 2.00 " in "  ".join(rows[found.best.label])
    assert " 1.00 " in "  ".join(rows[found.reference[0].label])


def test_what_is_too_short_is_marked(fake):
    text = str(plan(horizon=1000, rounds=100))
    assert "(?) so short a part of the horizon was simulated" in text
    assert text.count("(?)") == 6


@pytest.mark.slow
def test_nothing_meets_less_than_one_message(fake):
    found = plan(max_syncs=None, max_bits=100)
    assert (found.best, found.reference, fake.asked) == (None, (), [])
    assert "Nothing meets these demands." in str(found)
    assert "are more than 100" in found.candidates[0].excluded


def test_runs_that_fail_are_not_recommended(fake):
    fake.failing = [f"{GROUPS[1]}, width x 0.1"]
    found = plan()
    assert found.best.label != fake.failing[0]
    assert {one.label: one.excluded for one in found.candidates}[fake.failing[0]] == "1 of its runs failed"


def test_if_all_fail_nothing_is_recommended(fake):
    fake.failing = [f"{group}, width x {scale:g}" for group in GROUPS for scale in (1, 0.3, 0.1)]
    assert plan().best is None


def test_users_who_return_must_be_counted():
    env = fb.envs.clustered(n_users=6, n_servers=1, n_clusters=2, n_arms=4, dim=5)
    with pytest.raises(ValueError, match="visits must say how often one of the 6 users may come, got None"):
        plan(env)


def test_a_run_that_has_begun_is_the_beginning_of_the_whole(same_noise):
    """With the noise of 8 synchronisations, though 4 happen."""
    begun = simulate(algo=Begun(recipe=PRIVATE, full=40), horizon=24)
    np.testing.assert_allclose(begun.regret, simulate().regret[:, :24], rtol=1e-5)
    assert Begun(recipe=PRIVATE, full=40).bind(ENV.spec, 24).n_syncs == 8
    assert begun.certificate.noise_std == PRIVATE.certificate(ENV.spec, 40).noise_std


@pytest.mark.slow
def test_a_whole_run_is_predicted_as_it_is(same_noise):
    """The seeds are those of `simulate`, so that nothing is left to predict but their mean."""
    found = plan()
    alike = {one.label: one.algo for one in found.candidates if one.group == found.best.group}
    result = fb.sweep(SMALL, alike, horizon=64, key=KEY, seeds=3)  # as many beside each other, for the same rounding
    run = result[found.best.label]
    assert found.best.forecast.regret == pytest.approx(run.regret[:, -1].mean(), rel=1e-5)
    assert run.certificate == found.best.certificate
    assert run.communication["rounds"][0, -1] == found.best.syncs
    assert run.communication["bits"][0, -1] == 3 * found.best.bits
