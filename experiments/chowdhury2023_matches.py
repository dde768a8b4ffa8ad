"""Asks with which constants Dist-DP-SE matches DP-SE, as Chowdhury & Zhou (2023) say of their Figures 1 to 3.

python experiments/chowdhury2023_matches.py [--smoke]

Final regret of Dist-DP-SE over that of DP-SE, against the factor between the sizes of batches (2 in Algorithm 1, 4 in
the authors' code), with the radii of Lemma 2 and with radii from the exact law of the noise. DP-SE has epochs and
radii of its own. A cumulative regret is constant once one arm is left, so that more users hardly change the ratio.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import HORIZONS, MATCHES, ArmsSize, elimination, power
from curves import Curve, numbers_of, parsed, pick, quotient
from drawing import Says, caption, legend_of_all, save

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


def elsewhere(options: ArmsSize, pure: Curve, one: Curve) -> str:
    """Returns what Figure 3 has with exact radii on the same instances, on which DP-SE has the same regrets."""
    path = numbers_of(options.folder / "chowdhury2023_fig3_exact.csv")
    kept = parsed(path.read_text(encoding="utf-8")) if path.exists() else []
    for base in pick(kept, label="DP-SE"):
        if np.array_equal(base.y[-1], pure.y[0]):
            (other,) = pick(kept, base.panel, "Dist-DP-SE")
            ours, theirs = (int(values.argmax()) + 1 for values in (one.y[0], other.y[-1]))
            ratio = "{:.2f} ± {:.2f}".format(*quotient(other.y[-1], base.y[-1]))
            return (
                "; in chowdhury2023_fig3_exact the same instances (DP-SE has the same regrets) with other noise drawn "
                f"have a ratio of {ratio}: instance {theirs} has the largest regret there, {other.y[-1].max():,.0f}, "
                f"and instance {ours} here, {one.y[0].max():,.0f}"
            )
    return ""


def main(options: ArmsSize) -> None:
    curves = options.numbers("chowdhury2023_matches", lambda: measure(options))
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 7), layout="constrained", sharex=True, sharey=True)
    n_seeds, right, apart = curves[0].n_seeds, {radius: [] for radius in LOOKS}, []
    for ax, letter, title in zip(axes.flat, "abcdef", dict.fromkeys(one.panel for one in curves)):
        pure, *others = pick(curves, title)
        for one, radius in zip(others, LOOKS):
            colour, line, mark = one.style.split()
            value, error = np.transpose([quotient(regret, pure.y[0]) for regret in one.y])
            ax.errorbar(one.x, value, error, fmt=mark + line, color=colour, label=one.label, capsize=2)
            print(f"{title}, {NAMES[radius]}: ", end="")
            print(", ".join(f"{g:g}: {v:.2f} ± {e:.2f}" for g, v, e in zip(one.x, value, error)))
            right[radius].append(MATCHES[0].seen(value[0], error[0]))
            if error[0] > LARGE:
                kept = np.delete(np.arange(n_seeds), one.y[0].argmax())
                rest = "{:.2f} ± {:.2f}".format(*quotient(one.y[0, kept], pure.y[0, kept]))
                ax.text(2.15, 2.9, f"without the largest\nof {n_seeds} regrets: {rest}", fontsize="small")
                words = (
                    f"in ({letter}), {NAMES[radius]}, it is {value[0]:.2f} ± {error[0]:.2f}, and {rest} without the "
                )
                words += f"largest of {n_seeds} regrets"
                apart.append(words + elsewhere(options, pure, one))
        ax.axhline(1, color=pure.style.split()[0], label=pure.label)
        ax.set_title(f"({letter}) {title}\nDP-SE: {pure.mean[0]:,.0f} ± {pure.error[0]:,.0f}", fontsize="medium")
        ax.set_xscale("log", base=2)
        ax.set(yscale="log")
        ax.set_xticks(others[0].x, [f"{growth:g}" for growth in others[0].x])
        ax.set_yticks([0.6, 0.8, 1, 1.5, 2, 3, 4])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    for ax in axes[:, 0]:
        ax.set_ylabel("regret at T over that of DP-SE")
    for ax in axes[1]:
        ax.set_xlabel("factor between sizes of batches")
    legend_of_all(figure)
    size = f"K = 10, p = 0.1, {n_seeds} instances"
    figure.suptitle(
        f"When Dist-DP-SE matches DP-SE: {size} ± one standard error of the paired ratio of means; all are certified",
        fontsize="medium",
    )
    found = []
    for radius, seen in right.items():
        word = "yes" if all(seen) else "in part" if any(seen) else "no"
        found.append(f"{word} with {NAMES[radius]} ({sum(seen)} of {len(seen)} panels)")
    seen = f"a ratio of 0.9 to 1.1 at batches of 2^b: {', '.join(found)}" + "".join(f"; {one}" for one in apart)
    caption(figure, "Chowdhury & Zhou (2023)", Says("Section 7", MATCHES[0].says, f"{n_seeds} instances", seen))
    print(seen)
    save("chowdhury2023_matches", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(ArmsSize, description=__doc__))
