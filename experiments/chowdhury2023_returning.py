"""Draws what users who return cost in regret, at equal privacy: Appendix H of Chowdhury & Zhou (2023).

python experiments/chowdhury2023_returning.py [--smoke]

A user may be in B sums. All algorithms are calibrated so that these B sums together are (1, 10^-6)-DP, by the exact
accounting of their certificates; the paper says that Renyi DP then saves a factor sqrt log(B / delta) over the advanced
composition of approximate DP, and its pure DP is linear in B. Drawn is the regret at T.
"""

from typing import Any

from arms import HORIZONS, ArmsSize, elimination, power
from curves import Curve, final, pick, pm
from drawing import Panel, Picture, Says, main
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


def calibrated(label: str, visits: int, env: fb.Environment, horizon: int, **how) -> Any:
    """Returns the algorithm with the epsilon of its own notion that gives EPSILON to all visits together."""

    def made(own: float) -> Any:
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
        result = options.sweep(env, algos, **run)
        for label, look in LOOKS.items():
            regret = [final(result[f"{label} {b}"]) for b in visits]
            own = ", ".join(f"{algos[f'{label} {b}'].epsilon:.3g}" for b in visits)
            curves.append(Curve(radius, label, visits, regret, look, own))
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, seen, better = [], [], []
    for letter, radius, title in (("a", "theory", "radii of Lemma 2"), ("b", "exact", "exact radii")):
        panel = pick(curves, radius)
        words = title, "sums B that a user may be in", "regret at T"
        shown.append(Panel(panel, *words, xscale="log", yscale="log", xticks=panel[0].x))
        shown[-1].yticks = (5000, 10_000, 20_000, 40_000)
        over = panel[1].over(panel[0].y)
        better.append(set(over.x[over.mean < 1 - 2 * over.error]))
        found = ", ".join(pm(*one) for one in zip(over.mean, over.error))
        seen.append(f"({letter}) Dist-RDP-SE / Dist-DP-SE {found}")
    both = ", ".join(f"{b:g}" for b in sorted(set.intersection(*better)))
    seen.insert(0, f"yes at B = {both}, with both radii" if both else "not with both radii at any B")
    claim = "for users who return, Renyi DP composes better (no experiment)"
    return Picture(
        shown,
        "For returning users Rényi DP composes better",
        f"All B sums together are certified at ε = {EPSILON:g} and δ = {tick(DELTA)}. K = 10, T = "
        f"{power(HORIZONS['easy'])} and p = 0.1. Mean of {curves[0].n_seeds} easy instances ± one standard error",
        [Says("Appendix H", claim, "B = 1, 10, 100 here", "; ".join(seen))],
        height=3.4,
        grid=dict(sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
