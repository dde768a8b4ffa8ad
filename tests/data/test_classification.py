import sys

import jax
import numpy as np
import pytest
from sklearn import datasets

import fedbandit_jax as fb

SHAPES = {"digits": (1797, 10, 51), "breast_cancer": (569, 2, 21)}


@pytest.fixture(scope="module", params=fb.data.CLASSIFICATION)
def loaded(request):
    return request.param, fb.data.classification(request.param)


def test_shapes_and_norms(loaded):
    name, table = loaded
    n, k, d = SHAPES[name]
    assert table.features.shape == (n * k, d)
    assert table.features.dtype == table.theta.dtype == np.float32
    assert (table.query_sizes == k).all()
    assert len(table.query_sizes) == n
    np.testing.assert_allclose(np.linalg.norm(table.features, axis=1), 1, atol=1e-6)


def test_means_fit_bernoulli_rewards_and_the_scale_is_the_largest(loaded):
    _, table = loaded
    means = table.features.astype(np.float64) @ table.theta
    norm = np.linalg.norm(table.theta)
    assert means.min() == pytest.approx(0, abs=1e-6)
    assert means.max() <= 1 + 1e-6
    assert norm <= 1 + 1e-6
    assert max(means.max(), norm) == pytest.approx(1, abs=1e-6)


def test_one_block_per_arm(loaded):
    name, table = loaded
    _, k, d = SHAPES[name]
    p = (d - 1) // k
    rows = table.features.reshape(-1, k, d)
    for a in range(k):
        np.testing.assert_array_equal(rows[:, a, a * p : (a + 1) * p], rows[:, 0, :p])
        assert np.count_nonzero(rows[:, a, :-1]) == np.count_nonzero(rows[:, 0, :p])


def test_best_arm_is_a_useful_classifier(loaded):
    name, table = loaded
    _, k, _ = SHAPES[name]
    guess = (table.features @ table.theta).reshape(-1, k).argmax(1)
    truth = getattr(datasets, f"load_{name}")().target
    assert (guess == truth).mean() > {"digits": 0.7, "breast_cancer": 0.95}[name]  # guessing: 0.1, 0.63


def test_the_affine_map_keeps_the_order_of_the_arms():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 8))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    x = np.hstack([z, np.ones((200, 1))]) / np.sqrt(2)
    theta = 3 * rng.normal(size=9)
    mapped = fb.data.into_unit(x, theta)
    before, after = x @ theta, x @ mapped
    slope = (after.max() - after.min()) / (before.max() - before.min())
    np.testing.assert_allclose(after, slope * (before - before.min()), atol=1e-6)
    assert slope > 0
    assert np.linalg.norm(mapped) <= 1 + 1e-6


def test_is_the_same_every_time(loaded):
    name, table = loaded
    again = fb.data.classification(name)
    np.testing.assert_array_equal(table.features, again.features)
    np.testing.assert_array_equal(table.theta, again.theta)


@pytest.mark.slow
def test_replayed():
    table = fb.data.classification("breast_cancer", components=3)
    env = fb.envs.replay(**table.arguments(), n_agents=5, rewards="bernoulli")
    assert (env.spec.n_arms, env.spec.dim, env.spec.max_norm) == (2, 7, 1.0)
    result = fb.simulate(env, fb.algos.fed_lin_ucb(), horizon=50, key=jax.random.key(0), seeds=2)
    assert np.isfinite(result.regret).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "iris"}, "name must be one of 'digits', 'breast_cancer', got 'iris'"),
        ({"name": "digits", "components": 0}, "components must be >= 1, got 0"),
        ({"name": "digits", "components": 65}, "components must be <= 64"),
        (
            {"name": "breast_cancer", "penalty": 10},
            "penalty must be small enough for a non-zero theta, got 10",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        fb.data.classification(**arguments)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'fedbandit_jax\[data\]'"):
        fb.data.classification("digits")
