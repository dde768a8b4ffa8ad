"""The least noise of any release: against singular values by NumPy, exact optima, and every release that there is."""

import math

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.privacy.releases import RELEASES
from fedbandit_jax.privacy.releases.release import least_std, relative_std


def prefix_sums(n):
    return np.tril(np.ones((n, n)))


def gamma_2(n, rounds):
    """A lower bound of the best r c that rises to it: |diag(p)^(1/2) A diag(q)^(1/2)|_* for probabilities p and q.

    As in the proof of the bound, |R|_F and |C|_F with rows and columns weighted by p and q are at most r and c. The
    weights are moved towards the diagonals of the absolute values of that matrix, which are p and q at the maximum.
    """
    p = q = np.ones(n) / n
    for _ in range(rounds):
        u, s, v = np.linalg.svd(np.sqrt(p)[:, None] * prefix_sums(n) * np.sqrt(q))
        p, q = (u**2 @ s) / s.sum(), (s @ v**2) / s.sum()
    return s.sum()


@pytest.mark.parametrize("n", [1, 2, 3, 16, 64, 150])
def test_the_bound_is_the_mean_singular_value(n):
    assert least_std(n) == pytest.approx(np.linalg.svd(prefix_sums(n), compute_uv=False).sum() / n, rel=1e-12)


def test_the_bound_by_hand():
    """S = 1: 1. S = 2: singular values (sqrt 5 +- 1) / 2. Large S: (ln S) / pi and a constant."""
    assert least_std(1) == pytest.approx(1)
    assert least_std(2) == pytest.approx(math.sqrt(5) / 2)
    assert least_std(10**6) - least_std(10**5) == pytest.approx(math.log(10) / math.pi, abs=1e-4)


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 64, 100, 1000])
def test_no_release_is_below_it(name, n):
    """Nor below the optimum, where that is cheap to find."""
    release = RELEASES[name](n)
    r, c = math.sqrt(release.prefix_variance().max()), math.sqrt(release.sensitivity_sq())
    assert relative_std(release) == pytest.approx(r * c / least_std(n), rel=1e-9)
    assert relative_std(release) >= 1 - 1e-9
    if n <= 16:
        assert r * c >= gamma_2(n, 30) * (1 - 1e-9)


def test_random_factorisations_are_not_below_it():
    """A = (A B^-1) B for any B, causal or not."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        b = np.linalg.qr(rng.standard_normal((12, 12)))[0] @ np.diag(rng.uniform(0.5, 2, 12)) @ prefix_sums(12)
        r = prefix_sums(12) @ np.linalg.inv(b)
        assert np.sqrt((r**2).sum(1).max() * (b**2).sum(0).max()) >= least_std(12)


@pytest.mark.parametrize(("n", "best"), [(2, 1.0328), (16, 1.047), pytest.param(64, 1.035, marks=pytest.mark.slow)])
def test_how_far_the_bound_is_from_the_optimum(n, best):
    """At S = 2 the best release has 2 / sqrt 3: R = C' up to order."""
    assert gamma_2(n, 40) / least_std(n) == pytest.approx(best, abs=5e-4)
    if n == 2:
        assert gamma_2(n, 40) == pytest.approx(2 / math.sqrt(3))


@pytest.mark.slow
def test_how_far_the_bound_is_from_the_optimum_at_400():
    assert gamma_2(400, 12) / least_std(400) == pytest.approx(1.022, abs=5e-4)


def test_what_is_no_release():
    with pytest.raises(TypeError, match="release must be an fb.privacy.Release, got 'blt'"):
        fb.privacy.relative_std("blt")  # pyright: ignore
    with pytest.raises(ValueError, match="n_syncs must be >= 1, got 0"):
        fb.privacy.least_std(0)
