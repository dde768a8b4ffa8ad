"""The coefficients of buffered linear Toeplitz releases are valid and as good as anybody's."""

import numpy as np
import pytest
from helpers import deep

from fedbandit_jax.privacy.releases import Blt, SqrtToeplitz, blt

SIZES = deep([1, 5, 400, 2, 16, 100, 4096, 65_536], keep=range(3))


def noise(release):
    return release.sensitivity_sq() * release.prefix_variance()[-1]


@pytest.mark.parametrize("n", SIZES)
def test_coefficients_are_valid(n):
    """C > 0, of bounded inverse, its first column largest; no factor is below the square root, buffers approach it."""
    best, losses = noise(SqrtToeplitz(n)), []
    for n_buffers in (1, 2, 3, 5):
        release = Blt(n, n_buffers)
        theta, omega = (np.asarray(x, float) for x in (release.theta, release.omega))
        assert len(theta) == len(omega) == n_buffers
        assert ((theta > 0) & (theta < 1) & (omega > 0)).all()
        assert (np.diff(theta) < 0).all()
        for numbers in (theta, omega):
            np.testing.assert_array_equal(numbers, numbers.astype(np.float32))
        decays, weights = blt.blt_inverse(theta, omega)
        assert (np.abs(decays) < 1).all()
        assert (weights > 0).all()
        ones = np.convolve(release.column()[:2000], blt.blt_column(decays, -weights, n)[:2000])[: min(n, 2000)]
        np.testing.assert_allclose(ones, np.eye(1, len(ones))[0], atol=1e-12)
        losses.append(noise(release))
        assert losses[-1] == pytest.approx(blt.blt_loss(theta, omega, n), rel=1e-9)
    assert min(losses) > best * (1 - 1e-9)
    assert (np.diff(losses) < 1e-6 * best).all()
    assert losses[2] < best * (1.002 if n <= 400 else 1.05)


@pytest.mark.parametrize(
    ("n", "oracle"), [(3, 1.9338378906), (16, 3.7786657401), (400, 8.8492387055), (65536, 22.063317467)]
)
def test_as_good_as_jax_privacy(n, oracle):
    """Loss of the three buffers (n - 1 for n = 3) of jax_privacy 2.0.0, buffered_blt.optimize(n=n)."""
    assert noise(Blt(n)) == pytest.approx(oracle, rel=1e-6)


@pytest.mark.parametrize("n", blt.TABLE)
def test_table(n):
    """The table is what the optimiser finds today."""
    theta, omega = blt.optimise(n, 3)
    assert noise(Blt(n)) == pytest.approx(blt.blt_loss(theta, omega, n), rel=1e-6)
    np.testing.assert_allclose(Blt(n).theta, theta, atol=1e-4)
    np.testing.assert_allclose(Blt(n).omega, omega, atol=1e-4)
