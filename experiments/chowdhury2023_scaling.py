"""Draws what the scaling factor s of Chowdhury & Zhou (2023) buys and costs: regret, bits per user and privacy.

python experiments/chowdhury2023_scaling.py [--radius exact] [--smoke]

Theorems 2 and 4: with a larger s, Dist-RDP-SE (Skellam noise) and Dist-CDP-SE (discrete Gaussian noise) round rewards
to a finer grid of about s epsilon sqrt(n) steps, so that regret and privacy improve, and users send O(log m) bits,
which grow with ln s. Dist-DP-SE has no s.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import HORIZONS, RadiusOptions, elimination, power
from curves import Curve, pick, quotient
from drawing import Says, caption, headline, legend_of_all, save

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import tick

SCALES = (1, 2, 4, 10, 30, 100, 300, 1000)
EPSILON, INSTANCE, DELTA = 0.1, "easy", 1e-6
LOOKS = {"Dist-DP-SE": "#D55E00 -", "Dist-RDP-SE": "#009E73 - o", "Dist-CDP-SE": "#CC79A7 - s"}


def printed(scale: float) -> float:
    """Returns epsilon at DELTA by the curve of Theorem 2 as printed and the conversion of Lemma 10."""
    alpha = np.arange(2.0, 1e4)
    extra = (2 * alpha - 1) * EPSILON**2 / (4 * scale**2) + 3 * EPSILON / (2 * scale**3)
    curve = alpha * EPSILON**2 / 2 + np.minimum(extra, 3 * EPSILON**2 / (2 * scale))
    return float((curve + np.log(1 / (alpha * DELTA)) / (alpha - 1) + np.log1p(-1 / alpha)).min())


def measure(options: RadiusOptions) -> list[Curve]:
    """Returns regrets of all instances, bits of the smallest and largest batch, and epsilon at DELTA, over s."""
    scales, env = SCALES[:2] if options.smoke else SCALES, fb.envs.arms(10, instance=INSTANCE)
    algos = {"Dist-DP-SE": elimination("Dist-DP-SE", EPSILON, radius=options.radius)}
    for name in LOOKS:
        made = elimination(name, EPSILON, radius=options.radius, delta=DELTA)
        algos |= {f"{name} {s}": made.replace(scale=float(s)) for s in scales if name != "Dist-DP-SE"}
    result, curves = fb.sweep(env, algos, **options.arguments(HORIZONS[INSTANCE])), []
    for name, look in LOOKS.items():
        points = [result["Dist-DP-SE" if name == "Dist-DP-SE" else f"{name} {s}"] for s in scales]
        bits = np.array([one.certificate.bits_per_user for one in points])
        kept: dict[str, Any] = {
            "regret": [one.regret[:, -1] for one in points],
            "bits, largest batch": bits[:, 1],
            "bits, smallest batch": bits[:, 0],
            "epsilon": [one.certificate.epsilon_exact for one in points],
        }
        curves += [
            Curve(panel, name, scales, values, look, points[0].certificate.notion) for panel, values in kept.items()
        ]
    theorem = [printed(scale) for scale in scales]
    return [*curves, Curve("epsilon", "Theorem 2 and Lemma 10, as printed", scales, theorem, "#777777 -.")]


def main(options: RadiusOptions) -> None:
    curves = options.numbers(f"chowdhury2023_scaling_{options.variant}", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(11, 4.6))
    of = {"regret": axes[0], "bits, largest batch": axes[1], "bits, smallest batch": axes[1], "epsilon": axes[2]}
    for one in curves:
        ax, (colour, line, *mark) = of[one.panel], one.style.split()
        name = (
            "" if "smallest" in one.panel else ": ".join(filter(None, (one.label, one.note.replace("Renyi", "Rényi"))))
        )
        look: dict[str, Any] = dict(color=colour, label=name, alpha=0.45 if "smallest" in one.panel else 1)
        if mark:
            look |= dict(
                marker=mark[0], markersize=8 if one.label == "Dist-RDP-SE" else 5
            )  # they may lie on each other
            x = one.x * (1.08 if one.panel == "regret" and one.label == "Dist-CDP-SE" else 1)  # errors set apart
            ax.errorbar(x, one.mean, one.error, linestyle=line, capsize=2, **look)
        else:
            ax.plot(one.x, one.mean, line, **look)
            ax.fill_between(one.x, one.mean - one.error, one.mean + one.error, color=colour, alpha=0.15, linewidth=0)
        text = ", ".join(f"{s:g}: {m:,.5g} ± {e:,.3g}" for s, m, e in zip(one.x, one.mean, one.error))
        print(f"{one.label}, {one.panel}, s = {text}")
    words = (
        ("(a) regret at T (axis not from 0)", "regret at T", None),
        ("(b) bits by batch; strong: the largest, pale: the smallest", "bits that a user sends", 0),
        (f"(c) what the noise gives at δ = {tick(DELTA)}", "ε", 0),
    )
    for ax, (title, ylabel, bottom) in zip(axes, words):
        ax.set(xscale="log", xlabel="scaling factor s", ylabel=ylabel, ylim=(bottom, None))
        ax.set_title(title)
    legend_of_all(figure, ncols=4)
    (bits,), n_seeds = pick(curves, "bits, largest batch", "Dist-RDP-SE"), curves[0].n_seeds
    size = f"K = 10, T = {power(HORIZONS[INSTANCE])}, ε = {EPSILON}, p = 0.1, {options.how}"
    headline(
        figure,
        "Regret, bits and privacy against the scale s",
        f"{n_seeds} {INSTANCE} instances ± one standard error: {size}; all are certified in their notions",
    )
    at = [min(i, len(bits.x) - 1) for i in (SCALES.index(1), SCALES.index(10), SCALES.index(1000))]
    where = " and ".join(f"{bits.x[i]:g}" for i in at[1:])
    gains, given, better, stronger = [], [], [], []
    for name in ("Dist-RDP-SE", "Dist-CDP-SE"):
        (regret,), (privacy,) = (pick(curves, panel, name) for panel in ("regret", "epsilon"))
        ratios = [quotient(regret.y[i], regret.y[at[0]]) for i in at[1:]]
        better.append(ratios[0][0] < 1 - 2 * ratios[0][1])
        gains.append(f"{', '.join(f'{v:.2f} ± {e:.2f}' for v, e in ratios)} ({name})")
        stronger.append(privacy.mean[-1] < 0.99 * privacy.mean[0])
        given.append(f"{privacy.mean[0]:.4f} and {privacy.mean[-1]:.4f} ({name})")
    gained = f"{'in part' if any(better) else 'no'}; regret at s = {where} over that at s = 1: {', '.join(gains)}"
    private = "yes" if all(stronger) else "in part" if any(stronger) else "no, by less than 1 %"
    private += f"; ε at δ = 10^-6 is, at s = {bits.x[0]:g} and {bits.x[-1]:g}, {', '.join(given)}"
    sent = ", ".join(f"{bits.mean[i]:.0f}" for i in at) + f" bits at s = 1, {where.replace(' and', ',')}"
    sent += f" in the largest batch ({bits.label})"
    ours = f"no figure; {n_seeds} instances here"
    says = (
        Says("Section 5", "a larger s improves regret", ours, gained),
        Says("Section 5", "a larger s improves privacy", "the same", private),
        Says("Theorems 2 and 4", "bits grow with ln s", "the same", sent),
    )
    caption(figure, "Chowdhury & Zhou (2023)", *says)
    save(f"chowdhury2023_scaling_{options.variant}", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(RadiusOptions, description=__doc__))
