"""Normal and exponential noise of 128 random bits: right to the last value (p > 1e-4), and no other (p < 1e-6)."""

import ast
from pathlib import Path

import jax
import mpmath
import numpy as np
import pytest
from scipy import special, stats

import fedbandit_jax
from fedbandit_jax.privacy import tails

ALPHA = 1e-4
NORMAL_REACH = 13.10863  # the largest |normal|: the law has mass 2^-129 on either side beyond it
EXPONENTIAL_REACH = 88.7228  # the largest exponential, 128 ln 2
NORMAL_OF = jax.jit(tails.normal_of)
PRIVACY = Path(fedbandit_jax.__file__).parent / "privacy"


def words(integers):
    """The four uint32 words of integers of 128 bits, the highest first."""
    return [np.array([n >> shift & 0xFFFFFFFF for n in integers], np.uint32) for shift in (96, 64, 32, 0)]


@pytest.fixture(scope="module")
def forced():
    """Random integers of 128 bits that begin with 0 to 127 zeros, or with as many ones; and U of each, in mpmath."""
    rng = np.random.default_rng(0)
    small = [int.from_bytes(rng.bytes(16), "big") >> int(zeros) for zeros in np.tile(np.arange(128), 8)]
    integers = [*small, *(2**128 - 1 - n for n in small), 0, 1, 2**128 - 1, 2**128 - 2]
    with mpmath.workprec(300):
        return integers, [(mpmath.mpf(n >> 1) + 0.5) / 2**127 for n in integers]


def test_exponential_of_bits(forced):
    """-ln U to 4e-7 of itself, from 3e-39, where float32 ends, to 128 ln 2."""
    integers, u = forced
    with mpmath.workprec(300):
        right = np.array([float(-mpmath.log(one)) for one in u])
    found = np.asarray(jax.jit(tails.exponential_of)(*words(integers)), float)
    np.testing.assert_allclose(found, right, rtol=4e-7, atol=1.2e-38)
    assert found.max() == pytest.approx(128 * np.log(2), rel=1e-6) == EXPONENTIAL_REACH


def test_normal_of_bits(forced):
    """The mass beyond a draw is U / 2, on the side that the last bit says: the draw is right to 5e-7 of itself."""
    integers, u = forced
    with mpmath.workprec(300):
        far = np.array([float(mpmath.log(one / 2)) for one in u])
        near = np.array([float((1 - one) / 2) for one in u])  # distance from the median, in probability
    found = np.asarray(NORMAL_OF(*words(integers)), float)
    tail = near > 0.01
    np.testing.assert_allclose(np.abs(found[tail]), -special.ndtri_exp(far[tail]), rtol=5e-7)
    q = near[~tail]  # the quantile function at 1/2 + q, by its series: the next term is below 1e-9
    series = np.sqrt(2 * np.pi) * (q + np.pi / 3 * q**3 + 7 * np.pi**2 / 30 * q**5)
    np.testing.assert_allclose(np.abs(found[~tail]), series, rtol=5e-7, atol=3e-38)
    sign = np.where(np.array([n % 2 for n in integers]) == 1, 1, -1)
    assert (np.sign(found) * sign >= 0).all()
    assert np.abs(found).max() == pytest.approx(NORMAL_REACH, rel=1e-6)


def test_the_mass_beyond_the_last_value():
    """Two sides of sf(reach), and e^-reach, are within the mass that is charged, and not a tenth of it."""
    for beyond in (2 * stats.norm.sf(NORMAL_REACH), np.exp(-EXPONENTIAL_REACH)):
        assert tails.CUT / 10 < beyond < tails.CUT


def test_no_noise_of_23_bits():
    """Nothing under privacy/ draws noise by jax.random: what is left shuffles, flips fair coins, or rounds data."""
    used = {}
    for path in sorted(PRIVACY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "jax.random":
                used.setdefault(node.attr, set()).add(path.name)
            assert not (isinstance(node, ast.ImportFrom) and node.module == "jax.random"), path
    assert used.keys() <= {"split", "fold_in", "key", "permutation", "bernoulli", "bits", "uniform", "normal"}
    assert used["normal"] == {"byzantine.py"}  # what liars send hides nobody
    assert used["uniform"] == {"samplers.py", "secagg.py"}  # stochastic rounding, and its error
    assert used["bernoulli"] == {"vector_sum.py"}  # rounding, and single noise bits
    assert used["bits"] == {"bits.py", "ring.py"}  # flips by whole words; sums that a shuffler loses
