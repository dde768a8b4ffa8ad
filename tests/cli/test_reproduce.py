"""`fedbandit reproduce`: the list of committed figures, and a script of a small clone that is run again."""

from pathlib import Path

import numpy as np
import pytest

from fedbandit_jax.cli import main, reproduce

SCRIPT = """
import sys
from pathlib import Path
text = Path("experiments/figures/zhou2024_fig9_ours.csv").read_text()
assert sys.argv[1] == "--full"
(Path(sys.argv[sys.argv.index("--out") + 1]) / "zhou2024_fig9_ours.csv").write_text(text.replace("T=3", "T=4"))
"""
HEAD = "# Setting: T=3, 8 seeds\npanel,label,style,note,x,y\n"
PAGE = "# A paper\n\n### Figure 9: it grows\n\n**Holds.** With\nT = 10.\n\n### It falls later\n\n**Not run.**\n"
RUN = ["reproduce", "zhou2024", "fig9_ours", "--out", "mine"]


def table(means, seed=0, seeds=8):
    """Values of seeds at points, by panel, label and point."""
    rng = np.random.default_rng(seed)
    return {("a", "tree", str(x)): rng.normal(mean, 1, seeds) for x, mean in enumerate(means)}


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone with one script and one committed figure."""
    folder = tmp_path / "clone" / reproduce.FIGURES
    folder.mkdir(parents=True)
    (folder.parent / "fig9.py").write_text(SCRIPT)
    rows = "".join(f"a,tree,,,{x},{' '.join(map(str, y))}\n" for (*_, x), y in table([10, 20]).items())
    (folder / "zhou2024_fig9_ours.csv").write_text(f"# python experiments/fig9.py --full | 12ab\n{HEAD}{rows}")
    (pages := tmp_path / "clone" / reproduce.PAGES).mkdir(parents=True)
    (pages / "zhou2024.md").write_text(PAGE)
    monkeypatch.setattr(reproduce, "CLONE", tmp_path / "clone")
    monkeypatch.chdir(tmp_path)
    return folder.parent


def test_a_figure_is_listed_run_and_compared(clone, capsys):
    for words in ([], ["zhou2024"]):
        assert main(["reproduce", *words]) == 0
        shown = capsys.readouterr().out
        assert "zhou2024 fig9_ours python experiments/fig9.py --full" in " ".join(shown.split())
        for said in ("Here: T=3, 8 seeds", "Figure 9: it grows. Holds. With T = 10.", "It falls later. Not run."):
            assert (said in shown) == bool(words)
    assert main(RUN) == 0
    assert "2 of 2" in capsys.readouterr().out
    assert "T=4" in Path("mine/zhou2024_fig9_ours.csv").read_text()
    path = clone / "fig9.py"
    for change, said in {"('e,,,0,', 'e,,,0,' + 24 * '1 ')": "differs", "(',1,', ',7,')": "missing"}.items():
        path.write_text(SCRIPT.replace('("T=3", "T=4")', change))
        assert main(RUN) == 1
        shown = capsys.readouterr().out
        assert "1 of 2" in shown
        assert said in shown


def test_another_draw_of_the_same_law_agrees_and_another_law_does_not():
    """Of 100 figures of 20 points with 8 seeds at most a few differ anywhere; a shift of three deviations is seen."""
    means = range(20)
    wrong = [bool(reproduce.compared(table(means, 2 * i), table(means, 2 * i + 1))[0]) for i in range(100)]
    assert sum(wrong) <= 4  # 1 expected
    shifted = [*range(19), 23]
    seen = [reproduce.compared(table(means, 2 * i), table(shifted, 2 * i + 1))[0] for i in range(20)]
    assert sum(one == [("a", "tree", "19")] for one in seen) >= 18
    alone = {("a", "b", "1"): np.array([1.0])}
    assert not reproduce.compared(alone, {("a", "b", "1"): np.array([1.0001])})[0]
    assert reproduce.compared(alone, {("a", "b", "1"): np.array([1.01])})[0]


def test_every_committed_figure_is_listed():
    found = [*reproduce.figures()]
    assert {one.path for one in found} == {*(reproduce.CLONE / reproduce.FIGURES).glob("*.csv")}
    assert {one.paper for one in found} == {*reproduce.PAPERS}
    assert all((reproduce.CLONE / one.command.split()[1]).is_file() and one.setting for one in found)
    assert len({(one.paper, one.name) for one in found}) == len(found)


def test_a_clone_is_found_where_the_command_is_typed(clone, tmp_path, monkeypatch, capsys):
    """As the package may be installed elsewhere. Without one the command says what is needed."""
    monkeypatch.chdir(clone.parent)
    assert reproduce.first_clone(tmp_path, Path()) == clone.parent
    assert reproduce.first_clone(clone.parent, tmp_path) == clone.parent
    monkeypatch.setattr(reproduce, "CLONE", tmp_path)
    assert main(["reproduce"]) == 2
    assert "clone" in capsys.readouterr().err
