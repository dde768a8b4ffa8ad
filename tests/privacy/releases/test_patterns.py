"""Releases for users who return: factors of the prefix sum, runs, and less noise than others have for the pattern."""

import csv
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers import deep, variance_test
from scipy.optimize import approx_fprime, minimize
from test_matrices import decoder
from test_noise_in_runs import ALPHA, N, drawn, private, released_noise

import fedbandit_jax as fb
from fedbandit_jax.core import struct
from fedbandit_jax.privacy import Banded, BandMF, Discounted, MultiBlt, Users, Window
from fedbandit_jax.privacy.releases import RELEASES, Release, make
from fedbandit_jax.privacy.releases.banded import banded_loss
from fedbandit_jax.privacy.releases.blt import blt_inverse
from fedbandit_jax.privacy.releases.participation import of_column
from fedbandit_jax.privacy.releases.release import outputs

APART = Users(16, 1, 5)
GROUP, ANY, SELDOM = Users(16), Users(16, 1), Users(4, 1, 20)
RECIPES = {"Banded": Banded(3), "BandMF": BandMF(4, Users(3, 1, 2)), "MultiBlt": MultiBlt(APART, 2)}
RECIPES |= {"Discounted": Discounted(0.7), "Window": Window(3)}


def noise(release, users):
    return release.largest_variance() * release.sensitivity_sq(users)


@pytest.mark.parametrize("n", [1, 2, 8, pytest.param(33, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RECIPES)
def test_closed_forms(name, n):
    """The factors multiply to the prefix sum, and closed forms are those of the matrices, as of all releases."""
    release = RECIPES[name](n)
    c, r = Release.encoder(release), decoder(release)
    assert struct.is_sealed(release)
    np.testing.assert_allclose(r @ c, np.tril(np.ones((n, n))), atol=1e-12)
    np.testing.assert_allclose(release.encoder(), c, atol=1e-12)
    np.testing.assert_allclose(release.prefix_variance(), (r**2).sum(1), rtol=1e-10)
    alone = (np.diff(r, axis=0, prepend=0) ** 2).sum(1)
    np.testing.assert_allclose(release.batch_variance(), alone, rtol=1e-10)
    assert release.touched() == np.count_nonzero(c, axis=0).max()
    assert release.message_bound() == pytest.approx(c.sum(1).max(), rel=1e-12)
    b = release.noise_factor()
    np.testing.assert_allclose(b @ b.T, r @ r.T, rtol=1e-10, atol=1e-12)
    column = release.column()
    assert (np.diff(column) <= 0).all()
    assert column.min() >= 0
    for users in (Users(), Users(3, 1, 2), Users(5, 2, 3), GROUP):
        found = release.sensitivity(users)
        assert found.exact
        assert found.squared == pytest.approx(Release.sensitivity_sq(release, users), rel=1e-9)


@pytest.mark.parametrize("name", RECIPES)
def test_law(key, name):
    """Of all prefixes, by one draw per synchronisation; 7 % more or less is ten standard errors."""
    release = RECIPES[name](6)
    sample = drawn(release, key, "step")
    for z, v in zip(sample, release.prefix_variance()):
        assert variance_test(z, v) > ALPHA
        assert variance_test(z, 1.07 * v) < ALPHA
        assert variance_test(z, v / 1.07) < ALPHA
    cov = decoder(release) @ decoder(release).T
    np.testing.assert_allclose(np.corrcoef(sample), cov / np.sqrt(np.outer(*[cov.diagonal()] * 2)), atol=6 / N**0.5)


def test_a_certificate_names_what_was_asked_for():
    for recipe in (MultiBlt(APART), BandMF(3, APART)):
        bound, *_ = private(7, release=recipe)
        assert bound.guarantee().release == type(recipe).__name__


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_noise_in_a_run(key, name):
    """The statistics that decide carry the noise of the release; 10 % more and 20 % less standard deviation is seen."""
    bound, env, horizon = private(7, release=RECIPES[name])
    sample, release = released_noise(bound, env, horizon, key), RECIPES[name](7)
    sigma = fb.privacy.calibrate(fb.privacy.Budget(1.0, 0.1), n_syncs=7, release=RECIPES[name]).sigma
    assert bound.guarantee().claim == "certified"
    assert bound.guarantee().release == release.of
    for k, variance in enumerate(3 * sigma**2 * release.prefix_variance()):
        assert variance_test(sample[:, k, 4], variance) > ALPHA
        assert variance_test(sample[:, k, 4], variance * 1.1**2) < 100 * ALPHA
        assert variance_test(sample[:, k, 4], variance / 1.2**2) < ALPHA


@pytest.mark.parametrize("name", RECIPES)
def test_other_horizons_share_a_program(name):
    """S and coefficients are leaves, and states do not grow with S."""
    few, many = RECIPES[name](9), RECIPES[name](15)
    assert jax.tree.structure(few) == jax.tree.structure(many)

    @jax.jit
    def prefixes(release, z):
        return outputs(release.init(()), release.step, jnp.arange(1, 10), z)

    for release in (few, many):
        np.testing.assert_allclose(prefixes(release, np.eye(9)[0]), release.response()[:9], rtol=1e-5, atol=1e-6)
    assert prefixes._cache_size() == 1


def test_memory():
    for recipe, silo, server in ((Banded(10), 9, 10), (BandMF(6, APART), 5, 6), (MultiBlt(APART), 3, 4)):
        release = recipe(80)
        for init, arrays in ((release.encode_init, silo), (release.init, server)):
            leaves = jax.tree.leaves(init((5, 6)))
            assert sum(leaf.size for leaf in leaves) == arrays * 30
            assert all(leaf.dtype == jnp.float32 for leaf in leaves)


def test_first_and_all_bands():
    """One band is input perturbation, and all are the square root."""
    for users in (Users(), APART):
        assert noise(Banded(1)(20), users) == noise(make("input_perturbation", 20), users)
        assert noise(Banded(20)(20), users) == pytest.approx(noise(make("sqrt_toeplitz", 20), users))
    np.testing.assert_array_equal(Banded(30)(5).column(), Banded(5)(5).column())


@pytest.mark.parametrize(("bands", "users"), [(7, Users(9, 2, 3)), (4, APART), (12, ANY), (3, GROUP)])
def test_gradient(bands, users):
    c = np.append(1.0, np.sort(np.random.default_rng(0).random(bands - 1))[::-1])
    loss, slope = banded_loss(c, 23, users)
    expected = approx_fprime(c, lambda c: banded_loss(c, 23, users)[0], 1e-7)
    np.testing.assert_allclose(slope, expected, atol=1e-5)
    column = np.pad(c, (0, 23 - bands))
    r = np.cumsum(np.linalg.inv(scipy.linalg.toeplitz(column, np.zeros(23)))[:, 0])
    assert loss == pytest.approx(np.log((r**2).sum() * of_column(column, users).squared))


def test_less_noise_than_others():
    """S = 80: what the rough numbers of the design were, and what optimising adds."""
    blt, root = make("blt", 80), make("sqrt_toeplitz", 80)
    assert noise(root, GROUP) == pytest.approx(1549, abs=1)
    assert noise(root, ANY) == pytest.approx(881, abs=1)
    assert noise(Banded(10)(80), APART) == pytest.approx(338, abs=1)
    assert noise(Banded(20)(80), SELDOM) == pytest.approx(36.4, abs=0.1)
    for users, bands, limit in ((ANY, 80, 640), (APART, 5, 312), (SELDOM, 20, 34.6)):
        best = noise(BandMF(bands, users)(80), users)
        assert best < limit
        assert best < noise(Banded(bands)(80), users)
        assert noise(MultiBlt(users, 1)(80), users) < 1.1 * best < noise(blt, users)


@pytest.mark.slow
@pytest.mark.parametrize(("bands", "users"), [(5, APART), (8, Users(4, 2, 3)), (12, ANY)])
def test_a_search_without_gradients_finds_nothing_better(bands, users):
    """Another method, from other starts, on coefficients that do not increase: no less noise but for 0.1 %."""
    n, rng = 40, np.random.default_rng(1)

    def objective(x):
        return banded_loss(np.cumprod(np.append(1.0, 1 / (1 + np.exp(-x)))), n, users)[0]

    options = {"maxiter": 4000, "maxfev": 20_000, "adaptive": True, "xatol": 1e-5, "fatol": 1e-9}
    starts = [rng.uniform(-1, 3, bands - 1) for _ in range(4)]
    best = min(minimize(objective, x, method="Nelder-Mead", options=options).fun for x in starts)
    assert np.log(noise(BandMF(bands, users)(n), users)) < best + 1e-3


@pytest.mark.parametrize("users", deep([APART, Users(), ANY, SELDOM, Users(6, 2, 4)], keep={0}))
def test_multi_blt_is_valid(users):
    release = MultiBlt(users)(50)
    theta, omega = (np.asarray(x, float) for x in (release.theta, release.omega))
    assert ((theta > 0) & (theta < 1) & (omega > 0)).all()
    assert omega.sum() < 1
    assert (np.abs(blt_inverse(theta, omega)[0]) < 1).all()
    assert noise(release, users) <= noise(make("blt", 50), users) * (1 + 1e-4)


def test_multi_blt_of_few_batches():
    """Where a user may be in all of them it is best to send every batch alone, and the search runs to weights of 0."""
    for n in (3, 12):
        assert noise(MultiBlt(ANY)(n), ANY) == pytest.approx(n**2, rel=1e-3)


def test_every_release_goes_with_them():
    """As any other release: with these trust models, and compared with the least noise."""
    for recipe in RECIPES.values():
        assert fb.privacy.relative_std(recipe(20)) >= 1
        for trust in ("silo_local", "silo_local_matrix", "secagg", "central"):
            fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), recipe, trust)
        assert type(recipe(20)) not in RELEASES.values()


def test_refusals():
    for make_one, error, words in (
        (lambda: Banded(0), ValueError, r"bands must be in \[1, 1024\], got 0|bands must be >= 1, got 0"),
        (lambda: Banded(2.5), TypeError, "bands must be an integer >= 1, got 2.5"),
        (lambda: BandMF(2000, APART), ValueError, r"bands must be in \[1, 1024\], got 2000"),
        (lambda: BandMF(3, 4), TypeError, "users must be an fb.privacy.Users, got 4"),
        (lambda: MultiBlt("x"), TypeError, "users must be an fb.privacy.Users, got 'x'"),
        (lambda: MultiBlt(APART, 0), ValueError, "n_buffers must be >= 1, got 0"),
        (lambda: BandMF(3, APART)(10**6), ValueError, r"n_syncs must be in \[1, 65536\], got 1000000"),
        (lambda: MultiBlt(APART)(10**6), ValueError, r"n_syncs must be in \[1, 65536\], got 1000000"),
    ):
        with pytest.raises(error, match=words):
            make_one()


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
    assert {name for name, *_ in rows} == {*RELEASES, "Banded", "BandMF", "MultiBlt"} - {"prefix_tree"}
    for name, *cells in rows:
        for (panel, users), cell in zip(cases, cells):
            value = drawn[name, panel, users.visits]
            assert float(cell.replace(",", "")) == pytest.approx(value, rel=2e-3)
            if name in RELEASES:
                assert value == pytest.approx(noise(make(name, 80), users), rel=1e-4)
