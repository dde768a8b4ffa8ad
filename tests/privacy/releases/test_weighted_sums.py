"""Sums that forget: their weights, the noise in them under every release, and the release that suits them."""

import numpy as np
import pytest
import scipy.linalg
from factors import ALL, SIZE, matrices
from helpers import workload

from fedbandit_jax.privacy import RELEASES, Discounted
from fedbandit_jax.privacy.releases.toeplitz import sqrt_column

MEMORY = Discounted(0.7)


def test_weights():
    a, total, found = workload(MEMORY, SIZE), np.zeros(SIZE, np.float32), []
    np.testing.assert_allclose(scipy.linalg.toeplitz(MEMORY.weights(SIZE), np.zeros(SIZE)), a, atol=1e-15)
    for row in np.eye(SIZE, dtype=np.float32):
        found.append(total := MEMORY.add(total, row))
    np.testing.assert_allclose(found, a, rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_noise_by_matrices(name):
    """A gamma is made of differences of prefixes, whose noise is R z: its noise is A D R z, D taking differences."""
    differences = np.eye(SIZE) - np.eye(SIZE, k=-1)
    made, _, r = matrices(name, SIZE)
    wanted = ((workload(MEMORY, SIZE) @ differences @ r) ** 2).sum(1)
    np.testing.assert_allclose(MEMORY.variance(made), wanted, rtol=1e-5)


def test_the_release_is_a_square_root():
    """C C = A, as far as there are bands."""
    c = Discounted(0.9)(20).encoder()  # 20 bands
    np.testing.assert_allclose(c @ c, workload(Discounted(0.9), 20), atol=1e-6)
    assert Discounted(0.9)(300).touched() == 20


@pytest.mark.parametrize(("memory", "share"), [(Discounted(0.5), 0.88), (Discounted(0.98), 0.15)])
def test_less_noise_than_single_batches_and_than_prefix_sums(memory, share):
    n = 400
    mine, single, blt = (
        memory.variance(release).max() * release.sensitivity_sq()
        for release in (memory(n), RELEASES["input_perturbation"](n), RELEASES["blt"](n))
    )
    assert mine < min(share * single, blt)
    assert single == pytest.approx(1 / (1 - memory.decay**2), rel=1e-6)
    whole = sqrt_column(n) * memory.decay ** np.arange(n)  # with all bands: what is cut off costs less than 1 %
    assert mine < 1.01 * (whole**2).sum() ** 2
