"""Estimates of an algorithm's worth from a log: unbiased where the model is wrong, with intervals that cover."""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.planning import evaluation


@pytest.fixture
def rng():
    return np.random.default_rng(7)


N, SILOS, HORIZON = 2400, 3, 60


def made(rng):
    """A log with silos of the same sizes, whose first arm has a mean that is not linear in z; all means, and shares."""
    z = rng.uniform(-1, 1, N)
    means = np.stack([0.25 + 0.5 * abs(z), np.full(N, 0.45), 0.45 - 0.3 * z], 1)
    shares = np.stack([0.2 + 0.4 * abs(z), np.full(N, 0.2), 0.6 - 0.4 * abs(z)], 1)
    arm = (rng.random(N)[:, None] > shares.cumsum(1)).sum(1)
    seen = (rng.random(N) < means[np.arange(N), arm]).astype(float)
    place = np.arange(N) % SILOS
    return dict(place=place, arm=arm, z=z, seen=seen, p=shares[np.arange(N), arm]), means, shares


def logged(log, **options):
    names = dict(silo="place", arm="arm", reward="seen", features=["z"], propensity="p")
    return fb.data.table(log, **names | options)


def oracle(env, rows, arms):
    weighted, robust, modelled, seen = 0.0, 0.0, 0.0, 0.0
    z = fb.envs.logged.joint(np.asarray(env.rows), np.asarray(env.arms), env.intercept) @ np.asarray(env.theta)
    means = 1 / (1 + np.exp(-z)) if env.fit.model == "logistic" else np.clip(z, 0, 1)
    for row, arm in zip(rows.ravel().tolist(), arms.ravel().tolist()):
        mean = means[row]
        w = (env.log.arm[row] == arm) / env.log.propensity[row]
        weighted += w * env.log.reward[row]
        robust += mean[arm] + w * (env.log.reward[row] - mean[env.log.arm[row]])
        modelled += mean[arm]
        seen += env.log.reward[row]
    return np.array([modelled, weighted, robust, robust - seen]) / rows.size


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_against_a_loop_over_visits(model, rng):
    env = logged(made(rng)[0], model=model)
    rows, arms = rng.integers(0, len(env.rows), 500), rng.integers(0, 3, 500)
    found = evaluation._value(env, rows, arms, 0.95)
    estimates = [found.model, *(one.mean for one in found[1:4])]
    np.testing.assert_allclose(estimates, oracle(env, rows, arms), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def covered():
    """Errors, and whether intervals hold, of an algorithm that learns from the models of 200 logs."""
    rng = np.random.default_rng(5)
    template, rows = logged(made(rng)[0]), []
    algo = fb.algos.fed_lin_ucb(schedule=10).bind(template.spec, HORIZON)
    record = {"arm": fb.record.arms, "row": evaluation._row}

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def run(env, key):
        return fb.rollout(env, algo, key, horizon=HORIZON, record=record).records

    for i in range(200):
        log, means, shares = made(rng)
        env = logged(log, seed=i)
        same = dataclasses.replace(env, fit=template.fit, spec=template.spec, encoding=template.encoding)
        records = run(same, jax.random.split(jax.random.key(i), 4))
        row, arm = np.asarray(records["row"]), np.asarray(records["arm"])
        value = evaluation._value(env, row, arm, 0.95)
        there = env.log.row[row]
        truth, of_log = means[there, arm].mean(), (means * shares).sum(1)[there].mean()
        truths = truth, truth, truth - of_log
        found = [(one.mean - true, one.low <= true <= one.high) for one, true in zip(value[1:4], truths)]
        rows.append([*found, (value.model - truth, 0)])
    return np.array(rows)  # (200, 4, 2): inverse propensities, doubly robust, minus the log, model


def test_intervals_cover(covered):
    share = covered[:, :3, 1].mean(0)
    assert (share >= 0.92).all(), share
    assert (share <= 0.99).all(), share  # cautious, as another row may weigh most, and not idle


def few(rng, n, n_arms, mean):
    """Weights of rows that showed one of many arms: all may have the same reward by chance."""
    return (rng.random(n) < 1 / n_arms) * float(n_arms)


def uneven(rng, n, n_arms, mean):
    """Of log-normal propensities: rows that weigh most are seldom there, and 70 rows count."""
    p = np.clip(np.exp(rng.normal(size=n)) / 5, 1e-3, 0.95)
    return (rng.random(n) < p) / p


WEIGHTS = [(few, 300, 20, 0.1), (few, 300, 20, 0.9), (few, 300, 60, 0.1), (few, 100, 20, 0.5), (uneven, 1000, 0, 0.9)]


@pytest.mark.parametrize(("weights", "n", "n_arms", "mean"), WEIGHTS)
@pytest.mark.parametrize("fit", [0, 1])
def test_intervals_cover_where_few_rows_count(weights, n, n_arms, mean, fit, rng):
    held, error = np.zeros(2), 3.5 * np.sqrt(0.95 * 0.05 / 1000)
    for _ in range(1000):
        w, y = weights(rng, n, n_arms, mean), (rng.random(n) < mean) * 1.0
        counted = w.sum() ** 2 / max((w**2).sum(), 1e-9), float(n_arms) or w.max()
        for i, of in enumerate(((fit * mean + w * (y - fit * mean), np.ones(n)), (w * y, w))):
            _, low, high = evaluation._interval(*of, 0.95, *counted)
            held[i] += low <= mean <= high
    assert (held / 1000 > 0.95 - error).all(), held


@pytest.mark.parametrize("p", [1e-5, 1e-30, 1.2e-38])
def test_one_row_of_a_tiny_propensity(p, rng, key):
    """All numbers are finite and hold the truth, and the doubt names the row and its propensity."""
    log = made(rng)[0]
    row = int(logged(log).log.row[5])
    log["p"][row] = p
    env = logged(log)
    rows = np.arange(len(env.rows))
    value = evaluation._value(env, rows, np.asarray(env.log.arm), 0.95)
    assert np.isfinite(np.concatenate([np.ravel(one) for one in value])).all()
    assert value.rows < 2
    assert all(one.low <= 0.5 <= one.high for one in value[1:3])
    found = fb.off_policy(env, {"any": fb.algos.Uniform()}, horizon=HORIZON * 10, key=key, seeds=2)
    assert found["any"].rows < 2  # the row was met, and its arm was played
    assert re.search(rf"any\. .* {p:.3g}, in row {row}\.", found.doubt)


def test_silos_weigh_alike_or_by_size(rng):
    """Of the rule that plays what was shown, under propensities of 1, that is the mean of silos or of rows."""
    log, *_ = made(rng)
    log = {
        name: column[np.sort(rng.choice(N, 600, p=(1 + log["place"]) / (1 + log["place"]).sum()))]
        for name, column in log.items()
    }
    env = logged(log, propensity=None)
    env = dataclasses.replace(env, log=env.log._replace(propensity=np.ones(len(env.rows))))
    starts, counts, reward = env.starts, env.counts, np.asarray(env.log.reward)
    rows = starts + rng.integers(0, counts, (400, SILOS))  # as they are served
    of_silos = [reward[rows[:, i]].mean() for i in range(SILOS)]
    for by_size, weights in ((False, None), (True, counts)):
        found = evaluation._value(env, rows, np.asarray(env.log.arm)[rows], 0.95, by_size)
        assert found.ips.mean == pytest.approx(np.average(of_silos, weights=weights))
        assert found.gain.mean == pytest.approx(0, abs=1e-6)


def test_estimates_are_unbiased_where_the_model_is_not(covered):
    errors = covered[..., 0]
    standard = errors.std(0) / np.sqrt(len(errors))
    assert (abs(errors.mean(0))[:3] < 3 * standard[:3]).all()
    assert abs(errors.mean(0)[3]) > 6 * standard[3]  # the model is wrong, and flatters what was learned from it
    less = errors[:, 0] ** 2 - errors[:, 1] ** 2  # and yet the doubly robust estimate varies less
    assert less.mean() > 3 * less.std() / np.sqrt(len(less))


def test_a_user_is_one_draw(rng):
    """Rows of one user who always answers alike count as one, and not as ten."""
    log, *_ = made(rng)
    once = {name: column[: N // 10] for name, column in log.items()}
    often = {name: np.repeat(column, 10) for name, column in once.items()} | dict(who=np.repeat(np.arange(N // 10), 10))
    wide, narrow = (logged(often, fit_share=0.5, **more) for more in (dict(user="who"), {}))
    rows = np.arange(len(wide.rows))
    arms = rng.integers(0, 3, N // 10)[np.asarray(often["who"])[wide.log.row]]
    widths = [one.high - one.low for env in (wide, narrow) for one in evaluation._value(env, rows, arms, 0.95)[1:3]]
    assert widths[0] > 2 * widths[2]
    assert widths[1] > 2 * widths[3]


def test_what_is_printed(rng, key):
    log, *_ = made(rng)
    log["shares"] = (np.bincount(log["arm"]) / N)[log["arm"]]
    env, algos = logged(log), {"plain": fb.algos.fed_lin_ucb(schedule=10)}
    values = fb.off_policy(env, algos, horizon=40, key=key, seeds=2, level=0.9, progress=False)
    found, text = values["plain"], str(values)
    assert "Values(plain)" in repr(values)
    assert "90 % intervals" in text
    assert env.fit.sentence in text
    assert f"{found.doubly_robust.mean:.4f} ({found.doubly_robust.low:.4f}" in text
    assert 1 < found.rows < len(env.rows)
    assert not values.doubt
    assert evaluation.STATED in text
    random = {"random": fb.algos.Uniform()}
    few = fb.off_policy(logged(log, propensity="shares"), random, horizon=3, key=key, seeds=1, progress=False)
    assert few.doubt.startswith(evaluation.OF_SHARES)
    assert "fewer than 50 rows count for random" in few.doubt
    assert evaluation.STATED not in str(few)
    for wrong in (0.8 * log["p"], np.full(N, 0.9)):
        env = logged(log | dict(p=wrong))
        text = evaluation.strange(env)
        assert f"1 / propensity is {(1 / env.log.propensity).mean(dtype=float):.4g}" in text
        assert "in the log, and 3 where" in text
    swapped = np.random.default_rng(0).permutation(log["p"])  # whose mean of 1 / propensity is right
    text = evaluation.strange(logged(log | dict(p=swapped)))
    assert re.search(r"of rows that showed arm \d, and of 0 for others, is .* in the log, and 1 where", text)
    with refused("env"):
        fb.off_policy(logged(made(rng)[0], propensity=None), algos, horizon=40, key=key)
