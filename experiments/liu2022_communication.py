"""Draws uploads and downloads over time, for Theorem 2 and Appendix E.3 of Liu et al. (2022).

Local clusters upload when their statistics have grown by a factor U, and download when their global cluster has D times
as much. (a) Over time; O(log T) is the grey curve. (b) Regret of FCLUB-DC, and what it sends, by U = D.
"""

import numpy as np
from clusters import FEW, LOOKS, RECALIBRATED, WHERE, LiuOptions, between, decided, doublings, noted
from curves import Curve, along, final, interval, pick, pm, quotient, sent, standing, the
from drawing import LOGS, Axes, Panel, Picture, Says, dressed, main

import fedbandit_jax as fb

RATIOS = (1.0, 1.001, 1.01, 1.1, 1.5, 3.0, 10.0)


def measure(options: LiuOptions) -> list[Curve]:
    env, every, curves = options.instance(), options.methods(), []
    run = options.run(500, 131_070, 1_048_574, stride="log")
    result = options.sweep(env, {name: every[name] for name in FEW}, **run)
    at = doublings(run["horizon"], 10.25, 0.25)
    for name in FEW:
        many = standing(result.rounds, result[name].communication["rounds"], at)
        curves.append(Curve("time", name, at, many, LOOKS[name], noted(name, every[name], env, run["horizon"])))
    ratios, run = RATIOS[:: options.pick(3, 1, 1)], options.run(500, 100_000, 100_000, stride="log")
    runs = [fb.simulate(env, every["FCLUB-DC"].replace(upload=ratio, download=ratio), **run) for ratio in ratios]
    both = [along(panel, "U = D", ratios, runs, value=value) for panel, value in (("sent", sent), ("regret", final))]
    return curves + [one.but(note="") for one in both]


def picture(curves: list[Curve]) -> Picture:
    lines, many, regret = dressed(pick(curves, "time"), LOOKS), the(curves, "sent"), the(curves, "regret")
    delayed, grown = the(lines, label="FCLUB-DC"), {}
    for one in lines:
        before, after = np.diff(between(one.x, one.y.T, one.x[-1] / np.array([16, 4, 1])), axis=0)
        grown[one.label] = quotient(after, before)
    ends = delayed.x[delayed.x >= delayed.x[-1] / 16]
    low, high = np.interp(ends[-1] / np.array([16, 4]), delayed.x, delayed.mean)
    line = low + (high - low) * np.log(16 * ends / ends[-1]) / np.log(4)
    words = "U = D = 1.01, FCLUB 1", "round $t$", "uploads and downloads"
    left = Panel(lines, *words, kind="lines", label="{label}: {note}", **LOGS)
    left.also = lambda ax: ax.plot(ends, line, "-.", color="#999999", label="c log t + c', through FCLUB-DC")

    def numbers(ax: Axes) -> None:
        for ratio, x, top in zip(many.x, many.mean, regret.mean + regret.error):
            ax.annotate(f"{ratio:g}", (x, top), (0, 3), textcoords="offset points", ha="center")
        ax.margins(0.12)

    points = Curve("", "FCLUB-DC, U = D at the points", many.mean, regret.y, "#0072B2 o")
    right = Panel([points], "FCLUB-DC, T = 100,000", "uploads and downloads", "regret at T", xscale="log", also=numbers)
    right.look = dict(linestyle="none")
    home, n, differ = int(np.argmin(np.abs(many.x - 1.01))), many.n_seeds, []
    for ratio, value in zip(regret.x, regret.y):
        more, half = interval(value - regret.y[home])
        differ += [f"{ratio:g} by {pm(more, half, 0)}"] * (abs(more) > half)
    level = all(value - 2 * error < 1 for value, error in (grown["FCLUB-DC"], grown["CDP-FCLUB-DC"]))
    grows = f"{'yes' if level else 'not yet at this T'}: counts in (T/4, T] over (T/16, T/4], 1 for a logarithm: "
    grows += f"{', '.join(f'{name} {pm(*value)}' for name, value in grown.items())}. {RECALIBRATED}"
    chosen = f"regret differs from that at 1.01 (95 %) at {', '.join(differ) or 'no other factor'}; messages fall from "
    chosen += f"{many.mean[home]:,.0f} to {many.mean[-1]:,.0f} at {many.x[-1]:g}"
    ours = f"T=10^5, 10 seeds; T={delayed.x[-1]:,.0f}, {n} seeds here"
    saves = decided({one.label: one.y[-1] for one in lines}, [("FCLUB-DC", "FCLUB")])
    return Picture(
        [left, right],
        "Messages, and regret, of delayed communication",
        f"{WHERE}, δ = 0.1, target ε = 1. T = {delayed.x[-1]:,.0f} in (a). Mean of {n} seeds ± one standard error. "
        "Dotted: no privacy claim; solid: not private",
        [
            Says("Appendix E.3", "delayed communication saves communication", ours, saves),
            Says("Theorem 2", "uploads and downloads are O(log T)", ours, grows),
            Says("Section 5", "U = D = 1.01, the authors' choice", "the same; T=100,000 in (b)", chosen),
        ],
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
