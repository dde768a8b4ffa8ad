"""Predictions of regret: exact where a curve is what the model says, and wider the less is known."""

import numpy as np
import pytest

from fedbandit_jax.planning import forecast as module
from fedbandit_jax.planning.forecast import doublings, forecast

ROUNDS = np.arange(1, 1025)


def curves(slope, *factors):
    """Regret that grows by 2^slope times as much in every doubling of time."""
    curve = ROUNDS**slope if slope else np.log(ROUNDS)
    return np.array([factor * curve for factor in factors])


@pytest.mark.parametrize("slope", [-1.0, 0.0, 0.5])
def test_doublings_add_up(slope):
    """From T0 to 8 T0 there are three, each 2^slope times the one before."""
    assert doublings(8.0, slope) == pytest.approx(sum(2 ** (slope * i) for i in (1, 2, 3)))
    assert doublings(1.0, slope) == 0
    assert doublings(3.0, 1e-7) == pytest.approx(doublings(3.0, 1e-5), rel=1e-3)


def test_a_tail_of_the_usual_kind_is_predicted():
    """If nothing but the law of the tail was simulated wrongly, a prediction is what the curve goes on as."""
    curve = 10 - ROUNDS ** float(module.USUAL)
    found = forecast(ROUNDS[:128], curve[None, :128].repeat(2, 0), 1024)
    assert found.regret == pytest.approx(curve[-1], rel=1e-3)
    assert found.low < found.regret < found.high


@pytest.mark.parametrize("slope", [-0.9, -0.4, 0.0, 0.5, 1.0])
def test_tails_of_other_kinds_are_within_the_interval(slope):
    curve = curves(slope, 1.0, 1.0)
    curve = curve if slope >= 0 else 2 - curve
    found = forecast(ROUNDS[:128], curve[:, :128], 1024)
    assert found.low <= curve[0, -1] <= found.high * (1 + 1e-9)
    assert found.high > found.low


def test_a_whole_run_is_its_own_prediction():
    """What is left is that seeds differ: Student's t of logarithms."""
    curve = curves(0.5, 1.0, 2.0, 4.0)
    found = forecast(ROUNDS, curve, 1024)
    assert found.regret == pytest.approx(curve[:, -1].mean())
    factor = np.exp(4.302653 * np.log(2) / np.sqrt(3))  # the 97.5 % quantile of t with 2 degrees of freedom
    assert (found.regret / found.low, found.high / found.regret) == pytest.approx((factor, factor), rel=1e-6)
    assert (found.rounds, found.seeds, found.tried(1024)) == (1024, 3, True)


def test_coverage_of_whole_runs():
    """Of log-normal seeds with a deviation of a third, 4 a time: 95 % up to 2.5 standard errors of 1,000 trials."""
    rng = np.random.default_rng(0)
    law = rng.lognormal(0.0, 0.33, (1000, 4, 1))
    found = [forecast(np.array([5]), regret, 5) for regret in law]
    truth = np.exp(0.33**2 / 2)
    inside = np.mean([one.low <= truth <= one.high for one in found])
    assert abs(inside - 0.95) < 2.5 * np.sqrt(0.95 * 0.05 / 1000)


def test_less_is_known_of_what_is_further():
    curve = curves(0.2, 1.0, 1.2)
    widths = [found.high / found.low for found in (forecast(ROUNDS[:n], curve[:, :n], 1024) for n in (1024, 512, 128))]
    assert widths == sorted(widths)
    assert forecast(ROUNDS[:128], curve[:, :128], 1024).tried(1024)
    assert not forecast(ROUNDS[:127], curve[:, :127], 1024).tried(1024)


def test_nothing_lost_is_no_error():
    """One more seed may lose as much as there is to lose."""
    found = forecast(ROUNDS[:8], np.zeros((2, 8)), 1024)
    assert (found.low, found.regret, found.high) == (0, 0, np.inf)
    assert np.isfinite(forecast(ROUNDS[:8], np.zeros((2, 8)), 1024, 10.0)).all()


@pytest.mark.parametrize("chance", [0.01, 0.1, 0.2])
def test_what_was_never_seen_is_within_the_interval(chance):
    """A policy that mostly loses nothing, and else all: intervals miss the mean in at most one case of twenty."""
    rng, rounds = np.random.default_rng(0), np.arange(1, 9)
    lost = rng.random((2000, 16)) < chance
    never = lost[~lost.any(1)]
    high = [forecast(rounds, np.zeros((16, 8)), 8, 1000.0).high] * len(never)
    missed = np.sum(np.array(high) < chance * 1000) / len(lost)
    assert missed <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(lost))


def test_no_more_than_all_is_lost():
    """Of two seeds that differ much the interval is wide; but no more than every reward can be lost."""
    regret = np.cumsum(np.array([[0.001], [1.0]]) * np.ones((2, 100)), 1)
    assert forecast(np.arange(1, 101), regret, 100).high > 1e6
    found = forecast(np.arange(1, 101), regret, 100, 100)
    assert found.high == 100
    assert found[:2] == forecast(np.arange(1, 101), regret, 100)[:2]
