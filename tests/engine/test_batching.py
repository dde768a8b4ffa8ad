"""Runs that branch on data go one by one on a CPU; wherever they go, they are the same."""

import jax
import numpy as np
import pytest
from helpers import in_chunks, same_runs, stopped_after

import fedbandit_jax as fb
from fedbandit_jax.engine.clocks import ArrivalClock
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.report.plotting.figure import in_words

ENV = fb.envs.clustered(7, 2, 2, n_arms=3, dim=3)
BUDGET = fb.privacy.Budget(50.0, 0.1)
ALGOS = {
    "open": fb.algos.FCLUB(upload=1.3, download=1.1),
    "cdp": fb.algos.FCLUB(budget=BUDGET, trigger="count", upload=1.5),
}
AUTHORS = fb.algos.UCB(confidence="authors")


def play(algos=ALGOS, **options):
    settings = dict(horizon=70, key=jax.random.key(3), seeds=3, stride=1, progress=False) | options
    return fb.sweep(ENV, algos, grid=dict(exploration_scale=[0.1, 1.0]), **settings)


@pytest.fixture(scope="module")
def whole():
    return play({"open": ALGOS["open"]})


@pytest.fixture(scope="module")
def private():
    return play({"cdp": ALGOS["cdp"]})


def test_what_is_recorded(whole):
    assert whole.regret.shape == (2, 3, 70)
    up, down = (whole.counts[name] for name in ("uploads", "downloads"))
    np.testing.assert_array_equal(whole.communication["rounds"], up + down)
    floats = 3 * 6 // 2 + 1
    np.testing.assert_array_equal(whole.communication["floats"], (up + down) * floats)
    assert (np.isnan(whole.gauges["clusters"]) == (np.arange(1, 71) < 64)).all()  # a step is 64 rounds
    assert (np.diff(whole.gauges["clusters"][..., 63:], axis=-1)[..., np.arange(64, 70) % 64 != 0] == 0).all()
    text = whole.summary()
    assert "7 users on 2 servers, T = 70 rounds" in text
    assert "adjusted Rand index on servers" in text


@pytest.mark.slow
def test_one_by_one_and_side_by_side_agree(private, monkeypatch):
    """Branches become selections under vmap; arithmetic is reassociated."""
    monkeypatch.setattr(ArrivalClock, "branches", False)
    together = play({"cdp": ALGOS["cdp"]})
    for label in together:
        same_runs(together[label], private[label], atol=1e-4)


@pytest.mark.slow
def test_a_seed_does_not_depend_on_the_others(whole):
    np.testing.assert_array_equal(play({"open": ALGOS["open"]}, seeds=2).regret, whole.regret[:, :2])


@pytest.mark.slow
def test_interrupted_runs_continue(tmp_path, monkeypatch, private):
    in_chunks(monkeypatch, 4)
    one = {"cdp": ALGOS["cdp"]}
    with stopped_after(1):
        play(one, checkpoint=tmp_path / "run")
    resumed = play(one, checkpoint=tmp_path / "run")
    for label in resumed:
        same_runs(resumed[label], private[label])


@pytest.mark.slow
def test_results_keep_gauges(tmp_path, private):
    private.save(tmp_path / "run")
    loaded = fb.Result.load(tmp_path / "run")
    same_runs(loaded, private)
    one = loaded["cdp(exploration_scale=1.0)"]
    np.testing.assert_array_equal(one.gauges["adjusted Rand index"], private.gauges["adjusted Rand index"][1])
    assert "gauges_adjusted Rand index" in loaded.to_xarray()
    linear = fb.simulate(ENV, fb.algos.fed_lin_ucb(schedule=7), horizon=70, key=jax.random.key(3), seeds=3, stride=1)
    both = fb.concat([loaded, linear])
    assert np.isnan(both["FedLinUCB"].gauges["clusters"]).all()


@pytest.mark.slow
def test_picture_of_a_gauge(whole):
    figure = fb.plotting.gauge(whole, "adjusted Rand index", band="deviation")
    (ax,) = figure.axes
    assert [line.get_label().split(":")[0] for line in ax.lines] == list(map(in_words, whole.labels))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), whole.gauges["adjusted Rand index"][0].mean(0))
    assert ax.get_ylim()[0] == 0
    assert fb.plotting.gauge(whole, "clusters", limits=(-1.0, 9.0)).axes[0].get_ylim() == (-1, 9)
    with pytest.raises(ValueError, match="name must be one of 'adjusted Rand index', .* got 'regret'"):
        fb.plotting.gauge(whole, "regret")
    with pytest.raises(ValueError, match="band must be one of 'error', 'deviation', got 'wide'"):
        fb.plotting.regret(whole, band="wide")


@fb.pytree
class Moving(Wrapper):
    """An environment whose world moves on."""

    n_clusters = 2

    def observe(self, key, world, t):
        return self.env.observe(key, world, t)[0], world._replace(thetas=world.thetas + 0.0)

    def clusters(self, world):
        return world.cluster


@pytest.mark.parametrize(
    ("env", "algo", "words"),
    [
        (Moving(env=ENV, spec=ENV.spec), fb.algos.CLUB(), "env.observe must return the world as it is"),
        (fb.envs.sphere(2, 3, 3), fb.algos.CLUB(), "CLUB is for users who are told apart"),
        (
            ENV,
            fb.algos.LinUCB(policy=AUTHORS),
            "confidence must be 'theory' where users are told apart",
        ),
    ],
)
def test_misfits_are_named(env, algo, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fb.simulate(env, algo, horizon=5, key=jax.random.key(0), seeds=1)


def test_arrivals_are_counted_in_float32():
    with pytest.raises(ValueError, match="horizon must be at most 16,777,216 arrivals, got 16,777,217"):
        fb.simulate(ENV, ALGOS["open"], horizon=2**24 + 1, key=jax.random.key(0), seeds=1)
