"""Releases for users who return: valid coefficients, and less noise than others have for the pattern."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from factors import APART
from scipy.optimize import approx_fprime

from fedbandit_jax.privacy import BISR, BandMF, Users
from fedbandit_jax.privacy.releases import RELEASES, make
from fedbandit_jax.privacy.releases.banded import banded_loss
from fedbandit_jax.privacy.releases.participation import of_column
from fedbandit_jax.privacy.releases.toeplitz import BandedToeplitz, sqrt_column

GROUP, ANY, SELDOM = Users(16), Users(16, 1), Users(4, 1, 20)


def noise(release, users):
    return release.largest_variance() * release.sensitivity_sq(users)


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


def test_less_noise_than_others():
    """S = 80: of square roots cut off after some bands (Kalinin & Lampert 2024), and what optimising adds."""
    blt, root = make("blt", 80), make("sqrt_toeplitz", 80)
    assert noise(root, GROUP) == pytest.approx(1549, abs=1)
    assert noise(root, ANY) == pytest.approx(881, abs=1)
    assert noise(cut_off(10, 80), APART) == pytest.approx(338, abs=1)
    assert noise(cut_off(20, 80), SELDOM) == pytest.approx(36.4, abs=0.1)
    for users, bands, limit in ((ANY, 80, 640), (APART, 5, 312), (SELDOM, 20, 34.6)):
        best = noise(BandMF(bands, users)(80), users)
        assert best < limit
        assert best < noise(cut_off(bands, 80), users)
        assert 1.1 * best < noise(blt, users)


def test_few_batches():
    """Where a user may be in all of them it is best to send every batch alone, and the search runs to weights of 0."""
    for n in (3, 12):
        assert noise(BandMF(n, ANY)(n), ANY) == pytest.approx(n**2, rel=1e-3)


@pytest.mark.parametrize(
    ("n", "bands", "visits", "banded", "buffers"), [(80, 20, 4, 34.519170, 36.678860), (40, 8, 5, 41.168213, 43.988081)]
)
def test_as_good_as_jax_privacy(n, bands, visits, banded, buffers):
    """Last variance times squared norm in jax_privacy 2.0.0, optimize_banded_toeplitz; its three buffers have more."""
    found = noise(BandMF(bands, Users(visits, 1, bands))(n), Users(visits, 1, bands))
    assert found == pytest.approx(banded, rel=2e-3)
    assert found < buffers


def test_table_of_docs():
    """The table of docs/privacy.md has the numbers of the figure, and these are those of releases by name."""
    root = Path(__file__).parents[3]
    drawn = {}
    lines = (root / "experiments/figures/releases.csv").read_text().splitlines()
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        drawn[row["label"], row["panel"], float(row["x"])] = float(row["y"])
    panels = list(dict.fromkeys(panel for _, panel, _ in drawn))
    cases = [*zip(panels[:3], (GROUP, ANY, APART)), (panels[3], SELDOM)]
    rows = re.findall(
        r"^\| `(\w+)`(?:, `\w+`)?" + r" \| \**([\d.,]+)\**" * 4 + r" \|$", (root / "docs/privacy.md").read_text(), re.M
    )
    assert {name for name, *_ in rows} == {*RELEASES, "BandMF", "BISR"}
    for (panel, users), bands in zip(cases, (80, 29, 5, 15)):  # the best of all bands
        drawn["BISR", panel, users.visits] = noise(BISR(bands)(80), users)
    for name, *cells in rows:
        for (panel, users), cell in zip(cases, cells):
            value = drawn[name, panel, users.visits]
            assert float(cell.replace(",", "")) == pytest.approx(value, rel=2e-3)
            if name in RELEASES:
                assert value == pytest.approx(noise(make(name, 80), users), rel=1e-4)
