"""The release for batches that grow: the best for its weights, with columns of norm 1."""

import numpy as np
import pytest
from helpers import refused

from fedbandit_jax.privacy.releases import RELEASES, Decaying, decaying, make


def weighted(release, decay):
    return (decay ** -np.arange(release.n_syncs) * release.prefix_variance() * release.sensitivity_sq()).sum()


@pytest.mark.parametrize("decay", [1.5, 10.0])
def test_it_is_the_best_for_its_weights(decay):
    """No release by name has less weighted variance, nor any C nearby with columns of norm 1, column by column."""
    n, rng = 64, np.random.default_rng(0)
    best, sums = Decaying(decay)(n), np.tril(np.ones((n, n)))
    weights = np.maximum(decay ** -np.arange(n), 1e-12)
    for j in range(0, n - 1, 3):
        variances = []
        for size in (0.0, 0.05, -0.05):
            c = best.encoder()
            c[j + 1 :, j] += size * rng.random(n - 1 - j)
            c[:, j] /= np.linalg.norm(c[:, j])
            variances.append(weights[j:] @ (np.linalg.solve(c.T, sums.T) ** 2).sum(0)[j:])
        assert variances[0] < min(variances[1:])
    for name in RELEASES:
        assert weighted(make(name, n), decay) > (1.1 if decay == 1.5 else 1) * weighted(best, decay)


def test_it_is_made_once_and_in_few_steps(monkeypatch):
    """In 65 steps for weights down to 1.5^-27: by eigenvalues of B' B rounding moved the fixed point for ever."""
    steps, svd = [], np.linalg.svd
    decaying._optimal.cache_clear()  # of what other tests have made
    monkeypatch.setattr(np.linalg, "svd", lambda x: steps.append(1) or svd(x))
    release = Decaying(1.5)(28)
    assert 40 < len(steps) <= 100
    assert weighted(release, 1.5) == pytest.approx(5.9174409336131, rel=1e-6)  # of 1,478 steps
    steps.clear()
    assert Decaying(1.5)(28) is release
    assert not steps
    with refused("n_syncs", 300):
        Decaying(1.1)(300)
