"""Draws at which delta Renyi DP beats pure DP, as Section 5 of Chowdhury & Zhou (2023) says: if delta > 1/T.

python experiments/chowdhury2023_delta.py [--smoke]

Dist-RDP-SE (s = 10) has just the noise that it needs for (0.1, delta)-DP, by its certificate. Drawn is its regret at T
over that of Dist-DP-SE, below 1 where Renyi DP is worth it: of pure DP at 0.1, whatever delta, as in the paper, which
compares with Theorem 1; and, on one line, of discrete Laplace noise that also has just what (0.1, delta)-DP needs.
Failure probabilities are p = 1/T, as in the theorems.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import ArmsSize, elimination, power
from curves import Curve, pick, quotient
from drawing import Says, caption, headline, legend_of_all, save
from scipy.optimize import brentq

import fedbandit_jax as fb

EPSILON, DELTAS = 0.1, (0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
HORIZONS = (10**5, 10**6, 10**7)
ALIKE = 10**6  # T of the line with both at an equal guarantee
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
        result = fb.sweep(env, {"pure": pure, **algos, **others}, **run)
        name = f"T = {power(run['horizon'])}, {'radii of Lemma 2' if radius == 'theory' else 'exact radii'}"
        curves += [Curve(name, "Dist-DP-SE", [run["horizon"]], result["pure"].regret[:, -1][None])]
        for label, kept in (("Dist-RDP-SE (s=10)", algos), ("Dist-DP-SE, (0.1, δ)-DP", others)):
            if kept:
                own = ", ".join(f"{algo.epsilon:.4g}" for algo in kept.values())
                regret = np.stack([result[key].regret[:, -1] for key in kept])
                curves += [Curve(name, label, deltas[: len(kept)], regret, note=f"own epsilon {own}")]
                print(f"{name}, {label}: own epsilon {own}", flush=True)
    return curves


def crossing(x: np.ndarray, value: np.ndarray) -> float:
    """Returns where a falling ratio is 1, interpolated in the logarithm of x; nan if it is not crossed."""
    order = np.argsort(x)
    x, value = np.log(x[order]), value[order]
    return float(np.exp(np.interp(1.0, value[::-1], x[::-1]))) if value.min() < 1 < value.max() else np.nan


def main(options: ArmsSize) -> None:
    curves = options.numbers("chowdhury2023_delta", lambda: measure(options))
    figure, ax = plt.subplots(figsize=(9, 6))
    right, cross = [], []
    panels = dict.fromkeys(one.panel for one in curves)
    for name, mark, colour in zip(panels, "osDX", ("#000000", "#0072B2", "#D55E00", "#7FB8DA")):
        pure, one, *others = pick(curves, name)
        lines = [(one, pure.y.repeat(len(one.x), 0), mark, colour, name)]
        for other in others:
            first, least = Curve(name, one.label, other.x, one.y[: len(other.x)]), f"{other.x.min():g}"
            label = f"{name}, over Dist-DP-SE that is (0.1, δ)-DP too (run for δ ≥ {least})"
            lines.append((first, other.y, "^", "#00426B", label))
        for some, below, mark, colour, label in lines:
            value, error = np.transpose([quotient(a, b) for a, b in zip(some.y, below)])
            ax.errorbar(some.x, value, error, fmt=f"{mark}-", color=colour, label=label, capsize=2)
            print(f"{label}: " + ", ".join(f"{d:g}: {v:.2f} ± {e:.2f}" for d, v, e in zip(some.x, value, error)))
            if label == name and "Lemma" in name:
                ax.axvline(1 / pure.x[0], color=colour, linestyle="--", linewidth=1)
                right += [bool(v < 1 - 2 * e) for d, v, e in zip(some.x, value, error) if d > 1.5 / pure.x[0]]
                cross.append(f"{crossing(some.x, value):.6f} at T = {pure.x[0]:,.0f}")
    ax.axhline(1, color="k", linewidth=1)
    ax.set(xscale="log", xlabel="δ (dashed: 1/T)", ylabel="regret at T over that of Dist-DP-SE (axis from 0.3)")
    ax.set(ylim=(0.3, None))
    title = (
        f"Dist-RDP-SE (s = 10) that is certified at ε = {EPSILON:g} and δ, over Dist-DP-SE at ε = {EPSILON:g}, δ = 0:"
    )
    size = f"K = 10, p = 1/T, {curves[0].n_seeds} easy instances ± one standard error of the paired ratio"
    headline(figure, "Rényi DP beats pure DP at large δ", f"{title} {size}")
    legend_of_all(figure, ncols=2)
    seen = f"{'yes' if all(right) else 'in part'}, at {sum(right)} of {len(right)} points right of δ = 1/T, by 2 s.e."
    seen += f"; the ratio is 1 at δ of {', '.join(cross)} (interpolated)"
    claim = "as (ε, δ)-DP Renyi DP has less regret than pure DP if δ > 1/T"
    caption(figure, "Chowdhury & Zhou (2023)", Says("Section 5", claim, "none given; T = 10^5 to 10^7 here", seen))
    save("chowdhury2023_delta", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(ArmsSize, description=__doc__))
