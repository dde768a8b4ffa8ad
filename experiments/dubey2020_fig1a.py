"""Draws Figure 1 (a) of Dubey & Pentland (2020): regret per agent of FedUCB after T rounds against epsilon.

python experiments/dubey2020_fig1a.py [--smoke | --full] [--redraw]

There are M = 2 or 5 agents with d = 10 and K = 10 arms (the paper names neither M nor K), delta = 0.1, and the
threshold of synchronisation is the paper's for communication of order M log T. The paper has T = 10^7 and 100 runs.
(a) At the paper's T with the width as printed, agents play worse than at random until the data outweigh the noise, as
the best arm has the smallest width. Then they play well. (b) The same at T. With --full also: (c) regret hardly depends
on M, as in Theorem 1, where Corollary 1 has 1 / sqrt M; (d) with a tenth of the width agents learn at once from their
own raw statistics. The noise is calibrated exactly, and Lambda is a quantile of its law, 1/80 of the printed one.
"""

from itertools import pairwise
from typing import Any

from curves import Curve, lasts, of_result, panels, pick, ratio
from drawing import CHANCE, Panel, Picture, Says, main
from options import DubeyOptions

import fedbandit_jax as fb

AGENTS, K, D, GAP = (2, 5), 10, 10, 0.1
RANDOM = (K - 1) / K * (GAP + 0.1)  # mean regret of an arm at random, per round and agent
LONG, MANY, NARROW = "over rounds", "(c) final regret", "(d) final regret, a tenth of the width"
NOISE = "ε of the noise on messages"
PANELS: dict[str, tuple[tuple[int, ...], tuple[Any, ...], float, tuple[int, int, int], tuple[int, int, int]]] = {
    # agents, values of epsilon, factor on the width, T for smoke, default and full, and the seeds
    LONG: ((2,), (1.0, 5.0), 1.0, (50, 10_000_000, 10_000_000), (2, 10, 100)),
    MANY: (AGENTS, (1.0, 5.0, None), 1.0, (50, 300_000, 300_000), (2, 8, 100)),
    NARROW: (AGENTS, (0.1, 1.0, 5.0, None), 0.1, (50, 30_000, 40_000), (2, 8, 100)),
}


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns regret per agent over rounds, of every panel, M and epsilon (None: not private)."""
    curves = []
    for title, (agents, epsilons, scale, horizons, seeds) in list(PANELS.items())[: options.pick(3, 1, 3)]:
        for m in agents[: options.pick(1, 2, 2)]:
            env = fb.envs.gap(*options.shape(m, K, D), gap=GAP)
            for epsilon, colour, mark in zip(epsilons[:: options.pick(2, 1, 1)], fb.plotting.COLOURS[1:], "os^D"):
                algo = fb.algos.fed_ucb(fb.privacy.Budget(epsilon, 0.1) if epsilon else None)
                name = f"M = {m}, " + (f"ε = {epsilon:g}" if epsilon else "not private")
                run = options.run(*horizons, seeds=seeds)
                result = options.sweep(env, {name: algo.replace(exploration_scale=scale)}, title=title, **run)
                look = f"{colour} {':' if epsilon else '-'} {mark}"
                curves += [one.but(style=look) for one in of_result(result, title, each=m)]
    return curves


def against(title: str, curves: list[Curve]) -> Panel:
    """Returns final regret per agent against epsilon, by M, and that without privacy as lines."""
    shown, level = [], {CHANCE: RANDOM * curves[0].x[-1]}
    for m, colour in zip(AGENTS, fb.plotting.COLOURS[1:]):
        mine = [one for one in curves if one.label.startswith(f"M = {m},")]
        private = [one for one in mine if "ε" in one.label]
        epsilons = [float(one.label.split("= ")[-1]) for one in private]
        shown += [lasts(private, f"M = {m}, private", epsilons, f"{colour} : o")] if private else []
        level |= {one.label: one.mean[-1] for one in mine if one not in private}
    size = f"{title[4:]}\nT = {curves[0].x[-1]:,.0f}, {curves[0].n_seeds} seeds"
    return Panel(shown, size, NOISE, "regret per agent", level=level, xscale="log", yscale="log")


def picture(curves: list[Curve]) -> Picture:
    long = pick(curves, LONG)
    horizon, n = long[0].x[-1], long[0].n_seeds
    chance = RANDOM * horizon
    axes: dict[str, Any] = dict(kind="lines", level={CHANCE: RANDOM}, xscale="log", yscale="log", xlim=(1e3, horizon))
    words = "average up to round $t$", "round $t$", "regret per agent and round"
    shown, epsilons = [Panel([one.per(one.x) for one in long], *words, **axes)], []
    ends = []
    for one in long:
        epsilons.append(float(one.label.split("= ")[-1]))
        name = f"(b) {one.label}: {one.said()}, {one.mean[-1] / chance:.1%} of uniform play"
        ends.append(lasts([one], name, epsilons[-1:]))
    words = f"after T = {horizon:,.0f} rounds", NOISE, "regret per agent"
    shown.append(Panel(ends, *words, xticks=epsilons, xlim=(0, max(epsilons) + 1), ylim=(0, None)))
    shown += [against(title, pick(curves, title)) for title in panels(curves)[1:]]
    share = " and ".join(f"{one.mean[-1] / chance:.1%} at {one.label}" for one in long)
    seen = f"regret at T is {share} of uniform play's {chance:,.0f}"
    seen += "".join(f"; {a.label} over {b.label}: {ratio(a.y[-1], b.y[-1])}" for a, b in pairwise(long))
    return Picture(
        shown,
        "FedUCB: a larger budget has less regret",
        f"FedUCB with M = {long[0].label[4:5]} agents, K = {K}, d = {D}, gap {GAP}, δ = 0.1, the paper's width and "
        f"exact noise. Mean of {n} seeds ± one standard error. Dotted: no privacy claim, as raw data decide when "
        "to synchronise",
        [Says("Fig. 1A", "regret is competitive even at a small ε", "T = 10,000,000, 100 runs, M not said", seen)],
        height=3.5 * ((len(shown) + 1) // 2),
        shape=((len(shown) + 1) // 2, 2),
        ncols=2,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
