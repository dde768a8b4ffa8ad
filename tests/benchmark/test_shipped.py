"""The rows, entries and page that are shipped: they belong together, and the page's examples are entries."""

import re
from pathlib import Path

import pytest
from small import SMALL

import fedbandit_jax as fb
from fedbandit_jax.benchmark import board, play
from fedbandit_jax.benchmark.entry import Entry

ROOT = Path(__file__).parents[2]
ENTRIES, PAGE = ROOT / "experiments" / "entries", (ROOT / "docs" / "benchmark.md").read_text()
LINES = [[cell.strip() for cell in line.strip("| ").split("|")] for line in PAGE.splitlines() if line[:2] == "| "]
TASKS = fb.benchmark.TASKS


@pytest.fixture(scope="module")
def rows():
    return {row.name: row for row in board.rows()}


def example(words):
    """The only example of the page with these words in it."""
    (source,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if words in block]
    return source


def test_rows_are_of_the_entries_beside_the_figures(rows):
    """Every entry has its row, of this code and of these tasks, and no other has one."""
    assert sorted(rows) == sorted(path.stem for path in ENTRIES.glob("*.py"))
    for name, row in rows.items():
        assert row.source == (ENTRIES / f"{name}.py").read_text(), f"{name}.py: python experiments/benchmark.py"
        assert {task: cell.digest for task, cell in row.cells.items()} == {n: one.digest for n, one in TASKS.items()}
        assert all(cell.certificate.claim == "certified" for cell in row.cells.values() if not cell.refused)


def test_numbers_of_the_page(rows):
    """Tables of the page are those of the shipped rows, and leave out no entry and no task."""
    means = {cells[0]: cells[1:] for cells in LINES if cells[0] in rows}
    assert set(means) == set(rows)
    for name, (mean, interval, count) in means.items():
        low, high = rows[name].interval
        assert (mean, interval) == (f"{rows[name].score:.3f}", f"{low:.3f} to {high:.3f}")
        assert int(count) == sum(not cell.refused for cell in rows[name].cells.values())
    tasks = {cells[0]: cells[1:] for cells in LINES if cells[0] in TASKS and len(cells) == 5}
    assert set(tasks) == set(TASKS)
    for task, groups in tasks.items():
        named = [cell.split(" ", 1) for cell in groups[:-1] if cell != "-"] + [["best", groups[-1]]]
        for name, numbers in named:
            cell = rows[name].cells[task]
            assert numbers == f"{cell.score:.3f} ± {cell.error:.3f}"
        best = max(row.cells[task].score for row in rows.values())
        assert best == max(rows[name].cells[task].score for name, _ in named)


def test_tasks_of_the_page():
    tasks = {cells[0]: cells[1:] for cells in LINES if cells[0] in TASKS and len(cells) == 8}
    assert set(tasks) == set(TASKS)
    units = {"-": None, "a visit": "visit", "all visits": fb.privacy.Users(16, per_batch=1)}
    for name, (family, sizes, horizon, budget, trusted, unit, syncs) in tasks.items():
        task = TASKS[name]
        assert (family, trusted) == (task.family, ", ".join(task.trusted))
        assert sizes == ", ".join(f"{size:,}" for size in task.sizes)
        assert (horizon, budget) == (f"{task.horizon:,}", f"{task.epsilon:g}, {task.delta:g}")
        assert task.unit == units[unit]
        assert syncs == ("any" if task.max_syncs is None else f"{task.max_syncs:,}")


def test_the_shortest_entry_is_the_example_of_the_page():
    source = (ENTRIES / "private_fed_lin_ucb.py").read_text()
    assert source in PAGE
    assert len(source.splitlines()) <= 15


def test_a_user_defined_policy_is_an_entry():
    """The page's example, also where annotations are strings: it is traced, its noise is read, and it counts."""
    docstring, rest = example("class Softmax").split("\n\n", 1)
    for first in ("", "from __future__ import annotations\n\n"):
        algo = play._recipe(SMALL, Entry.read(f"{docstring}\n\n{first}{rest}", "recipe", "softmax"))
        certificate = algo.certificate(SMALL.spec, SMALL.horizon)
        assert (certificate.claim, SMALL.refusal(certificate, syncs=10, status=0)) == ("certified", "")


def test_the_entry_of_the_page_for_all_tasks():
    """It has a recipe for each, whose budget, trust, unit and number of synchronisations are the task's."""
    entry = Entry.read(example("for every task"), "recipe", "defaults")
    for task in TASKS.values():
        algo = entry.recipe(task)
        certificate = algo.certificate(task.spec, task.horizon)
        assert task.refusal(certificate, syncs=0, status=0) == "", task.name
        schedule = getattr(algo, "schedule", None)
        n_syncs = task.horizon // schedule if isinstance(schedule, int) else 0
        assert n_syncs <= min(task.max_syncs or 100, 100)
