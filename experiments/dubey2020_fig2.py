"""Draws Figure 2 of Dubey & Pentland (2020): regret of FedUCB against the gap between the best arm and the others.

python experiments/dubey2020_fig2.py [--smoke | --full] [--redraw]

M = 10 agents as in the paper, which does not say how many rounds, communicate in the order of M log T. It reports that
regret falls with the gap, and that the budget then matters less. (a) Regret after T rounds against the gap, by
epsilon. (b) The same over rounds at epsilon = 10, where agents have left uniform play long before T. Nobody learns
before the first synchronisation, whose time D ~ T / log T sets, and until then an agent loses about the gap + 0.1 a
round. So regret rises with the gap, also when all agents play well at the end.
"""

import numpy as np
from curves import Curve, interval, lasts, of_result, panels, pick, pm
from drawing import CHANCE, REFERENCE, Panel, Picture, Says, main
from options import DubeyOptions

import fedbandit_jax as fb

GAPS, EPSILONS = (0.05, 0.1, 0.2, 0.3), (1.0, 10.0)
M, K, D = 10, 10, 10
SHADES = "#5C2800 : o", "#D55E00 : s", "#F08A3C : ^", "#F7BC8B : D"


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns the regret per agent over rounds for every gap and epsilon."""
    algos = {f"ε = {epsilon:g}": fb.algos.fed_ucb(fb.privacy.Budget(epsilon, 0.1)) for epsilon in EPSILONS}
    run, curves = options.run(50, 200_000, 1_000_000), []
    for gap in GAPS[:: options.pick(3, 1, 1)]:
        result = options.sweep(fb.envs.gap(*options.shape(M, K, D), gap=gap), algos, title=f"gap {gap}", **run)
        for one, colour in zip(of_result(result, f"{gap}", each=M), fb.plotting.COLOURS[1:]):
            curves.append(one.but(style=f"{colour} : o"))
    return curves


def picture(curves: list[Curve]) -> Picture:
    gaps, horizon, ends, seen = np.array([float(gap) for gap in panels(curves)]), curves[0].x[-1], [], []
    for name in dict.fromkeys(one.label for one in curves):
        ends.append(one := lasts(pick(curves, label=name), name, gaps))
        ratio, half = interval(one.y[-1] / one.y[0])
        word = "falls" if ratio + half < 1 else "rises (reversed)" if ratio - half > 1 else "undecided"
        seen.append(f"{name}: {word}, regret at gap {gaps[-1]:g} over gap {gaps[0]:g} is {pm(ratio, half)}")
    left = Panel(ends, f"after T = {horizon:,.0f} rounds", "gap $\\Delta$", "regret per agent", ylim=(0, None))
    left.xticks = gaps
    left.also = lambda ax: ax.plot(gaps, (K - 1) / K * (gaps + 0.1) * horizon, label=CHANCE, **REFERENCE)
    over = pick(curves, label=f"ε = {EPSILONS[-1]:g}")
    over = [one.but(label=f"(b) gap {one.panel}", style=look) for one, look in zip(over, SHADES)]
    right = Panel(over, "over rounds at ε = 10", "round $t$", kind="lines", ylim=(0, None))
    claim = "regret falls with the gap, and a larger gap makes the budget matter less"
    return Picture(
        [left, right],
        "FedUCB: regret rises with the gap, unlike claimed",
        f"FedUCB with M = {M}, K = {K}, d = {D}, δ = 0.1 and T = {horizon:,.0f}. It has the paper's width and exact "
        f"noise. Mean of {curves[0].n_seeds} seeds ± one standard error. Dotted: no privacy claim, as raw data decide "
        "when to synchronise",
        [Says("App. Fig. 2", claim, "M = 10, T not said, 100 runs", "; ".join(seen) + " (95 % intervals)")],
        height=3.4,
        ncols=4,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
