"""Draws what users who return cost in regret, at equal privacy: Appendix H of Chowdhury & Zhou (2023).

The B sums of a user together are (1, 10^-6)-DP, by the exact accounting of certificates. The paper says that Renyi DP
then saves a factor sqrt log(B / delta) over advanced composition. Pure DP is linear in B.
"""

from arms import HORIZONS, HOW, ArmsSize, calibrated, power
from curves import Curve, pick, pm
from drawing import LOGS, Panel, Picture, Says, main

import fedbandit_jax as fb
from fedbandit_jax.report.plotting.figure import tick

EPSILON, DELTA = 1.0, 1e-6
LOOKS = {"Dist-DP-SE": "#D55E00 - o", "Dist-RDP-SE (s=10)": "#009E73 - s", "Dist-CDP-SE (s=10)": "#CC79A7 - D"}


def measure(options: ArmsSize) -> list[Curve]:
    env, run, curves = fb.envs.arms(10, instance="easy"), options.arguments(HORIZONS["easy"]), []
    visits = (1, 10, 100)[: options.pick(2, 3, 3)]
    search = {b: dict(a=EPSILON / 2 / b / 10, b=3 * EPSILON, rtol=1e-4) for b in visits}
    for radius in ("theory", "exact"):
        algos = {
            label: {
                b: calibrated(label, EPSILON, env, run["horizon"], search[b], b, delta=DELTA, radius=radius)
                for b in visits
            }
            for label in LOOKS
        }
        for one in options.finals(env, algos, radius, LOOKS, **run):
            curves.append(one.but(note=", ".join(f"{algo.epsilon:.3g}" for algo in algos[one.label].values())))
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, seen, better = [], [], []
    for letter, radius in zip("ab", ("theory", "exact")):
        panel = pick(curves, radius)
        words = HOW[radius], "sums B that a user may be in", "regret at T"
        shown.append(Panel(panel, *words, xticks=panel[0].x, yticks=(5000, 10_000, 20_000, 40_000), **LOGS))
        over = panel[1].over(panel[0].y)
        better.append(set(over.x[over.mean < 1 - 2 * over.error]))
        found = ", ".join(pm(*one) for one in zip(over.mean, over.error))
        seen.append(f"({letter}) Dist-RDP-SE / Dist-DP-SE {found}")
    both = ", ".join(f"{b:g}" for b in sorted(set.intersection(*better)))
    seen.insert(0, f"yes at B = {both}, with both radii" if both else "not with both radii at any B")
    claim = "for users who return, Renyi DP composes better (no experiment)"
    says = Says("Appendix H", claim, "B = 1, 10, 100 here", "; ".join(seen))
    setting = f"""All B sums together are certified at ε = {EPSILON:g} and δ = {tick(DELTA)}. K = 10, T =
        {power(HORIZONS["easy"])} and p = 0.1. Mean of {curves[0].n_seeds} easy instances ± one standard error"""
    title = "For returning users Rényi DP composes better"
    return Picture(shown, title, setting, [says], grid=dict(sharey=True))


if __name__ == "__main__":
    main(measure, picture, __doc__, ArmsSize)
