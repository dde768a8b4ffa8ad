"""Draws Figure 2 of Dubey & Pentland (2020): regret of FedUCB against the gap between the best arm and the others.

The paper says that regret falls with the gap. But nobody learns before the first synchronisation, whose time D ~ T /
log T sets. Until then an agent loses about the gap + 0.1 a round.
"""

import numpy as np
from curves import Curve, interval, lasts, of_result, panels, pick, pm
from drawing import CHANCE, REFERENCE, Panel, Picture, Says, main
from options import DubeyOptions

import fedbandit_jax as fb

GAPS, ALGOS = (0.05, 0.1, 0.2, 0.3), {f"ε = {e}": fb.algos.fed_ucb(fb.privacy.Budget(float(e), 0.1)) for e in (1, 10)}
M, K, D = 10, 10, 10
SHADES = "#5C2800 : o", "#D55E00 : s", "#F08A3C : ^", "#F7BC8B : D"
CLAIM = "regret falls with the gap, and a larger gap makes the budget matter less"


def measure(options: DubeyOptions) -> list[Curve]:
    run, curves = options.run(50, 200_000, 1_000_000), []
    for gap in GAPS[:: options.pick(3, 1, 1)]:
        result = options.sweep(fb.envs.gap(*options.shape(M, K, D), gap=gap), ALGOS, title=f"gap {gap}", **run)
        for one, colour in zip(of_result(result, f"{gap}", each=M), fb.plotting.COLOURS[1:]):
            curves.append(one.but(style=f"{colour} : o"))
    return curves


def picture(curves: list[Curve]) -> Picture:
    gaps, horizon, ends, seen = np.array([float(gap) for gap in panels(curves)]), curves[0].x[-1], [], []
    for name in ALGOS:
        ends.append(one := lasts(pick(curves, label=name), name, gaps))
        ratio, half = interval(one.y[-1] / one.y[0])
        word = "falls" if ratio + half < 1 else "rises (reversed)" if ratio - half > 1 else "undecided"
        seen.append(f"{name}: {word}, regret at gap {gaps[-1]:g} over gap {gaps[0]:g} is {pm(ratio, half)}")
    words = f"after T = {horizon:,.0f} rounds", "gap $\\Delta$", "regret per agent"
    left = Panel(ends, *words, ylim=(0, None), xticks=gaps)
    left.also = lambda ax: ax.plot(gaps, (K - 1) / K * (gaps + 0.1) * horizon, label=CHANCE, **REFERENCE)
    over = zip(pick(curves, label="ε = 10"), SHADES)
    over = [one.but(label=f"(b) gap {one.panel}", style=look) for one, look in over]
    right = Panel(over, "over rounds at ε = 10", "round $t$", kind="lines", ylim=(0, None))
    says = Says("App. Fig. 2", CLAIM, "M = 10, T not said, 100 runs", "; ".join(seen) + " (95 % intervals)")
    setting = f"""FedUCB with M = {M}, K = {K}, d = {D}, δ = 0.1 and T = {horizon:,.0f}. It has the paper's width and
        exact noise. Mean of {curves[0].n_seeds} seeds ± one standard error. Dotted: no privacy claim, as raw data
        decide when to synchronise"""
    title = "FedUCB: regret rises with the gap, unlike claimed"
    return Picture([left, right], title, setting, [says])


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
