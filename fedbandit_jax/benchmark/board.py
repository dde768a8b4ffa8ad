"""The leaderboard: one page that compares rows, and a table with the place of one row."""

from __future__ import annotations

import dataclasses
import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from fedbandit_jax.benchmark.row import Cell, Row
from fedbandit_jax.benchmark.suite import TASKS
from fedbandit_jax.benchmark.task import SEEDS, SUITE, Task
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy import Users
from fedbandit_jax.report import html
from fedbandit_jax.report.html import tag
from fedbandit_jax.report.plotting.figure import svg, wrapped
from fedbandit_jax.report.tables import aligned

SHIPPED = Path(__file__).with_name("rows")
CHECKED = "checked"  # seeds from a nonce that nobody could choose
ABOUT = f"""S = ln(R_uniform / R) / ln(R_uniform / R_0), of group regrets R at T: 1 if privacy is free, 0 at random.
R_0 is the regret of a reference without privacy. There are {SEEDS} seeds, which the code of an entry decides, or, where
they are {CHECKED}, a nonce that nobody could choose. A cell counts only if the certificate of the run says that the
budget of the task is kept, under its trust model; one in brackets counts as 0, and hovering over it says why. Click on
a name for differences; errors of two rows are independent, as each has users of its own."""
NUMBERS = ("S", "+-", "R / R_0", "syncs", "kbit")  # of a cell
TOP = 6  # rows in the profile


def rows(paths: Iterable[str | Path] = (), refused: list[tuple[Path, str]] | None = None) -> list[Row]:
    """Loads the rows of the package, and of these files and folders, the best mean first.

    If an entry has several rows with different seeds, the one of `fb.benchmark.verify` counts, in its tasks.

    A cell of a file does not count if its task has changed, or if its certificate does not keep the budget. Tests hold
    the shipped rows to the same.

    Args:
        paths: files and folders.
        refused: a list for (file, reason) of files that are no rows; None: the first is an error.

    Raises:
        ValueError: a path does not exist, a folder has no rows, or a file is not a row.
    """
    files, given = sorted(SHIPPED.glob("*.npz")), []
    for path in (validate.path("rows", one) for one in paths):
        inside = sorted(path.rglob("*.npz")) if path.is_dir() else [path]
        if not path.exists() or not inside:
            raise BadValue("rows", "must be files or folders of rows", str(path))
        given += inside
    loaded: list[Row] = []
    for path in files + given:
        try:
            row = Row.load(path)
            if unknown := sorted(set(row.cells) - set(TASKS)):
                got = f"{unknown} in {str(path)!r}"
                raise BadValue("rows", f"must have tasks of the suite {SUITE}", unknown, got=got)
            cells = {name: _of_suite(cell, TASKS[name]) for name, cell in row.cells.items() if path in given}
            loaded.append(dataclasses.replace(row, cells={**row.cells, **cells}))
        except ValueError as error:
            if refused is None:
                raise
            refused.append((path, str(error)))
    found: dict[str, Row] = {}
    for one in sorted(loaded, key=lambda row: bool(row.nonce)):  # checked rows replace others
        known = found.get(one.digest)
        if known is None or one.nonce:
            before = {} if known is None else known.cells
            found[one.digest] = dataclasses.replace(one, cells={**before, **one.cells})
        elif len(one.cells) >= len(known.cells):
            found[one.digest] = one
    return sorted(found.values(), key=lambda row: -over_all(row))


def _of_suite(cell: Cell, task: Task) -> Cell:
    """Refuses a cell that does not fit the suite."""
    if cell.refused:
        return cell
    try:
        same = cell.digest == task.digest
    except ImportError as error:  # the environment of this task needs data
        return dataclasses.replace(cell, refused=f"its task cannot be compared with the suite's: {error}")
    if not same:
        why = f"its task is not the suite's: its digest is {cell.digest[:8]}..., not {task.digest[:8]}..."
    elif cell.certificate is None:
        why = "it has no certificate"
    elif task.max_syncs is not None and cell.syncs.max() > task.max_syncs:
        why = f"it communicates {cell.syncs.max():,.0f} times, the task allows {task.max_syncs:,}"
    else:
        why = task.overspent(cell.certificate)
    return dataclasses.replace(cell, refused=why)


def over_all(row: Row) -> float:
    """Returns the mean of S over all tasks of the suite, 0 for tasks not run."""
    return sum(cell.score for cell in row.cells.values()) / len(TASKS)


def summary(row: Row, others: Sequence[Row] = ()) -> str:
    """Formats the results of an entry in every task, and its place among other rows."""
    lines: list[tuple[str, ...]] = [("task", *NUMBERS, "best S")]
    for name, cell in row.cells.items():
        best = max((one.cells[name].score for one in others if name in one.cells), default=math.nan)
        lines.append((name, *_numbers(cell), _number(best)))
    text = [aligned(lines)]
    text += [f"{name} counts as uniform play: {cell.refused}" for name, cell in row.cells.items() if cell.refused]
    low, high = row.interval
    n, s = len(row.cells), "s" * (len(row.cells) > 1)
    text += ["", f"{row.name}: mean of S over {n} task{s} {row.score:.3f}, 95 % interval {low:.3f} to {high:.3f}"]
    if n == len(TASKS) and others:
        rivals = [one for one in others if one.digest != row.digest]
        better = sum(over_all(one) > row.score for one in rivals)
        best = f"; the best other is {rivals[0].name} with {over_all(rivals[0]):.3f}" if rivals else ""
        text.append(f"place {better + 1} of {1 + len(rivals)}{best}")
    return "\n".join(text)


def _numbers(cell: Cell) -> tuple[str, ...]:
    """Formats the `NUMBERS` of a cell; S is in brackets if it counts as 0."""
    if not len(cell.regret):
        return ("-",) * len(NUMBERS)
    shown = f"({_number(cell.unchecked)})" if cell.refused else _number(cell.score)
    ratio, sent = cell.regret.mean() / cell.reference.mean(), cell.bits.mean() / 1e3
    return shown, _number(cell.unchecked_error), f"{ratio:.3g}", f"{cell.syncs.mean():g}", f"{sent:,.0f}"


def write(found: Sequence[Row], path: str | Path) -> Path:
    """Writes the board as one self-contained page, readable without scripts; returns its path."""
    path = validate.path("page", path)
    style, script = (Path(__file__).with_name(f"board.{end}").read_text() for end in ("css", "js"))
    title = f"Private federated bandits: the board, suite {SUITE}"
    html.write(path, title, list(_body(found)), style=style, script=script)
    return path


def _body(found: Sequence[Row]) -> Iterator[ET.Element]:
    yield tag("p", ABOUT)
    yield _choices()
    yield _board(found)
    yield tag("h2", "Over how many tasks is a score reached?")
    yield tag("figure", html.drawing(svg(_profile(found)), "share of tasks with at least this score"))
    yield tag("h2", "Tasks")
    yield html.table(_tasks(found), "tasks")
    yield tag("h2", "Rows")
    for row in found:
        yield _details(row, found)


def _choices() -> ET.Element:
    parts = []
    for name, words in (("trusted", "whom users trust"), ("unit", "protected"), ("family", "family")):
        values = dict.fromkeys(_facts(task)[name] for task in TASKS.values())
        options = (tag("option", value, value=value) for value in values)
        parts.append(tag("label", f"{words} ", tag("select", tag("option", "all", value=""), *options, name=name)))
    return tag("div", *parts, tag("output"), **{"class": "choices", "hidden": "hidden"})


def _facts(task: Task) -> dict[str, str]:
    units = {"visit": "one visit", None: "one user with one visit"}
    unit = "one user, all visits" if isinstance(task.unit, Users) else units[task.unit]
    return {"trusted": task.trusted[-1], "unit": unit, "family": task.family}


def _board(found: Sequence[Row]) -> ET.Element:
    heads = [tag("th", text, scope="col") for text in ("entry", "mean S", "95 % interval", "track", "seeds")]
    heads += [tag("th", name, scope="col", title=task.about, **{f"data-{k}": v for k, v in _facts(task).items()})
              for name, task in TASKS.items()]  # fmt: skip
    best = {name: max((one.cells[name].score for one in found if name in one.cells), default=0.0) for name in TASKS}
    body = []
    for row in found:
        low, high = (end * len(row.cells) / len(TASKS) for end in row.interval)
        track = row.track if row.track != "tuned" else f"tuned, {row.trials:,} trials"
        cells = [row.name, _number(over_all(row)), f"{_number(low)} to {_number(high)}", track, _seeds(row)]
        line = [tag("td", text) for text in cells] + [_cell(row, name, best[name]) for name in TASKS]
        body.append(tag("tr", *line))
    made = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body), **{"class": "sortable board"})
    return tag("div", made, **{"class": "wide"})


def _seeds(row: Row) -> str:
    seeds = [bool(cell.provenance.get("nonce")) for cell in row.cells.values() if len(cell.regret)]
    if not any(seeds):
        return "by its code"
    return CHECKED if all(seeds) else f"{CHECKED} in {sum(seeds)} of {len(seeds)} tasks"


def _cell(row: Row, name: str, best: float) -> ET.Element:
    cell = row.cells.get(name)
    if cell is None or not len(cell.regret):
        return tag("td", "-" if cell else "not run", title=cell.refused if cell else "", **{"class": "uncounted"})
    shown, _, ratio, *_ = _numbers(cell)
    about = [f"S = {cell.unchecked:.3f} +- {cell.unchecked_error:.3f}", f"R / R_0 = {ratio}"]
    about += [f"{CHECKED}: seeds that nobody could choose"] if cell.provenance.get("nonce") else []
    if cell.refused:
        return tag("td", shown, title=f"{cell.refused}; {about[0]}", **{"class": "uncounted"})
    if one := cell.certificate:
        about += [f"certified: epsilon = {one.epsilon_exact:.4g} at delta = {one.delta:g}", one.trust, one.unit]
    look = {"class": "best"} if cell.score == best else {}
    numbers = {"data-score": f"{cell.score:.6f}", "data-error": f"{cell.error:.6f}"}
    return tag("td", shown, title="; ".join(about), **numbers, **look)


def _profile(found: Sequence[Row]) -> Figure:
    figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    at = np.linspace(0, 1.05, 400)
    for row in found[:TOP]:
        scores = np.array([row.cells[name].score if name in row.cells else 0.0 for name in TASKS])
        ax.step(at, [(scores >= one).mean() for one in at], label=wrapped(row.name), where="post")
    ax.set(xlabel="S", ylabel=f"share of the {len(TASKS)} tasks with S or more", xlim=(0, 1.05), ylim=(0, 1.02))
    ax.legend(frameon=False)
    ax.grid(alpha=0.3)
    plt.close(figure)
    return figure


def _tasks(found: Sequence[Row]) -> list[tuple[str, ...]]:
    head = "task", "M", "K", "d", "T", "epsilon", "delta", "trusted", "protected", "syncs"
    lines: list[tuple[str, ...]] = [(*head, "uniform R", "R_0", "best entry", "best S", "about")]
    for name, task in TASKS.items():
        cells = [(row.cells[name], row.name) for row in found if name in row.cells and len(row.cells[name].regret)]
        counted = [pair for pair in cells if not pair[0].refused]
        best = max(counted, key=lambda pair: pair[0].score, default=None)
        means = [[getattr(cell, part).mean() for cell, _ in cells] for part in ("uniform", "reference")]
        ends = (f"{np.mean(one):,.0f}" if one else "-" for one in means)
        who = (best[1], _number(best[0].score)) if best else ("-", "-")
        sizes = (f"{size:,}" for size in (*task.sizes, task.horizon))
        facts, syncs = _facts(task), "any" if task.max_syncs is None else f"{task.max_syncs:,}"
        budget = f"{task.epsilon:g}", f"{task.delta:g}", facts["trusted"], facts["unit"], syncs
        lines.append((name, *sizes, *budget, *ends, *who, task.about))
    return lines


def _details(row: Row, found: Sequence[Row]) -> ET.Element:
    lines: list[tuple[str, ...]] = [("task", "regret", "1 - best R / R", *NUMBERS, "counts")]
    proofs = []
    for name, cell in row.cells.items():
        regret = less = "-"
        if len(cell.regret):
            rivals = [one.cells[name] for one in found if name in one.cells and not one.cells[name].refused]
            ratios = [one.regret.mean() / one.uniform.mean() for one in rivals]
            own = cell.regret.mean() / cell.uniform.mean()
            regret, less = f"{cell.regret.mean():,.0f}", _number(1 - min(ratios) / own) if ratios else "-"
        lines.append((name, regret, less, *_numbers(cell), cell.refused or "yes"))
        if cell.certificate is not None:
            proofs.append(html.certificate(cell.certificate, [name]))
    declared = f"Track: {row.track}, {row.trials:,} trials on development seeds declared. "
    declared += f"SHA-256 of the word {row.function}, a line feed and the code: {row.digest}"
    code = tag("details", tag("summary", "the entry's code"), tag("pre", row.source))
    summary = tag("summary", f"{row.name}: {_number(over_all(row))}")
    return tag("details", summary, tag("p", row.about), tag("p", declared), html.table(lines, ""), code, *proofs)


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 3) + 0.0:.3f}"  # + 0.0 turns -0 into 0
