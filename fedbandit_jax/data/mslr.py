"""Microsoft Learning to Rank (MSLR-WEB10K) as a linear bandit. A query is a user, and its documents are the arms."""

from __future__ import annotations

import io
import itertools
import re
import warnings
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.files import write_archive
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.datasets import Queries, lasso

PARTS = ("train.txt", "vali.txt", "test.txt")  # files of a fold
N_FEATURES = 136
RELEVANCE = (0, 1, 2, 3, 4)  # labels
CONSTANT = 0.01  # value of feature 0, which is not in the data set
LARGEST = float(np.finfo(np.float32).max)  # largest absolute value of a feature
CACHE = "mslr_parsed.npz"
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"  # a finite feature
BLOCK = 2**26  # bytes of a file parsed at once, since sparse rows need more memory

# Features 1 ... 125 of the data set are 25 quantities, each for 5 streams: body, anchor, title, url, whole document.
_STREAM = {name: range(1 + i, 126, 5) for i, name in enumerate(("body", "anchor", "title", "url", "document"))}
TITLE_FEATURES = (0, *sorted([*_STREAM["anchor"], *_STREAM["url"]]), *range(126, 132))
BODY_FEATURES = (0, *sorted([*_STREAM["body"], *_STREAM["title"], *_STREAM["document"]]), 132, 133)
FEATURES = {"title": TITLE_FEATURES, "body": BODY_FEATURES}


class _Fold(NamedTuple):
    values: np.ndarray  # (N, 136) float32, features of documents
    relevance: np.ndarray  # (N,) int8, labels of documents
    query_sizes: np.ndarray  # (Q,) int64, numbers of documents


def mslr(path: str | Path, *, features: str = "title", penalty: float = 1e-3, normalise: bool = True) -> Queries:
    """Loads your own copy of MSLR-WEB10K (or WEB30K) as a linear bandit. The data set may not be redistributed.

    A query is a context and its documents are the arms, at most 908 in MSLR-WEB10K. The folds hold the same queries in
    other orders. The paper splits the features into two halves and gives only their sizes. `TITLE_FEATURES` and
    `BODY_FEATURES` are those of its released code, where 0 is a constant 0.01:

    - "title", d = 57: the constant; the anchor and url streams; features 126-131 (slashes and length of the url, links,
      PageRank and SiteRank);
    - "body", d = 78: the constant; the body, title and whole-document streams; the quality scores 132 and 133.

    Rows are the raw values divided by their Euclidean norm, so a few large features dominate. Theta is the lasso of the
    relevance 0, ..., 4 given these rows, divided by max(1, ||theta||). This changes the unit of regret, but not the
    noise. Means are in [-1, 1]. No coordinate of x is constant, so they cannot be moved into [0, 1]. `replay`
    refuses rewards="bernoulli" if one is negative.

    Args:
        path: folder of train.txt, vali.txt and test.txt, or of Fold1, which holds them. The parsed files (0.7 GB) are
            kept beside them in mslr_parsed.npz. They are valid while sizes and modification times are the same.
        features: half of the features, "title" or "body".
        penalty: weight of the l1 norm in the lasso, > 0.
        normalise: False keeps rows as they are, with an unbounded theta fitted to them. With penalty=1 their products
            are the unbounded rewards of the authors' code.

    Raises:
        FileNotFoundError: the folder or a file does not exist.
        ValueError, TypeError: an argument is invalid, or a file is damaged; the message then names file, line and
            column: 1 is the relevance, 2 the query, f + 2 feature f.
        ImportError: scikit-learn is missing.

    Example:
        >>> import fedbandit_jax as fb
        >>> len(fb.data.TITLE_FEATURES), len(fb.data.BODY_FEATURES)
        (57, 78)
        >>> table = fb.data.mslr("MSLR-WEB10K", features="title")  # doctest: +SKIP
        >>> env = fb.envs.replay(**table.arguments(), n_agents=10)  # doctest: +SKIP

    Reference: Qin & Liu (2013). Zhou & Chowdhury (2024), Section 6 and Appendix H. The halves go back to the
    code of Swaminathan et al. (2017), "Off-policy evaluation for slate recommendation".
    """
    numbers = np.array(FEATURES[validate.one_of("features", features, tuple(FEATURES))])
    penalty, normalise = validate.positive("penalty", penalty), validate.boolean("normalise", normalise)
    data = _read(path)
    rows = np.empty((len(data.values), len(numbers)), np.float32)
    rows[:, 0] = CONSTANT
    rows[:, 1:] = data.values[:, numbers[1:] - 1]
    if normalise:
        rows /= np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))[:, None]
    # DEVIATION zhou2024 code: the authors' code fits theta on raw values with penalty 1, and pays <raw values, theta>
    # without noise, while its agents see normalised rows (`RealOptions` in experiments/silos.py). By default theta is
    # fitted on the normalised rows, so that the bandit is linear in what agents see.
    theta = lasso(rows, data.relevance, penalty=penalty)
    if not theta.any():
        raise BadValue("penalty", "must be small enough for a non-zero theta", penalty)
    if normalise:
        theta /= max(1.0, float(np.linalg.norm(theta)))
    return Queries(rows, data.query_sizes, theta, f"MSLR ({features} features)")


def mslr_arms(path: str | Path, *, n_arms: int = 50, seed: int = 0) -> np.ndarray:
    """Loads your own copy of MSLR-WEB10K as a multi-armed bandit. An arm is a cluster of documents.

    Documents are clustered by k-means on their 136 raw features. The mean reward of an arm is the mean relevance
    0, ..., 4 of its documents, divided by 4, in [0, 1].

    Args:
        path: as in `mslr`.
        n_arms: number of clusters K >= 2, at most the number of documents.
        seed: seed of the first centres, >= 0.

    Returns:
        The means (K,), float32, for `fb.envs.arms`; errors are as in `mslr`.

    Example:
        >>> means = fb.data.mslr_arms("MSLR-WEB10K")  # doctest: +SKIP
        >>> env = fb.envs.arms(means=means)  # doctest: +SKIP

    Reference: Chowdhury & Zhou (2023), Section 7 of the ICLR version. It says nothing of features or of their scale.
    """
    n_arms = validate.integer("n_arms", n_arms, at_least=2)
    seed = validate.integer("seed", seed, at_least=0, at_most=2**32 - 1)
    data = _read(path)
    if n_arms > len(data.values):
        raise BadValue("n_arms", f"must be at most the number of documents {len(data.values)}", n_arms)
    cluster = require("sklearn.cluster", "data").KMeans(n_arms, n_init=1, random_state=seed).fit_predict(data.values)
    counts = np.bincount(cluster, minlength=n_arms)
    if not counts.all():
        raise BadValue("n_arms", f"must be at most the {np.count_nonzero(counts)} clusters of k-means", n_arms)
    means = np.bincount(cluster, data.relevance, n_arms) / counts / max(RELEVANCE)
    return means.astype(np.float32)


def _read(path: str | Path) -> _Fold:
    """Parses the files of a fold, or loads a valid cache."""
    path = validate.path("path", path)
    folder = path if any((path / part).exists() for part in PARTS) else path / "Fold1"
    for part in PARTS:
        if not (folder / part).is_file():
            wanted = f"{', '.join(PARTS)} or Fold1 with them"
            raise FileNotFoundError(f"path must hold {wanted}, got {str(path)!r}: no {folder / part}")
    stats = [(folder / part).stat() for part in PARTS]
    sources = np.array([(stat.st_size, stat.st_mtime_ns) for stat in stats])
    try:
        with np.load(folder / CACHE) as saved:
            if np.array_equal(saved["sources"], sources):
                return _Fold(**{name: saved[name] for name in _Fold._fields})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # parse the files again
    values, relevance, queries = zip(*(_parse(folder / part) for part in PARTS))
    for i, part in enumerate(PARTS):
        for j in range(i):
            both = np.intersect1d(queries[i], queries[j])
            if len(both):
                raise ValueError(f"a query must be in one file, got qid:{both[0]} in {folder / PARTS[j]} and in {part}")
    ids = np.concatenate(queries)
    starts = np.append(np.flatnonzero(np.diff(ids, prepend=ids[0] - 1)), len(ids))
    parsed = _Fold(np.concatenate(values), np.concatenate(relevance), np.diff(starts))
    try:
        write_archive(folder / CACHE, "mslr", {}, dict(sources=sources, **parsed._asdict()), compress=False)
    except (OSError, ValueError) as error:
        refused = f"{folder / CACHE} could not be written ({error})"
        warnings.warn(f"{refused}: the next call parses the files again", stacklevel=3)
    return parsed


def _parse(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parses features (n, 136), relevances (n,) and query numbers (n,) of one file."""
    load = require("sklearn.datasets", "data").load_svmlight_file
    options = dict(n_features=N_FEATURES, dtype=np.float32, zero_based=False, query_id=True)
    blocks = []
    with file.open("rb") as lines:
        while block := b"".join(lines.readlines(BLOCK)):
            try:
                rows, relevance, queries = load(io.BytesIO(block), **options)
            except (ValueError, OverflowError, IndexError, TypeError) as error:
                raise ValueError(_fault(file)) from error
            if not ((np.diff(rows.indptr) == N_FEATURES).all() and len(queries) == len(relevance)):
                raise ValueError(_fault(file))
            blocks.append((rows.data.reshape(-1, N_FEATURES), relevance, queries))
    if not blocks:
        raise ValueError(_fault(file))
    values, relevance, queries = map(np.concatenate, zip(*blocks))
    sound = (
        len(relevance) > 0
        and np.isfinite(values).all()
        and np.isin(relevance, RELEVANCE).all()
        and np.count_nonzero(np.diff(queries)) + 1 == len(np.unique(queries))
    )
    if not sound:
        raise ValueError(_fault(file))
    return values, relevance.astype(np.int8), queries


def _fault(file: Path) -> str:
    """Finds the first error in a damaged file, slowly."""
    patterns = {"0, 1, 2, 3 or 4": "[0-4]", "qid:<integer>": r"qid:-?\d{1,18}"}
    patterns |= {f"{f}:<finite number>": rf"{f}:{NUMBER}" for f in range(1, N_FEATURES + 1)}
    ended, query, number = set(), None, 0
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split("#")[0].split()
            wanted = itertools.zip_longest(fields, patterns, fillvalue="nothing") if fields else ()
            for column, (got, must) in enumerate(wanted, 1):
                sound = re.fullmatch(patterns.get(must, ""), got)
                if not sound or (column > 2 and abs(float(got.partition(":")[2])) > LARGEST):
                    return f"{file}, line {number}, column {column}: must be {must}, got {got!r}"
            if fields and fields[1] != query:
                if fields[1] in ended:
                    return f"{file}, line {number}, column 2: rows of a query must be together, got {fields[1]!r} again"
                ended.add(query := fields[1])
    return f"{file} must " + ("be in the format of MSLR-WEB10K" if number else "have at least one line, got none")
