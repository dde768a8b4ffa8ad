"""The numbers behind a picture: curves of results, their errors, and fits to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.report.tables import mean_error as mean_error

CHANCE = "uniform play"
POINTS = 40  # recorded rounds of a curve that are kept


@dataclasses.dataclass(frozen=True)
class Curve:
    """Values y (n, S) of S seeds at the points x (n,); S = 1 for numbers that are not random, which may be (n,)."""

    panel: str  # of the figure
    label: str  # in the legend
    x: Any
    y: Any
    style: str = ""  # colour, line and marker as matplotlib has them, with spaces between
    note: str = ""  # what a certificate claims, or any other word

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


def exponent(curve: Curve, kept: slice = slice(None)) -> tuple[float, float]:
    """Returns p of a fit y ~ x^p and half of its 95 % interval, by the jackknife over seeds.

    The fit is to the logarithms of means, as the mean of logarithms is pulled down by seeds that differ much.
    """
    y, n = curve.y[kept], curve.n_seeds
    total = y.sum(1, keepdims=True)
    means = np.hstack([total / n, (total - y) / (n - 1)]) if n > 1 else total  # of all seeds, and without each
    whole, *without = np.polyfit(np.log(curve.x[kept]), np.log(means), 1)[0]
    if n == 1:
        return float(whole), float("nan")
    error = np.sqrt((n - 1) * np.var(without))
    return float(whole), float(stats.t.ppf(0.975, n - 1) * error)


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
    claims = "; ".join(dict.fromkeys(map(claimed, results)))
    return Curve(panel, label, x, [value(one) for one in results], style, claims)


def sent(result: fb.Result) -> np.ndarray:
    """Returns the final number of uploads and downloads (S,) of the one algorithm of a result."""
    return result.communication["rounds"][:, -1]
