"""Rows of tables are written alike wherever a program runs, and whether a table is small or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.core import tables

N, D = 5, 3


@pytest.mark.parametrize(("cpu", "small"), [(True, 0), (False, 0), (False, 100)], ids=["cpu", "large", "small"])
@pytest.mark.parametrize("at", [0, 4, N])
def test_put_and_add(at, cpu, small, monkeypatch):
    """The last row number is that of nobody, for whom nothing is written."""
    monkeypatch.setattr(tables, "on_cpu", lambda: cpu)
    monkeypatch.setattr(tables, "SMALL", small)
    monkeypatch.setattr(tables, "FEW", 0)
    rng = np.random.default_rng(at)
    table = {"x": rng.normal(size=(2, N, D)).astype(np.float32), "n": np.arange(2 * N).reshape(2, N)}
    row = {"x": rng.normal(size=(2, D)).astype(np.float32), "n": np.array([50, 60])}
    put, add = (jax.vmap(function, (0, None, 0))(table, jnp.int32(at), row) for function in (tables.put, tables.add))
    expected = jax.tree.map(np.copy, table)
    more = jax.tree.map(np.copy, table)
    if at < N:
        for name in table:
            expected[name][:, at] = row[name]
            more[name][:, at] += row[name]
    for name in table:
        np.testing.assert_array_equal(put[name], expected[name])
        np.testing.assert_array_equal(add[name], more[name])
