"""Draws Figure 1 (a) of Dubey & Pentland (2020): regret per agent of FedUCB after T rounds against epsilon.

With the width as printed, the best arm has the smallest width. So agents play worse than at random until the data
outweigh the noise (a). The paper names neither M nor K.
"""

from itertools import pairwise

from curves import Curve, lasts, of_result, ratio
from drawing import CHANCE, LOGS, Panel, Picture, Says, main
from options import DubeyOptions

import fedbandit_jax as fb

K, D, GAP = 10, 10, 0.1
RANDOM = (K - 1) / K * (GAP + 0.1)  # mean regret of an arm at random, per round and agent
LOOKS = {(2, 1.0): "#0072B2 : o", (2, 5.0): "#D55E00 : s", (5, 1.0): "#56B4E9 : ^", (5, 5.0): "#E69F00 : D"}


def measure(options: DubeyOptions) -> list[Curve]:
    run, curves = options.run(50, 10_000_000, 10_000_000, seeds=(2, 10, 100)), []
    for (m, epsilon), look in list(LOOKS.items())[: options.pick(2, 2, 4)]:
        env, name = fb.envs.gap(*options.shape(m, K, D), gap=GAP), f"M = {m}, ε = {epsilon:g}"
        result = options.sweep(env, {name: fb.algos.fed_ucb(fb.privacy.Budget(epsilon, 0.1))}, **run)
        curves += [one.but(style=look) for one in of_result(result, "over rounds", each=m)]
    return curves


def picture(curves: list[Curve]) -> Picture:
    horizon = curves[0].x[-1]
    chance, shares = RANDOM * horizon, [one.mean[-1] / RANDOM / horizon for one in curves]
    words = "average up to round $t$", "round $t$", "regret per agent and round"
    averages, level = [one.per(one.x) for one in curves], {CHANCE: RANDOM}
    left = Panel(averages, *words, kind="lines", level=level, xlim=(1e3, horizon), **LOGS)
    names = [f"(b) {one.label}: {one.said()}, {share:.1%} of uniform play" for one, share in zip(curves, shares)]
    ends = [lasts([one], name, [epsilon]) for one, name, (_, epsilon) in zip(curves, names, LOOKS)]
    words = f"after T = {horizon:,.0f} rounds", "ε of the noise on messages", "regret per agent"
    right = Panel(ends, *words, xticks=(1, 5), xlim=(0, 6), ylim=(0, None))
    share = " and ".join(f"{share:.1%} at {one.label}" for one, share in zip(curves, shares))
    seen = f"regret at T is {share} of uniform play's {chance:,.0f}"
    seen += "".join(f"; {a.label} over {b.label}: {ratio(a.y[-1], b.y[-1])}" for a, b in pairwise(curves))
    says = Says("Fig. 1A", "regret is competitive even at a small ε", "T = 10,000,000, 100 runs, M not said", seen)
    setting = f"""FedUCB with K = {K}, d = {D}, gap {GAP}, δ = 0.1, the paper's width and exact noise. Mean of
        {curves[0].n_seeds} seeds ± one standard error. Dotted: no privacy claim, as raw data decide when to
        synchronise"""
    return Picture([left, right], "FedUCB: a larger budget has less regret", setting, [says])


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
