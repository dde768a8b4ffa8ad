"""A log as an environment: encoding, fit, replay, users and silos, and what results say about the model."""

import dataclasses
import gzip
import itertools
import math
import sys

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
from handmade import made, visits
from helpers import ENV, PRIVATE, refused

import fedbandit_jax as fb
from fedbandit_jax.data import fit as fits
from fedbandit_jax.engine import identity
from fedbandit_jax.planning import demands
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.certification import OF_A_TABLE

HALF = math.sqrt(0.5)
LOG = visits()
ROLES = dict(silo="hospital", arm="drug", reward="cured")


def table(log=LOG, **options):
    return fb.data.table(log, **{**ROLES, **options})


def test_encoding_by_hand():
    """A number of mean 3 and deviation 1, a text of two levels and one of three."""
    log = dict(s=["a"] * 12, a=["u", "v"] * 6, r=list(range(12)), x=[2, 2, 4, 4] * 3, two=["p", "q", "q", "p"] * 3)
    log = {name: np.array(column) for name, column in log.items()}
    dear = log["a"] == "u"
    log |= {"k": np.where(dear, "dear", "cheap"), "h": np.where(dear, 1, 5)}
    roles = dict(silo="s", arm="a", reward="r")
    env = fb.data.table(log, **roles, features=["x"])
    z = np.array([-1, -1, 1, 1] * 3)[env.log.row] / 3
    np.testing.assert_allclose(env.rows, np.stack([1 + 0 * z, z], 1) / math.sqrt(1 + 1 / 9) * HALF, atol=1e-6)
    np.testing.assert_allclose(env.log.reward, np.asarray(env.log.row) / 11, atol=1e-6)
    assert env.encoding.startswith("x: (x - 3) / 3, in [-1, 1]\n")
    assert env.encoding.endswith("\nreward: (r - 0) / 11")
    described = fb.data.table(log, **roles, features=["two"], arm_features=["k", "h"], fit_share=0.8)
    two = (log["two"][described.log.row] == "q").astype(float)
    np.testing.assert_allclose(described.rows, np.stack([1 + 0 * two, two], 1) * HALF, atol=1e-6)
    w = np.array([[1, 1, -1 / 3], [1, 0, 1 / 3]]) / math.sqrt(2 + 1 / 9)  # u is dear, which comes after cheap
    np.testing.assert_allclose(described.arms, w, atol=1e-6)
    assert (described.spec.dim, described.intercept) == (6, None)
    three = fb.data.columns.Column("three", np.array([0, 1, 2, 0]), tuple("klm"))
    three = fb.data.design.encoded("features", [three], 4)
    np.testing.assert_allclose(three.rows * math.sqrt(2), np.insert(np.eye(3)[[0, 1, 2, 0]], 0, 1, axis=1), atol=1e-6)
    assert three.names == ("1", "three = k", "three = l", "three = m")


def test_units_do_not_matter_and_outliers_are_clipped():
    """However small or large units are: squares of such numbers may not be floats."""
    rows = table(features=["age"]).rows
    for size in (1e-320, 1e-200, 1e98):
        env = table({**LOG, "age": LOG["age"] * size}, features=["age"])
        np.testing.assert_allclose(env.rows, rows, atol=1e-3 if size < 1e-310 else 1e-6)
    log = visits(1000)
    env = table({**log, "age": np.where(np.arange(1000) == 3, 10_000, log["age"])}, features=["age"])
    assert "beyond which 0.1 % were clipped" in env.encoding
    assert np.abs(env.rows[:, 1] / env.rows[:, 0]).max() <= 1 + 1e-6


def test_one_row_that_differs_makes_contexts_vary():
    """Also where it is not replayed: what is public does not depend on the draw of rows."""
    same = (LOG["hospital"] == "A").astype(float)
    other = same.copy()
    other[int(np.argmax(LOG["hospital"] == "B"))] = 1
    for seed, (fixed, urban) in itertools.product(range(6), ((True, same), (False, other))):
        env = table({**LOG, "urban": urban}, features=["urban"], seed=seed)
        assert env.spec.fixed_contexts == fixed


def features(env, log):
    """The features of all rows with the arms they played, by NumPy, from the rows that are replayed and the others."""
    age = np.clip((log["age"] - log["age"].mean()) / (3 * log["age"].std()), -1, 1)
    z = np.stack([np.ones_like(age), age], 1)
    z = z / np.linalg.norm(z, axis=1).max() * HALF
    arm = np.unique(log["drug"], return_inverse=True)[1]
    blocks = np.zeros((len(age), 3, 2))
    blocks[np.arange(len(age)), arm] = z
    return np.concatenate([np.full((len(age), 1), HALF), blocks.reshape(len(age), -1)], 1)


@pytest.mark.parametrize("reward", ["cured", "days"])
def test_theta_is_that_of_least_squares(reward):
    env = table(reward=reward, features=["age"], fit_share=0.6)
    x, y = features(env, LOG), LOG[reward].astype(float)
    y = (y - y.min()) / (y.max() - y.min())
    fitted = np.setdiff1d(np.arange(len(y)), env.log.row)
    assert len(fitted) == env.fit.fitted_rows == pytest.approx(0.6 * len(y), abs=2)
    n, d = len(fitted), x.shape[1]
    more = np.concatenate([x[fitted], math.sqrt(n * fits.PENALTY) * np.eye(d)])
    theta = np.linalg.lstsq(more, np.append(y[fitted], np.zeros(d)), rcond=None)[0]
    np.testing.assert_allclose(env.theta, theta, atol=1e-4)
    mean, seen = np.clip(x[env.log.row] @ theta, 0, 1), y[env.log.row]
    loss, alone = ((seen - mean) ** 2).sum(), ((seen - y[fitted].mean()) ** 2).sum()
    assert env.fit.explained == pytest.approx(1 - loss / alone, abs=1e-5)
    assert env.fit.noise_std == pytest.approx(np.sqrt(((seen - mean) ** 2).mean()), abs=1e-5)
    arms = fb.envs.logged.joint(np.asarray(env.rows), np.asarray(env.arms), env.intercept)
    every = np.clip(np.asarray(arms) @ theta, 0, 1)
    assert (env.fit.best, env.fit.uniform) == pytest.approx((every.max(1).mean(), every.mean()), abs=1e-4)
    rows, predicted, observed = (np.array(one) for one in zip(*env.fit.calibration))
    assert env.fit.miss == pytest.approx((rows * abs(predicted - observed)).sum() / rows.sum(), abs=1e-6)
    assert rows.sum() == env.fit.replayed_rows == len(y) - n
    assert (rows * predicted).sum() == pytest.approx(mean.sum(), abs=1e-3)
    assert (rows * observed).sum() == pytest.approx(seen.sum(), abs=1e-3)
    assert (np.diff(predicted) >= 0).all()
    assert (env.fit.low, env.fit.high) == (LOG[reward].min(), LOG[reward].max())


ONCE = {"once": np.arange(len(LOG["cured"])) == table(features=["age"]).log.row[0]}  # rows that fit have one answer


@pytest.mark.parametrize("reward", ["cured", "days", "once"])
def test_logistic_regression_minimises_its_loss(reward):
    """Its gradient is 0, also of rewards between 0 and 1. Where a model could be sure, the penalty keeps it finite."""
    log = LOG | ONCE
    env = table(log, features=["age"], reward=reward, model="logistic")
    x, y = features(env, log), log[reward].astype(float)
    y = (y - y.min()) / (y.max() - y.min())
    fitted = np.setdiff1d(np.arange(len(y)), env.log.row)
    theta = np.asarray(env.theta, float)
    mean = 1 / (1 + np.exp(-x @ theta))
    gradient = x[fitted].T @ (mean - y)[fitted] / len(fitted) + fits.PENALTY * theta
    np.testing.assert_allclose(gradient, 0, atol=1e-6)
    if reward == "cured":
        share, seen, own = y[fitted].mean(), y[env.log.row], mean[env.log.row]
        deviance = [-np.log(np.where(seen == 1, p, 1 - p)).sum() for p in (own, share)]
        assert env.fit.explained == pytest.approx(1 - deviance[0] / deviance[1], abs=1e-4)
    assert env.fit.clipped == 0
    separable = table({**LOG, "cured": (LOG["drug"] == "new").astype(int)}, model="logistic")
    assert separable.fit.explained > 0.99
    assert np.isfinite(separable.theta).all()


DRAWS = 300
OPTIONS = [{}, dict(features=["age"]), dict(features=["age"], arm_features=["dose"])]


@pytest.fixture(scope="module", params=OPTIONS, ids=["fixed", "users", "arms"])
def replayed(request):
    """An environment, its options, and what agents are offered in many rounds."""
    env = table(user="patient", propensity="p", **request.param)

    @jax.jit
    def observed(key):
        world = env.init(key)
        return jax.vmap(lambda key: env.observe(key, world, 0)[0])(jax.random.split(key, DRAWS))

    return env, request.param, jax.tree.map(np.asarray, observed(jax.random.key(1)))


def test_contexts_are_rows_of_the_table_and_the_spec_is_true(replayed):
    env, options, offered = replayed
    spec, p, q = env.spec, env.rows.shape[1], env.arms.shape[1]
    assert (spec.n_agents, spec.n_arms) == (3, 3)
    assert spec.dim == (p * q if "arm_features" in options else 1 + 3 * p)
    assert (spec.rewards_in_unit, spec.constant, spec.max_norm) == (True, True, 1)
    norms = np.linalg.norm(offered.contexts, axis=-1)
    assert 0.98 <= norms.max() <= 1 + 1e-6
    assert len(np.unique(offered.contexts[..., 0])) == 1
    assert offered.contexts.flat[0] > 0
    assert spec.fixed_contexts == (not options) == bool((offered.contexts == offered.contexts[0]).all())

    row, arm = np.asarray(env.log.row), np.asarray(env.log.arm)
    assert len(np.unique(row)) == len(row) == env.fit.replayed_rows
    np.testing.assert_array_equal(np.unique(LOG["drug"])[arm], LOG["drug"][row])
    np.testing.assert_array_equal(env.log.reward, LOG["cured"][row])
    np.testing.assert_allclose(env.log.propensity, 1 / 3)
    hospitals = np.unique(LOG["hospital"], return_inverse=True)[1][row]
    np.testing.assert_array_equal(np.repeat(np.arange(3), env.counts), hospitals)
    np.testing.assert_array_equal(np.unique(LOG["patient"][row])[env.users], LOG["patient"][row])
    every = np.asarray(fb.envs.logged.joint(np.asarray(env.rows), np.asarray(env.arms), env.intercept))
    drawn = np.zeros(len(row), int)
    for contexts, users in zip(offered.contexts, offered.user):
        for silo in range(3):
            mine = np.flatnonzero((hospitals == silo) & (env.users == users[silo]))
            found = mine[(every[mine] == contexts[silo]).all((1, 2))]
            assert len(found)
            drawn[found[0]] += 1
    smallest = drawn[hospitals == 2]  # of about twenty rows, in 300 rounds
    assert spec.fixed_contexts or ((smallest > 0).mean() > 0.9 and smallest.max() < 60)


def test_rows_are_drawn_in_every_silo():
    env, again, other = (table(fit_share=0.5, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(env.log.row, again.log.row)
    assert set(env.log.row) != set(other.log.row)
    there = np.unique(LOG["hospital"], return_counts=True)[1]
    np.testing.assert_array_equal(env.counts, there - np.round(0.5 * there))
    assert env.fit.sizes == (min(env.counts), sorted(env.counts)[1], max(env.counts))
    few = {**LOG, "hospital": np.where(np.arange(400) == 7, "Z", LOG["hospital"])}
    alone = table(few, fit_share=0.9)
    assert alone.counts[-1] == 1
    assert alone.log.row[-1] == 7


def test_a_fit_is_judged_by_users_whom_it_has_not_seen():
    """Each user's mean is her own, and her features are her name: of others nothing is known, and R^2 is 0."""
    rng, n = np.random.default_rng(0), 3000
    user, silo, arm = rng.integers(0, 40, n), rng.integers(0, 5, n), rng.integers(0, 2, n)
    log = dict(
        hospital=silo, drug=arm, user=user, name=np.char.add("u", user.astype(str)), cured=np.linspace(0, 1, 40)[user]
    )
    env, before = table(log, user="user", features=["name"]), table(log, features=["name"])
    fitted, replayed = np.setdiff1d(np.arange(n), env.log.row), np.asarray(env.log.row)
    assert not set(user[fitted]) & set(user[replayed])
    assert (env.fit.users, env.fit.seen) == (20, 0)
    assert before.fit.explained > 0.95
    assert env.fit.explained < 0.05
    assert "of 20 other users, which are replayed" in env.fit.sentence


def test_every_silo_keeps_a_user():
    """Also one with a single user, who is then in both halves, and one whose users were all drawn."""
    rng = np.random.default_rng(1)
    user = np.r_[rng.integers(0, 30, 600), np.full(8, 30), [0, 1] * 5, [2, 3] * 5, [4, 5] * 5]
    silo = np.r_[rng.integers(0, 2, 600), np.full(8, 2), np.repeat([3, 4, 5], 10)]
    log = dict(hospital=silo, drug=np.arange(len(user)) % 2, user=user, cured=rng.random(len(user)))
    fits = [table(log, user="user", seed=seed, fit_share=0.8) for seed in range(10)]
    for env in fits:
        fitted = np.setdiff1d(np.arange(len(user)), env.log.row)
        assert env.counts.min() >= 1
        assert set(user[fitted]) & set(user[env.log.row]) == {30}
        assert env.counts[2] == 2
        assert env.fit.seen == 1
        assert " other users and 1 of the same, which are replayed" in env.fit.sentence
    assert len({env.fit.users for env in fits}) > 1  # as users were kept for silos


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_gaps_and_rewards_are_those_of_the_model(model):
    days = table(reward="days", features=["age"])
    assert float(days.rewards.noise_std) == pytest.approx(days.fit.noise_std)  # of residuals
    env, arms = table(features=["age", "ward"], model=model), np.arange(3, dtype=np.int32)

    @jax.jit
    def played(key):
        offered, world = env.observe(key, env.init(key), 0)
        keys = jax.random.split(key, 2000)
        return offered.contexts, jax.vmap(lambda key: env.pull(key, world, offered, arms))(keys)

    contexts, found = played(jax.random.key(1))
    z = np.asarray(contexts) @ np.asarray(env.theta)
    mean = 1 / (1 + np.exp(-z)) if model == "logistic" else np.clip(z, 0, 1)
    np.testing.assert_allclose(found.gap[0], mean.max(1) - mean[arms, arms], atol=1e-5)
    rewards = np.asarray(found.reward)
    assert set(np.unique(rewards)) <= {0, 1}  # as those of the table are
    np.testing.assert_allclose(rewards.mean(0), mean[arms, arms], atol=5 * 0.5 / math.sqrt(2000))


def test_shares_of_arms_are_no_known_propensities():
    silo, arm = np.unique(LOG["hospital"], return_inverse=True)[1], np.unique(LOG["drug"], return_inverse=True)[1]
    alike = np.array([((silo == i) & (arm == j)).sum() / (silo == i).sum() for i, j in zip(silo, arm)])
    assert not table(propensity="p").shares
    for shares in (np.bincount(arm)[arm] / len(arm), alike):
        assert table({**LOG, "p": shares}, propensity="p").shares
    assert not table().shares


def test_users_cross_silos():
    """A unit that names too few silos is refused."""
    env = table(user="patient")
    pairs = {*zip(LOG["patient"][env.log.row], LOG["hospital"][env.log.row])}
    reach = np.unique([u for u, _ in pairs], return_counts=True)[1]
    assert env.spec.n_users == env.fit.users == len(reach)
    assert env.spec.silos == env.fit.crossing == fb.envs.delay(env, 3).spec.silos == reach.max() > 1
    assert table().spec.n_users == 0
    spec, budget = env.spec, fb.privacy.Budget(1.0, 0.01)
    few, enough = (fb.privacy.Mechanism(budget, unit=fb.privacy.Users(2, silos=silos)) for silos in (1, 3))
    with refused("unit"):
        fb.algos.private_fed_lin_ucb(few).bind(spec, 100)
    assert fb.algos.private_fed_lin_ucb(enough).certificate(spec, 100).claim == "certified"
    assert BoundStatistic.of(spec).silos == 3
    asked = demands.Demands(spec, 100, budget, ("silo",), demands.ONE_USER, None)
    assert {unit.silos for unit in demands.units(asked)} == {3}  # of a plan


def test_the_fit_is_in_the_result(tmp_path):
    """In the files, the summary and the figures of any run, also where a wrapper goes around the table."""
    env = fb.envs.delay(table(features=["age"], user="patient"), 2)
    fit, result = env.env.fit, made(labels=["one"])
    result = dataclasses.replace(result, config={**result.config, "environments": {"one": identity.describe(env)}})
    one = fb.Result.load(result.save(tmp_path / "run"))
    world = one.config["environments"]["one"]
    assert world["env"]["fit"]["explained"] == fit.explained
    assert world["env"]["fit"]["calibration"] == [list(group) for group in fit.calibration]
    assert (world["env"]["encoding"], world["spec"]["basis"]) == (env.env.encoding, fit.sentence)
    assert fit.sentence in one.summary()
    figure = fb.plotting.regret(one)
    title = figure.axes[0].get_legend().get_title().get_text()
    assert " ".join(title.split()) == fit.sentence
    plt.close(figure)
    assert "model of the table" in fit.sentence
    assert str(fit).startswith(fit.sentence)
    assert len(str(fit).splitlines()) == 4 + 10


def test_certificates_do_not_cover_the_people_in_the_table():
    assert OF_A_TABLE in PRIVATE.certificate(table(features=["age"]).spec, 20).not_covered
    assert OF_A_TABLE not in PRIVATE.certificate(ENV.spec, 20).not_covered
    assert {"basis", "silos"}.isdisjoint(identity.describe(ENV.spec))
    said = identity.describe(dataclasses.replace(ENV.spec, silos=2, basis="x"))
    assert (said["silos"], said["basis"]) == (2, "x")


def same(one, other):
    assert one.encoding == other.encoding
    assert dataclasses.replace(one.fit, source="") == dataclasses.replace(other.fit, source="")
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_files_frames_and_mappings_are_alike(tmp_path):
    options = dict(features=["age", "ward", "sex"], user="patient", propensity="p")
    expected = table(**options)
    path = tmp_path / "log.csv"
    frame = pandas.DataFrame(LOG)
    frame.to_csv(path, index=False)
    assert table(path).fit.source == "log.csv"
    text = path.read_text()
    texts = text, "\ufeff" + text, text.replace("\n", "\r\n"), text + "\n\n\n", text.replace(",new,", ', "new" ,')
    texts += (text.replace("\n", ",,\n"),)  # columns without a name, as spreadsheets write them
    for kind in (*texts, *(text.replace(",", separator) for separator in ";\t|")):
        path.write_text(kind, encoding="utf-8", newline="")
        same(table(str(path), **options, decimal="."), expected)
    frame.to_csv(path, sep=";", decimal=",", index=False, encoding="utf-16")
    same(table(path, **options, decimal=","), expected)
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(text.encode()))
    same(table(tmp_path / "log.csv.gz", **options), expected)
    typed = frame.astype({"hospital": "category", "ward": "category", "age": "Int64"})
    for one in (typed, frame.set_index(LOG["age"]), frame.astype(object)):
        same(table(one, **options), expected)
    numbered = frame.set_axis(range(len(frame.columns)), axis=1)
    place = {name: i for i, name in enumerate(frame.columns)}
    roles = {argument: place[name] for argument, name in (ROLES | dict(user="patient", propensity="p")).items()}
    env = fb.data.table(numbered, **roles, features=[place[name] for name in options["features"]])
    assert np.array_equal(env.rows, expected.rows)


@pytest.mark.parametrize("name", ["polars", "pyarrow"])
def test_frames_of_others(tmp_path, name):
    package, options = pytest.importorskip(name), dict(features=["age", "ward"], user="patient")
    sources = [package.DataFrame(LOG) if name == "polars" else package.table(LOG)]
    if name == "pyarrow":
        sources.append(tmp_path / "log.parquet")
        pytest.importorskip("pyarrow.parquet").write_table(sources[0], sources[1])
    for source in sources:
        same(table(source, **options), table(**options))


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    for package, extra, name in (("pyarrow.parquet", "parquet", "log.parquet"), ("pandas", "data", "log.csv")):
        (tmp_path / name).write_bytes(b"PAR1")
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"fedbandit_jax\[{extra}\]"):
            table(tmp_path / name)


def test_labels_are_texts_and_answers_are_numbers():
    """Labels 9, 10, 11 are in their order; whether a reward is written as a flag or as yes and no changes nothing."""
    numbered, ill, cured = np.unique(LOG["hospital"], return_inverse=True)[1] + 9.0, LOG["age"] > 50, LOG["cured"] == 1
    same(table(LOG | {"hospital": numbered}), table())
    flagged = [table(LOG | {"ward": ward}, features=["ward"]) for ward in (ill, np.where(ill, "True", "False"))]
    same(*flagged)
    for reward in (cured, np.where(cured, "yes", "No"), np.where(cured, "TRUE", "false")):
        same(table(LOG | {"cured": reward}), table())


def aged(*values, **options):
    """A table with these ages, again and again."""
    return table(LOG | {"age": [values[i % len(values)] for i in range(400)]}, features=["age"], **options)


@pytest.mark.parametrize("texts", ["1 2 young", "a b 3", "12% 3 4", "1,000 950", "1,5 2,5", "$84 $12", "84kg 12kg",
                                   "2025-01-31 later", "31.01.2025 1.2.2025", "2025-13-01 2025-01-01"])  # fmt: skip
def test_what_is_neither_numbers_nor_texts_is_refused(texts):
    with refused("features") as caught:
        aged(*texts.split())
    assert caught.value.value in texts.split()
    assert "of column 'age'" in str(caught.value)


@pytest.mark.parametrize("texts", ["2020-01 2020-02", "20-29 30-39", "v1.2.3 v1.2.4", "e5 e6", "10mg 7ml", "1_0 2_0"])
def test_labels_stay_labels(texts):
    assert aged(*texts.split()).encoding.startswith("age: 1 if it is ")


def test_numbers_and_dates_in_texts_are_numbers():
    assert aged("0.5", "1e1").encoding == aged(0.5, 10).encoding
    same(aged("2025-01-31", "2025-02-01 12:00"), aged(*np.array(["2025-01-31", "2025-02-01T12:00"], "datetime64[s]")))
    assert "(age - 20119.8) / 2.25, in [-1, 1]; days since 1970" in aged("2025-01-31", "2025-02-01 12:00").encoding


@pytest.mark.parametrize("gap", ["", "NA", "?", "-999", -999, None])
def test_rows_with_gaps_are_left_out_if_it_is_said_what_gaps_are(tmp_path, gap):
    """The others are as in a table without such rows, and keep their numbers."""
    rows = np.arange(400) % 7 != 3
    log = LOG | {"age": [str(20 + i % 50) if keep else gap for i, keep in enumerate(rows)]}
    path = tmp_path / "log.csv"
    pandas.DataFrame(log).to_csv(path, index=False)
    without = table({name: np.asarray(column)[rows] for name, column in log.items()}, features=["age"])
    for source in (log, path):
        with refused("features"):
            table(source, features=["age"])
        env = table(source, features=["age"], missing=[str(gap)])
        assert np.array_equal(env.log.row, np.flatnonzero(rows)[without.log.row])
        assert np.array_equal(env.rows, without.rows)
        assert f"left out: {400 - rows.sum()} rows with missing values" in env.encoding
    if str(gap) == "-999":
        assert "left out" not in table(path, features=["age"], missing=[]).encoding
    else:
        with refused("features"):  # it is no number
            table(log, features=["age"], missing=[])
    with refused("missing"):
        aged(gap, missing=[str(gap)])


@pytest.mark.parametrize("users", [None, "patient"])
def test_the_earliest_rows_fit_the_model(users):
    """Of every silo, or of users the ones who came first; dates and numbers alike."""
    days = np.random.default_rng(0).permutation(400)
    log = LOG | {"day": days, "date": [str(np.datetime64("2024-01-01") + int(day)) for day in days]}
    env, dated = (table(log, user=users, time=time) for time in ("day", "date"))
    assert np.array_equal(env.log.row, dated.log.row)
    replayed = np.isin(np.arange(400), env.log.row)
    if users is None:
        for silo in np.unique(LOG["hospital"]):
            here = LOG["hospital"] == silo
            assert days[here & ~replayed].max() < days[here & replayed].min()
    else:
        who = LOG["patient"]
        first = {one: days[who == one].min() for one in set(who)}
        fitted, others = (set(who[some]) for some in (~replayed, replayed))
        assert max(first[one] for one in fitted - others) < min(first[one] for one in others - fitted)
    assert "the earliest rows by day fit the model" in env.encoding
