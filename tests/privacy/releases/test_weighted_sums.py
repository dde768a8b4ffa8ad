"""Sums that forget: their weights, the noise in them under every release, and the releases that suit them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers import variance_test, workload
from test_matrices import decoder
from test_noise_in_runs import ALPHA, drawn

from fedbandit_jax.privacy import RELEASES, Banded, Discounted, Users, Window
from fedbandit_jax.privacy.releases.release import outputs
from fedbandit_jax.privacy.releases.toeplitz import sqrt_column

MEMORIES = {"discounted": Discounted(0.7), "window": Window(3), "one batch": Window(1)}
LENGTH = 9


def through(memory, rows):
    """What `add` makes of rows (n, ...), one after the other."""

    def step(state, k, row):
        return memory.add(state, row)

    return np.asarray(outputs(memory.start(rows[0]), step, jnp.arange(len(rows)), jnp.asarray(rows)))


@pytest.mark.parametrize("name", MEMORIES)
def test_weights(name):
    memory, a = MEMORIES[name], workload(MEMORIES[name], LENGTH)
    np.testing.assert_allclose(scipy.linalg.toeplitz(memory.weights(LENGTH), np.zeros(LENGTH)), a, atol=1e-15)
    np.testing.assert_allclose(through(memory, np.eye(LENGTH, dtype=np.float32)), a, rtol=1e-6)


@pytest.mark.parametrize("release", [*RELEASES.values(), Banded(2), *MEMORIES.values()])
@pytest.mark.parametrize("name", MEMORIES)
def test_noise_by_matrices(name, release):
    """A gamma is made of differences of prefixes, whose noise is R z: its noise is A D R z, D taking differences."""
    memory, made = MEMORIES[name], release(LENGTH)
    differences = np.eye(LENGTH) - np.eye(LENGTH, k=-1)
    wanted = ((workload(memory, LENGTH) @ differences @ decoder(made)) ** 2).sum(1)
    np.testing.assert_allclose(memory.variance(made), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", MEMORIES)
def test_law(key, name):
    """Of sums that forget, from draws of prefixes; 7 % more or less is ten standard errors."""
    memory = MEMORIES[name]
    release = memory(LENGTH)
    prefixes = np.asarray(drawn(release, key, "step"), np.float32)
    for z, v in zip(through(memory, np.diff(prefixes, axis=0, prepend=0)), memory.variance(release)):
        assert variance_test(z, v) > ALPHA
        assert variance_test(z, 1.07 * v) < ALPHA
        assert variance_test(z, v / 1.07) < ALPHA


def test_the_releases_are_square_roots():
    """C C = A, as far as there are bands; a window's is the root of prefix sums as far as it reaches."""
    c = Discounted(0.9)(20).encoder()  # 20 bands
    np.testing.assert_allclose(c @ c, workload(Discounted(0.9), 20), atol=1e-6)
    np.testing.assert_allclose(Window(5)(5).column(), sqrt_column(5), rtol=1e-7)
    assert Window(5)(20).touched() == 5
    assert Discounted(0.9)(300).touched() == 20


@pytest.mark.parametrize(("decay", "share"), [(0.5, 0.88), (0.9, 0.41), (0.95, 0.27), (0.98, 0.15)])
def test_less_noise_than_single_batches_and_than_prefix_sums(decay, share):
    memory, n = Discounted(decay), 400
    mine, single, blt = (
        memory.variance(release).max() * release.sensitivity_sq()
        for release in (memory(n), RELEASES["input_perturbation"](n), RELEASES["blt"](n))
    )
    assert single == pytest.approx(1 / (1 - decay**2), rel=1e-6)
    assert mine < share * single
    assert mine < blt
    whole = sqrt_column(n) * decay ** np.arange(n)  # with all bands: what is cut off costs less than 1 %
    assert mine < 1.01 * (whole**2).sum() ** 2


def test_windows_have_less_noise_too():
    for batches in (2, 10, 50):
        memory = Window(batches)
        mine, single = (
            memory.variance(release).max() * release.sensitivity_sq()
            for release in (memory(400), RELEASES["input_perturbation"](400))
        )
        assert single == batches
        assert mine < 0.84 * single


@pytest.mark.parametrize("users", [Users(3, 1, 4), Users(5, 2, 1), Users(4)])
def test_users_who_return_move_it_by_what_brute_force_finds(users):
    """All patterns of whole batches of S = 9, one after the other: exact, as coefficients do not increase."""
    for memory in (Discounted(0.6), Window(4)):
        release = memory(LENGTH)
        gram, best = release.encoder().T @ release.encoder(), 0.0

        def grow(counts, k, left, last, gram=gram):
            nonlocal best
            best = max(best, float(counts @ gram @ counts))
            for at in range(k, LENGTH):
                if last is None or at - last >= users.apart:
                    for n in range(1, min(users.most, left) + 1):
                        more = counts.copy()
                        more[at] = n
                        grow(more, at + 1, left - n, at)

        grow(np.zeros(LENGTH), 0, users.visits, None)
        found = release.sensitivity(users)
        assert found.exact
        assert found.squared == pytest.approx(best, rel=1e-9)


def test_other_decays_share_a_program():
    one, other = Discounted(0.9), Discounted(0.8)
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert jax.tree.structure(Window(2)) != jax.tree.structure(Window(3))


def test_refusals():
    for wrong, error, words in (
        (lambda: Discounted(1.0), ValueError, r"decay must be in \(0, 1\), got 1.0"),
        (lambda: Discounted(0.999), ValueError, r"decay must be in \[0, 0.998047\], got 0.999"),
        (lambda: Discounted("x"), TypeError, "decay must be a number in \\(0, 1\\), got 'x'"),
        (lambda: Window(0), ValueError, "batches must be >= 1, got 0"),
        (lambda: Window(2000), ValueError, r"batches must be in \[1, 1024\], got 2000"),
        (lambda: Window(2).variance(Window(2)(3000)), ValueError, "n_syncs must be <= 2048 for sums that forget"),
    ):
        with pytest.raises(error, match=words):
            wrong()
