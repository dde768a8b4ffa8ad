import contextlib
import re
from importlib import import_module

import numpy as np
import pytest
from helpers import edit, refused
from made_up import PARTS, lines, write_fold

import fedbandit_jax as fb

module = import_module("fedbandit_jax.data.mslr")  # the package attribute is the function


@pytest.fixture
def root(tmp_path):
    """Two folds; fold 1 has one-document queries at the ends of its files and twelve queries."""
    write_fold(tmp_path / "Fold1", [lines([1, 7, 30, 1]), lines([20, 1], first_query=5), lines([9] * 6, first_query=7)])
    write_fold(tmp_path / "Fold2", [lines([2]), lines([3], first_query=2), lines([4], first_query=3)])
    return tmp_path


def relevance_of(root):
    """Labels of fold 1."""
    return np.array([int(line[0]) for part in PARTS for line in (root / "Fold1" / part).read_text().splitlines()])


def test_feature_numbers():
    title, body = fb.data.TITLE_FEATURES, fb.data.BODY_FEATURES
    assert (len(title), len(body)) == (57, 78)
    assert set(title) & set(body) == {0}
    assert set(range(137)) - set(title) - set(body) == {134, 135, 136}
    assert {2, 4, 7, 9, 122, 124, 126, 131} <= set(title)
    assert {1, 3, 5, 121, 123, 125, 132, 133} <= set(body)


@pytest.mark.parametrize(("features", "dim"), [("title", 57), ("body", 78)])
def test_rows_sizes_and_theta(root, features, dim):
    table = fb.data.mslr(root, features=features, penalty=1e-4)
    assert table.features.shape == (114, dim)
    assert table.query_sizes.tolist() == [1, 7, 30, 1, 20, 1, 9, 9, 9, 9, 9, 9]
    np.testing.assert_allclose(np.linalg.norm(table.features, axis=1), 1, atol=1e-6)
    assert 0 < np.linalg.norm(table.theta) <= 1 + 1e-6
    fields = (root / "Fold1" / "vali.txt").read_text().splitlines()[0].split()
    numbers = fb.data.TITLE_FEATURES if features == "title" else fb.data.BODY_FEATURES
    row = np.array([0.01] + [float(fields[f + 1].split(":")[1]) for f in numbers[1:]])
    np.testing.assert_allclose(table.features[39], row / np.linalg.norm(row), rtol=1e-5, atol=1e-9)
    env = fb.envs.replay(**table.arguments(), n_agents=3)
    assert (env.spec.n_arms, env.spec.dim, env.spec.max_norm) == (30, dim, 1.0)
    raw = fb.data.mslr(root, features=features, penalty=1e-2, normalise=False)  # as in the code of the authors
    norms = np.linalg.norm(raw.features.astype(float), axis=1, keepdims=True)
    np.testing.assert_allclose(raw.features / norms, table.features, rtol=1e-5)
    assert norms.max() > 1e4
    np.testing.assert_allclose(raw.theta, module.lasso(raw.features, relevance_of(root), penalty=1e-2))
    if features == "title":
        assert np.corrcoef(table.features @ table.theta, relevance_of(root))[0, 1] > 0.5


def test_a_folder_may_be_one_fold(root):
    assert fb.data.mslr(root / "Fold2", penalty=1e-4).query_sizes.tolist() == [2, 3, 4]
    with refused("penalty", 100.0):  # theta would be 0
        fb.data.mslr(root / "Fold2", penalty=100)


def test_blocks_of_a_file_are_the_file(root, monkeypatch):
    """Wherever a block ends, at the end of a line, inside one or before the first, rows are read once."""
    file = root / "Fold1" / "train.txt"
    edit(file, 1, lambda line: "0 qid:1 " + " ".join(f"{f}:0" for f in range(1, 137)) + "\n")
    whole = fb.data.mslr(root, penalty=1e-4)
    assert whole.features[0].tolist() == [1] + [0] * 56  # of a document without any value
    first = file.read_bytes().index(b"\n") + 1
    for size in (first, first - 1, first + 1, 3 * first, 100):
        monkeypatch.setattr(module, "BLOCK", size)
        again = fb.data.mslr(root, penalty=1e-4)
        np.testing.assert_array_equal(again.features, whole.features)
        np.testing.assert_array_equal(again.query_sizes, whole.query_sizes)


def test_arms_are_clusters_of_documents(root):
    """A cluster for each of four different documents: every mean is a relevance over 4; with two, means mix these."""
    values, relevance, _ = module._read(root / "Fold2")
    _, first = np.unique(values, axis=0, return_index=True)
    means = fb.data.mslr_arms(root / "Fold2", n_arms=4)
    np.testing.assert_allclose(np.sort(means), np.sort(relevance[first]) / 4)
    two = fb.data.mslr_arms(root, n_arms=2)
    assert two.dtype == np.float32
    relevance = module._read(root)[1]
    assert 0 <= two.min() <= relevance.mean() / 4 <= two.max() <= 1
    for n_arms, warning in ((10, contextlib.nullcontext()), (5, pytest.warns(Warning, match="distinct clusters"))):
        with warning, refused("n_arms", n_arms):
            fb.data.mslr_arms(root / "Fold2", n_arms=n_arms)


DAMAGED = {  # what line 3 has, what takes its place, and words of the refusal
    "without qid": ("qid:2 ", "", "must have lines"),
    "qid": ("qid:2", "qid:x", "must have lines"),
    "relevance 5": (r"^\d", "5", "got relevance 5"),
    "value": (" 7:", " 7:abc", "must have lines"),
    "nan": (" 136:", " 136:nan #", "got feature nan"),
    "too large": (" 1:", " 1:1e99 #", r"got \[1\] features"),
    "feature 137": (r"$", " 137:1", "must have lines"),
    "order": (" 5:", " 6:", "must have lines"),
    "cut short": (r" 100:.*", "", r"got \[99\] features"),
    "torn query": ("qid:2", "qid:1", "rows of a query must be together"),
}


@pytest.mark.parametrize(("old", "new", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_document_is_refused(root, old, new, words):
    edit(root / "Fold1" / "train.txt", 3, lambda line: re.sub(old, new, line, count=1))
    with pytest.raises(ValueError, match=f"^[^\n]*{words}[^\n]*$"):
        fb.data.mslr(root)


def test_files_of_a_fold_must_be_there_with_queries_of_their_own(root):
    test = root / "Fold1" / "test.txt"
    for text, words in (("", "test.txt must have lines"), ((test.parent / "vali.txt").read_text(), "got qid:5 again")):
        test.write_text(text)
        with pytest.raises(ValueError, match=words):
            fb.data.mslr(root)
    test.unlink()
    with pytest.raises(FileNotFoundError, match=f"no {test}"):
        fb.data.mslr(root)
