"""Asks with which constants Dist-DP-SE matches DP-SE, as Chowdhury & Zhou (2023) say of their Figures 1 to 3.

Batches grow by a factor of 2 in Algorithm 1, and of 4 in the authors' code. DP-SE has epochs and radii of its own. A
cumulative regret is constant once one arm is left, so that more users hardly change the ratio.
"""

import numpy as np
from arms import HORIZONS, HOW, LARGE, MATCHES, ArmsSize, elimination, power, verdict
from curves import Curve, panels, pick, ratio
from drawing import LOGS, Panel, Picture, Says, main, styled, write
from matplotlib.axes import Axes

import fedbandit_jax as fb

LABELS = {f"Dist-DP-SE, {HOW[radius]}": radius for radius in ("theory", "exact")}
LOOKS = dict(zip(("DP-SE", *LABELS), ("#0072B2 -", "#D55E00 - o", "#F0A67A - s")))  # the lighter one is ours


def measure(options: ArmsSize) -> list[Curve]:
    curves, growths = [], (2, 3, 4, 6, 8, 12, 16)[: options.pick(2, 7, 7)]
    for instance in ("easy", "hard"):
        run, env = options.arguments(HORIZONS[instance]), fb.envs.arms(10, instance=instance)
        for epsilon in (0.1, 0.5, 1.0):
            algos = {"DP-SE": {run["horizon"]: elimination("DP-SE", epsilon)}}
            for label, radius in LABELS.items():
                algos[label] = {b: elimination("Dist-DP-SE", epsilon, radius=radius, growth=b) for b in growths}
            title = f"{instance} instances, ε = {epsilon:g}, T = {power(run['horizon'])}"
            curves += options.finals(env, algos, title, LOOKS, **run)
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, n, right, apart = [], curves[0].n_seeds, {label: [] for label in LABELS}, []
    for letter, title in zip("abcdef", panels(curves)):
        pure, *others = pick(curves, title)
        ratios, rest = [one.over(pure.y) for one in others], ""
        for one, drawn in zip(others, ratios):
            right[one.label].append(MATCHES[0].holds(drawn.mean[0], drawn.error[0]))
            if drawn.error[0] > LARGE:
                kept = np.arange(n) != one.y[0].argmax()
                rest = f"without the largest\nof {n} regrets: {ratio(one.y[0, kept], pure.y[0, kept])}"
                found = f"{HOW[LABELS[one.label]]}: {ratio(one.y[0], pure.y[0])}, {' '.join(rest.split())}"
                apart.append(f"({letter}), {found}")

        def also(ax: Axes, pure: Curve = pure, rest: str = rest) -> None:
            ax.axhline(1, color=styled(pure)[0], label=pure.label)
            write(ax, 0.03, 0.8, rest)

        words = f"{title}\nDP-SE: {pure.said()}", "factor between sizes of batches" * (letter in "def")
        ticks = dict(xticks=others[0].x, yticks=(0.6, 0.8, 1, 1.5, 2, 3, 4))
        shown.append(Panel(ratios, *words, also=also, **ticks, **LOGS))
    found = [f"{verdict(seen)} with {HOW[LABELS[label]]}" for label, seen in right.items()]
    seen = "; ".join([f"a ratio of 0.9 to 1.1 at batches of 2^b: {', '.join(found)}", *apart])
    says = Says("Section 7", MATCHES[0].says, f"{n} instances", seen)
    setting = f"K = 10 and p = 0.1. Mean of {n} instances ± one standard error of the paired ratio. All are certified"
    grid, ylabel = dict(sharex=True, sharey=True), "regret over DP-SE's"
    title = "When Dist-DP-SE matches DP-SE"
    return Picture(shown, title, setting, [says], shape=(2, 3), ylabel=ylabel, grid=grid)


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
