"""The least noise of any release: against singular values by NumPy, exact optima, and every release that there is."""

import math

import numpy as np
import pytest
from factors import ALL

from fedbandit_jax.privacy.releases.release import least_std, relative_std


def prefix_sums(n):
    return np.tril(np.ones((n, n)))


def gamma_2(n, rounds):
    """A lower bound of the best r c that rises to it: |diag(p)^(1/2) A diag(q)^(1/2)|_* for probabilities p and q."""
    p = q = np.ones(n) / n
    for _ in range(rounds):
        u, s, v = np.linalg.svd(np.sqrt(p)[:, None] * prefix_sums(n) * np.sqrt(q))
        p, q = (u**2 @ s) / s.sum(), (s @ v**2) / s.sum()
    return s.sum()


@pytest.mark.parametrize("n", [1, 2, 3, 16, 150])
def test_the_bound_is_the_mean_singular_value(n):
    """(ln S) / pi and a constant, if S is large."""
    assert least_std(10**6) - least_std(10**5) == pytest.approx(math.log(10) / math.pi, abs=1e-4)
    assert least_std(n) == pytest.approx(np.linalg.svd(prefix_sums(n), compute_uv=False).sum() / n, rel=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_no_release_is_below_it(name):
    """Nor below the optimum, where that is cheap to find."""
    for n in (1, 2, 3, 7, 16, 64, 1000):
        if n > 64 and name in ("Decaying", "BandMF"):
            continue
        release = ALL[name](n)
        r, c = math.sqrt(release.prefix_variance().max()), math.sqrt(release.sensitivity_sq())
        assert relative_std(release) == pytest.approx(r * c / least_std(n), rel=1e-9)
        assert relative_std(release) >= 1 - 1e-9
        if n <= 16:
            assert r * c >= gamma_2(n, 30) * (1 - 1e-9)
