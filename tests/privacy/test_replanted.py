"""Noise of trees planted again: kappa by brute force, sigma by its formulas, epsilon by `gaussian_epsilon`."""

import itertools
import math

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.replanted import replant

BUDGET = fb.privacy.Budget(1.0, 0.1)


def covering(leaf, leaves):
    """How many nodes that prefixes of a tree of so many leaves ever use have leaf 1, 2, ... in them."""
    used = set()
    for prefix in range(1, leaves + 1):
        total = 0
        for level in reversed(range(prefix.bit_length())):
            if prefix >> level & 1:
                used.add((total, total + (1 << level)))
                total += 1 << level
    return sum(start < leaf <= end for start, end in used)


def most(uploads, replanted):
    """Most nodes that one datum is in: uploads of every phase, and whether phase 2, 3, ... plants what it goes on with.

    A datum arrives before some upload of some phase, or after the last of it. When a phase begins, all data so far are
    shown with the noise of a new tree's first leaf. Uploads go on in it if it is planted, else in the tree in use.
    """
    worst = 0
    for phase, count in enumerate(uploads):
        for place in range(1, count + 2):  # before upload `place` of its phase; count + 1: after all of them
            nodes, tree, held = 0, 1, None  # leaves of the tree in use, and the datum's leaf in it
            for s, r in enumerate(uploads):
                if s > 0 and replanted[s - 1]:
                    nodes += 0 if held is None else covering(held, tree)
                    tree, held = 1, (1 if s > phase else None)
                elif s > phase:  # shown once; if it had not been uploaded yet, the next upload has it
                    nodes += 1
                    if held is None and r > 0:
                        held = tree + 1
                if s == phase and place <= r:
                    held = tree + place
                tree += r
            worst = max(worst, nodes + (0 if held is None else covering(held, tree)))
    return worst


def structures(phases, largest):
    for uploads in itertools.product(range(largest + 1), repeat=phases):
        for replanted in itertools.product((False, True), repeat=phases - 1):
            yield uploads, replanted


@pytest.mark.parametrize(("phases", "largest"), [(1, 9), (2, 8), (3, 5), pytest.param(4, 4, marks=pytest.mark.slow)])
def test_kappa_is_never_exceeded(phases, largest):
    """And it is attained, by data of phase 1 if every phase replants: the first leaf of the first tree, which is
    shown before anybody comes, has no datum."""
    for uploads, replanted in structures(phases, largest):
        kappa = replant(BUDGET, leaves=tuple(1 + r for r in uploads)).releases_per_user
        worst = most(uploads, replanted)
        assert worst <= kappa, (uploads, replanted)
        if all(replanted) and any(uploads):
            assert worst == kappa, uploads


def test_covering():
    """One level after the other for the first leaf, and one fewer for later ones at most."""
    for leaves in range(1, 40):
        assert covering(1, leaves) == leaves.bit_length()
        if leaves > 1:
            assert max(covering(leaf, leaves) for leaf in range(2, leaves + 1)) == leaves.bit_length() - 1


def test_most_nodes_of_a_prefix():
    for leaves in ((1,), (3, 5, 9), (2, 4, 8, 16), (7, 7)):
        longest = 1 + sum(count - 1 for count in leaves)  # a tree that goes on
        worst = max(k.bit_count() for k in range(1, longest + 1))
        assert worst <= replant(BUDGET, leaves=leaves).nodes <= worst + 1


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_tight(adjacency):
    budget = fb.privacy.Budget(0.7, 1e-3, adjacency)
    for leaves, visits in (((3,), 1), ((3, 5, 9), 1), ((2, 4, 8), 3)):
        noise = replant(budget, leaves=leaves, visits=visits)
        kappa = sum(1 + math.floor(math.log2(count)) for count in leaves) - 1
        assert noise.releases_per_user == kappa
        sensitivity = visits * math.sqrt(kappa * budget.matrix_sensitivity_sq)
        assert noise.epsilon_exact == 0.7
        np.testing.assert_allclose(gaussian_epsilon(sensitivity / noise.sigma, 1e-3), 0.7, rtol=1e-6)
        assert noise.sound
        assert noise.std >= noise.sigma
        np.testing.assert_allclose(noise.std, noise.sigma, rtol=1e-4)


def test_sensitivity_of_a_datum():
    """[x x' | x y] in the norm of the noise: sigma off the diagonal and on the bias, sqrt 2 sigma on it."""
    rng = np.random.default_rng(0)
    weight = np.array([[math.sqrt(2), 1, 1], [np.inf, math.sqrt(2), 1]])

    def datum(x, y):
        return np.outer(x, np.append(x, y)) / weight

    angle = np.linspace(0, math.pi, 61)
    x = np.column_stack([np.cos(angle), np.sin(angle)])
    zero = np.zeros((2, 3))
    data = [datum(one, y) for one in x for y in (0.0, 0.5, 1.0)] + [
        datum(rng.random() * one, rng.random()) for one in x
    ]
    added = max(((one - zero) ** 2).sum() for one in data)
    replaced = max(((one - two) ** 2).sum() for one in data for two in data)
    for adjacency, largest in (("add_remove", added), ("replace", replaced)):
        bound = fb.privacy.Budget(1.0, 0.1, adjacency).matrix_sensitivity_sq
        np.testing.assert_allclose(largest, bound, rtol=1e-3)


def test_theorem():
    """sigma^2 = 64 nu ln(2/delta) / epsilon^2 of the largest tree, and what it gives for all of them."""
    for leaves, nu in (((1,), 1), ((3, 5, 9), 5), ((2, 4, 8), 4), ((100,), 8)):
        noise = replant(fb.privacy.Budget(2.0, 0.01), leaves=leaves, method="theorem")
        np.testing.assert_allclose(noise.sigma**2, 64 * nu * math.log(200) / 4)
        mu = math.sqrt(max(1, sum(map(int.bit_length, leaves)) - 1) * noise.budget.matrix_sensitivity_sq) / noise.sigma
        assert noise.epsilon_exact == gaussian_epsilon(mu, 0.01)
        assert noise.sound == (noise.epsilon_exact <= 2.0)
    many = replant(BUDGET, leaves=(1000,) * 300, method="theorem")
    assert not many.sound  # one tree's noise for three hundred


@pytest.mark.parametrize(
    ("trigger", "upload", "max_uploads", "leaves"),
    [
        ("determinant", 1.01, None, (3, 5, 9, 7)),
        ("determinant", 1.01, 3, (3, 4, 4, 4)),
        ("count", 2.0, None, (3, 5, 7, 7)),
        ("count", 1.0, None, (3, 5, 9, 7)),
    ],
)
def test_leaves_of_a_run(trigger, upload, max_uploads, leaves):
    """T = 20: phases of 2, 4, 8 rounds and 6 of the fourth; by counts of factor 2, 2 + log2 20 uploads at most."""
    algo = fb.algos.fclub(BUDGET, trigger=trigger, upload=upload, max_uploads=max_uploads)
    assert algo.leaves(20) == leaves


@pytest.mark.parametrize("upload", [1.01, 1.3, 2.0, 5.0])
def test_counts_bound_uploads(upload):
    """Of one local cluster that has all users, for whom nothing is renewed: most uploads that counts can lead to."""
    for horizon in (1, 2, 3, 10, 97, 1000, 30_000):
        leaves = fb.algos.fclub(BUDGET, trigger="count", upload=upload).leaves(horizon)
        known, uploads = 0, [0] * len(leaves)
        for count in range(1, horizon + 1):
            if count / max(known, 1) >= upload:
                known = count
                uploads[(count + 1).bit_length() - 2] += 1
        assert all(made < leaf for made, leaf in zip(uploads, leaves))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(leaves=(3, 0)), "leaves must be .*got 0"),
        (dict(leaves=(3,), method="loose"), "method must be .*got 'loose'"),
        (dict(leaves=(3,), visits=0), "visits must be .*got 0"),
    ],
)
def test_bad_arguments(options, words):
    with pytest.raises(ValueError, match=words):
        replant(BUDGET, **options)
    with pytest.raises(TypeError, match=r"budget must be a fb\.privacy\.Budget, got 1\.0"):
        replant(1.0, leaves=(3,))
