"""Draws what the scaling factor s of Chowdhury & Zhou (2023) buys and costs: regret, bits per user and privacy.

By Theorems 2 and 4 a larger s rounds rewards to a finer grid, of about s epsilon sqrt(n) steps. Regret and privacy
improve. Users send O(log m) bits, which grow with ln s. Dist-DP-SE has no s.
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
    scales, env, curves = SCALES[: options.pick(2, 8, 8)], fb.envs.arms(10, instance=INSTANCE), []
    made = {name: elimination(name, EPSILON, radius=options.radius, delta=DELTA) for name in LOOKS}
    algos = {f"{name} {s}": made[name].replace(scale=float(s)) for name in list(LOOKS)[1:] for s in scales}
    result = options.sweep(env, made | algos, **options.arguments(HORIZONS[INSTANCE]))
    for name, look in LOOKS.items():
        points = [result[f"{name} {s}" if f"{name} {s}" in algos else name] for s in scales]
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
    axes: Any = dict(xscale="log", spread=0.03, label="{label}: {note}")
    shown = [Panel(one[0], one[1], "scaling factor s", one[2], ylim=(one[3], None), **axes) for one in words]
    bits, n = the(curves, "bits, largest batch", "Dist-RDP-SE"), curves[0].n_seeds
    at = [min(SCALES.index(s), len(bits.x) - 1) for s in (1, 10, 1000)]
    where, ours = " and ".join(f"{bits.x[i]:g}" for i in at[1:]), f"no figure; {n} instances here"
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
    says = [
        Says("Section 5", "a larger s improves regret", ours, gained),
        Says("Section 5", "a larger s improves privacy", ours, private),
        Says("Theorems 2 and 4", "bits grow with ln s", ours, sent),
    ]
    setting = f"""K = 10, T = {power(HORIZONS[INSTANCE])}, ε = {EPSILON}, p = 0.1, {how}. Mean of {n} {INSTANCE}
        instances ± one standard error. All are certified in their notions"""
    return Picture(shown, "Regret, bits and privacy against the scale s", setting, says)


if __name__ == "__main__":
    options = tyro.cli(RadiusOptions, description=__doc__)
    show(options, lambda: measure(options), lambda curves: picture(curves, options.how))
