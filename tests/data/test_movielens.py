import codecs
import itertools
from importlib import import_module

import numpy as np
import pytest
from helpers import refused
from made_up import HEADER, ratings, write
from scipy.sparse import csr_array

import fedbandit_jax as fb

module = import_module("fedbandit_jax.data.movielens")  # the package attribute is the function
SMALL = {"dim": 4, "n_users": 30, "n_items": 25, "n_active": 40, "n_clusters": 3}


@pytest.fixture
def root(tmp_path):
    write(tmp_path, ratings())
    return tmp_path


def dense(rows, *, dim, n_users, n_items, n_active):
    """The recipe without shortcuts: columns of U and V, ids in order."""
    users, movies = ([row[i] for row in rows] for i in (0, 1))
    active = sorted(set(users), key=lambda u: (-users.count(u), u))[:n_active]
    popular = sorted(set(movies), key=lambda i: (-movies.count(i), i))[:n_items]
    rated = {row[:2] for row in rows}
    matrix = np.array([[float((u, i) in rated) for i in popular] for u in active])
    left, _, right = np.linalg.svd(matrix)
    vectors = []
    for part in (left[:, : dim - 1], right.T[:, : dim - 1]):
        unit = part / np.linalg.norm(part, axis=1, keepdims=True)
        vectors.append(np.hstack([unit, np.ones((len(unit), 1))]) / np.sqrt(2))
    return vectors[0][:n_users], vectors[1]


def check(community):
    """What holds of every community."""
    items, thetas, clusters = community.arguments().values()
    assert items.dtype == thetas.dtype == np.float32
    assert clusters.dtype == np.int32
    for vectors in (items, thetas):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(vectors[:, -1], np.sqrt(0.5), atol=1e-6)
    means = thetas @ items.T
    assert means.min() > -1e-6
    assert means.max() < 1 + 1e-6
    assert len(clusters) == len(thetas)
    assert np.array_equal(np.unique(clusters), np.arange(clusters.max() + 1))


def test_the_recipe(root):
    """Vectors agree up to the signs of singular vectors, so their products agree."""
    community = fb.data.movielens(root, **SMALL)
    check(community)
    users, items = dense(ratings(), dim=4, n_users=30, n_items=25, n_active=40)
    assert community.thetas.shape == users.shape
    assert community.items.shape == items.shape
    np.testing.assert_allclose(community.thetas @ community.items.T, users @ items.T, atol=1e-5)
    np.testing.assert_allclose(abs(community.thetas), abs(users), atol=1e-5)
    assert community.clusters.max() == 2
    title = f"MovieLens ({len(ratings())} ratings: 30 of 60 users, 25 of 40 items, theta per user)"
    assert repr(community) == f"Community({title!r}, 30 users, 3 clusters, 25 items, dim 4)"


def test_signs_of_singular_vectors_are_fixed():
    """Whatever LAPACK returns: the largest entry of a user's vector is positive."""
    matrix = csr_array(np.random.default_rng(2).integers(0, 2, (30, 20)).astype(float))
    left, right = module._singular_vectors(matrix, 6)
    assert (left[np.abs(left).argmax(0), np.arange(5)] > 0).all()
    values = np.linalg.norm(matrix @ right, axis=0)
    np.testing.assert_allclose(matrix @ right, left * values, atol=1e-10)


def test_clusters_are_the_tastes(tmp_path):
    """Three groups of users that rate movies of their own: k-means must find the groups."""
    rng, groups = np.random.default_rng(3), np.arange(60) % 3
    rated = rng.random((60, 45)) < np.where(np.arange(45) % 3 == groups[:, None], 0.8, 0.05)
    write(tmp_path, [(u + 1, i + 1, 4.0, 1) for u, i in np.argwhere(rated)])
    community = fb.data.movielens(tmp_path, dim=4, n_clusters=3, n_users=60)
    check(community)
    truth = groups[np.argsort(-rated.sum(1), kind="stable")]
    assert len(set(zip(truth.tolist(), community.clusters.tolist()))) == 3


def test_centroids(root):
    each, alike = (fb.data.movielens(root, **SMALL, thetas=thetas) for thetas in ("user", "centroid"))
    check(alike)
    np.testing.assert_array_equal(each.clusters, alike.clusters)
    np.testing.assert_array_equal(each.items, alike.items)
    for label in range(3):
        members = each.clusters == label
        mean = each.thetas[members, :-1].mean(axis=0)
        expected = np.tile(mean / np.linalg.norm(mean) / np.sqrt(2), (members.sum(), 1))
        np.testing.assert_allclose(alike.thetas[members, :-1], expected, atol=1e-6)
        assert len(np.unique(alike.thetas[members], axis=0)) == 1


def test_users_and_items_that_are_too_few_or_alone(tmp_path):
    write(tmp_path, ratings())
    community = fb.data.movielens(tmp_path, n_clusters=1, thetas="centroid")
    check(community)
    assert (community.thetas.shape, community.clusters.any()) == ((60, 10), False)
    # User 999 is the most active, with movies that nobody else rated; they and it do not reach the matrix.
    write(tmp_path, [*ratings(), *((999, 10_000 + i, 3.0, 1) for i in range(100))])
    assert "39 of 61 users, 25 of 140 items" in fb.data.movielens(tmp_path, **{**SMALL, "n_users": 40}).title
    # Two groups without a movie in common: one column of U is of the larger group only.
    groups = [(range(1, 9), range(1, 9)), (range(20, 23), range(30, 33))]
    write(tmp_path, [(u, i, 4.0, 1) for users, movies in groups for u in users for i in movies])
    community = fb.data.movielens(tmp_path, dim=2, n_clusters=1, n_users=11, n_active=11)
    check(community)
    assert (len(community.thetas), len(community.items)) == (8, 8)
    assert len(fb.data.movielens(tmp_path, dim=3, n_clusters=2).thetas) == 11


def test_a_file_of_ratings(tmp_path):
    """Or its folder, with either end of line, and with or without a byte order mark. A second rating does not count."""
    users, movies = np.array([row[:2] for row in ratings()]).T
    for mark, end in itertools.product([b"", codecs.BOM_UTF8], ["\n", "\r\n"]):
        file = write(tmp_path, [*ratings(), ratings()[3]], end)
        file.write_bytes(mark + file.read_bytes())
        for path in (tmp_path, file):
            np.testing.assert_array_equal(module._read(path), [users, movies])


def test_sizes_that_do_not_go_together_are_refused(root):
    sizes = (("dim", 27, None), ("n_items", 3, None), ("n_users", 50, "n_active"), ("n_clusters", 31, "n_users"))
    for argument, value, other in sizes:
        with refused("dim" if argument == "n_items" else argument, other=other):
            fb.data.movielens(root, **{**SMALL, argument: value})


def test_a_matrix_of_small_rank(tmp_path):
    """Its rank is 2, and two kinds of users rate alike."""
    write(tmp_path, [(u, i, 4.0, 1) for u in range(1, 21) for i in range(1, 16) if u <= 12 or i <= 5])
    for argument, sizes in (("dim", dict(dim=4)), ("n_clusters", dict(dim=3, n_clusters=3))):
        with refused(argument):
            fb.data.movielens(tmp_path, **sizes)
    check(fb.data.movielens(tmp_path, dim=3, n_clusters=2))


TEXT = HEADER + "".join(",".join(map(str, row)) + "\n" for row in ratings())
LINE = ",".join(map(str, ratings()[3]))
DAMAGED = [  # text of a file, and words of the refusal
    *((text, "userId, movieId") for text in ("", "movieId,title,genres\n", TEXT.removeprefix(HEADER))),
    *((TEXT[: TEXT.rindex(",", 0, end)], "in every line") for end in (None, TEXT.rindex(","))),  # cut short
    *((TEXT.replace(LINE, line), "in every line") for line in ("5,x,4.0,1", "5,7.5,4.0,1", "5,", ",7,4.0,1")),
    ("5::7::4.0::1\n5::7::4.0::1\n", "userId, movieId"),  # of an older release
    (HEADER, "must have ratings, got none"),
]


@pytest.mark.parametrize(("text", "words"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_of_ratings_is_refused(tmp_path, text, words):
    (tmp_path / "ratings.csv").write_text(text)
    with pytest.raises(ValueError, match=f"^[^\n]*{words}[^\n]*$"):
        fb.data.movielens(tmp_path)


def test_a_folder_without_ratings_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="path must be ratings.csv"):
            fb.data.movielens(path)
