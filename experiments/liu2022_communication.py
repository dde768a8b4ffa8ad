"""Draws uploads and downloads over time, for Theorem 2 and Appendix E.3 of Liu et al. (2022).

python experiments/liu2022_communication.py [--smoke | --full]

Local clusters upload when their statistics have grown by a factor U, and download when those of their global cluster
are D times their own. (a) FCLUB exchanges something in every round; FCLUB-DC exchanges ever less, O(log T) if U and D
are 1.01, the grey curve. With the noise and shifts of CDP-FCLUB-DC there is an upload in nearly every round until the
shifts that have been added outweigh those of one more upload. (b) Regret of FCLUB-DC, and what it sends, for U = D from
1 to 10.
"""

from typing import Any

import numpy as np
from clusters import FEW, LOOKS, RECALIBRATED, SEATS, LiuOptions, decided, noted
from curves import Curve, final, interval, pick, pm, quotient, standing, the
from drawing import Panel, Picture, Says, dressed, main
from matplotlib.axes import Axes

import fedbandit_jax as fb

RATIOS = (1.0, 1.001, 1.01, 1.1, 1.5, 3.0, 10.0)


def measure(options: LiuOptions) -> list[Curve]:
    """Returns uploads and downloads over time, and regret against them for each U = D, of all seeds."""
    env, every, curves = options.instance(), options.methods(fb.privacy.Budget(1.0, 0.1)), []
    run = {**options.run(500, 131_070, 1_048_574), "stride": "log"}
    result = options.sweep(env, {name: every[name] for name in FEW}, **run, store=options.store)
    at = run["horizon"] / 2.0 ** np.arange(0, 10.25, 0.25)[::-1]
    for name in FEW:
        sent = standing(result.rounds, result[name].communication["rounds"], at)
        curves.append(Curve("time", name, at, sent, LOOKS[name], noted(name, every[name], env, run["horizon"])))
    how: dict[str, Any] = {**run, "horizon": options.pick(500, 100_000, 100_000)}
    ratios = RATIOS[:: options.pick(3, 1, 1)]
    algos = [every["FCLUB-DC"].replace(upload=ratio, download=ratio) for ratio in ratios]
    runs = [fb.simulate(env, algo, **how, store=options.store) for algo in algos]
    curves.append(Curve("sent", "U = D", ratios, [one.communication["rounds"][:, -1] for one in runs]))
    return [*curves, Curve("regret", "U = D", ratios, [final(one) for one in runs])]


def picture(curves: list[Curve]) -> Picture:
    lines, sent, regret = dressed(pick(curves, "time"), LOOKS), the(curves, "sent"), the(curves, "regret")
    delayed, grown = the(lines, label="FCLUB-DC"), {}
    for one in lines:
        before, after = np.diff([np.interp(one.x[-1] / np.array([16, 4, 1]), one.x, seed) for seed in one.y.T]).T
        grown[one.label] = quotient(after, before)
    ends = delayed.x[delayed.x >= delayed.x[-1] / 16]
    low, high = np.interp(ends[-1] / np.array([16, 4]), delayed.x, delayed.mean)
    line = low + (high - low) * np.log(16 * ends / ends[-1]) / np.log(4)
    words = "U = D = 1.01, FCLUB 1", "round $t$", "uploads and downloads"
    left = Panel(lines, *words, kind="lines", label="{label}: {note}", xscale="log", yscale="log")
    left.also = lambda ax: ax.plot(ends, line, "-.", color="#999999", label="c log t + c', through FCLUB-DC")

    def numbers(ax: Axes) -> None:
        for ratio, x, y in zip(sent.x, sent.mean, regret.mean):
            ax.annotate(f"{ratio:g}", (x, y), (-6, 0), textcoords="offset points", ha="right", va="center")
        ax.margins(x=0.12, y=0.12)

    points = Curve("", "FCLUB-DC, U = D at the points", sent.mean, regret.y, "#0072B2 o")
    right = Panel([points], "FCLUB-DC, T = 100,000", "uploads and downloads", "regret at T", xscale="log", also=numbers)
    right.look = dict(linestyle="none")
    home, n = int(np.argmin(np.abs(sent.x - 1.01))), sent.n_seeds
    differ = []
    for ratio, value in zip(regret.x, regret.y):
        more, half = interval(value - regret.y[home])
        differ += [f"{ratio:g} by {pm(more, half, 0)}"] * (abs(more) > half)
    final = {one.label: one.y[-1] for one in lines}
    level = all(value - 2 * error < 1 for value, error in (grown["FCLUB-DC"], grown["CDP-FCLUB-DC"]))
    rates = ", ".join(f"{name} {pm(*grown[name])}" for name in grown)
    grows = (
        f"{'yes' if level else 'not yet at this T'}: counts in (T/4, T] over (T/16, T/4], 1 for a logarithm: {rates}"
    )
    chosen = f"regret differs from that at 1.01 (95 %) at {', '.join(differ) or 'no other factor'}; messages fall from "
    chosen += f"{sent.mean[home]:,.0f} to {sent.mean[-1]:,.0f} at {sent.x[-1]:g}"
    ours = f"T=10^5, 10 seeds; T={delayed.x[-1]:,.0f}, {n} seeds here"
    saves = decided(final, [("FCLUB-DC", "FCLUB")])
    return Picture(
        [left, right],
        "Messages, and regret, of delayed communication",
        f"n = 40, m = 4 {SEATS['consecutive']}, L = 5, K = 10, d = 10, δ = 0.1, target ε = 1. T = {delayed.x[-1]:,.0f} "
        f"in (a). Mean of {n} seeds ± one standard error. Dotted: no privacy claim; solid: not private",
        [
            Says("Appendix E.3", "delayed communication saves communication", ours, saves),
            Says("Theorem 2", "uploads and downloads are O(log T)", ours, f"{grows}. {RECALIBRATED}"),
            Says("Section 5", "U = D = 1.01, the authors' choice", "the same; T=100,000 in (b)", chosen),
        ],
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
