"""Draws what the scaling factor s of Chowdhury & Zhou (2023) buys and costs: regret, bits per user and privacy.

python experiments/chowdhury2023_scaling.py [--radius exact] [--smoke]

Theorems 2 and 4: with a larger s, Dist-RDP-SE (Skellam noise) and Dist-CDP-SE (discrete Gaussian noise) round rewards
to a finer grid of about s epsilon sqrt(n) steps, so that regret and privacy improve, and users send O(log m) bits,
which grow with ln s. Dist-DP-SE has no s.
"""

from typing import Any

import numpy as np
import tyro
from arms import HORIZONS, RadiusOptions, elimination, power, verdict
from curves import Curve, final, pick, pm, quotient, the
from drawing import Panel, Picture, Says, show

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
    result, curves = options.sweep(env, algos, **options.arguments(HORIZONS[INSTANCE])), []
    for name, look in LOOKS.items():
        points = [result["Dist-DP-SE" if name == "Dist-DP-SE" else f"{name} {s}"] for s in scales]
        bits = np.array([one.certificate.bits_per_user for one in points])
        kept: dict[str, Any] = {
            "regret": [final(one) for one in points],
            "bits, largest batch": bits[:, 1],
            "bits, smallest batch": bits[:, 0],
            "epsilon": [one.certificate.epsilon_exact for one in points],
        }
        notion = points[0].certificate.notion
        curves += [Curve(panel, name, scales, values, look, notion) for panel, values in kept.items()]
    theorem = [printed(scale) for scale in scales]
    return [*curves, Curve("epsilon", "Theorem 2 and Lemma 10, as printed", scales, theorem, "#777777 -.")]


def picture(curves: list[Curve], how: str) -> Picture:
    sizes = [*pick(curves, "bits, largest batch"), *pick(curves, "bits, smallest batch")]
    words = (
        (pick(curves, "regret"), "regret at T", "regret at T", None),
        (sizes, "bits in the largest and the smallest batch", "bits that a user sends", 0),
        (pick(curves, "epsilon"), f"what the noise gives at δ = {tick(DELTA)}", "ε", 0),
    )
    shown = []
    for ones, title, ylabel, bottom in words:
        axes: Any = dict(xscale="log", spread=0.03, label="{label}: {note}", ylim=(bottom, None))
        shown.append(Panel(ones, title, "scaling factor s", ylabel, **axes))
    bits, n = the(curves, "bits, largest batch", "Dist-RDP-SE"), curves[0].n_seeds
    at = [min(i, len(bits.x) - 1) for i in (SCALES.index(1), SCALES.index(10), SCALES.index(1000))]
    where = " and ".join(f"{bits.x[i]:g}" for i in at[1:])
    gains, given, better, stronger = [], [], [], []
    for name in ("Dist-RDP-SE", "Dist-CDP-SE"):
        regret, privacy = (the(curves, panel, name) for panel in ("regret", "epsilon"))
        ratios = [quotient(regret.y[i], regret.y[at[0]]) for i in at[1:]]
        better.append(ratios[0][0] < 1 - 2 * ratios[0][1])
        gains.append(f"{name} {' and '.join(pm(*one) for one in ratios)}")
        stronger.append(privacy.mean[-1] < 0.99 * privacy.mean[0])
        given.append(f"{name} {privacy.mean[0]:.4f} and {privacy.mean[-1]:.4f}")
    gained = f"{verdict(better)}; regret at s = {where} over that at s = 1: {', '.join(gains)}"
    private = f"{verdict(stronger)}; ε at s = {bits.x[0]:g} and {bits.x[-1]:g}: {', '.join(given)}"
    sent = f"{', '.join(f'{bits.mean[i]:.0f}' for i in at)} bits at s = 1, {where} in the largest batch"
    ours = f"no figure; {n} instances here"
    return Picture(
        shown,
        "Regret, bits and privacy against the scale s",
        f"K = 10, T = {power(HORIZONS[INSTANCE])}, ε = {EPSILON}, p = 0.1, {how}. Mean of {n} {INSTANCE} instances ± "
        "one standard error. All are certified in their notions",
        [
            Says("Section 5", "a larger s improves regret", ours, gained),
            Says("Section 5", "a larger s improves privacy", ours, private),
            Says("Theorems 2 and 4", "bits grow with ln s", ours, sent),
        ],
        height=3.2,
        ncols=4,
    )


if __name__ == "__main__":
    options = tyro.cli(RadiusOptions, description=__doc__)
    show(options, lambda: measure(options), lambda curves: picture(curves, options.how))
