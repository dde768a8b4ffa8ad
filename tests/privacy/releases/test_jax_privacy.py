"""Sensitivities and optima beside those of another library, which computes some of them by other code."""

import jax
import numpy as np
import pytest

from fedbandit_jax.privacy import Banded, BandMF, MultiBlt, Users
from fedbandit_jax.privacy.releases import make
from fedbandit_jax.privacy.releases.participation import of_encoder

pytestmark = pytest.mark.slow
APART = [(16, 5), (4, 20), (3, 1), (7, 3)]  # visits, apart


@pytest.fixture(scope="module")
def theirs():
    pytest.importorskip("jax_privacy")
    from jax_privacy.matrix_factorization import buffered_toeplitz, sensitivity, toeplitz

    with jax.enable_x64(True):
        yield toeplitz, buffered_toeplitz, sensitivity


@pytest.mark.parametrize(("visits", "apart"), APART)
def test_sensitivity_of_columns(theirs, visits, apart):
    toeplitz, *_ = theirs
    for release in (make("sqrt_toeplitz", 80), make("blt", 80), Banded(10)(80), BandMF(6, Users(4, 1, 3))(80)):
        expected = float(toeplitz.minsep_sensitivity_squared(release.column(), apart, visits))
        assert release.sensitivity_sq(Users(visits, 1, apart)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("visits", "apart"), APART)
def test_bounds_of_matrices_are_not_above(theirs, visits, apart):
    *_, sensitivity = theirs
    rng, n = np.random.default_rng(0), 30
    for c in (make("tree", n).encoder(), np.tril(rng.standard_normal((n, n))), np.tril(rng.random((n, n)))):
        bound = float(sensitivity.get_min_sep_sensitivity_upper_bound(c, apart, visits))
        assert of_encoder(c, Users(visits, 1, apart)).squared <= bound**2 * (1 + 1e-6)


def test_optimised_bands(theirs):
    """Bands that are apart: their coefficients have the least of last variance times squared norm."""
    toeplitz, *_ = theirs
    for n, bands, visits in ((80, 5, 16), (80, 20, 4), (40, 8, 5)):
        column = np.asarray(toeplitz.optimize_banded_toeplitz(n, bands, reduction_fn=lambda v: v[-1]), float)
        variance = float(toeplitz.loss(column, n=n, reduction_fn=lambda v: v[-1]))
        release = BandMF(bands, Users(visits, 1, bands))(n)
        ours = release.largest_variance() * release.sensitivity_sq(Users(visits, 1, bands))
        assert ours == pytest.approx(variance * visits * (column @ column), rel=2e-3)


def test_optimised_buffers(theirs):
    _, buffered, _ = theirs
    for n, visits, apart in ((80, 16, 5), (80, 4, 20)):
        blt = buffered.optimize(n=n, min_sep=apart, max_participations=visits, min_buffers=3, max_buffers=3)
        release = make("blt", n)
        for name, value in (("theta", blt.buf_decay), ("omega", blt.output_scale)):
            object.__setattr__(release, name, np.asarray(value, float))
        users = Users(visits, 1, apart)
        best = MultiBlt(users)(n)
        limit = release.largest_variance() * release.sensitivity_sq(users)
        assert best.largest_variance() * best.sensitivity_sq(users) <= limit * 1.005
