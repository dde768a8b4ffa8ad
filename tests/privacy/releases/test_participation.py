"""How far one user moves all messages who comes several times: against all patterns there are."""

import functools
import itertools

import numpy as np
import pytest
import scipy.linalg
from factors import ALL
from helpers import deep

from fedbandit_jax.privacy import Budget, Users
from fedbandit_jax.privacy.releases import make, trees
from fedbandit_jax.privacy.releases.participation import of_column, of_encoder
from fedbandit_jax.privacy.trust.requirement import Requirement

SIZES = deep([3, 11, 1, 2, 4, 5, 6, 7, 8, 9, 10, 12], keep={0, 1})
PATTERNS = [
    Users(visits, per_batch, apart)
    for visits in (1, 2, 3, 4, 5)
    for per_batch in range(1, visits + 1)
    if visits % per_batch == 0
    for apart in (1, 2, 3, 4, 7, 12)
]


@functools.cache
def patterns(n, users):
    """All valid numbers of contributions, (patterns, n), one batch after the other."""

    def rows(left, wait, room):
        if not room:
            return [()]
        found = [(0, *row) for row in rows(left, max(wait - 1, 0), room - 1)]
        for count in range(1, 0 if wait else min(left, users.most) + 1):
            found += [(count, *row) for row in rows(left - count, users.apart - 1, room - 1)]
        return found

    return np.array(rows(users.visits, 0, n), float)


def brute(c, users):
    """The largest n' |C'C| n over all patterns: a bound, which aligned moves reach if C'C >= 0."""
    all_patterns = patterns(c.shape[1], users)
    return ((all_patterns @ np.abs(c.T @ c)) * all_patterns).sum(1).max()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ALL)
def test_shipped_releases_are_exact(name, n):
    """All but trees, whose bound is that of their matrix, which may be larger."""
    release = make(ALL[name], n)
    c, rel = release.encoder(), 1e-5 if name == "Decaying" else 1e-9
    for users in PATTERNS:
        reached = brute(c, users)
        assert name == "tree" or release.sensitivity_sq(users) == pytest.approx(reached, rel=rel), users
        loosest = 8 / 7 if name == "tree" else 1.1  # a tree of 12 batches: 8, where 7 is reached
        for found in (of_encoder(c, users), release.sensitivity_sq(users)):
            assert reached * (1 - rel) <= found <= loosest * reached * (1 + 1e-9)


@pytest.mark.parametrize("silos", [1, 2, 3, "together"])
@pytest.mark.parametrize("name", ALL)
def test_all_placements_at_several_silos(name, silos):
    """Of all ways to place the visits of one user in up to three silos: separate noise adds squares, one noise moves.

    Trees have a bound. One silo has today's number, to the bit; so have silos that count together, at any number.
    """
    n, most = 4, 3 if silos == "together" else silos
    release = make(ALL[name], n)
    gram, rel = np.abs((c := release.encoder()).T @ c), 1e-5 if name == "Decaying" else 1e-9
    for users in (Users(1), Users(2), Users(2, 1), Users(2, 1, 2), Users(3, 1), Users(2, 1, 3), Users(4, 2, 2)):
        each = patterns(n, users)
        placed = each[np.array([*itertools.product(range(len(each)), repeat=most)])]  # (placements, silos, n)
        if silos == "together":
            valid = {tuple(row) for row in each}
            placed = placed[[tuple(row) in valid for row in placed.sum(1)]]
        total = placed.sum(1)
        moved = {False: ((total @ gram) * total).sum(-1).max(), True: ((placed @ gram) * placed).sum((-1, -2)).max()}
        unit = Users(users.visits, users.per_batch, users.apart, silos)
        for by_silo, reached in moved.items():
            found = Requirement(budget=Budget(1.0, 0.1), release=release, users=unit, by_silo=by_silo).kappa
            assert reached * (1 - rel) <= found
            assert name == "tree" or found == pytest.approx(reached, rel=rel), (unit, by_silo)
            assert silos not in (1, "together") or found == release.sensitivity_sq(users)


KINDS = {
    "signed": lambda rng, n: np.tril(rng.standard_normal((n, n))),
    "positive": lambda rng, n: np.tril(rng.random((n, n))),
    "rising": lambda rng, n: np.tril(rng.random((n, n)))[::-1, ::-1].T,
    "banded": lambda rng, n: np.tril(np.triu(rng.standard_normal((n, n)), -2)),
    "toeplitz": lambda rng, n: scipy.linalg.toeplitz(rng.standard_normal(n), np.zeros(n)),
    "falling": lambda rng, n: scipy.linalg.toeplitz(np.sort(rng.random(n))[::-1], np.zeros(n)),
    "parts": lambda rng, n: rng.random((3 * n, n)) * (rng.random((3 * n, n)) < 0.4) + np.eye(3 * n, n),
    "sparse": lambda rng, n: np.tril(rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.3)) + np.eye(n),
}


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_random_matrices(kind):
    """Never below what moves reach, exact where it says so, above all patterns by 30 % at most, 3 % on average."""
    rng, slack = np.random.default_rng(0), []
    for users in PATTERNS:
        c = KINDS[kind](rng, int(rng.integers(2, 10)))
        bound = brute(c, users)
        found = of_encoder(c, users)
        assert found >= bound * (1 - 1e-9), users
        assert found <= users.visits**2 * (c**2).sum(0).max() * (1 + 1e-9)
        slack.append(found / bound)
        if kind in ("toeplitz", "falling"):  # a column is bounded without its matrix, and exactly if it falls
            by_column = of_column(c[:, 0], users)
            assert by_column >= bound * (1 - 1e-8)
            falls = kind == "toeplitz" or by_column == pytest.approx(bound, rel=1e-9)
            assert falls == (kind == "toeplitz" or of_encoder(c[:, ::-1], users) == pytest.approx(bound, rel=1e-9))
    assert max(slack) < 1.3
    assert np.mean(slack) < 1.03


def test_levels_bound_trees(monkeypatch):
    """What is used for many batches: above what is reached, and not above group privacy."""
    monkeypatch.setattr(trees, "MATRIX", 0)
    for n, users in itertools.product((6, 8, 11), PATTERNS):
        release = make("tree", n)
        found = release.sensitivity_sq(users)
        reached = brute(release.encoder(), users)
        assert reached <= found <= users.visits**2 * release.sensitivity_sq()


def test_large_horizons():
    """No matrix, and for trees no list of batches. All visits may be in one batch, if nothing is said."""
    seldom = Users(16, 1, 10**6)
    tree = make("tree", 10**9)
    assert 16 * 30 <= tree.sensitivity_sq(seldom) <= 256 * 30
    assert tree.sensitivity_sq(Users(16, 1)) == tree.sensitivity_sq(Users(32, 2)) / 4
    assert tree.sensitivity_sq(Users(7)) == 49 * 30
    assert make("input_perturbation", 10**7).sensitivity_sq(Users(16, 1, 10**5)) == 16
    blt = make("blt", 65_536)
    assert blt.sensitivity_sq() < blt.sensitivity_sq(Users(16, 1)) < 256 * blt.sensitivity_sq()
