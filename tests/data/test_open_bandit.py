"""A campaign in the format of the Open Bandit Dataset, made up here, so that the real one need not be at hand."""

import csv

import numpy as np
import pytest

import fedbandit_jax as fb

ROWS, ITEMS = 600, 5


def written(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture
def campaign(tmp_path):
    rng = np.random.default_rng(0)
    item, where = rng.integers(0, ITEMS, ROWS), rng.integers(1, 4, ROWS)
    click = (rng.random(ROWS) < 0.1 + 0.1 * item).astype(int)
    users = [rng.choice(["a1", "b2", "c3"], ROWS) for _ in range(2)]
    head = ["", "timestamp", "item_id", "position", "click", "propensity_score", "user_feature_0", "user_feature_1"]
    times = [f"2019-11-24 00:00:{i % 60:02}+00:00" for i in range(ROWS)]
    written(tmp_path / "men.csv", head, zip(range(ROWS), times, item, where, click, [0.2] * ROWS, *users))
    about = [(i, i, 0.1 * i, f"kind {i % 2}", f"brand {i}", f"shop {i % 3}") for i in range(ITEMS)]
    written(tmp_path / "item_context.csv", ["", "item_id", *(f"item_feature_{j}" for j in range(4))], about)
    return tmp_path, item, where, click


def test_what_is_read(campaign):
    path, item, where, click = campaign
    env = fb.data.open_bandit(path)
    assert (env.spec.n_agents, env.spec.n_arms, env.spec.dim) == (3, ITEMS, 1 + 1 + 1 + 3)
    assert env.spec.fixed_contexts
    row = env.log.row
    np.testing.assert_array_equal(env.log.arm, item[row])
    np.testing.assert_array_equal(env.log.reward, click[row])
    np.testing.assert_allclose(env.log.propensity, 0.2)
    np.testing.assert_array_equal(np.repeat([1, 2, 3], env.counts), where[row])
    assert fb.envs.rejection(env).spec.basis.startswith("Rewards are those of Open Bandit, of rows that showed")


def test_columns_of_users_and_silos(campaign):
    env = fb.data.open_bandit(campaign[0], silo="user_feature_1", features=["user_feature_0"], arm_features=None)
    assert (env.spec.n_agents, env.spec.dim, env.spec.fixed_contexts) == (3, 1 + ITEMS * 4, False)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (
            lambda path: (path / "item_context.csv").unlink(),
            "path must hold one log and item_context.csv, got .* with men",
        ),
        (
            lambda path: (path / "women.csv").touch(),
            "path must hold one log and .* with item_context.csv, men.csv, women",
        ),
        (
            lambda path: _renamed(path / "men.csv", "click", "clicks"),
            "path must hold files with all columns, got men.csv without click",
        ),
        (lambda path: _renamed(path / "item_context.csv", "\n0,0,", "\n0,9,"), "item_feature_0"),
        (lambda path: _renamed(path / "men.csv", ",0.2,", ",2,"), "propensity_score"),
        (lambda path: _renamed(path / "item_context.csv", "\n1,1,", "\n1,0,"), "got item 0 twice in item_context.csv"),
    ],
)
def test_faults_are_named(campaign, harm, words):
    harm(campaign[0])
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        fb.data.open_bandit(campaign[0])


def _renamed(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
