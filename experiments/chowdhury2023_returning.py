"""Draws what users who return cost in regret, at equal privacy: Appendix H of Chowdhury & Zhou (2023).

python experiments/chowdhury2023_returning.py [--smoke]

A user may be in B sums. All algorithms are calibrated so that these B sums together are (1, 10^-6)-DP, by the exact
accounting of their certificates; the paper says that Renyi DP then saves a factor sqrt log(B / delta) over the advanced
composition of approximate DP, and its pure DP is linear in B. Drawn is the regret at T.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import HORIZONS, ArmsSize, elimination, power
from curves import Curve, pick, quotient
from drawing import Says, caption, legend_of_all, save
from scipy.optimize import brentq

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import tick

EPSILON, DELTA, VISITS = 1.0, 1e-6, (1, 10, 100)
LOOKS = {
    "Dist-DP-SE": "#D55E00 - o",
    "Dist-RDP-SE (s=10)": "#009E73 - s",
    "Dist-CDP-SE (s=10)": "#CC79A7 - D",
}


def together(certificate: fb.privacy.Certificate, visits: int) -> float:
    """Returns epsilon at DELTA of so many visits."""
    if visits == 1:
        return certificate.epsilon_exact or 0
    return {number: epsilon for number, _, epsilon, _ in certificate.visits}[visits]


def calibrated(label: str, visits: int, env: fb.Environment, horizon: int, **how) -> fb.algos.SuccessiveElimination:
    """Returns the algorithm with the epsilon of its own notion that gives EPSILON to all visits together."""

    def made(own: float) -> fb.algos.SuccessiveElimination:
        return elimination(label, own, delta=DELTA, **how)

    def excess(own: float) -> float:
        return together(made(own).certificate(env.spec, horizon), visits) - EPSILON

    return made(brentq(excess, EPSILON / 2 / visits / 10, 3 * EPSILON, rtol=1e-4))  # pyright: ignore[reportArgumentType]


def measure(options: ArmsSize) -> list[Curve]:
    """Returns final regrets of all seeds against the number of visits."""
    env, run, curves = fb.envs.arms(10, instance="easy"), options.arguments(HORIZONS["easy"]), []
    visits = VISITS[:2] if options.smoke else VISITS
    for radius in ("theory", "exact"):
        algos = {
            f"{label} {b}": calibrated(label, b, env, run["horizon"], radius=radius) for label in LOOKS for b in visits
        }
        result = fb.sweep(env, algos, **run)
        for label, look in LOOKS.items():
            regret = np.stack([result[f"{label} {b}"].regret[:, -1] for b in visits])
            own = ", ".join(f"{algos[f'{label} {b}'].epsilon:.3g}" for b in visits)
            curves.append(Curve(radius, label, np.array(visits), regret, look, own))
    return curves


def main(options: ArmsSize) -> None:
    curves = options.numbers("chowdhury2023_returning", lambda: measure(options))
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharey=True)
    seen, better = [], []
    for ax, radius, title in zip(axes, ("theory", "exact"), ("(a) radii of Lemma 2", "(b) exact radii")):
        panel = pick(curves, radius)
        for one in panel:
            colour, line, mark = one.style.split()
            ax.errorbar(
                one.x,
                one.mean,
                one.error,
                fmt=mark + line,
                color=colour,
                label=one.label.replace("s=", "s = "),
                capsize=2,
            )
            shown = ", ".join(f"{b:g}: {m:,.0f} ± {e:,.0f}" for b, m, e in zip(one.x, one.mean, one.error))
            print(f"{title}, {one.label}, own epsilon {one.note}: {shown}")
        ratios = [quotient(a, b) for a, b in zip(panel[1].y, panel[0].y)]
        better.append({b for b, (value, error) in zip(panel[0].x, ratios) if value < 1 - 2 * error})
        seen.append(f"{title} Dist-RDP-SE / Dist-DP-SE " + ", ".join(f"{v:.2f} ± {e:.2f}" for v, e in ratios))
        ax.set(xscale="log", yscale="log", xlabel="sums B that a user may be in", title=title)
        ax.set_xticks(panel[0].x, [f"{b:g}" for b in panel[0].x])
        ax.set_yticks([5000, 10_000, 20_000, 40_000])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("regret at T")
    legend_of_all(figure)
    size = f"K = 10, T = {power(HORIZONS['easy'])}, p = 0.1, {curves[0].n_seeds} easy instances ± one standard error"
    what = f"All B sums together are certified at ε = {EPSILON:g}, δ = {tick(DELTA)}"
    figure.suptitle(f"{what}: {size}", fontsize="medium")
    claim = "for users who return, Renyi DP composes better (no experiment)"
    both = ", ".join(f"{b:g}" for b in sorted(set.intersection(*better)))
    seen.insert(0, f"yes at B = {both}, with both radii" if both else "not with both radii at any B")
    caption(figure, "Chowdhury & Zhou (2023)", Says("Appendix H", claim, "B = 1, 10, 100 here", "; ".join(seen)))
    print("\n".join(seen))
    save("chowdhury2023_returning", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(ArmsSize, description=__doc__))
