import codecs
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from helpers import edit
from scipy.sparse import csr_array

import fedbandit_jax as fb
from fedbandit_jax.cli import main

module = import_module("fedbandit_jax.data.movielens")  # the package attribute is the function
HEADER = "userId,movieId,rating,timestamp\n"
REAL = Path(__file__).parents[3] / "shared" / "data" / "ml-latest-small"
FORMATS = {"ratings.csv": (",", HEADER), "ratings.dat": ("::", ""), "u.data": ("\t", "")}
SMALL = {"dim": 4, "n_users": 30, "n_items": 25, "n_active": 40, "n_clusters": 3}


def ratings(n_users=60, n_movies=40, seed=0):
    """Rows (user, movie, rating, timestamp) of three tastes; users and movies differ in activity."""
    rng = np.random.default_rng(seed)
    users, movies = 5 * np.arange(1, n_users + 1), 7 * np.arange(1, n_movies + 1)
    liked = np.where((users[:, None] + movies) % 3 == 0, 0.7, 0.2) * rng.uniform(0.4, 1, (n_users, 1))
    rows = np.argwhere(rng.random((n_users, n_movies)) < liked)
    return [(users[u], movies[i], rng.integers(1, 11) / 2, 964982703 + u * i) for u, i in rows]


def write(folder, rows, name="ratings.csv", end="\n"):
    folder.mkdir(parents=True, exist_ok=True)
    separator, header = FORMATS[name]
    text = header + "".join(separator.join(map(str, row)) + "\n" for row in rows)
    (folder / name).write_bytes(text.replace("\n", end).encode())
    return folder / name


@pytest.fixture
def root(tmp_path):
    write(tmp_path, ratings())
    return tmp_path


def line_6_becomes(file, fields):
    rows = file.read_bytes().splitlines(keepends=True)
    rows[5] = FORMATS[file.name][0].join(fields).encode("latin-1") + b"\n"
    file.write_bytes(b"".join(rows))


def same(one, other):
    return all(np.array_equal(array, other.arguments()[name]) for name, array in one.arguments().items())


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


def test_community():
    eye = np.eye(3, dtype=np.float32)
    community = fb.data.Community(eye, eye[:2], np.array([0, 0], np.int32), "toy")
    assert repr(community) == "Community('toy', 2 users, 1 clusters, 3 items, dim 3)"
    assert list(community.arguments()) == ["items", "thetas", "clusters"]


@pytest.mark.parametrize("entries", [0, module.DENSE])
def test_the_recipe(root, monkeypatch, entries):
    """By ARPACK and by LAPACK; vectors agree up to the signs of singular vectors, so their products agree."""
    monkeypatch.setattr(module, "DENSE", entries)
    community = fb.data.movielens(root, **SMALL)
    check(community)
    users, items = dense(ratings(), dim=4, n_users=30, n_items=25, n_active=40)
    assert community.thetas.shape == users.shape
    assert community.items.shape == items.shape
    np.testing.assert_allclose(community.thetas @ community.items.T, users @ items.T, atol=1e-5)
    np.testing.assert_allclose(abs(community.thetas), abs(users), atol=1e-5)
    assert community.clusters.max() == 2
    sizes = f"{len(ratings())} ratings: 30 of 60 users, 25 of 40 items"
    assert community.title == f"MovieLens ({sizes}, theta per user)"


def test_the_same_again_and_another_seed(root):
    first = fb.data.movielens(root, **SMALL)
    assert same(first, fb.data.movielens(str(root), **SMALL))
    assert same(first, fb.data.movielens(root / "ratings.csv", **SMALL))
    assert np.array_equal(first.thetas, fb.data.movielens(root, **SMALL, seed=5).thetas)


def test_the_best_of_several_clusterings():
    """Points without clusters: by the same starts, 20 are never worse than one, and seeds differ."""
    points, clusters = np.random.default_rng(1).standard_normal((40, 2)), {}

    def spread(labels):
        return sum(((points[labels == c] - points[labels == c].mean(0)) ** 2).sum() for c in range(6))

    for seed in range(5):
        best = module._clusters(points, 6, seed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "RESTARTS", 1)
            first = module._clusters(points, 6, seed)
        assert spread(best) <= spread(first)
        clusters[seed] = first.tolist()
    assert clusters[0] != clusters[1]


def test_signs_of_singular_vectors_are_fixed():
    """Whatever LAPACK returns: the largest entry of a user's vector is positive."""
    matrix = csr_array(np.random.default_rng(2).integers(0, 2, (30, 20)).astype(float))
    left, right = module._singular_vectors(matrix, 6)
    assert (left[np.abs(left).argmax(0), np.arange(5)] > 0).all()
    values = np.linalg.norm(matrix @ right, axis=0)
    np.testing.assert_allclose(matrix @ right, left * values, atol=1e-10)


def test_the_order_of_lines_does_not_matter(root):
    first = fb.data.movielens(root, **SMALL)
    write(root, ratings()[::-1])
    assert same(first, fb.data.movielens(root, **SMALL))


def test_clusters_are_the_tastes(tmp_path):
    """Three groups of users that rate movies of their own: k-means must find the groups."""
    rng = np.random.default_rng(3)
    groups = np.arange(60) % 3
    rows = [
        (u + 1, i + 1, 4.0, 1)
        for u in range(60)
        for i in range(45)
        if rng.random() < (0.8 if i % 3 == groups[u] else 0.05)
    ]
    write(tmp_path, rows)
    community = fb.data.movielens(tmp_path, dim=4, n_clusters=3, n_users=60)
    check(community)
    counts = {u: sum(row[0] == u + 1 for row in rows) for u in range(60)}
    truth = groups[sorted(counts, key=lambda u: (-counts[u], u))]
    assert len(set(zip(truth.tolist(), community.clusters.tolist()))) == 3


def test_centroids(root):
    each = fb.data.movielens(root, **SMALL)
    alike = fb.data.movielens(root, **SMALL, thetas="centroid")
    check(alike)
    assert np.array_equal(each.clusters, alike.clusters)
    assert np.array_equal(each.items, alike.items)
    assert "theta per cluster" in alike.title
    for label in range(3):
        members = each.clusters == label
        mean = each.thetas[members, :-1].mean(axis=0)
        expected = np.tile(mean / np.linalg.norm(mean) / np.sqrt(2), (members.sum(), 1))
        np.testing.assert_allclose(alike.thetas[members, :-1], expected, atol=1e-6)
        assert len(np.unique(alike.thetas[members], axis=0)) == 1


def test_one_cluster(root):
    community = fb.data.movielens(root, **{**SMALL, "n_clusters": 1}, thetas="centroid")
    check(community)
    assert not community.clusters.any()


def test_all_there_are(root):
    community = fb.data.movielens(root, n_clusters=4)
    check(community)
    assert community.thetas.shape == (60, 10)
    assert "60 of 60 users, 40 of 40 items" in community.title


def test_users_and_items_without_a_rating_in_the_selection_are_left_out(tmp_path):
    """User 999 is the most active, with movies that nobody else rated; they and it do not reach the matrix."""
    write(tmp_path, [*ratings(), *((999, 10_000 + i, 3.0, 1) for i in range(100))])
    assert "39 of 61 users, 25 of 140 items" in fb.data.movielens(tmp_path, **{**SMALL, "n_users": 40}).title


def test_users_outside_the_first_singular_vectors_are_left_out(tmp_path):
    """Two groups without a movie in common: one column of U is of the larger group only."""
    rows = [(u, i, 4.0, 1) for u in range(1, 9) for i in range(1, 9)]
    write(tmp_path, [*rows, *((u, i, 4.0, 1) for u in (20, 21, 22) for i in (30, 31, 32))])
    community = fb.data.movielens(tmp_path, dim=2, n_clusters=1, n_users=11, n_active=11)
    check(community)
    assert (len(community.thetas), len(community.items)) == (8, 8)
    assert len(fb.data.movielens(tmp_path, dim=3, n_clusters=2).thetas) == 11


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("name", FORMATS)
def test_formats(root, tmp_path, name, mark, end):
    file = write(tmp_path / "other", ratings(), name, end)
    file.write_bytes(mark + file.read_bytes())
    first = fb.data.movielens(root, **SMALL)
    assert same(first, fb.data.movielens(tmp_path / "other", **SMALL))
    moved = file.rename(tmp_path / "any.txt")  # the content tells the format
    assert same(first, fb.data.movielens(moved, **SMALL))


INTEGER, NUMBER = "an integer in 1, ..., 2147483647", "a number in [0.5, 5]"
BROKEN = {
    "user": (["x", "7", "4.0", "1"], f"column 1: user must be {INTEGER}, got 'x'"),
    "user missing": (["", "7", "4.0", "1"], f"column 1: user must be {INTEGER}, got ''"),
    "user zero": (["0", "7", "4.0", "1"], f"column 1: user must be {INTEGER}, got '0'"),
    "movie negative": (["5", "-7", "4.0", "1"], f"column 2: movie must be {INTEGER}, got '-7'"),
    "movie not whole": (["5", "7.5", "4.0", "1"], f"column 2: movie must be {INTEGER}, got '7.5'"),
    "movie too large": (["5", "2147483648", "4.0", "1"], f"column 2: movie must be {INTEGER}, got '2147483648'"),
    "rating": (["5", "7", "good", "1"], f"column 3: rating must be {NUMBER}, got 'good'"),
    "rating zero": (["5", "7", "0.0", "1"], f"column 3: rating must be {NUMBER}, got '0.0'"),
    "rating six": (["5", "7", "6", "1"], f"column 3: rating must be {NUMBER}, got '6'"),
    "rating nan": (["5", "7", "nan", "1"], f"column 3: rating must be {NUMBER}, got 'nan'"),
    "rating inf": (["5", "7", "inf", "1"], f"column 3: rating must be {NUMBER}, got 'inf'"),
    "rating empty": (["5", "7", "", "1"], f"column 3: rating must be {NUMBER}, got ''"),
    "timestamp": (["5", "7", "4.0", "noon"], "column 4: timestamp must be an integer, got 'noon'"),
    "comment": (["#5", "7", "4.0", "1"], f"column 1: user must be {INTEGER}, got '#5'"),
    "long": (["z" * 999, "7", "4.0", "1"], f"column 1: user must be {INTEGER}, got '{'z' * 60}...'"),
    "latin-1": (["5", "7", "\xe9", "1"], f"column 3: rating must be {NUMBER}, got '\ufffd'"),
    "zero byte": (["5", "7", "4.0\0", "1"], f"column 3: rating must be {NUMBER}, got '4.0\\x00'"),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named(tmp_path, name, form):
    fields, message = BROKEN[name]
    line_6_becomes(write(tmp_path, ratings()[:9], form), fields)
    with pytest.raises(ValueError, match=re.escape(f"{form}, line 6, {message}") + "$"):
        fb.data.movielens(tmp_path)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("fields", [["abc"], ["5", "7"], ["5", "7", "4.0"], ["5", "7", "4.0", "1", "1"]])
def test_a_line_with_another_number_of_fields_is_named(tmp_path, fields, form):
    line_6_becomes(write(tmp_path, ratings()[:9], form), fields)
    separator = FORMATS[form][0]
    message = f"must be 4 fields separated by {separator!r}, got {len(fields)} in {separator.join(fields)!r}"
    with pytest.raises(ValueError, match=re.escape(f"{form}, line 6: {message}") + "$"):
        fb.data.movielens(tmp_path)


@pytest.mark.parametrize("gap", ["5:x:7::4.0::1", "5::7::4.0:1", "5::7:::4.0::1", "5::7::4.0::1::"])
def test_single_colons_and_text_between_them(tmp_path, gap):
    edit(write(tmp_path, ratings()[:9], "ratings.dat"), 3, lambda line: gap + "\n")
    with pytest.raises(ValueError, match=r"ratings.dat, line 3"):
        fb.data.movielens(tmp_path)


def test_blank_lines_are_counted(root):
    edit(root / "ratings.csv", 4, lambda line: "\n \n" + line)
    edit(root / "ratings.csv", 9, lambda line: "x" + line)
    with pytest.raises(ValueError, match=r"ratings.csv, line 9, column 1: user must be .*, got 'x"):
        fb.data.movielens(root)


def test_a_pair_rated_twice(tmp_path):
    rows = ratings()
    write(tmp_path, [*rows[:20], rows[3], *rows[20:], rows[1]])
    user, movie = rows[3][:2]
    message = rf"ratings.csv, line 22: a user must rate a movie once, got user {user} and movie {movie} again"
    with pytest.raises(ValueError, match=f"{message}, first in line 5"):
        fb.data.movielens(tmp_path)


@pytest.mark.parametrize("cut", [1, 4, 10, 11, 12, 15, 17, 19])
def test_a_file_that_was_cut_short(root, cut):
    file = root / "ratings.csv"
    lines = file.read_bytes().count(b"\n")
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(ValueError, match=rf"ratings.csv, line {lines}(:|, column)"):
        fb.data.movielens(root)


EMPTY = {
    "empty": (b"", "must have at least one rating, got an empty file"),
    "only a byte order mark": (codecs.BOM_UTF8, "must have at least one rating, got an empty file"),
    "header only": (HEADER.encode(), "must have at least one rating, got none"),
    "header cut": (HEADER[:-1].encode(), "must have at least one rating, got none"),
    "blank lines": (HEADER.encode() + b"\n\n", "must have at least one rating, got none"),
    "no header": (b"1,2,4.0,1\n", "line 1: must be userId,movieId,rating,timestamp or .*, got '1,2,4.0,1'"),
    "other file": (b"movieId,title,genres\n", "line 1: must be userId,.*, got 'movieId,title,genres'"),
    "UTF-16": (HEADER.encode("utf-16"), "line 1: must be userId,.*, got '.*u"),
    "garbage": (bytes(range(128, 256)) * 50, "line 1: must be userId,.*, got '"),
    "zeros": (bytes(5000), "line 1: must be userId,.*, got '"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_file_without_ratings(tmp_path, name):
    content, message = EMPTY[name]
    (tmp_path / "ratings.csv").write_bytes(content)
    with pytest.raises(ValueError, match=f"ratings.csv(,)? {message}"):
        fb.data.movielens(tmp_path)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="ratings.csv, ratings.dat, u.data or hold one .*nowhere'"):
        fb.data.movielens(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="path must be one of ratings.csv"):
        fb.data.movielens(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 1}, "dim must be >= 2, got 1"),
        ({"dim": 27}, "dim must be <= 25, the smaller side of 40 users x 25 items, got 27"),
        ({"n_users": 50}, "n_users must be <= n_active = 40, got 50"),
        ({"n_users": 0}, "n_users must be >= 1, got 0"),
        ({"n_items": 0}, "n_items must be >= 1, got 0"),
        ({"n_items": 3}, "dim must be <= 3, the smaller side"),
        ({"n_active": 0}, "n_active must be >= 1, got 0"),
        ({"n_clusters": 0}, "n_clusters must be >= 1, got 0"),
        ({"n_clusters": 31}, "n_clusters must be <= n_users = 30, got 31"),
        ({"thetas": "cluster"}, "thetas must be one of 'user', 'centroid', got 'cluster'"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_bad_arguments(root, arguments, message):
    with pytest.raises(ValueError, match=message):
        fb.data.movielens(root, **{**SMALL, **arguments})


def test_more_clusters_than_users_there_are(root):
    with pytest.raises(ValueError, match="n_clusters must be <= 60, the distinct vectors of 60 users, got 61"):
        fb.data.movielens(root, n_clusters=61)


@pytest.mark.parametrize("entries", [0, module.DENSE])
def test_a_matrix_of_small_rank(tmp_path, monkeypatch, entries):
    monkeypatch.setattr(module, "DENSE", entries)
    write(tmp_path, [(u, i, 4.0, 1) for u in range(1, 21) for i in range(1, 16) if u <= 12 or i <= 5])
    with pytest.raises(ValueError, match="dim must be <= 3, 1 . the rank of 20 users x 15 items, got 4"):
        fb.data.movielens(tmp_path, dim=4)
    with pytest.raises(ValueError, match="n_clusters must be <= 2, the distinct vectors of 20 users, got 3"):
        fb.data.movielens(tmp_path, dim=3, n_clusters=3)
    check(fb.data.movielens(tmp_path, dim=3, n_clusters=2))


@pytest.mark.skipif(not REAL.is_dir(), reason="needs a copy of ml-latest-small")
def test_the_real_files():
    community = fb.data.movielens(REAL)
    check(community)
    assert community.thetas.shape == (610, 10)
    assert community.items.shape == (1000, 10)
    assert community.clusters.max() == 9
    assert community.title == "MovieLens (100836 ratings: 610 of 610 users, 1000 of 9724 items, theta per user)"


def test_the_command(tmp_path, capsys):
    write(tmp_path, ratings())
    assert main(["data", "movielens", "--path", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert f"{len(ratings())} ratings: 60 of 60 users, 40 of 40 items" in printed
    assert "10 clusters of " in printed
    edit(tmp_path / "ratings.csv", 3, lambda line: "x" + line)
    assert main(["data", "movielens", "--path", str(tmp_path)]) == 2
    assert "line 3, column 1" in capsys.readouterr().err
