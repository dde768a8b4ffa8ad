"""MovieLens as a clustered bandit: vectors from a truncated SVD of the rated items, and clusters by k-means."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.datasets import Community

TYPES = dict(userId="int32", movieId="int32", rating="float64", timestamp="int64")  # columns of ratings.csv
THETAS = {"user": "theta per user", "centroid": "theta per cluster"}  # argument `thetas` -> words of the title
ZERO = 1e-12  # tolerance of zero norms, and of singular values relative to the largest
RESTARTS = 20  # of k-means


def movielens(
    path: str | Path,
    *,
    dim: int = 10,
    n_users: int = 1000,
    n_items: int = 1000,
    n_active: int = 3000,
    n_clusters: int = 10,
    thetas: str = "user",
    seed: int = 0,
) -> Community:
    r"""Loads your own copy of MovieLens as a clustered linear bandit.

    A matrix A has a row for each of the `n_active` users and a column for each of the `n_items` items with most
    ratings. On ties smaller ids come first. It is 1 if the user rated the item, and 0 otherwise. Let A = U S V' be its
    SVD. A user's vector is (u, 1) / sqrt 2, where u is the user's row of the first `dim` - 1 columns of U, divided by
    its norm. The `n_users` most active users are kept and clustered by k-means.

    The paper defines vectors from U only. Our reading makes an item's vector in the same way from its row of V. So
    <x, theta> = (1 + cosine) / 2 is in [0, 1]. If there are too few users or items, all are taken, and the title says
    how many. Users without selected items, items without selected users, and zero vectors u are dropped.

    Args:
        path: ratings.csv (ml-latest-small, ml-latest, ml-20m, ml-25m), or its folder.
        dim: length d >= 2 of the vectors of users and items.
        n_users: number of users to keep, at most n_active.
        n_items: number of items in the matrix.
        n_active: number of users in the matrix.
        n_clusters: number of clusters m, at most n_users.
        thetas: preference vectors. Value "user" uses the user's own vector. Value "centroid" uses the mean vector of
            the user's cluster, scaled like a user's. Then the users of a cluster are identical, as the paper assumes.
        seed: seed of k-means, >= 0.

    Raises:
        FileNotFoundError: the folder or file does not exist.
        ValueError, TypeError: an argument is invalid, or the file lacks ids. The message then names the file.
        ImportError: pandas or scikit-learn is missing.

    Example:
        >>> import pathlib, tempfile, fedbandit_jax as fb
        >>> rated = [f"{u},{i},4.0,964982703\n" for u in range(1, 31) for i in range(1, 21) if u * i % 11 < 4]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "ratings.csv")
        ...     _ = file.write_text("userId,movieId,rating,timestamp\n" + "".join(rated))
        ...     community = fb.data.movielens(folder, dim=5, n_users=20, n_clusters=3)
        >>> community.title
        'MovieLens (229 ratings: 20 of 30 users, 20 of 20 items, theta per user)'
        >>> means = community.thetas @ community.items.T
        >>> means.shape, bool((means > -1e-6).all() and (means < 1 + 1e-6).all())
        ((20, 20), True)

    Reference: Liu et al. (2022), Appendix E.1; Harper & Konstan (2015), "The MovieLens datasets".
    """
    dim = validate.integer("dim", dim, at_least=2)
    sizes = dict(n_users=n_users, n_items=n_items, n_active=n_active, n_clusters=n_clusters)
    n_users, n_items, n_active, n_clusters = (validate.integer(*size, at_least=1) for size in sizes.items())
    if n_users > n_active:
        raise BadValue("n_users", f"must be <= n_active = {n_active}", n_users, others=("n_active",))
    if n_clusters > n_users:
        raise BadValue("n_clusters", f"must be <= n_users = {n_users}", n_clusters, others=("n_users",))
    thetas = validate.one_of("thetas", thetas, tuple(THETAS))
    seed = validate.integer("seed", seed, at_least=0, at_most=2**32 - 1)

    users, movies = _read(validate.path("path", path))
    active, popular = _most_frequent(users), _most_frequent(movies)
    matrix = _matrix(users, movies, active[:n_active], popular[:n_items])
    left, right = _singular_vectors(matrix, dim)
    vectors, items = _features(left)[:n_users], _features(right)
    clusters = _clusters(vectors, n_clusters, seed)
    if thetas == "centroid":
        vectors = _features(np.stack([vectors[clusters == one, :-1].mean(axis=0) for one in range(n_clusters)]))
        if len(vectors) < n_clusters:
            raise BadValue("n_clusters", "must be such that no cluster's mean is 0", n_clusters)
        vectors = vectors[clusters]
    title = (
        f"MovieLens ({len(users)} ratings: {len(vectors)} of {len(active)} users, "
        f"{len(items)} of {len(popular)} items, {THETAS[thetas]})"
    )
    return Community(items.astype(np.float32), vectors.astype(np.float32), clusters, title)


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads the ids (N,) of users and movies of all ratings in ratings.csv, or in its folder."""
    file = path / "ratings.csv" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"path must be ratings.csv or hold it, got {str(path)!r}")
    options: Any = dict(usecols=[*TYPES], dtype=TYPES, na_filter=False, encoding="utf-8-sig")
    try:  # a line that is cut short has an empty field, which is no number
        table = require("pandas", "data").read_csv(file, **options)[["userId", "movieId"]].drop_duplicates()
    except ValueError as error:
        raise ValueError(f"{file} must have {', '.join(TYPES)} in every line: {error}") from error
    if table.empty:
        raise ValueError(f"{file} must have ratings, got none")
    return table.userId.to_numpy(), table.movieId.to_numpy()


def _most_frequent(ids: np.ndarray) -> np.ndarray:
    distinct, counts = np.unique(ids, return_counts=True)
    return distinct[np.argsort(-counts, kind="stable")]


def _matrix(users: np.ndarray, movies: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> csr_array:
    """Returns the matrix that is 1 if a user of `rows` rated a movie of `columns`, without empty lines."""
    index = require("pandas", "data").Index
    i, j = index(rows).get_indexer(users), index(columns).get_indexer(movies)
    kept = (i >= 0) & (j >= 0)
    i, j = (np.unique(one[kept], return_inverse=True)[1] for one in (i, j))
    return csr_array((np.ones(len(i)), (i, j)), shape=(i.max(initial=-1) + 1, j.max(initial=-1) + 1))


def _singular_vectors(matrix: csr_array, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first dim - 1 columns of U and V, with signs that make the largest entry in U positive."""
    n, m = matrix.shape  # pyright: ignore[reportGeneralTypeIssues]
    if dim > min(n, m):
        raise BadValue("dim", f"must be <= {min(n, m)}, the smaller side of {n} users x {m} items", dim)
    start = np.random.default_rng(0).standard_normal(min(n, m))
    decomposition: Any = svds(matrix, dim - 1, v0=start)
    left, values, right = decomposition
    rank = int((values > ZERO * values.max()).sum())
    if rank < dim - 1:
        raise BadValue("dim", f"must be <= {rank + 1}, 1 + the rank of {n} users x {m} items", dim)
    order = np.argsort(-values)
    left, right = left[:, order], right[order].T
    signs = np.sign(np.take_along_axis(left, np.abs(left).argmax(axis=0)[None], axis=0))
    return left * signs, right * signs


def _features(rows: np.ndarray) -> np.ndarray:
    """Returns (row / norm, 1) / sqrt 2 of every non-zero row. Dropping the others keeps the singular vectors."""
    norms = np.linalg.norm(rows, axis=1)
    rows = rows[norms > ZERO] / norms[norms > ZERO, None]
    return np.column_stack([rows, np.ones(len(rows))]) / math.sqrt(2)


def _clusters(points: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Returns labels (n,) of points (n, d) from the best of several runs of k-means, with every label used."""
    distinct = len(np.unique(points.round(9), axis=0))
    if n_clusters > distinct:
        vectors = f"the distinct vectors of {len(points)} users"
        raise BadValue("n_clusters", f"must be <= {distinct}, {vectors}", n_clusters)
    means = require("sklearn.cluster", "data").KMeans(n_clusters, n_init=RESTARTS, random_state=seed)
    return means.fit_predict(points)
