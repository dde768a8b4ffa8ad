"""Draws at which delta Renyi DP beats pure DP, as Section 5 of Chowdhury & Zhou (2023) says: if delta > 1/T.

python experiments/chowdhury2023_delta.py [--smoke]

Dist-RDP-SE (s = 10) has just the noise that it needs for (0.1, delta)-DP, by its certificate. Drawn is its regret at T
over that of Dist-DP-SE, below 1 where Renyi DP is worth it: of pure DP at 0.1, whatever delta, as in the paper, which
compares with Theorem 1; and, on one line, of discrete Laplace noise that also has just what (0.1, delta)-DP needs.
Failure probabilities are p = 1/T, as in the theorems.
"""

from typing import Any

import numpy as np
from arms import ArmsSize, elimination, power, verdict
from curves import Curve, final, panels, pick
from drawing import Panel, Picture, Says, main
from matplotlib.axes import Axes
from scipy.optimize import brentq

import fedbandit_jax as fb

EPSILON, DELTAS = 0.1, (0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
HORIZONS = (10**5, 10**6, 10**7)
ALIKE = 10**6  # T of the line with both at an equal guarantee
LOOKS = ("#000000 o", "#0072B2 s", "#D55E00 D", "#7FB8DA X")
LINES = (*((horizon, "theory") for horizon in HORIZONS), (10**6, "exact"))


def renyi(delta: float, env: fb.Environment, horizon: int, **how: Any) -> Any:
    """Returns Dist-RDP-SE with the epsilon of its own notion that makes it (EPSILON, delta)-DP."""

    def made(own: float) -> Any:
        return elimination("Dist-RDP-SE (s=10)", own, delta=delta, **how)

    def excess(own: float) -> float:
        return (made(own).certificate(env.spec, horizon).epsilon_exact or 0) - EPSILON

    return made(brentq(excess, EPSILON / 50, 10 * EPSILON, xtol=1e-5))  # pyright: ignore[reportArgumentType]


def alike(delta: float, **how: Any) -> Any:
    """Returns Dist-DP-SE with the least noise that is (EPSILON, delta)-DP on every grid: that of one step decides."""
    return elimination("Dist-DP-SE", float(np.log((np.exp(EPSILON) + delta) / (1 - delta))), **how)


def measure(options: ArmsSize) -> list[Curve]:
    """Returns final regrets of every seed against delta, and those of Dist-DP-SE, a panel a line of the figure."""
    env, deltas, curves = fb.envs.arms(10, instance="easy"), DELTAS[:2] if options.smoke else DELTAS, []
    for horizon, radius in LINES[1::2] if options.smoke else LINES:
        run = options.arguments(horizon)
        how: Any = dict(radius=radius, failure=1 / run["horizon"])
        pure = elimination("Dist-DP-SE", EPSILON, **how)
        algos = {f"{d:g}": renyi(d, env, run["horizon"], **how) for d in deltas}
        others = {f"alike {d:g}": alike(d, **how) for d in deltas[:3] if (horizon, radius) == (ALIKE, "theory")}
        result = options.sweep(env, {"pure": pure, **algos, **others}, **run)
        name = f"T = {power(run['horizon'])}, {'radii of Lemma 2' if radius == 'theory' else 'exact radii'}"
        curves += [Curve(name, "Dist-DP-SE", [run["horizon"]], [final(result["pure"])])]
        for label, kept in (("Dist-RDP-SE (s=10)", algos), ("Dist-DP-SE, (0.1, δ)-DP", others)):
            if kept:
                own = ", ".join(f"{algo.epsilon:.4g}" for algo in kept.values())
                regret = [final(result[key]) for key in kept]
                curves += [Curve(name, label, deltas[: len(kept)], regret, note=f"own epsilon {own}")]
    return curves


def crossing(one: Curve) -> str:
    """Returns where a falling ratio is 1, interpolated in the logarithm of x."""
    x, y = np.log(one.x[::-1]), one.mean[::-1]
    return f"{np.exp(np.interp(1.0, y, x)):.6f}" if y.min() < 1 < y.max() else "no δ"


def picture(curves: list[Curve]) -> Picture:
    shown, right, cross, ends = [], [], [], []
    for name, look in zip(panels(curves), LOOKS):
        pure, one, *others = pick(curves, name)
        shown.append(one.but(label=name, style=look).over(pure.y))
        for other in others:
            label = f"{name}, over Dist-DP-SE that is (0.1, δ)-DP too (run for δ ≥ {other.x.min():g})"
            some = one.but(label=label, x=other.x, y=one.y[: len(other.x)], style="#00426B ^")
            shown.append(some.over(other.y))
        if "Lemma" in name:
            least, ratio = 1 / pure.x[0], shown[-1 - len(others)]
            ends.append((least, look.split()[0]))
            right += list((ratio.mean < 1 - 2 * ratio.error)[ratio.x > 1.5 * least])
            cross.append(f"{crossing(ratio)} at T = {pure.x[0]:,.0f}")

    def also(ax: Axes) -> None:
        ax.axhline(1, color="k", linewidth=1)
        for x, colour in ends:
            ax.axvline(x, color=colour, linestyle="--", linewidth=1)

    seen = f"{verdict(right)} points right of δ = 1/T, by two errors; the ratio is 1 at δ of {', '.join(cross)}"
    panel = Panel(shown, "", "δ (dashed: 1/T)", "regret at T over Dist-DP-SE's", also=also)
    panel.axes |= dict(xscale="log", ylim=(0.3, None))
    return Picture(
        [panel],
        "Rényi DP beats pure DP at large δ",
        f"Dist-RDP-SE (s = 10) is certified at ε = {EPSILON:g} and δ, Dist-DP-SE at ε = {EPSILON:g} and δ = 0. K = 10 "
        f"and p = 1/T. Mean of {curves[0].n_seeds} easy instances ± one standard error of the paired ratio",
        [Says("Section 5", "as (ε, δ)-DP Renyi DP has less regret than pure DP if δ > 1/T", "T = 10^5 to 10^7", seen)],
        height=4.2,
        ncols=2,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
