"""Sums that forget: their weights, the noise in them under every release, and the releases that suit them."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from factors import ALL, SIZE, matrices
from helpers import workload

from fedbandit_jax.privacy import RELEASES, Discounted, Window
from fedbandit_jax.privacy.releases.release import outputs
from fedbandit_jax.privacy.releases.toeplitz import sqrt_column

MEMORIES = {"discounted": Discounted(0.7), "window": Window(3), "one batch": Window(1)}


def through(memory, rows):
    """What `add` makes of rows (n, ...), one after the other."""

    def step(state, k, row):
        return memory.add(state, row)

    return np.asarray(outputs(memory.start(rows[0]), step, jnp.arange(len(rows)), jnp.asarray(rows)))


@pytest.mark.parametrize("name", MEMORIES)
def test_weights(name):
    memory, a = MEMORIES[name], workload(MEMORIES[name], SIZE)
    np.testing.assert_allclose(scipy.linalg.toeplitz(memory.weights(SIZE), np.zeros(SIZE)), a, atol=1e-15)
    np.testing.assert_allclose(through(memory, np.eye(SIZE, dtype=np.float32)), a, rtol=1e-6)


@pytest.mark.parametrize("name", MEMORIES)
def test_noise_by_matrices(name):
    """A gamma is made of differences of prefixes, whose noise is R z: its noise is A D R z, D taking differences."""
    memory, differences = MEMORIES[name], np.eye(SIZE) - np.eye(SIZE, k=-1)
    for release in ALL:
        made, _, r = matrices(release, SIZE)
        wanted = ((workload(memory, SIZE) @ differences @ r) ** 2).sum(1)
        np.testing.assert_allclose(memory.variance(made), wanted, rtol=1e-5)


def test_the_releases_are_square_roots():
    """C C = A, as far as there are bands; a window's is the root of prefix sums as far as it reaches."""
    c = Discounted(0.9)(20).encoder()  # 20 bands
    np.testing.assert_allclose(c @ c, workload(Discounted(0.9), 20), atol=1e-6)
    np.testing.assert_allclose(Window(5)(5).column(), sqrt_column(5), rtol=1e-7)
    assert Window(5)(20).touched() == 5
    assert Discounted(0.9)(300).touched() == 20


@pytest.mark.parametrize(("memory", "share"), [(Discounted(0.5), 0.88), (Discounted(0.98), 0.15), (Window(10), 0.84)])
def test_less_noise_than_single_batches_and_than_prefix_sums(memory, share):
    n = 400
    mine, single, blt = (
        memory.variance(release).max() * release.sensitivity_sq()
        for release in (memory(n), RELEASES["input_perturbation"](n), RELEASES["blt"](n))
    )
    assert mine < min(share * single, blt)
    if isinstance(memory, Window):
        assert single == memory.batches
        return
    assert single == pytest.approx(1 / (1 - memory.decay**2), rel=1e-6)
    whole = sqrt_column(n) * memory.decay ** np.arange(n)  # with all bands: what is cut off costs less than 1 %
    assert mine < 1.01 * (whole**2).sum() ** 2
