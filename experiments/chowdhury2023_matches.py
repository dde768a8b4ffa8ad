"""Asks with which constants Dist-DP-SE matches DP-SE, as Chowdhury & Zhou (2023) say of their Figures 1 to 3.

python experiments/chowdhury2023_matches.py [--smoke]

Final regret of Dist-DP-SE over that of DP-SE, against the factor between the sizes of batches (2 in Algorithm 1, 4 in
the authors' code), with the radii of Lemma 2 and with radii from the exact law of the noise. DP-SE has epochs and
radii of its own. A cumulative regret is constant once one arm is left, so that more users hardly change the ratio.
"""

from typing import Any

import numpy as np
from arms import HORIZONS, MATCHES, ArmsSize, elimination, power
from curves import HERE, Curve, panels, parsed, pick, quotient, ratio
from drawing import Panel, Picture, Says, main, styled
from matplotlib.axes import Axes

import fedbandit_jax as fb

GROWTHS = (2, 3, 4, 6, 8, 12, 16)
PANELS = (("easy", 0.1), ("easy", 0.5), ("easy", 1.0), ("hard", 0.1), ("hard", 0.5), ("hard", 1.0))
LOOKS = {"theory": "#D55E00 - o", "exact": "#F0A67A - s"}  # Dist-DP-SE by its radii, the lighter are ours
NAMES = {"theory": "radii of Lemma 2", "exact": "exact radii"}
LARGE = 0.2  # standard error of a ratio that tells nothing


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
        curves.append(Curve(title, "DP-SE", [run["horizon"]], result["DP-SE"].regret[:, -1][None], "#0072B2 -"))
        for radius, look in LOOKS.items():
            regret = np.stack([result[f"{radius} {growth}"].regret[:, -1] for growth in growths])
            curves.append(Curve(title, f"Dist-DP-SE, {NAMES[radius]}", growths, regret, look))
    return curves


def elsewhere(pure: Curve, one: Curve) -> str:
    """Returns what Figure 3 has with exact radii on the same instances, on which DP-SE has the same regrets."""
    kept = parsed((HERE / "figures" / "chowdhury2023_fig3_exact.csv").read_text(encoding="utf-8"))
    for base in pick(kept, label="DP-SE"):
        if np.array_equal(base.y[-1], pure.y[0]):
            (other,) = pick(kept, base.panel, "Dist-DP-SE")
            ours, theirs = (int(values.argmax()) + 1 for values in (one.y[0], other.y[-1]))
            return (
                "; in chowdhury2023_fig3_exact the same instances (DP-SE has the same regrets) with other noise drawn "
                f"have a ratio of {ratio(other.y[-1], base.y[-1])}: instance {theirs} has the largest regret there, "
                f"{other.y[-1].max():,.0f}, and instance {ours} here, {one.y[0].max():,.0f}"
            )
    return ""


def picture(curves: list[Curve]) -> Picture:
    """Returns the ratio of regrets against the growth of batches, a panel for each kind of instances and epsilon."""
    shown, n_seeds, right, apart = [], curves[0].n_seeds, {radius: [] for radius in LOOKS}, []
    for letter, title in zip("abcdef", panels(curves)):
        pure, *others = pick(curves, title)
        rest = ""
        for one, radius in zip(others, LOOKS):
            value, error = quotient(one.y[0], pure.y[0])
            right[radius].append(MATCHES[0].seen(value, error))
            if error > LARGE:
                kept = np.delete(np.arange(n_seeds), one.y[0].argmax())
                rest = ratio(one.y[0, kept], pure.y[0, kept])
                words = (
                    f"in ({letter}), {NAMES[radius]}, it is {value:.2f} ± {error:.2f}, and {rest} without the largest"
                )
                apart.append(f"{words} of {n_seeds} regrets" + elsewhere(pure, one))

        def also(ax: Axes, pure: Curve = pure, rest: str = rest) -> None:
            ax.axhline(1, color=styled(pure)[0], label=pure.label)
            if rest:
                ax.text(2.15, 2.9, f"without the largest\nof {n_seeds} regrets: {rest}", fontsize="small")

        words: Any = (
            "factor between sizes of batches" * (letter in "def"),
            "regret at T over that of DP-SE" * (letter in "ad"),
        )
        panel = Panel(others, f"{title}\nDP-SE: {pure.said()}", *words, over=pure.y[0], also=also)
        panel.xticks, panel.yticks = others[0].x, (0.6, 0.8, 1, 1.5, 2, 3, 4)
        panel.axes |= dict(xscale="log", yscale="log")
        shown.append(panel)
    found = []
    for radius, seen in right.items():
        word = "yes" if all(seen) else "in part" if any(seen) else "no"
        found.append(f"{word} with {NAMES[radius]} ({sum(seen)} of {len(seen)} panels)")
    seen = f"a ratio of 0.9 to 1.1 at batches of 2^b: {', '.join(found)}" + "".join(f"; {one}" for one in apart)
    return Picture(
        shown,
        "When Dist-DP-SE matches DP-SE",
        f"When Dist-DP-SE matches DP-SE: K = 10, p = 0.1, {n_seeds} instances ± one standard error of the paired ratio "
        "of means; all are certified",
        [Says("Section 7", MATCHES[0].says, f"{n_seeds} instances", seen)],
        "Chowdhury & Zhou (2023)",
        shape=(2, 3),
        size=(10.5, 7),
        grid=dict(sharex=True, sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
