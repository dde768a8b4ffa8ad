import re
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import special, stats

from fedbandit_jax.core import random

N = 400_000
ALPHA = 1e-4  # chance that a correct generator fails a law test, over seeds; the seed is fixed


def test_bits_are_jax_threefry(key):
    """JAX draws 32 bits as the exclusive-or of the two Threefry words at the same counter."""
    for size in (1, 7, 1000):
        x0, x1 = random.bits(key, size)
        np.testing.assert_array_equal(x0 ^ x1, jax.random.bits(key, (size,)))


def test_keys_are_those_of_jax(key):
    for i in (0, 5, 2**31 - 1):
        found, expected = random.fold_in(key, np.int32(i)), jax.random.fold_in(key, i)
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))


def test_erf_inv_is_accurate():
    x = np.concatenate([np.linspace(-0.999999, 0.999999, 100_001), 1 - 2.0 ** -np.arange(2, 24)]).astype(np.float32)
    exact = special.erfinv(x.astype(float))
    np.testing.assert_allclose(random.erf_inv(x), exact, rtol=1e-6, atol=1e-9)


def test_unit_is_open_and_symmetric():
    words = np.array([0, 2**32 - 1, 2**31, 2**31 - 1], np.uint32)
    low, high, above, below = np.asarray(random._unit(words))
    assert -1 < low == -high
    assert 0 < above == -below


@pytest.mark.parametrize(
    ("draw", "law"), [(random.normal, stats.norm), (random.uniform, stats.uniform)], ids=["normal", "uniform"]
)
def test_law(key, draw, law):
    sample = np.asarray(draw(key, (N + 1,)), float)
    assert sample.shape == (N + 1,)
    assert stats.kstest(sample, law.cdf).pvalue > ALPHA
    assert stats.kstest(sample * 1.03, law.cdf).pvalue < ALPHA  # the test has the power to see 3 %
    for a, b in ((sample[:-1:2], sample[1::2]), (sample[: N // 2], sample[N // 2 : N])):  # words of a block, halves
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(N / 2)
    assert len(np.unique(sample)) > 0.9 * N


def test_streams_are_independent(key):
    a, b = (np.asarray(random.normal(random.stream(key, name), (N,))) for name in ("users", "answers"))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(N)
    np.testing.assert_array_equal(a, random.normal(random.stream(key, "users"), (N,)))
    code = "".join(path.read_text() for path in Path(random.__file__).parents[1].rglob("*.py"))
    names = set(re.findall(r'(?:stream|salted)\(\w+, "(\w+)"', code)) | {"users", "answers", "choices"}
    words = {tuple(jax.random.key_data(random.stream(key, name)).tolist()) for name in names}
    assert len(words) == len(names) > 15


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (
            jax.random.PRNGKey(0),
            TypeError,
            r"key must be a typed key such as jax.random.key\(0\), got a legacy uint32",
        ),
        (0, TypeError, "key must be a typed key .* got 0"),
        (jax.random.key(0, impl="rbg"), ValueError, "key must use the threefry2x32 generator .* got rbg"),
        (jax.random.split(jax.random.key(0), 3), ValueError, r"key must be one key, got .* shape \(3,\)"),
    ],
)
def test_bad_keys(bad, error, words):
    with pytest.raises(error, match=words):
        random.check_key("key", bad)
