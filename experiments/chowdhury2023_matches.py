"""Asks with which constants Dist-DP-SE matches DP-SE, as Chowdhury & Zhou (2023) say of their Figures 1 to 3.

python experiments/chowdhury2023_matches.py [--smoke]

Final regret of Dist-DP-SE over that of DP-SE, against the factor between the sizes of batches (2 in Algorithm 1, 4 in
the authors' code), with the radii of Lemma 2 and with radii from the exact law of the noise. DP-SE has epochs and
radii of its own. A cumulative regret is constant once one arm is left, so that more users hardly change the ratio.
"""

from typing import Any

import numpy as np
from arms import HORIZONS, LARGE, MATCHES, ArmsSize, elimination, power, verdict
from curves import Curve, final, panels, pick, ratio
from drawing import Panel, Picture, Says, main, styled, write
from matplotlib.axes import Axes

import fedbandit_jax as fb

GROWTHS = (2, 3, 4, 6, 8, 12, 16)
PANELS = (("easy", 0.1), ("easy", 0.5), ("easy", 1.0), ("hard", 0.1), ("hard", 0.5), ("hard", 1.0))
LOOKS = {"theory": "#D55E00 - o", "exact": "#F0A67A - s"}  # Dist-DP-SE by its radii, the lighter are ours
NAMES = {"theory": "radii of Lemma 2", "exact": "exact radii"}


def measure(options: ArmsSize) -> list[Curve]:
    """Returns final regrets of all instances against the growth of batches, and those of DP-SE, panel by panel."""
    growths, curves = GROWTHS[:2] if options.smoke else GROWTHS, []
    for instance, epsilon in PANELS:
        run = options.arguments(HORIZONS[instance])
        algos = {
            f"{radius} {growth}": elimination("Dist-DP-SE", epsilon, radius=radius, growth=growth)
            for radius in LOOKS
            for growth in growths
        }
        env = fb.envs.arms(10, instance=instance)
        result = fb.sweep(env, {"DP-SE": elimination("DP-SE", epsilon), **algos}, **run)
        title = f"{instance} instances, ε = {epsilon:g}, T = {power(run['horizon'])}"
        curves.append(Curve(title, "DP-SE", [run["horizon"]], [final(result["DP-SE"])], "#0072B2 -"))
        for radius, look in LOOKS.items():
            regret = [final(result[f"{radius} {growth}"]) for growth in growths]
            curves.append(Curve(title, f"Dist-DP-SE, {NAMES[radius]}", growths, regret, look))
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, n, right, apart = [], curves[0].n_seeds, {radius: [] for radius in LOOKS}, []
    axes: dict[str, Any] = dict(xscale="log", yscale="log", yticks=(0.6, 0.8, 1, 1.5, 2, 3, 4))
    for letter, title in zip("abcdef", panels(curves)):
        pure, *others = pick(curves, title)
        ratios, rest = [one.over(pure.y) for one in others], ""
        for one, drawn, radius in zip(others, ratios, LOOKS):
            right[radius].append(MATCHES[0].holds(drawn.mean[0], drawn.error[0]))
            if drawn.error[0] > LARGE:
                kept = np.arange(n) != one.y[0].argmax()
                rest = f"without the largest\nof {n} regrets: {ratio(one.y[0, kept], pure.y[0, kept])}"
                apart.append(f"({letter}), {NAMES[radius]}: {ratio(one.y[0], pure.y[0])}, {' '.join(rest.split())}")

        def also(ax: Axes, pure: Curve = pure, rest: str = rest) -> None:
            ax.axhline(1, color=styled(pure)[0], label=pure.label)
            write(ax, 0.03, 0.8, rest)

        words = f"{title}\nDP-SE: {pure.said()}", "factor between sizes of batches" * (letter in "def")
        shown.append(Panel(ratios, *words, "regret over DP-SE's" * (letter in "ad"), also=also, **axes))
        shown[-1].xticks = others[0].x
    found = [f"{verdict(seen)} with {NAMES[radius]}" for radius, seen in right.items()]
    seen = "; ".join([f"a ratio of 0.9 to 1.1 at batches of 2^b: {', '.join(found)}", *apart])
    return Picture(
        shown,
        "When Dist-DP-SE matches DP-SE",
        f"K = 10 and p = 0.1. Mean of {n} instances ± one standard error of the paired ratio. All are certified",
        [Says("Section 7", MATCHES[0].says, f"{n} instances", seen)],
        height=5,
        shape=(2, 3),
        grid=dict(sharex=True, sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
