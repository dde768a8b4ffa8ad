"""Draws Figure 1 (b) of Dubey & Pentland (2020): regret of FedUCB over rounds, for three amounts of communication.

python experiments/dubey2020_fig1b.py [--smoke | --full] [--redraw]

M = 100 agents communicate in the order of M log T, M^1.5 or M T (every round), with epsilon = 1 or without privacy. The
paper does not say how many rounds it has. (a) is with the confidence width as printed, and without privacy; (b) the
same width with privacy, for as many rounds as agents need to learn: 10,000, where all would still play at random, are
far too few; (c) a tenth of that width: agents learn at once from their own raw rows. The noise is calibrated
exactly, and Lambda is a quantile of its law; both are far smaller than printed.
"""

import dataclasses
from typing import Any

import matplotlib.pyplot as plt
import tyro
from curves import Curve, interval, of_result, pick, random_play, verdict
from drawing import Says, caption, draw, headline, legend_of_all, save
from options import DubeyOptions
from scipy import stats

import fedbandit_jax as fb

M, BUDGET = 100, fb.privacy.Budget(1.0, 0.1)
SCHEDULES: dict[str, Any] = {
    "M log T": fb.schedules.LogDet("M log T"),
    "M^1.5": fb.schedules.LogDet("M^1.5"),
    "M T": fb.schedules.Every(1),
}
CLAIM = "more communication has less regret, private or not"
NAMES = {"M^1.5": "order $M^{1.5}$", "M log T": "order $M$ log $T$", "M T": "order $M$ $T$"}
MARKS = {"M log T": "o", "M^1.5": "s", "M T": "^"}
PANELS: dict[str, tuple[Any, float, tuple[int, int, int], tuple[int, int, int]]] = {
    # title -> budget, factor on the width, T for smoke, default and full, and the seeds
    "not private, width as printed": (None, 1.0, (50, 10_000, 100_000), (2, 8, 100)),
    "ε = 1, width as printed": (BUDGET, 1.0, (50, 200_000, 1_000_000), (2, 3, 100)),
    "ε = 1, a tenth of the width": (BUDGET, 0.1, (50, 10_000, 100_000), (2, 8, 100)),
}


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns the regret per agent of every panel and schedule, and that of uniform play."""
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
        curves.append(Curve(title, "uniform play", x, random_play(env) / M * x, "#999999 -."))
    return curves


def seen(panel: list[Curve]) -> str:
    """Returns the claims, seed by seed, and how often each synchronises with which regret, beside uniform play."""
    *runs, uniform = panel
    ends = {one.label: one.y[-1] for one in runs}
    order = (("M^1.5", "M log T"), ("M T", "M^1.5"))
    claims = ", ".join(f"{a} < {b} {verdict(ends[a], ends[b])}" for a, b in order)
    random = uniform.mean[-1]
    found = []
    for one in runs:
        mean, half = interval(one.y[-1])
        side = "more" if mean - half > random else "less" if mean + half < random else "undecided"
        found.append(f"{one.label} {mean:,.0f} ± {half:,.0f} ({side}; synchronisations: {one.note})")
    return f"{claims}; regret per agent, beside uniform play's {random:,.0f}, {', '.join(found)} (95 %)"


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_fig1b", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 4.6))
    lines = []
    for title, letter, ax in zip(PANELS, "abc", axes):
        panel = pick(curves, title)
        random, confident = panel[-1].mean[:, None], float(stats.t.ppf(0.975, panel[0].n_seeds - 1))
        words = [dataclasses.replace(one, label=NAMES.get(one.label, one.label), note="") for one in panel]
        draw([dataclasses.replace(one, y=one.y / random) for one in words], ax, band=confident)
        size = f"T = {panel[0].x[-1]:,.0f}, {panel[0].n_seeds} seeds"
        lines.append(
            Says("Fig. 1B", CLAIM, "M = 100, T not said, 100 runs", f"({letter}) {title}, {size}: {seen(panel)}")
        )
        ax.set(xlabel="round $t$", xscale="log", yscale="log", xlim=(10, None))
        ax.set_title(f"({letter}) {title}\n{size}")
        if title == "ε = 1, width as printed":  # regrets that differ by a factor of two
            ax.set(yscale="linear", ylim=(0, None))
        texts = [f"{NAMES[one.label]}: {int(one.note.replace(',', '')):,}" for one in panel if one.note]
        words = "\n".join(["synchronisations", *texts])
        ax.text(0.03, 0.03, words, transform=ax.transAxes, va="bottom", fontsize="small")
    axes[0].set_ylabel("regret, over that of uniform play")
    legend_of_all(figure, ncols=4)
    headline(
        figure,
        "FedUCB: more communication has less regret",
        f"FedUCB: M = {M}, K = 25, d = 10, δ = 0.1, exact noise; mean ± 95 % interval\n"
        "communication of order $M$ log $T$, $M^{1.5}$ and $M$ $T$; "
        "(b), (c): solid is certified, dotted has no privacy claim",
    )
    caption(figure, "Dubey & Pentland (2020)", *lines)
    save("dubey2020_fig1b", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
