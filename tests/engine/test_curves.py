"""Curves, against adding up user after user: of steps of equal lengths, and of as many users as they find."""

import jax
import numpy as np
import pytest
from helpers import refused

from fedbandit_jax.engine.curves import RoundTally, StretchTally
from fedbandit_jax.interfaces import Metrics, Report, Status

STEPS, SEEDS, CONFIGS, P = 7, 3, 2, 4
SHAPE = (STEPS, SEEDS, CONFIGS)


def made(kind):
    """A tally's class, metrics of seven steps, their lengths, and what every run has played: (gap, step) of a round.

    Rounds: the last step ends after two of four. Stretches: lengths are random, some are 0, and one run ends early.
    """
    rng = np.random.default_rng(0)
    gap, status = rng.random((*SHAPE, P)).astype(np.float32), np.zeros(SHAPE, int)
    status[1, 2, 0], status[4, 2, 0] = Status.NO_ESTIMATE, Status.OUTSIDE_SPEC
    gap[0, 1, 1, 2] = np.inf
    report = Report(
        rounds=rng.integers(0, 2, SHAPE),
        floats=rng.integers(0, 2**20, (*SHAPE, 2)).astype(np.float32),
        float_bits=rng.integers(1, 64, (*SHAPE, 2)).astype(np.float32),
        status=status,
        counts={"eliminations": rng.integers(0, 3, SHAPE)},
    )
    if kind is RoundTally:
        gap[-1, :, :, 2:] = np.nan  # beyond the horizon
        lengths = np.full((*SHAPE, P), 1)
        lengths[-1, ..., 2:] = 0
        metrics = Metrics(gap, report, gauges={"size": rng.random(SHAPE)})
    else:
        lengths = np.moveaxis(rng.multinomial(26 - P, np.full(STEPS * P, 1 / (STEPS * P)), SHAPE[1:]), -1, 0)
        lengths = np.moveaxis(lengths.reshape(STEPS, P, SEEDS, CONFIGS), 1, -1)
        lengths[0] += 1  # of the first step, so that what is infinite is played
        lengths[0, 0, 0, 0] += lengths[5:, 0, 0].sum()
        lengths[5:, 0, 0] = 0
        metrics = Metrics(gap, report, lengths)
    return kind, metrics, lengths


def add(tally, metrics, parts=((0, STEPS),)):
    for first, last in parts:
        sizes = [P] * (last - first) if last < STEPS else [P] * (last - first - 1) + [2]
        tally = tally.add(jax.tree.map(lambda x, a=first, b=last: x[a:b], metrics), sizes)
    return tally


@pytest.mark.parametrize("kind", [RoundTally, StretchTally])
@pytest.mark.parametrize("at", [np.arange(1, 27), np.array([1, 4, 5, 18, 26])], ids=["every", "some"])
def test_user_by_user(kind, at):
    """Bits of status are combined over steps, and a regret that is not finite is one."""
    kind, metrics, lengths = made(kind)
    tally = add(kind(at, CONFIGS, SEEDS), metrics)
    assert tally.played == 26 * CONFIGS * SEEDS
    curves, report = tally.curves(), metrics.report
    sent = {"rounds": report.rounds, "floats": report.floats.sum(-1), "eliminations": report.counts["eliminations"]}
    sent["bits"] = (report.floats.astype(float) * report.float_bits).sum(-1)
    for c, s in np.ndindex(CONFIGS, SEEDS):
        played = np.repeat(metrics.gap[:, s, c].ravel(), lengths[:, s, c].ravel()).astype(float)
        np.testing.assert_allclose(curves.regret[c, s], np.cumsum(played)[at - 1], rtol=1e-12)
        ended = [lengths[:, s, c].sum(1).cumsum() <= t for t in at]
        for name, found in (curves.communication | curves.counts).items():
            np.testing.assert_array_equal(found[c, s], [sent[name][steps, s, c].sum() for steps in ended])
            assert found.dtype == np.int64
        for name, found in curves.gauges.items():
            last = [np.append(np.nan, metrics.gauges[name][steps, s, c])[-1] for steps in ended]
            np.testing.assert_array_equal(found[c, s], last)
    expected = np.zeros((CONFIGS, SEEDS), int)
    expected[0, 2], expected[1, 1] = Status.NO_ESTIMATE | Status.OUTSIDE_SPEC, Status.NOT_FINITE
    np.testing.assert_array_equal(curves.status, expected)


@pytest.mark.parametrize("kind", [RoundTally, StretchTally])
def test_chunks_change_no_bit(kind):
    """Nor where sums are rounded, since gaps of rounds are of all sizes."""
    kind, metrics, _ = made(kind)
    if kind is RoundTally:
        metrics = metrics._replace(gap=metrics.gap ** np.random.default_rng(1).integers(-9, 40, metrics.gap.shape))
    fresh = kind(np.arange(1, 27), CONFIGS, SEEDS)
    whole, parts = add(fresh, metrics), add(fresh, metrics, ((0, 1), (1, 4), (4, STEPS)))
    assert fresh.played == 0  # immutable
    for one, other in zip(jax.tree.leaves(parts.curves()), jax.tree.leaves(whole.curves())):
        np.testing.assert_array_equal(one, other)


def test_runs_that_end_too_early_are_refused():
    kind, metrics, lengths = made(StretchTally)
    reached = lengths[:3].sum((0, 3)).min()
    assert 0 < reached < 26
    with refused("n_batches") as found:
        add(kind(np.arange(1, 27), CONFIGS, SEEDS), metrics, [(0, 3)]).curves()
    assert f"ended after {reached}" in str(found.value)


def test_counters_beyond_float64s_integers():
    """Bits of a shuffler: int64 while exact, float64 from 2^53 on."""
    kind, metrics, _ = made(StretchTally)
    large = metrics.report._replace(floats=metrics.report.floats * np.float32(2.0**40))
    curves = add(kind(np.array([26]), CONFIGS, SEEDS), metrics._replace(report=large)).curves()
    bits = (large.floats.astype(float) * large.float_bits).sum((0, 3))
    np.testing.assert_allclose(curves.communication["bits"][..., 0], bits.T)
    assert curves.communication["bits"].dtype == np.float64
    assert curves.communication["rounds"].dtype == np.int64
