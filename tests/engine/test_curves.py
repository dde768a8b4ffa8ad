"""Curves of steps that cover as many users as they find, against user after user."""

import jax
import numpy as np
import pytest
from helpers import refused

from fedbandit_jax.engine.curves import RoundTally, StretchTally
from fedbandit_jax.interfaces import Metrics, Report, Status

STEPS, SEEDS, CONFIGS, P, T = 6, 3, 2, 4, 100


def reported(rng, shape, **more):
    floats = rng.integers(0, 2**20, (*shape, 2)).astype(np.float32)
    bits = rng.integers(1, 64, (*shape, 2)).astype(np.float32)
    return Report(rounds=rng.integers(0, 2, shape), floats=floats, float_bits=bits, **more)


def counted(report, s, c, ends, at):
    """What a run has sent by rounds `at`, if its steps end at `ends`, step by step."""
    one = jax.tree.map(lambda x: x[:, s, c], report)
    sent = {
        "rounds": one.rounds,
        "floats": one.floats.sum(-1),
        "bits": (one.floats.astype(float) * one.float_bits).sum(-1),
    }
    each = sent | one.counts
    return {name: [sum(x[k] for k in range(len(ends)) if ends[k] <= t) for t in at] for name, x in each.items()}


@pytest.fixture
def steps():
    """Metrics of six steps of three seeds in two configurations, each with T = 100 users in all, some with none."""
    rng = np.random.default_rng(0)
    rounds = rng.multinomial(T, np.full(STEPS * P, 1 / (STEPS * P)), (SEEDS, CONFIGS)).reshape(SEEDS, CONFIGS, STEPS, P)
    rounds[:, :, 1:3, 0] += rounds[:, :, 1:3, 1]
    rounds[:, :, 1:3, 1] = 0  # empty stretches
    rounds[0, 0, 0] += rounds[0, 0, 4] + rounds[0, 0, 5]
    rounds[0, 0, 4:] = 0  # a run that has reached its horizon
    shape = (STEPS, SEEDS, CONFIGS)
    rounds, gap, status = np.moveaxis(rounds, 2, 0), rng.random((*shape, P)).astype(np.float32), np.zeros(shape, int)
    status[2, 1, 0] = Status.NO_ESTIMATE
    gap[3, 2, 1, rounds[3, 2, 1].argmax()] = np.nan
    return Metrics(gap, reported(rng, shape, status=status, counts={"eliminations": rng.integers(0, 3, shape)}), rounds)


def add(record, metrics, first, last):
    return record.add(jax.tree.map(lambda x: x[first:last], metrics), [P] * (last - first))


@pytest.mark.parametrize("at", [np.arange(1, T + 1), np.array([1, 7, 50, 99, T])], ids=["every", "some"])
def test_stretches_are_a_curve_user_by_user(steps, at):
    """Bits of status are combined over steps, and a regret that is not finite is one."""
    record = add(StretchTally(at, CONFIGS, SEEDS), steps, 0, STEPS)
    assert record.played == CONFIGS * SEEDS * T
    curves = record.curves()
    assert curves.regret.shape == (CONFIGS, SEEDS, len(at))
    assert curves.regret.dtype == np.float64
    for c, s in np.ndindex(CONFIGS, SEEDS):
        regret, ends = [], []
        for k in range(STEPS):
            for slope, users in zip(steps.gap[k, s, c], steps.rounds[k, s, c]):
                regret += [slope] * users
            ends.append(len(regret))
        assert len(regret) == T
        np.testing.assert_allclose(curves.regret[c, s], np.cumsum(regret, dtype=float)[at - 1], rtol=1e-12)
        found = curves.communication | curves.counts
        for name, by_hand in counted(steps.report, s, c, ends, at).items():
            np.testing.assert_array_equal(found[name][c, s], by_hand)
            assert found[name].dtype == np.int64
    expected = np.zeros((CONFIGS, SEEDS), int)
    expected[0, 1], expected[1, 2] = Status.NO_ESTIMATE, Status.NOT_FINITE
    np.testing.assert_array_equal(curves.status, expected)


@pytest.mark.parametrize("rounds", [True, False])
def test_chunks_change_no_bit(steps, rounds):
    """Nor where sums of rounds are rounded, since gaps are of all sizes."""
    if rounds:
        steps = steps._replace(gap=steps.gap ** np.random.default_rng(1).integers(-9, 40, steps.gap.shape))
    fresh = (RoundTally if rounds else StretchTally)(np.arange(1, (STEPS * P if rounds else T) + 1), CONFIGS, SEEDS)
    whole, record = add(fresh, steps, 0, STEPS), fresh
    for first, last in ((0, 1), (1, 4), (4, 6)):
        record = add(record, steps, first, last)
    assert rounds or fresh.played == 0  # immutable
    for one, other in zip(jax.tree.leaves(record.curves()), jax.tree.leaves(whole.curves())):
        np.testing.assert_array_equal(one, other)


def test_runs_that_end_too_early_are_refused(steps):
    record = add(StretchTally(np.arange(1, T + 1), CONFIGS, SEEDS), steps, 0, 3)
    reached = steps.rounds[:3].sum((0, 3)).min()
    assert 0 < reached < T
    with refused("n_batches") as found:
        record.curves()
    assert f"ended after {reached}" in str(found.value)


def test_counters_beyond_float64s_integers(steps):
    """Bits of a shuffler: int64 while exact, float64 from 2^53 on."""
    large = steps._replace(report=steps.report._replace(floats=steps.report.floats * np.float32(2.0**40)))
    curves, report = add(StretchTally(np.array([T]), CONFIGS, SEEDS), large, 0, STEPS).curves(), large.report
    bits = (report.floats.astype(float) * report.float_bits).sum((0, 3))
    np.testing.assert_allclose(curves.communication["bits"][..., 0], bits.T)
    assert curves.communication["bits"].dtype == np.float64
    assert curves.communication["rounds"].dtype == np.int64


@pytest.mark.parametrize("at", [np.arange(1, 27), np.array([1, 4, 5, 18, 26])], ids=["every", "some"])
def test_rounds_are_a_curve_round_by_round(at):
    """Seven steps of four rounds in two chunks, the last of which are beyond T = 26."""
    rng = np.random.default_rng(1)
    shape = (7, SEEDS, CONFIGS)
    status = np.zeros(shape, int)
    status[1, 2, 0], status[4, 2, 0] = Status.NO_ESTIMATE, Status.OUTSIDE_SPEC
    report = reported(rng, shape, status=status)
    gap = rng.random((*shape, 4)).astype(np.float32)
    gap[0, 1, 1, 2] = np.inf
    gap[-1, :, :, 2:] = np.nan  # not played
    metrics = Metrics(gap, report, gauges={"size": rng.random(shape)})
    record = RoundTally(at, CONFIGS, SEEDS)
    for first, last in ((0, 3), (3, 7)):
        lengths = [4 if k < 6 else 2 for k in range(first, last)]
        record = record.add(jax.tree.map(lambda x, a=first, b=last: x[a:b], metrics), lengths)
    assert record.played == 26 * CONFIGS * SEEDS
    curves, ends = record.curves(), [min(4 * (k + 1), 26) for k in range(7)]
    for c, s in np.ndindex(CONFIGS, SEEDS):
        regret = np.cumsum(gap[:, s, c].ravel()[:26], dtype=float)
        np.testing.assert_allclose(curves.regret[c, s], regret[at - 1], rtol=1e-12)
        for name, by_hand in counted(report, s, c, ends, at).items():
            np.testing.assert_array_equal(curves.communication[name][c, s], by_hand)
        size = [
            metrics.gauges["size"][max(k for k in range(7) if ends[k] <= t), s, c] if t >= 4 else np.nan for t in at
        ]
        np.testing.assert_array_equal(curves.gauges["size"][c, s], size)
    expected = np.zeros((CONFIGS, SEEDS), int)
    expected[0, 2], expected[1, 1] = Status.NO_ESTIMATE | Status.OUTSIDE_SPEC, Status.NOT_FINITE
    np.testing.assert_array_equal(curves.status, expected)
