"""Coefficients that are searched for: valid, as good as anybody's, and best for the visits that they are made for."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from factors import APART
from helpers import deep
from scipy.optimize import approx_fprime

from fedbandit_jax.privacy import BISR, BandMF, Users
from fedbandit_jax.privacy.releases import RELEASES, Blt, SqrtToeplitz, blt, make
from fedbandit_jax.privacy.releases.banded import banded_loss
from fedbandit_jax.privacy.releases.participation import of_column
from fedbandit_jax.privacy.releases.toeplitz import BandedToeplitz, sqrt_column

ONE, GROUP, ANY, SELDOM = Users(), Users(16), Users(16, 1), Users(4, 1, 20)


def noise(release, users):
    return release.largest_variance() * release.sensitivity_sq(users)


LENGTHS = deep([1, 5, 400, 2, 16, 100, 4096, 65_536], keep=range(3))


@pytest.mark.parametrize("n", LENGTHS)
def test_coefficients_are_valid(n):
    """C > 0, of bounded inverse, its first column largest; no factor is below the square root, buffers approach it."""
    best, losses = noise(SqrtToeplitz(n), ONE), []
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
        losses.append(noise(release, ONE))
        assert losses[-1] == pytest.approx(blt.blt_loss(theta, omega, n), rel=1e-9)
    assert min(losses) > best * (1 - 1e-9)
    assert (np.diff(losses) < 1e-6 * best).all()
    assert losses[2] < best * (1.002 if n <= 400 else 1.05)


def cut_off(bands, n):
    """The square root, cut off after some bands."""
    return BandedToeplitz(n, sqrt_column(bands).astype(np.float32), "Cut")


def test_first_and_all_bands():
    """One band is input perturbation, and all are the square root."""
    for users in (Users(), APART):
        assert noise(cut_off(1, 20), users) == noise(make("input_perturbation", 20), users)
        for release in (cut_off(20, 20), BISR(20)(20)):
            assert noise(release, users) == pytest.approx(noise(make("sqrt_toeplitz", 20), users), rel=1e-6)
        assert noise(BISR(1)(20), users) == noise(make("input_perturbation", 20), users)
    np.testing.assert_array_equal(cut_off(30, 5).column(), cut_off(5, 5).column())


@pytest.mark.parametrize(("bands", "users"), [(7, Users(8, 2, 3)), (4, APART), (12, ANY), (3, GROUP)])
def test_gradient(bands, users):
    c = np.append(1.0, np.sort(np.random.default_rng(0).random(bands - 1))[::-1])
    loss, slope = banded_loss(c, 23, users)
    expected = approx_fprime(c, lambda c: banded_loss(c, 23, users)[0], 1e-7)
    np.testing.assert_allclose(slope, expected, atol=1e-5)
    column = np.pad(c, (0, 23 - bands))
    r = np.cumsum(np.linalg.inv(scipy.linalg.toeplitz(column, np.zeros(23)))[:, 0])
    assert loss == pytest.approx(np.log((r**2).sum() * of_column(column, users)))


def test_few_batches():
    """Where a user may be in all of them it is best to send every batch alone, and the search runs to weights of 0."""
    for n in (3, 12):
        assert noise(BandMF(n, ANY)(n), ANY) == pytest.approx(n**2, rel=1e-3)


OFTEN = Users(5, 1, 8)
JAX_PRIVACY = [  # 2.0.0: buffered_blt.optimize(n=n), of three buffers or n - 1, and optimize_banded_toeplitz
    *((Blt, n, ONE, loss, 1e-6) for n, loss in ((3, 1.9338378906), (16, 3.7786657401), (400, 8.8492387055))),
    (Blt, 65_536, ONE, 22.063317467, 1e-6),
    (BandMF(20, SELDOM), 80, SELDOM, 34.519170, 2e-3),  # its buffers have 36.678860
    (BandMF(8, OFTEN), 40, OFTEN, 41.168213, 2e-3),  # and 43.988081
]


@pytest.mark.parametrize(("made", "n", "users", "loss", "rel"), JAX_PRIVACY)
def test_as_good_as_jax_privacy(made, n, users, loss, rel):
    """Last variance times squared norm."""
    assert noise(made(n), users) == pytest.approx(loss, rel=rel)


def test_table_of_docs():
    """The table of docs/privacy.md has the noise of every release, with the best number of bands."""
    text = (Path(__file__).parents[3] / "docs/privacy.md").read_text()
    cases, rows = (GROUP, ANY, APART, SELDOM), {}
    for users, bands, band in zip(cases, (80, 80, 5, 20), (80, 29, 5, 15)):
        made = RELEASES | {"BandMF": BandMF(bands, users), "BISR": BISR(band)}
        for name, release in made.items():
            rows.setdefault(name, []).append(pytest.approx(noise(release(80), users), rel=2e-3))
    found = re.findall(r"^\| `(\w+)`(?:, `\w+`)?" + r" \| \**([\d.,]+)\**" * 4 + r" \|$", text, re.M)
    assert {name: [float(cell.replace(",", "")) for cell in cells] for name, *cells in found} == rows


@pytest.mark.parametrize("n", blt.TABLE)
def test_table_of_coefficients(n):
    """It is what the optimiser finds today."""
    theta, omega = blt.optimise(n, 3)
    assert noise(Blt(n), ONE) == pytest.approx(blt.blt_loss(theta, omega, n), rel=1e-6)
    np.testing.assert_allclose(Blt(n).theta, theta, atol=1e-4)
    np.testing.assert_allclose(Blt(n).omega, omega, atol=1e-4)
