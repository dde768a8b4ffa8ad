"""The numbers behind a picture: measured, kept as a small CSV beside it, read again, and fitted.

A picture is drawn from its CSV alone, and `--redraw` needs no run. The first line of the CSV has the command, and a
digest of the script, of the other lines and of the picture. Then comes the caption. A test compares the three: none can
change without the others.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import itertools
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

import fedbandit_jax as fb

HERE = Path(__file__).parent
COLUMNS = ("panel", "label", "style", "note", "x", "y")
CHANCE = "uniform play"
POINTS = 40  # recorded rounds of a curve that are kept
DATA = ("--movielens", "--mslr")  # options whose value is a folder of one machine, and is not kept
SHARED = ("curves", "drawing", "options")  # modules of helpers, whose code is in no digest
PAPERS = {  # how names of scripts begin -> paper
    "zhou2024": "Zhou & Chowdhury (2024)",
    "leak": "Zhou & Chowdhury (2024)",
    "dubey2020": "Dubey & Pentland (2020)",
    "chowdhury2023": "Chowdhury & Zhou (2023)",
    "liu2022": "Liu et al. (2022)",
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """Values y (n, S) of S seeds at the points x (n,); S = 1 for numbers that are not random.

    Args:
        panel: the panel of the figure.
        label: the name in the legend.
        x: points.
        y: values of the seeds at the points; numbers (n,) stand for one seed.
        style: colour, line and marker as matplotlib has them, with spaces between.
        note: what a certificate claims, or any other word.
    """

    panel: str
    label: str
    x: Any
    y: Any
    style: str = ""
    note: str = ""

    def __post_init__(self):
        object.__setattr__(self, "x", np.asarray(self.x, float))
        object.__setattr__(self, "y", np.asarray(self.y, float).reshape(len(self.x), -1))

    @property
    def n_seeds(self) -> int:
        """Returns S."""
        return self.y.shape[1]

    @property
    def mean(self) -> np.ndarray:
        """Returns the means over seeds (n,)."""
        return self.y.mean(1)

    @property
    def error(self) -> np.ndarray:
        """Returns standard errors of the means (n,); 0 for one seed."""
        return self.y.std(1, ddof=1) / np.sqrt(self.n_seeds) if self.n_seeds > 1 else np.zeros(len(self.x))

    @property
    def half(self) -> np.ndarray:
        """Returns half of 95 % intervals of the means by Student's t (n,); 0 for one seed."""
        return stats.t.ppf(0.975, max(1, self.n_seeds - 1)) * self.error

    def but(self, **changes: Any) -> Curve:
        """Returns the curve with other values of some fields."""
        return dataclasses.replace(self, **changes)

    def per(self, unit: Any) -> Curve:
        """Returns the curve divided by a number, or by one for each point (n,)."""
        return self.but(y=self.y / np.reshape(unit, (-1, 1)))

    def over(self, unit: np.ndarray) -> Curve:
        """Returns the paired ratio to values (S,) or (n, S): means and errors are as in `quotient`."""
        unit = np.broadcast_to(unit, self.y.shape)
        mean = unit.mean(1, keepdims=True)
        value = self.mean[:, None] / mean
        return self.but(y=value + (self.y - value * unit) / mean)

    def at(self, x: float) -> np.ndarray:
        """Returns the values of the seeds (S,) at a point."""
        return self.y[list(self.x).index(x)]

    def said(self, i: int = -1) -> str:
        """Returns a mean with its standard error as text, "1,234 ± 56"."""
        return f"{self.mean[i]:,.0f} ± {self.error[i]:,.0f}"


def of_result(result: fb.Result, panel: str, *, each: float = 1.0) -> list[Curve]:
    """Returns the cumulative regret of every label, divided by `each`, at no more than `POINTS` rounds."""
    n = len(result.rounds)
    log = result.config.get("stride") == "log"
    kept = np.geomspace(1, n, POINTS) - 1 if log and n < POINTS else np.linspace(0, n - 1, POINTS)
    kept = np.unique(kept.round().astype(int))
    return [
        Curve(
            panel,
            label,
            np.asarray(result.rounds)[kept],
            result[label].regret[:, kept].T / each,
            " ".join([style.colour, style.line, style.marker]).strip(),
            style.claim,
        )
        for label, style in fb.plotting.styles(result).items()
    ]


def paper(name: str) -> str:
    """Returns the paper of a script or of its picture, "" if it goes beyond the papers."""
    return PAPERS.get(name.partition("_")[0], "")


def final(result: fb.Result, *, each: float = 1.0) -> np.ndarray:
    """Returns the regret (S,) of the one algorithm of a result after its last round, divided by `each`."""
    return result.regret[:, -1] / each


def against(result: fb.Result, coordinate: str, panel: str) -> list[Curve]:
    """Returns final regret against a coordinate of a sweep, the same at all values for an algorithm that has none.

    The style is the colour of the algorithm, the note what its certificate claims.
    """
    points = result.coordinates
    x = sorted({point[coordinate] for point in points.values() if coordinate in point})
    curves = []
    for name in dict.fromkeys(point["algorithm"] for point in points.values()):
        labels = {point.get(coordinate): label for label, point in points.items() if point["algorithm"] == name}
        members = [result[labels[value] if value in labels else labels[None]] for value in x]
        y = [final(one) for one in members]
        curves.append(Curve(panel, name, x, y, fb.plotting.colour(members[0]), claimed(members[0])))
    return curves


def ends(result: fb.Result, panel: str, *counts: str) -> list[Curve]:
    """Returns final regret of every label at 0, and its final counts of communication at 1, 2, ..."""
    return [
        Curve(
            panel,
            label,
            np.arange(1 + len(counts)),
            [final(one), *(one.communication[name][:, -1] for name in counts)],
            fb.plotting.colour(one),
            claimed(one),
        )
        for label, one in ((label, result[label]) for label in result)
    ]


def lasts(curves: Sequence[Curve], label: str, x: Any, style: str = "") -> Curve:
    """Returns the last values of curves against x, in the style of the first if there is no other."""
    return Curve("", label, x, [one.y[-1] for one in curves], style or curves[0].style, curves[0].note)


def claimed(result: fb.Result) -> str:
    """Returns the claim of the certificate of one algorithm, or "not private" if it asks for no privacy."""
    return result.certificate.claim if result.certificate.epsilon is not None else "not private"


def standing(rounds: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Returns what counts (S, N) of recorded rounds (N,) stood at in the rounds `at` (n,) at the latest, (n, S)."""
    last = np.searchsorted(rounds, at, side="right") - 1
    return np.where(last >= 0, values[:, np.maximum(last, 0)], 0).T


def pick(curves: Iterable[Curve], panel: str | None = None, label: str | None = None) -> list[Curve]:
    """Returns the curves of a panel, of a label or of both."""
    return [one for one in curves if panel in (None, one.panel) and label in (None, one.label)]


def the(curves: Iterable[Curve], panel: str | None = None, label: str | None = None) -> Curve:
    """Returns the one curve of a panel, of a label or of both."""
    (one,) = pick(curves, panel, label)
    return one


def panels(curves: Iterable[Curve]) -> list[str]:
    """Returns the names of the panels, in order."""
    return list(dict.fromkeys(one.panel for one in curves))


def gathered(points: Iterable[tuple[str, str, float, Any, str]], looks: Mapping[str, str]) -> list[Curve]:
    """Returns curves of points: panel, label, x, the values of the seeds, and a note; different notes are joined."""
    found: dict[tuple[str, str], list[tuple[float, Any, str]]] = {}
    for panel, label, x, y, note in points:
        found.setdefault((panel, label), []).append((x, y, note))
    curves = []
    for (panel, label), of in found.items():
        x, y, notes = zip(*of)
        curves.append(Curve(panel, label, x, y, looks.get(label, ""), "; ".join(dict.fromkeys(notes))))
    return curves


def interval(values: np.ndarray) -> tuple[float, float]:
    """Returns the mean of values (S,) and half of its 95 % interval by Student's t; nan for one value."""
    if len(values) < 2:
        return float(values.mean()), float("nan")
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def mean_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean over seeds, which are the first axis, and its standard error."""
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))


def exponent(curve: Curve, kept: slice = slice(None)) -> tuple[float, float]:
    """Returns p of a fit y ~ x^p and half of its 95 % interval, by the jackknife over seeds.

    The fit is to the logarithms of means, as the mean of logarithms is pulled down by seeds that differ much.
    """
    x, y = np.log(curve.x[kept]), curve.y[kept]

    def fit(values: np.ndarray) -> float:
        return float(np.polyfit(x, np.log(values.mean(1)), 1)[0])

    whole, n = fit(y), curve.n_seeds
    if n == 1:
        return whole, float("nan")
    without = np.array([fit(np.delete(y, seed, 1)) for seed in range(n)])
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return whole, float(stats.t.ppf(0.975, n - 1) * error)


def steps(curve: Curve) -> str:
    """Returns the powers p of y ~ x^p from each point to the next, of means: they differ where y is no power of x."""
    return ", ".join(f"{p:.3f}" for p in np.diff(np.log(curve.mean)) / np.diff(np.log(curve.x)))


def quotient(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Returns the mean of paired values a (S,) over the mean of b, and the standard error of the linearised ratio."""
    value = a.mean() / b.mean()
    return float(value), float((a - value * b).std(ddof=1) / np.sqrt(len(a)) / b.mean())


def pm(mean: Any, error: Any, digits: int = 2) -> str:
    """Returns a number with its error as text, "1.23 ± 0.04"."""
    return f"{round(float(mean), digits) + 0.0:,.{digits}f} ± {error:,.{digits}f}"


def ratio(a: np.ndarray, b: np.ndarray) -> str:
    """Returns the quotient of paired values with its standard error as text."""
    return pm(*quotient(a, b))


def ratios(curves: Iterable[Curve], one: str, other: str) -> str:
    """Returns last values of one label over another, panel by panel."""
    found = [ratio(a.y[-1], b.y[-1]) for a in pick(curves, label=one) for b in pick(curves, a.panel, other)]
    return f"{one} / {other} {', '.join(found)}"


def verdict(better: np.ndarray, worse: np.ndarray) -> str:
    """Returns whether one has less than the other, both (S,), by differences of paired seeds with 95 % confidence."""
    mean, half = interval(worse - better)
    found = "holds" if mean > half else "reversed" if mean < -half else "undecided"
    return f"{found}, by {mean:,.0f} ± {half:,.0f}"


def verdicts(ends: Mapping[str, np.ndarray], pairs: Iterable[tuple[str, str]]) -> str:
    """Returns `verdict` of pairs of labels, as far as they are there, given the values of seeds by label."""
    found = [f"{a} < {b} {verdict(ends[a], ends[b])}" for a, b in pairs if {a, b} <= ends.keys()]
    return "; ".join(found) + " (95 %)"


def random_play(env: Any, seed: int = 0) -> float:
    """Returns the mean group regret per round if arms are drawn at random, over 16 worlds."""
    rounds = max(64, 16_384 // env.spec.n_agents)
    options: dict[str, Any] = dict(horizon=rounds, stride=rounds, seeds=16, progress=False, throw=False)
    result = fb.simulate(env, fb.algos.Uniform(), key=jax.random.key(seed), **options)
    return float(result.regret[:, -1].mean()) / rounds


def uniform(env: Any, horizon: int, panel: str = CHANCE, x: float = 0) -> Curve:
    """Returns the mean group regret of random arms after `horizon` rounds."""
    return Curve(panel, CHANCE, [x], [random_play(env) * horizon], "#999999 -.", "not private")


def along(panel: str, label: str, x: Any, results: Iterable[fb.Result], style: str = "", value: Any = final) -> Curve:
    """Returns a value of results of one algorithm each, by default their final regret, at the points x."""
    results = list(results)
    return Curve(panel, label, x, [value(one) for one in results], style, claimed(results[0]))


def sent(result: fb.Result) -> np.ndarray:
    """Returns the final number of uploads and downloads (S,) of the one algorithm of a result."""
    return result.communication["rounds"][:, -1]


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
        Curve(panel, label, np.array([x for x, _ in points]), np.array([y for _, y in points]), style, note)
        for (panel, label, style, note), points in found.items()
    ]


def digest(script: Path, numbers: str, picture: bytes) -> str:
    """Returns the digest of a script with the modules beside it that it imports, of the numbers and of the picture."""
    sources, seen = [script], set()
    whole = hashlib.sha256()
    while sources:
        source = sources.pop(0)
        if source in seen:
            continue
        seen.add(source)
        text = source.read_text(encoding="utf-8")
        whole.update(text.encode())
        names = sorted(set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)) - set(SHARED))
        sources += [other for name in names if (other := script.parent / f"{name}.py").exists()]
    whole.update(numbers.encode())
    whole.update(picture)
    return whole.hexdigest()[:32]


def numbers_of(path: Path) -> Path:
    """Returns the CSV that a picture is drawn again from: that in its folder, else that in experiments/figures."""
    return path if path.exists() else HERE / "figures" / path.name


def keep(picture: Path, curves: Sequence[Curve], caption: str = "") -> Path:
    """Writes the CSV of a picture that was just drawn, with command, digest and caption, and returns its path."""
    script = Path(str(sys.modules["__main__"].__file__)).resolve()
    options = [word for word in sys.argv[1:] if word not in ("--redraw", "--commit")]
    options = [word for i, word in enumerate(options) if "--out" not in (word, *options[i - 1 : i])]
    options = " ".join("DIR" if i and options[i - 1] in DATA else word for i, word in enumerate(options))
    words = "".join(f"# {line}\n" for line in caption.splitlines())
    numbers, path = words + written(curves), picture.with_suffix(".csv")
    command = f"python experiments/{script.name} {options}".strip()
    if "--redraw" in sys.argv and (made := numbers_of(path)).exists():  # by the run with these seeds
        command = head(made)[0]
    if path.is_symlink() or (path.exists() and not path.read_bytes().startswith(b"# python experiments/")):
        names = (picture.with_suffix(f".{i}.csv") for i in itertools.count(1))
        path = next(one for one in names if not os.path.lexists(one))
    path.write_text(f"# {command} | {digest(script, numbers, picture.read_bytes())}\n{numbers}", encoding="utf-8")
    return path


def head(path: Path) -> tuple[str, list[str]]:
    """Returns the command and the lines of the caption of a CSV."""
    lines = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.startswith("# "):
                break
            lines.append(line[2:].strip())
    return lines[0].rpartition(" | ")[0], lines[1:]


def stale(path: Path) -> str | None:
    """Returns what is wrong with the picture of a CSV, or None: script, numbers and picture belong together."""
    first, _, numbers = path.read_text(encoding="utf-8").partition("\n")
    found = re.fullmatch(r"# python experiments/(\w+\.py)(?: .*)? \| (\w+)", first)
    if not found:
        return f"{path.name}: its first line must have the command and a digest, got {first!r}"
    script, picture = HERE / found[1], path.with_suffix(".png")
    if not script.exists() or not picture.exists():
        return f"{path.name}: {script.name} and {picture.name} must exist"
    if digest(script, numbers, picture.read_bytes()) != found[2]:
        return f"{path.name}: {script.name}, the numbers or the picture have changed since they were made together"
    return None
