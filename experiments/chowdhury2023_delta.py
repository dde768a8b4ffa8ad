"""Draws at which delta Renyi DP beats pure DP, as Section 5 of Chowdhury & Zhou (2023) says: if delta > 1/T.

Dist-RDP-SE has just the noise that its certificate needs for (0.1, delta)-DP. Its regret is drawn over Dist-DP-SE's,
which is pure DP at 0.1. On one line that is (0.1, delta)-DP, too. Failure probabilities are p = 1/T.
"""

from typing import Any

import numpy as np
from arms import HOW, ArmsSize, calibrated, elimination, power, verdict
from curves import Curve, panels, pick
from drawing import Panel, Picture, Says, main
from matplotlib.axes import Axes

import fedbandit_jax as fb

EPSILON, DELTAS = 0.1, (0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
SEARCH = dict(a=EPSILON / 50, b=10 * EPSILON, xtol=1e-5)
ALIKE = (10**6, "theory")  # the line with both at an equal guarantee
LINES = {
    (10**5, "theory"): "#009E73 o",
    ALIKE: "#0072B2 s",
    (10**7, "theory"): "#D55E00 D",
    (10**6, "exact"): "#7FB8DA X",
}
RENYI, PURE, BOTH = "Dist-RDP-SE (s=10)", "Dist-DP-SE", "Dist-DP-SE, (0.1, δ)-DP"


def measure(options: ArmsSize) -> list[Curve]:
    env, deltas, curves = fb.envs.arms(10, instance="easy"), DELTAS[: options.pick(2, 8, 8)], []
    for horizon, radius in list(LINES)[1::2] if options.smoke else LINES:
        run = options.arguments(horizon)
        how: Any = dict(radius=radius, failure=1 / run["horizon"])
        algos: dict[str, dict[float, Any]] = {PURE: {run["horizon"]: elimination(PURE, EPSILON, **how)}}
        algos[RENYI] = {d: calibrated(RENYI, EPSILON, env, run["horizon"], SEARCH, delta=d, **how) for d in deltas}
        if (horizon, radius) == ALIKE:  # the least noise on every grid: that of one step decides
            least = {d: np.log((np.exp(EPSILON) + d) / (1 - d)) for d in deltas[:3]}
            algos[BOTH] = {d: elimination(PURE, float(epsilon), **how) for d, epsilon in least.items()}
        for one in options.finals(env, algos, f"T = {power(run['horizon'])}, {HOW[radius]}", **run):
            own = ", ".join(f"{algo.epsilon:.4g}" for algo in algos[one.label].values())
            curves.append(one.but(note="" if one.label == PURE else f"own epsilon {own}"))
    return curves


def crossing(one: Curve) -> str:
    """Returns where a falling ratio is 1, interpolated in the logarithm of x."""
    x, y = np.log(one.x[::-1]), one.mean[::-1]
    return f"{np.exp(np.interp(1.0, y, x)):.6f}" if y.min() < 1 < y.max() else "no δ"


def picture(curves: list[Curve]) -> Picture:
    shown, right, cross, ends = [], [], [], []
    for name, look in zip(panels(curves), LINES.values()):
        pure, one, *others = pick(curves, name)
        ratio = one.but(label=name, style=look).over(pure.y)
        shown.append(ratio)
        for other in others:
            label = f"{name}, over Dist-DP-SE that is (0.1, δ)-DP too (run for δ ≥ {other.x.min():g})"
            some = one.but(label=label, x=other.x, y=one.y[: len(other.x)], style="#00426B ^")
            shown.append(some.over(other.y))
        if HOW["theory"] in name:
            ends.append((1 / pure.x[0], look.split()[0]))
            right += list((ratio.mean < 1 - 2 * ratio.error)[ratio.x > 1.5 / pure.x[0]])
            cross.append(f"{crossing(ratio)} at T = {pure.x[0]:,.0f}")

    def also(ax: Axes) -> None:
        ax.axhline(1, color="k", linewidth=1)
        for x, colour in ends:
            ax.axvline(x, color=colour, linestyle="--", linewidth=1)

    seen = f"{verdict(right)} points right of δ = 1/T, by two errors; the ratio is 1 at δ of {', '.join(cross)}"
    says = Says("Section 5", "as (ε, δ)-DP Renyi DP has less regret than pure DP if δ > 1/T", "T = 10^5 to 10^7", seen)
    words = "", "δ (dashed: 1/T)", "regret at T over Dist-DP-SE's"
    setting = f"""Dist-RDP-SE (s = 10) is certified at ε = {EPSILON:g} and δ, Dist-DP-SE at ε = {EPSILON:g} and δ = 0. K
        = 10 and p = 1/T. Mean of {curves[0].n_seeds} easy instances ± one standard error of the paired ratio"""
    panel = Panel(shown, *words, also=also, xscale="log", ylim=(0.3, None))
    return Picture([panel], "Rényi DP beats pure DP at large δ", setting, [says])


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
