"""Draws a figure: `python experiments/draw.py NAME`. Without a name it lists all.

A picture is drawn from its CSV alone, and `--redraw` needs no run. The first line of the CSV has the command, and a
digest of the module, of the other lines and of the picture. The second has the setting. A test compares the three: none
can change without the others.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import itertools
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro
from curves import Curve
from drawing import Experiment
from options import FIGURES

import fedbandit_jax as fb
from fedbandit_jax.core.validate import suggestion

HERE = Path(__file__).resolve().parent
MODULES = (
    *("zhou2024", "zhou2024_rates", "dubey2020", "chowdhury2023", "chowdhury2023_rates", "liu2022", "liu2022_rates"),
    *("leaks", "silos", "arms", "clusters", "federation", "policies"),
)
HELPERS = ("curves", "drawing", "options")  # modules whose code is in no digest
COLUMNS = ("panel", "label", "style", "note", "x", "y")
DATA = ("--movielens", "--mslr")  # options whose value is a folder of one machine, and is not kept


def experiments() -> dict[str, Experiment]:
    """Returns all figures by name."""
    tables = [importlib.import_module(module).FIGURES for module in MODULES]
    return {name: one for table in tables for name, one in table.items()}


def about(one: Experiment) -> str:
    """Returns what a figure shows, in a line."""
    return " ".join((one.measure.__doc__ or "").partition("\n\n")[0].split())


def main(words: Sequence[str]) -> None:
    """Draws the figure that the first word names, with the options that follow."""
    known = experiments()
    if not words or words[0] not in known:
        listed = "\n".join(f"{name:27} {about(one)}" for name, one in known.items())
        wrong = [f"NAME must be a figure, got {words[0]!r}{suggestion(words[0], known)}" for _ in words[:1]]
        raise SystemExit("\n\n".join(["python experiments/draw.py NAME [--help]", listed, *wrong]))
    name, one = words[0], known[words[0]]
    asked = tyro.cli(one.options, prog=f"draw.py {name}", description=one.measure.__doc__, args=words[1:])
    path = asked.folder / "_".join(filter(None, (name, asked.variant)))
    kept = numbers_of(path.with_name(f"{path.name}.csv"))
    curves = parsed(kept.read_text(encoding="utf-8") if asked.redraw else written(one.measure(asked)))
    picture = one.picture(curves)
    figure, setting = picture.figure(), " ".join(f"Setting: {picture.setting}. {asked.words}".split())
    if asked.smoke:
        figure.text(0.5, 0.5, "smoke run: smaller than captions say", color="#d62728", ha="center", fontsize="xx-large")
    command = (
        head(kept)[0].partition(" --")[2] if asked.redraw else options_of(words[1:])
    )  # of the run with these seeds
    command = f"python experiments/draw.py {name} {command and '--'}{command.removeprefix('--')}".strip()
    paths = fb.plotting.save(figure, path)
    paths = (*paths, keep(paths[0], module_of(one), command, curves, setting))
    print(f"{setting}\n\nwrote {' and '.join(map(str, paths))}")


def name_of(command: str) -> str:
    """Returns the figure that a command draws."""
    return command.split()[2]


def options_of(words: Sequence[str]) -> str:
    """Returns the options that change numbers."""
    kept = [word for word in words if word not in ("--redraw", "--commit")]
    kept = [word for i, word in enumerate(kept) if "--out" not in (word, *kept[i - 1 : i])]
    return " ".join("DIR" if i and kept[i - 1] in DATA else word for i, word in enumerate(kept))


def module_of(one: Experiment) -> Path:
    """Returns the module whose table has a figure."""
    return HERE / f"{one.measure.__module__}.py"


def written(curves: Sequence[Curve]) -> str:
    """Returns curves as the text of a CSV; values have five digits."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for one in curves:
        for x, y in zip(one.x, one.y):
            values = " ".join(f"{value:.5g}" for value in y)
            rows.writerow([one.panel, one.label, one.style, one.note, f"{x:.10g}", values])
    return text.getvalue()


def parsed(text: str) -> list[Curve]:
    """Returns the curves of a CSV; lines that begin with # are skipped."""
    found: dict[tuple[str, ...], list[tuple[float, list[float]]]] = {}
    for row in csv.DictReader(io.StringIO(re.sub(r"\A(#.*\n)+", "", text))):
        key = (row["panel"], row["label"], row["style"], row["note"])
        found.setdefault(key, []).append((float(row["x"]), [float(value) for value in row["y"].split()]))
    return [
        Curve(panel, label, [x for x, _ in points], [y for _, y in points], style, note)
        for (panel, label, style, note), points in found.items()
    ]


def digest(module: Path, numbers: str, picture: bytes) -> str:
    """Returns the digest of a module with those beside it that it imports, of the numbers and of the picture."""
    sources, seen = [module], set()
    whole = hashlib.sha256()
    while sources:
        source = sources.pop(0)
        if source in seen:
            continue
        seen.add(source)
        text = source.read_text(encoding="utf-8")
        whole.update(text.encode())
        names = sorted(set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)) - set(HELPERS))
        sources += [other for name in names if (other := module.parent / f"{name}.py").exists()]
    whole.update(numbers.encode())
    whole.update(picture)
    return whole.hexdigest()[:32]


def numbers_of(path: Path) -> Path:
    """Returns the CSV that a picture is drawn again from: that in its folder, else that in experiments/figures."""
    return path if path.exists() else FIGURES / path.name


def keep(picture: Path, module: Path, command: str, curves: Sequence[Curve], setting: str = "") -> Path:
    """Writes the CSV of a picture that was just drawn, with command, digest and setting, and returns its path."""
    numbers, path = f"# {setting}\n{written(curves)}", picture.with_suffix(".csv")
    if path.is_symlink() or (path.exists() and not path.read_bytes().startswith(b"# python experiments/")):
        names = (picture.with_suffix(f".{i}.csv") for i in itertools.count(1))
        path = next(one for one in names if not os.path.lexists(one))
    path.write_text(f"# {command} | {digest(module, numbers, picture.read_bytes())}\n{numbers}", encoding="utf-8")
    return path


def head(path: Path) -> tuple[str, str]:
    """Returns the command and the setting in the first lines of a CSV."""
    with path.open(encoding="utf-8") as file:
        command, setting = (next(file)[2:].strip() for _ in range(2))
    return command.rpartition(" | ")[0], setting.removeprefix("Setting: ")


def stale(path: Path) -> str | None:
    """Returns what is wrong with the picture of a CSV, or None: module, numbers and picture belong together."""
    first, _, numbers = path.read_text(encoding="utf-8").partition("\n")
    found = re.fullmatch(r"# python experiments/draw.py (\w+)(?: .*)? \| (\w+)", first)
    known, picture = experiments(), path.with_suffix(".png")
    if not found or found[1] not in known:
        return f"{path.name}: its first line must have the command and a digest, got {first!r}"
    if not picture.exists():
        return f"{path.name}: {picture.name} must exist"
    module = module_of(known[found[1]])
    if digest(module, numbers, picture.read_bytes()) != found[2]:
        return f"{path.name}: {module.name}, the numbers or the picture have changed since they were made together"
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
