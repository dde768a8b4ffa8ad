"""Every statistic sees what it is for, on samples made with NumPy; and bounds are those of Clopper and Pearson."""

import math

import numpy as np
import pytest

from fedbandit_jax.audits.bounds import Event, Scheduled, choose, epsilon_bound, mean_bound, middle, mu_bound, show
from fedbandit_jax.audits.statistics import NAMES, LowBits, Panel, atoms
from fedbandit_jax.privacy import gaussian_epsilon

N, D, SHIFT, DELTA = 8192, 6, np.float32(0.05), 1e-5


def samples(noise, shift=SHIFT):
    """Views of data 0 and of data `shift` in every entry, (N, D) each, with independent noise(normal draw, rng)."""
    rng = np.random.default_rng(5)
    draws = [noise(rng.standard_normal((N, D), np.float32), rng) for _ in range(2)]
    return [(draw + moved).astype(np.float32) for draw, moved in zip(draws, (np.float32(0), np.float32(shift)))]


def normal(z, rng):
    return z


SEEN = {  # a law of the noise -> the noise, statistics that must see it, and the epsilon that they must show
    "left out": (lambda z, rng: z * (rng.random((N, 1)) > 0.01), ["atoms"], 1.0),
    "dropped": (lambda z, rng: np.where(np.abs(z) < 0.02, 0, z), ["atoms"], 2.5),
    "coarse": (lambda z, rng: np.round(4 * z) / 4, ["atoms"], 6),
    "half precision": (lambda z, rng: (8 * z).astype(np.float16).astype(np.float32), ["low bits"], 6),
    "bounded": (lambda z, rng: np.where(np.abs(z) > 2, z / 2, z), ["upper edge", "lower edge"], 0.6),
}


def shown(x, y, names=NAMES, flow=None):
    """What every statistic shows of epsilon at DELTA: fitted, chosen and tested on thirds of the views."""
    thirds = [np.array_split(rows, 3) for rows in (x, y)]
    panel, bound = Panel(*(part[0] for part in thirds), flow), epsilon_bound(DELTA)
    found = {}
    for name in names:
        (x1, x2), (y1, y2) = ([panel(name, rows) for rows in part[1:]] for part in thirds)
        _, event = choose(bound, x1, y1, 0.1)
        found[name] = show(bound, x2, y2, event, 0.0125)
    return found


@pytest.mark.parametrize("law", SEEN)
def test_flaws_are_seen_by_their_statistic(law):
    """And not by the linear one, which shows no more than under exact noise."""
    noise, names, least = SEEN[law]
    found = shown(*samples(noise))
    assert found["linear"] < 0.5
    for name in names:
        assert found[name] > least, found


def test_remainders_are_of_the_last_bits():
    """Of numbers up to 16, whose last bit is 2^-20: the last 6 bits of 2^-18 are 4, and of 1 none."""
    x = np.array([[16, 1], [2.0**-18, 1]], np.float32)
    fitted = LowBits.fit(np.tile(x, (4, 1)), np.tile(x[::-1] + np.array([[0, 0], [0, 1]], np.float32), (4, 1)))
    assert fitted.power[0] == 14
    np.testing.assert_array_equal(fitted.remainders(x)[:, 0], [0, 2.0**-4])


def scheduled(rng, moved, pure=1.0):
    """The time of a release tells of the user, by `pure`, and given the time the release is Gaussian."""
    early = rng.random(N) < 1 / (1 + np.exp(pure * (1 - 2 * (moved > 0))))
    shown = rng.standard_normal((N, 2), np.float32) + np.float32(moved) * np.float32([[0.6, 0.8]])
    return np.column_stack([early, np.where(early[:, None], shown, 9 - shown)]).astype(np.float32)


def test_schedules_and_releases_are_bounded_apart():
    """mu = 1.4 given the schedule, which spends 1: not more than that is shown of either, and most of it."""
    rng = np.random.default_rng(11)
    x, y = ([scheduled(rng, moved) for _ in range(3)] for moved in (0, 1.4))
    panel = Panel(x[0], y[0], np.array([True, False, False]))
    chosen = Scheduled.choose(panel.flow, x[1], y[1], 0.1)
    pure, mu = chosen.shown(chosen.columns(x[2]), chosen.columns(y[2]), 0.0083)
    assert 0.85 < pure < 1
    assert 1.2 < mu < 1.4
    together = shown(np.concatenate(x), np.concatenate(y), flow=np.array([True, False, False]))
    assert together["control flow"] > together["linear"]
    assert gaussian_epsilon(mu, 0.1, pure) < gaussian_epsilon(1.4, 0.1, 1.0)
    assert panel.flow(np.float32([[7, 0, 0]])) == 0  # what was never seen tells nothing
    assert abs(panel.flow.chances(np.float32([[0, 0, 0]]))[0] + 1) < 0.2


def test_noise_of_another_size_is_seen():
    """Nothing is moved; half of the noise in one of the two."""
    x, y = samples(normal, 0.0)
    assert shown(x, y / 2)["upper edge"] > 2


def test_differences_that_repeat_are_atoms():
    """Two entries share their noise in 2 % of the views: their difference is then what data make it."""
    rng = np.random.default_rng(6)

    def view(moved):
        rows = rng.standard_normal((N, D), np.float32)
        rows[:, 1] = np.where(rng.random(N) < 0.02, rows[:, 0] + moved, rows[:, 1])
        return rows

    found = atoms(view(np.float32(0)), view(np.float32(0.05)))
    pairs = {(int(left), int(right)) for left, right in zip(found.left, found.right)}
    assert pairs == {(0, 1)}
    np.testing.assert_allclose(sorted(found.place), [-0.05, 0], atol=1e-5)
    assert [np.sign(w) for _, w in sorted(zip(found.place, found.weight))] == [1, -1]


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_no_statistic_shows_more_than_there_is(mu):
    """Gaussian noise: epsilon at DELTA is known, and so is mu; the linear statistic shows nearly all of mu."""
    x, y = samples(normal, mu / D**0.5)
    assert max(shown(x, y).values()) < gaussian_epsilon(mu, DELTA)
    panel = Panel(x[::2], y[::2])
    tested = [panel("linear", rows[1::2]) for rows in (x, y)]
    found = show(mu_bound, *tested, middle(*tested), 0.0125)
    assert mu - 0.16 < found < mu  # the error of two rates of n = 4096 is 2 sqrt(1 / 2n) / phi(0), 2.24 times
    np.testing.assert_array_equal(panel.all(x)["linear"], panel("linear", x))


def test_constant_and_copied_entries_do_no_harm():
    x, y = samples(normal, 1.0)
    padded = [np.concatenate([rows, np.full_like(rows, 7.3), 3 * rows], 1) for rows in (x, y)]
    alone, among = (shown(*pair, ["linear"])["linear"] for pair in ((x, y), padded))
    assert among == pytest.approx(alone, abs=0.1)


def test_bounds_are_those_of_clopper_and_pearson():
    """An event that never happened in n = 100 runs of data and always in those of the neighbour, by hand."""
    zeros, ones, alpha = np.zeros(100), np.ones(100), 0.05
    rate = 1 - alpha ** (1 / 100)  # the largest p with (1 - p)^100 >= alpha
    by_hand = np.log((1 - rate - 0.01) / rate)
    assert show(epsilon_bound(0.01), zeros, ones, Event(1, 0.5), alpha) == pytest.approx(by_hand)
    assert show(epsilon_bound(0.01), ones, zeros, Event(-1, -0.5), alpha) == pytest.approx(by_hand)
    assert show(epsilon_bound(0.01), ones, zeros, Event(1, 0.5), alpha) == 0
    few = np.repeat([0.0, 1.0], [97, 3])  # 3 of 100: P(Binomial(100, 0.0757) <= 3) = 0.05
    assert show(epsilon_bound(0.0), few, ones, Event(1, 0.5), alpha) == pytest.approx(np.log((1 - 0.0757) / rate), 1e-3)


@pytest.mark.parametrize("delta", [1e-5, pytest.param(0.1, marks=pytest.mark.slow)])
def test_bounds_hold_as_often_as_they_say(delta):
    """500 times at equality, event chosen on other runs: at most 5 % above the truth, plus 3 errors; by means, too."""
    rng, mu, n, alpha = np.random.default_rng(8), 1.0, 500, 0.05 / 2
    above, d = np.zeros(4), math.sqrt(math.expm1(mu**2))  # d: where the bound by means is tight, if it is believed
    for _ in range(500):
        x, y, x2, y2 = (rng.standard_normal(n) + m for m in (0, mu, 0, mu))
        above[2] += mean_bound(x, x + d, 0.05) > mu
        above[3] += mean_bound(x, y + d - mu, 0.05) > mu
        bound = epsilon_bound(delta)
        above[0] += show(bound, x2, y2, choose(bound, x, y, 0.1)[1], alpha) > gaussian_epsilon(mu, delta)
        above[1] += show(mu_bound, x2, y2, middle(x, y), alpha) > mu
    assert (above / 500 <= 0.05 + 3 * (0.05 * 0.95 / 500) ** 0.5).all(), above


def test_every_threshold_is_charged_for_the_others():
    """So that no lucky tail wins: two values have two thresholds, each of which is tried at half of the level."""
    value, event = choose(epsilon_bound(0.01), np.zeros(100), np.ones(100), 0.05)
    rate = 1 - (0.05 / 2) ** (1 / 100)
    assert value == pytest.approx(np.log((1 - rate - 0.01) / rate))
    assert event == Event(1, 0.5)


def test_both_directions_are_tried():
    """An event that is rare under the neighbour alone shows as much as one that is rare under data alone."""
    rng = np.random.default_rng(7)
    low, mixed = rng.random(4000), np.where(rng.random(4000) < 0.1, 2.0, rng.random(4000))
    for x, y in ((low, mixed), (mixed, low)):
        value, event = choose(epsilon_bound(1e-5), x, y, 0.05)
        assert show(epsilon_bound(1e-5), x, y, event, 0.0125) > 4
        assert value > 3
