"""Measures how the time of a run grows with each of its sizes, and draws it on log-log axes.

Sizes: M agents, K arms, d features, T rounds and seeds for FedLinUCB with fresh (A) and fixed (B) contexts, and n users
for clusterings. One size varies, the others stay; all runs of one axis take turns. An exponent is the slope of a
least-squares line of log time over log size, with its standard error, over the upper half of the sizes: below them, the
constant cost of a call counts. It describes these sizes on this machine, and does not extend beyond them.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import measure
import numpy as np
import tyro
import workloads
from matplotlib.figure import Figure
from measure import Compilations, Row, Times, verdict

from fedbandit_jax import plotting

LINEAR = ("FedLinUCB, mode A", "FedLinUCB, mode B")
CLUSTERS = ("LinUCB, users", "CLUB", "CDP-FCLUB-DC")
AXES = {  # size -> its name, and the families that have it
    "n_agents": ("agents M", LINEAR),
    "n_arms": ("arms K", LINEAR),
    "dim": ("features d", LINEAR),
    "horizon": ("rounds T", LINEAR),
    "seeds": ("seeds", LINEAR),
    "n_users": ("users n", CLUSTERS),
}
OUTSIDE = ("horizon", "seeds")  # axes that are arguments of `workloads.play` and no part of a size


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of a benchmark."""

    sizes: dict[str, tuple[int, ...]]  # axis -> at least four growing sizes
    usual: dict[str, int]  # the other sizes of runs of silos
    users: dict[str, int]  # and of runs of users who return
    turns: int


REFERENCE = Plan(
    sizes={
        "n_agents": (10, 30, 100, 300, 1000, 3000, 10_000),
        "n_arms": (10, 20, 50, 100, 200, 500, 1000),
        "dim": (4, 6, 8, 12, 16, 20, 32, 57),
        "horizon": (125, 250, 500, 1000, 2000, 4000, 8000),
        "seeds": (1, 2, 4, 8, 16, 32, 64),
        "n_users": (40, 100, 250, 500, 1000, 2000, 4000),
    },
    usual=dict(n_agents=100, n_arms=100, dim=10, horizon=250, seeds=2),
    users=dict(horizon=2000, seeds=2, n_arms=100),
    turns=3,
)
SMOKE = Plan(
    sizes={"n_users": (8, 12, 16, 24)},
    usual=dict(n_agents=4, n_arms=5, dim=3, horizon=50, seeds=1),
    users=dict(horizon=64, seeds=1, n_arms=30, dim=3),
    turns=1,
)


def options(plan: Plan, axis: str, value: int) -> dict[str, Any]:
    """Returns the arguments of `workloads.play` for one size on an axis."""
    sizes = {**(plan.users if axis == "n_users" else plan.usual), axis: value}
    outside = {name: sizes.pop(name) for name in OUTSIDE}
    return {**outside, "size": workloads.Size(**sizes)}


def fit(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float]:
    """Returns the exponent, its standard error, and c of seconds = c size^exponent, by least squares in logarithms."""
    x, y = np.log(sizes), np.log(seconds)
    centred = x - x.mean()
    slope = centred @ y / (centred @ centred)
    rest = y - y.mean() - slope * centred
    error = np.sqrt(rest @ rest / max(1, len(x) - 2) / (centred @ centred))
    return float(slope), float(error), float(np.exp(y.mean() - slope * x.mean()))


def upper_half(sizes: tuple[int, ...]) -> slice:
    """Returns which sizes an exponent is fitted to: the larger half, and three at least."""
    return slice(min(len(sizes) // 2, len(sizes) - 3), None)


def measured(plan: Plan, axis: str, compilations: Compilations) -> dict[tuple[str, int], Times]:
    """Times all families that have this size, at all values of it."""
    families = AXES[axis][1] if plan is REFERENCE else AXES[axis][1][:1]
    runs = {
        (family, value): partial(lambda seed, family, more: workloads.play(family, seed, **more),
                                 family=family, more=options(plan, axis, value))
        for family in families for value in plan.sizes[axis]
    }  # fmt: skip
    return measure.in_turns(runs, plan.turns, compilations)


def rows_of(plan: Plan, axis: str, times: dict[tuple[str, int], Times]) -> list[Row]:
    """Returns a row for every family and size of an axis; the exponent is the same in all rows of a family."""
    rows = []
    for family in dict.fromkeys(family for family, _ in times):
        sizes, half = plan.sizes[axis], upper_half(plan.sizes[axis])
        seconds = np.array([float(np.median(times[family, size].wall)) for size in sizes])
        exponent, error, factor = fit(np.array(sizes[half]), seconds[half])
        common = {"exponent": exponent, "standard_error": error, "factor": factor, "from": sizes[half][0]}
        rows += [
            {"axis": AXES[axis][0], "family": family, "size": size, "seconds": float(taken), **common, "to": sizes[-1]}
            for size, taken in zip(sizes, seconds)
        ]
    return rows


def exponents(rows: list[Row]) -> dict[str, Row]:
    """Returns the exponents, which have no targets."""
    return {
        f"exponent in {row['axis']}, {row['family']}, {row['from']:,} to {row['to']:,}": verdict(row["exponent"])
        for row in rows
    }


def draw(rows: list[Row], out: Path) -> None:
    """Draws seconds over every size, with the fitted lines where they were fitted."""
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    families = dict(zip((*LINEAR, *CLUSTERS), plotting.COLOURS))
    wide = min(3, len(axes))
    figure = Figure(figsize=(4.6 * wide, 4.4 * -(-len(axes) // wide)), layout="constrained")
    panels = figure.subplots(-(-len(axes) // wide), wide, squeeze=False).flat
    for axis, panel in zip(axes, panels):
        for family, colour in families.items():
            mine = [row for row in rows if (row["axis"], row["family"]) == (axis, family)]
            if mine:
                one, sizes = mine[0], np.array([row["size"] for row in mine])
                fitted = sizes[sizes >= one["from"]]
                label = f"{family}: {one['exponent']:.2f} ± {one['standard_error']:.2f}"
                panel.plot(sizes, [row["seconds"] for row in mine], "o", color=colour, label=label)
                panel.plot(fitted, one["factor"] * fitted ** one["exponent"], "-", color=colour)
        panel.set(xscale="log", yscale="log", xlabel=axis, ylabel="seconds of a run")
        panel.grid(alpha=0.3, which="both")
        panel.legend(
            title="exponent over the line", loc="upper left", bbox_to_anchor=(0, -0.14), frameon=False, fontsize="small"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    plotting.save(figure, out)


def main(out: Path = Path("results/scaling.png"), json: measure.Flag = False, smoke: measure.Flag = False) -> None:
    """Fit the exponents, and draw them.

    Args:
        out: file of the picture, whose folder is made if it is missing.
        json: print JSON only: {"machine": {...}, "rows": [...], "ratios": {...}}.
        smoke: one axis with tiny sizes, to see that the benchmark works; the numbers mean nothing.
    """
    plan, compilations = SMOKE if smoke else REFERENCE, Compilations()
    rows = [row for axis in plan.sizes for row in rows_of(plan, axis, measured(plan, axis, compilations))]
    draw(rows, out)
    usual = ", ".join(f"{name} = {value}" for name, value in plan.usual.items())
    measure.output(f"{usual}; medians of {plan.turns} turns; picture: {out}", rows, exponents(rows), json=json)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
