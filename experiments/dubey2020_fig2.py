"""Draws Figure 2 of Dubey & Pentland (2020): regret of FedUCB against the gap between the best arm and the others.

python experiments/dubey2020_fig2.py [--smoke | --full] [--redraw]

M = 10 agents as in the paper, which does not say how many rounds, communicate in the order of M log T. It reports that
regret falls with the gap, and that the budget then matters less. (a) Regret after T rounds against the gap, by
epsilon. (b) The same over rounds at epsilon = 10, where agents have left uniform play long before T. Nobody learns
before the first synchronisation, whose time D ~ T / log T sets, and until then an agent loses about the gap + 0.1 a
round. So regret rises with the gap, also when all agents play well at the end.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, interval, of_result, pick
from drawing import Says, caption, draw, headline, legend_below, save
from matplotlib.ticker import MaxNLocator
from options import DubeyOptions

import fedbandit_jax as fb

GAPS, EPSILONS = (0.05, 0.1, 0.2, 0.3), (1.0, 10.0)
M, K, D = 10, 10, 10


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns the regret per agent over rounds for every gap and epsilon."""
    run = options.run(50, 200_000, 1_000_000)
    algos = {f"ε = {epsilon:g}": fb.algos.fed_ucb(fb.privacy.Budget(epsilon, 0.1)) for epsilon in EPSILONS}
    curves = []
    for gap in GAPS[:: options.pick(3, 1, 1)]:
        env = fb.envs.gap(*options.shape(M, K, D), gap=gap)
        for (name, algo), colour in zip(algos.items(), fb.plotting.COLOURS[1:]):
            result = fb.simulate(env, algo, **run)
            print(f"gap {gap}\n{result.summary()}", flush=True)
            (one,) = of_result(result, f"{gap}", each=M)
            curves.append(Curve(f"{gap}", name, one.x, one.y, f"{colour} : o"))
    return curves


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_fig2", lambda: measure(options))
    gaps = np.array([float(gap) for gap in dict.fromkeys(one.panel for one in curves)])
    horizon, seeds = curves[0].x[-1], curves[0].n_seeds
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.9))
    seen = []
    for name in dict.fromkeys(one.label for one in curves):
        of = pick(curves, label=name)
        ends = np.stack([one.y[-1] for one in of])
        ratio, half = interval(ends[-1] / ends[0])
        word = "falls" if ratio + half < 1 else "rises (reversed)" if ratio - half > 1 else "undecided"
        seen.append(f"{name}: {word}, regret at gap {gaps[-1]:g} over that at {gaps[0]:g} is {ratio:.2f} ± {half:.2f}")
        look: dict[str, Any] = dict(fmt="o:", markersize=4, capsize=2, color=of[0].style.split()[0], label=name)
        left.errorbar(gaps, ends.mean(1), [one.error[-1] for one in of], **look)
    left.plot(gaps, (K - 1) / K * (gaps + 0.1) * horizon, ":", color="#999999", label="uniform play")
    left.set(xlabel="gap $\\Delta$", ylabel="regret per agent", ylim=(0, None), xticks=gaps)
    left.set_title(f"(a) after T = {horizon:,.0f} rounds")
    shown, shades = pick(curves, label=f"ε = {EPSILONS[-1]:g}"), ("#5C2800", "#D55E00", "#F08A3C", "#F7BC8B")
    looks = [f"{shade} : {mark}" for shade, mark in zip(shades, "os^D")]
    draw([Curve("", f"gap {one.panel}", one.x, one.y, look) for one, look in zip(shown, looks)], right)
    right.set(xlabel="round $t$", ylim=(0, None))
    right.xaxis.set_major_locator(MaxNLocator(5))
    right.set_title("(b) over rounds at ε = 10")
    for ax in (left, right):
        legend_below(ax, ncols=2)
    size = f"M = {M}, K = {K}, d = {D}, δ = 0.1, T = {horizon:,.0f}, mean of {seeds} seeds ± 1 standard error"
    what = "the paper's width, exact noise; dotted: no privacy claim, as raw data decide when to synchronise"
    headline(figure, "FedUCB: regret rises with the gap, unlike claimed", f"FedUCB: {size}\n{what}")
    claim = "regret falls with the gap, and a larger gap makes the budget matter less"
    found = "; ".join(seen) + " (95 % intervals)"
    caption(figure, "Dubey & Pentland (2020)", Says("App. Fig. 2", claim, "M = 10, T not said, 100 runs", found))
    save("dubey2020_fig2", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
