"""Draws Figure 1 (b) of Dubey & Pentland (2020): regret of FedUCB over rounds, for three amounts of communication.

python experiments/dubey2020_fig1b.py [--smoke | --full] [--redraw]

M = 100 agents communicate in the order of M log T, M^1.5 or M T (every round), with epsilon = 1 or without privacy. The
paper does not say how many rounds it has. Left, with the confidence width as printed, and without privacy. Centre, the
same width with privacy, for as many rounds as agents need to learn: 10,000, where all would still play at random, are
far too few. Right, a tenth of that width: agents learn at once from their own raw rows. The noise is calibrated
exactly, and Lambda is a quantile of its law; both are far smaller than printed.
"""

import dataclasses
import re
from typing import Any

import matplotlib.pyplot as plt
import tyro
from curves import Curve, of_result, pick, random_play, verdict
from drawing import Says, caption, draw, legend_below, save
from matplotlib.ticker import MaxNLocator
from options import DubeyOptions

import fedbandit_jax as fb

M, BUDGET = 100, fb.privacy.Budget(1.0, 0.1)
SCHEDULES: dict[str, Any] = {
    "M log T": fb.schedules.LogDet("M log T"),
    "M^1.5": fb.schedules.LogDet("M^1.5"),
    "M T": fb.schedules.Every(1),
}
MARKS = {"M log T": "o", "M^1.5": "s", "M T": "^"}
PANELS: dict[str, tuple[Any, float, tuple[int, int, int], tuple[int, int, int]]] = {
    # title -> budget, factor on the width, T for smoke, default and full, and the seeds
    "not private, width as printed": (None, 1.0, (50, 10_000, 100_000), (2, 8, 100)),
    "ε = 1, width as printed": (BUDGET, 1.0, (50, 200_000, 1_000_000), (2, 3, 100)),
    "ε = 1, a tenth of the width": (BUDGET, 0.1, (50, 10_000, 100_000), (2, 8, 100)),
}


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns the regret per agent of every panel and schedule, and that of random play."""
    env, curves = fb.envs.gap(*options.shape(M, 25, 10)), []
    for title, (budget, scale, horizons, seeds) in PANELS.items():
        run = options.run(*horizons, seeds=seeds)
        for (name, schedule), colour in zip(SCHEDULES.items(), fb.plotting.COLOURS[1:]):
            algo = fb.algos.fed_ucb(budget, schedule=schedule).replace(exploration_scale=scale)
            result = fb.simulate(env, algo, **run)
            print(f"{title}\n{result.summary()}", flush=True)
            (one,) = of_result(result, title, each=M)
            line = ":" if budget and result.certificate.claim == "none" else "-"
            syncs = f"{result.communication['rounds'][:, -1].mean():,.0f}"
            curves.append(Curve(title, name, one.x, one.y, f"{colour} {line} {MARKS[name]}", syncs))
        x = curves[-1].x
        curves.append(Curve(title, "random play", x, random_play(env) / M * x, "#999999 :"))
    return curves


def _entry(one: Curve) -> str:
    """Returns the line of the legend of a curve: its name, synchronisations, and regret at T."""
    name = re.sub(r"M\^1.5", "$M^{1.5}$", one.label) + (f", {one.note} times" if one.note else "")
    return f"{name}: {one.mean[-1]:,.0f}" + (f" ± {one.error[-1]:,.0f}" if one.n_seeds > 1 else "")


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_fig1b", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 4.9), layout="constrained")
    seen = []
    for title, ax in zip(PANELS, axes):
        panel = pick(curves, title)
        draw([dataclasses.replace(one, label=_entry(one), note="") for one in panel], ax)
        ends = {one.label: one.y[-1] for one in panel}
        order = (("M^1.5", "M log T"), ("M T", "M^1.5"))
        seen.append(f"{title}: " + ", ".join(f"{a} < {b} {verdict(ends[a], ends[b])}" for a, b in order))
        near = title == "ε = 1, width as printed"  # regrets that differ by a factor of two
        ax.set(xlabel="round $t$", yscale="linear" if near else "log", ylim=(0 if near else 1, None))
        ax.set_title(f"{title}\nT = {panel[0].x[-1]:,.0f}, {panel[0].n_seeds} seeds", fontsize="medium")
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
        legend_below(ax)
    axes[0].set_ylabel("regret per agent (centre: linear axis)")
    figure.suptitle(
        f"FedUCB: M = {M}, K = 25, d = 10, δ = 0.1, exact noise; mean ± 1 standard error; dotted: no privacy claim\n"
        "legend: amount of communication, synchronisations in T rounds, regret per agent at T",
        fontsize="medium",
    )
    print("\n".join(seen))
    says = Says(
        "Fig. 1B",
        "more communication has less regret, private or not",
        "M = 100, T not said, 100 runs",
        "; ".join(seen)
        + " (95 %); with privacy and the printed width M log T never synchronises, and is worse than random play",
    )
    caption(figure, "Dubey & Pentland (2020)", says)
    save("dubey2020_fig1b", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
