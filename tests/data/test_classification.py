import numpy as np
import pytest
from helpers import refused
from sklearn import datasets

import fedbandit_jax as fb
from fedbandit_jax.data.datasets import lasso

SIZES = {  # n, K, d, and a share of right answers, of which guesses have 0.1 and 0.63
    "digits": (1797, 10, 51, 0.7),
    "breast_cancer": (569, 2, 21, 0.95),
}


@pytest.mark.parametrize("name", fb.data.CLASSIFICATION)
def test_rows_have_a_block_for_every_arm(name):
    """Means fit Bernoulli rewards at the largest scale, and the best arm is a useful classifier."""
    table, (n, k, d, right) = fb.data.classification(name), SIZES[name]
    p = (d - 1) // k
    assert table.features.shape == (n * k, d)
    assert table.features.dtype == table.theta.dtype == np.float32
    assert table.query_sizes.tolist() == [k] * n
    np.testing.assert_allclose(np.linalg.norm(table.features, axis=1), 1, atol=1e-6)
    rows = table.features.reshape(-1, k, d)
    for a in range(k):
        np.testing.assert_array_equal(rows[:, a, a * p : (a + 1) * p], rows[:, 0, :p])
        assert np.count_nonzero(rows[:, a, :-1]) == np.count_nonzero(rows[:, 0, :p])
    means, norm = table.features.astype(np.float64) @ table.theta, np.linalg.norm(table.theta)
    assert means.min() == pytest.approx(0, abs=1e-6)
    assert max(means.max(), norm) == pytest.approx(1, abs=1e-6)
    assert (means.reshape(-1, k).argmax(1) == getattr(datasets, f"load_{name}")().target).mean() > right


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


@pytest.mark.parametrize("scales", [np.ones(15), 10.0 ** np.arange(-3, 10)])
def test_the_lasso_is_optimal(scales):
    """Columns may have very different sizes: |grad_j| <= penalty, and = where w_j is not 0."""
    rng, d, penalty = np.random.default_rng(0), len(scales), 0.05
    z = rng.normal(size=(400, 3)) @ rng.normal(size=(3, d)) + rng.normal(size=(400, d))
    x = (z * scales).astype(np.float32)
    y = z @ np.where(np.arange(d) % 3 == 0, 1.0, 0.0) + 0.5 * rng.normal(size=400) + 0.3
    w = lasso(x, y, penalty=penalty).astype(float)
    x, active = x.astype(float), w != 0
    assert 0 < active.sum() < d
    gradient = x.T @ (x @ w - y) / len(y)
    size = np.sqrt((x**2).mean(0))
    assert (np.abs(gradient + penalty * np.sign(w)) / size)[active].max() < 1e-5
    assert ((np.abs(gradient) - penalty) / size)[~active].max() < 1e-5


def test_settings_that_do_not_suit_the_data_are_refused():
    with refused("components", 65):  # of 64 pixels
        fb.data.classification("digits", components=65)
