import jax
import numpy as np
import pytest
from helpers import refused
from sklearn.linear_model import Lasso

import fedbandit_jax as fb


def instance(scales, *, n=400, correlated=False, seed=0):
    rng = np.random.default_rng(seed)
    d = len(scales)
    x = rng.normal(size=(n, d))
    if correlated:
        x = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.05 * x
    y = x @ np.where(np.arange(d) % 3 == 0, 1.0, 0.0) + 0.5 * rng.normal(size=n) + 0.3
    return (x * scales).astype(np.float32), y.astype(np.float32)


@pytest.mark.parametrize(("penalty", "correlated"), [(1e-3, True), (1e-1, False), (1.0, True)])
def test_agrees_with_scikit_learn(monkeypatch, penalty, correlated):
    x, y = instance(np.ones(15), correlated=correlated)
    oracle = Lasso(alpha=penalty, fit_intercept=False, tol=1e-14, max_iter=1_000_000)
    oracle.fit(x.astype(np.float64), y.astype(np.float64))
    for chunk in (len(x), 7):  # rows that are read at once
        monkeypatch.setattr("fedbandit_jax.data.datasets.CHUNK", chunk)
        np.testing.assert_allclose(fb.data.lasso(x, y, penalty=penalty), oracle.coef_, atol=1e-4)


def test_columns_of_very_different_sizes():
    """Coordinate descent is slow here, so check optimality: |grad_j| <= penalty, and = where w_j != 0."""
    scales = 10.0 ** np.arange(-3, 10)
    x, y = instance(scales)
    w = fb.data.lasso(x, y, penalty=0.05).astype(np.float64)
    x = x.astype(np.float64)
    gradient = x.T @ (x @ w - y) / len(y)
    size = np.sqrt((x**2).mean(0))
    active = w != 0
    assert active.any()
    assert not active.all()
    assert (np.abs(gradient + 0.05 * np.sign(w)) / size)[active].max() < 1e-5
    assert ((np.abs(gradient) - 0.05) / size)[~active].max() < 1e-5


def test_constant_and_empty_columns():
    x = np.zeros((10, 2), np.float32)
    x[:, 0] = 1
    np.testing.assert_allclose(fb.data.lasso(x, np.full(10, 2.0), penalty=0.5), [1.5, 0], atol=1e-6)
    assert not fb.data.lasso(x, np.zeros(10), penalty=0.5).any()
    assert jax.numpy.ones(()).dtype == np.float32  # the precision of JAX is left alone
    for labels, rows in ((np.ones(3), x), (np.zeros(0), x[:0])):
        with refused("labels"):
            fb.data.lasso(rows, labels, penalty=0.1)


def test_says_when_it_did_not_converge(monkeypatch):
    monkeypatch.setattr("fedbandit_jax.data.datasets.STEPS", 2)
    with pytest.raises(RuntimeError):
        fb.data.lasso(*instance(np.ones(15), correlated=True), penalty=1e-3)
