"""`fedbandit benchmark`: the words it takes, what it prints and writes, and its exit codes."""

import re

import pytest
from small import OTHER, SOURCE, drawn, suite

import fedbandit_jax as fb
from fedbandit_jax.benchmark import board, play
from fedbandit_jax.benchmark.row import Row
from fedbandit_jax.cli import main


@pytest.fixture
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    tasks = suite(monkeypatch)
    monkeypatch.setattr(play, "played", drawn)
    monkeypatch.setattr(board, "TASKS", tasks)
    monkeypatch.setattr(board, "SHIPPED", tmp_path / "shipped")
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "other.py").write_text(OTHER)
    return tmp_path


def test_lists_tasks(capsys):
    assert main(["benchmark"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {task.about}" in printed for name, task in fb.benchmark.TASKS.items())


def test_plays_verifies_and_draws(here, capsys):
    assert main(["benchmark", "mine.py:recipe", "--develop", "--track", "tuned"]) == 0
    assert "development seeds: no row" in capsys.readouterr().out
    assert not (here / "rows").exists()

    assert main(["benchmark", "mine.py:recipe"]) == 0
    printed = capsys.readouterr().out
    row = Row.load("rows/mine.npz")
    assert f"mean of S over 1 task {row.score:.3f}" in printed
    assert re.search(rf"small +{row.score:.3f} +{row.cells['small'].error:.3f}", printed)
    assert printed.endswith("wrote rows/mine.npz\n")

    assert main(["benchmark", "other.py"]) == 0
    assert "it has no recipe for this task" in capsys.readouterr().out

    code = main(["benchmark", "verify", "rows/mine.npz"])
    printed = capsys.readouterr().out
    again = Row.load("rows/mine.checked.npz")
    assert code == ("not repeated" in printed)
    assert again.nonce
    assert f"{row.score:.3f}  {row.error:.3f}  {again.score:.3f}" in printed

    assert main(["benchmark"]) == 0
    said = re.sub(" +", " ", capsys.readouterr().out)
    assert " 0.000 mine one recipe, verified\n" in said  # a cell without a certificate does not count
