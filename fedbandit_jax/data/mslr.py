"""Microsoft Learning to Rank (MSLR-WEB10K) as a linear bandit. A query is a user, and its documents are the arms."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.datasets import Queries, lasso

PARTS = ("train.txt", "vali.txt", "test.txt")  # files of a fold
N_FEATURES = 136
RELEVANCE = (0, 1, 2, 3, 4)  # labels
CONSTANT = 0.01  # value of feature 0, which is not in the data set
BLOCK = 2**26  # bytes of a file parsed at once, since sparse rows need more memory

# Features 1 ... 125 of the data set are 25 quantities, each for 5 streams: body, anchor, title, url, whole document.
_STREAM = {name: range(1 + i, 126, 5) for i, name in enumerate(("body", "anchor", "title", "url", "document"))}
TITLE_FEATURES = (0, *sorted([*_STREAM["anchor"], *_STREAM["url"]]), *range(126, 132))
BODY_FEATURES = (0, *sorted([*_STREAM["body"], *_STREAM["title"], *_STREAM["document"]]), 132, 133)
FEATURES = {"title": TITLE_FEATURES, "body": BODY_FEATURES}


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
        path: folder of train.txt, vali.txt and test.txt, or of Fold1, which holds them. Every call parses them.
        features: half of the features, "title" or "body".
        penalty: weight of the l1 norm in the lasso, > 0.
        normalise: False keeps rows as they are, with an unbounded theta fitted to them. With penalty=1 their products
            are the unbounded rewards of the authors' code.

    Raises:
        FileNotFoundError: the folder or a file does not exist.
        ValueError, TypeError: an argument is invalid, or a file is damaged; the message then names the file.
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
    values, relevance, query_sizes = _read(path)
    rows = np.empty((len(values), len(numbers)), np.float32)
    rows[:, 0] = CONSTANT
    rows[:, 1:] = values[:, numbers[1:] - 1]
    if normalise:
        rows /= np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))[:, None]
    # DEVIATION zhou2024 code: the authors' code fits theta on raw values with penalty 1, and pays <raw values, theta>
    # without noise, while its agents see normalised rows (`RealOptions` in experiments/zhou2024.py). By default theta
    # is fitted on the normalised rows, so that the bandit is linear in what agents see.
    theta = lasso(rows, relevance, penalty=penalty)
    if not theta.any():
        raise BadValue("penalty", "must be small enough for a non-zero theta", penalty)
    if normalise:
        theta /= max(1.0, float(np.linalg.norm(theta)))
    return Queries(rows, query_sizes, theta, f"MSLR ({features} features)")


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
    values, relevance, _ = _read(path)
    if n_arms > len(values):
        raise BadValue("n_arms", f"must be at most the number of documents {len(values)}", n_arms)
    cluster = require("sklearn.cluster", "data").KMeans(n_arms, n_init=1, random_state=seed).fit_predict(values)
    counts = np.bincount(cluster, minlength=n_arms)
    if not counts.all():
        raise BadValue("n_arms", f"must be at most the {np.count_nonzero(counts)} clusters of k-means", n_arms)
    means = np.bincount(cluster, relevance, n_arms) / counts / max(RELEVANCE)
    return means.astype(np.float32)


def _read(path: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads a fold: features (N, 136) float32 and relevances (N,) of documents, and sizes (Q,) of queries."""
    path = validate.path("path", path)
    folder = path if any((path / part).exists() for part in PARTS) else path / "Fold1"
    for part in PARTS:
        if not (folder / part).is_file():
            wanted = f"{', '.join(PARTS)} or Fold1 with them"
            raise FileNotFoundError(f"path must hold {wanted}, got {str(path)!r}: no {folder / part}")
    values, relevance, queries = map(np.concatenate, zip(*(_parse(folder / part) for part in PARTS)))
    starts = np.append(np.flatnonzero(np.diff(queries, prepend=queries[0] - 1)), len(queries))
    _, counts = np.unique(queries[starts[:-1]], return_counts=True)
    if (counts > 1).any():
        twice = np.unique(queries)[counts > 1][0]
        raise ValueError(f"rows of a query must be together, in one file of {folder}, got qid:{twice} again")
    return values, relevance, np.diff(starts)


def _parse(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parses features (n, 136), relevances (n,) and query numbers (n,) of one file."""
    load = require("sklearn.datasets", "data").load_svmlight_file
    options = dict(n_features=N_FEATURES, dtype=np.float32, zero_based=False, query_id=True)
    must, blocks = f"{file} must have lines of a relevance, a query and {N_FEATURES} finite features", []
    with file.open("rb") as lines:
        while block := b"".join(lines.readlines(BLOCK)):
            try:
                rows, relevance, queries = load(io.BytesIO(block), **options)
            except (ValueError, OverflowError, IndexError, TypeError) as error:
                raise ValueError(f"{must}, got another: {error}") from error
            whole = np.diff(rows.indptr) == N_FEATURES
            if not whole.all() or len(queries) != len(relevance):
                got = f"{np.diff(rows.indptr)[~whole][:1]} features" if not whole.all() else "a document without qid"
                raise ValueError(f"{must}, got {got}")
            blocks.append((rows.data.reshape(-1, N_FEATURES), relevance, queries))
    if not sum(len(block[1]) for block in blocks):
        raise ValueError(f"{must}, got none")
    values, relevance, queries = map(np.concatenate, zip(*blocks))
    for name, wrong in (("feature", ~np.isfinite(values)), ("relevance", ~np.isin(relevance, RELEVANCE))):
        if wrong.any():
            got = (values if name == "feature" else relevance)[wrong][0]
            raise ValueError(f"{must}, relevances in {RELEVANCE}, got {name} {got:g}")
    return values, relevance.astype(np.int8), queries
