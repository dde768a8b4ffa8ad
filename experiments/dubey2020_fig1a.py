"""Draws Figure 1 (a) of Dubey & Pentland (2020): regret per agent of FedUCB after T rounds against epsilon.

python experiments/dubey2020_fig1a.py [--smoke | --full] [--redraw]

There are M = 2 or 5 agents with d = 10 and K = 10 arms (the paper names neither M nor K), delta = 0.1, and the
threshold of synchronisation is the paper's for communication of order M log T. The paper has T = 10^7 and 100 runs, and
calls the regret "competitive". (a) At the paper's T with the width as printed: agents play worse than at random until
the data outweigh the noise, as the best arm has the smallest width, and then well. (b) What is left at T, by epsilon.
With --full also, below, at T = 300,000: regret hardly depends on M, as in Theorem 1; by Corollary 1 it would fall like
1 / sqrt M; and with a tenth of that width: agents learn at once from their own raw statistics, whatever epsilon is. The
noise is calibrated exactly, and Lambda is a quantile of its law, 1/80 of the printed one.
"""

import itertools
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, interval, of_result, pick
from drawing import REFERENCE, Says, caption, draw, headline, legend_below, save
from options import DubeyOptions

import fedbandit_jax as fb

AGENTS, K, D, GAP = (2, 5), 10, 10, 0.1
RANDOM = (K - 1) / K * (GAP + 0.1)  # mean regret of an arm at random, per round and agent
LONG, MANY, NARROW = "over rounds", "(c) final regret", "(d) final regret, a tenth of the width"
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
        run = options.run(*horizons, seeds=seeds)
        for m in agents[: options.pick(1, 2, 2)]:
            env = fb.envs.gap(*options.shape(m, K, D), gap=GAP)
            for epsilon, colour, mark in zip(epsilons[:: options.pick(2, 1, 1)], fb.plotting.COLOURS[1:], "os^D"):
                algo = fb.algos.fed_ucb(fb.privacy.Budget(epsilon, 0.1) if epsilon else None)
                algo = algo.replace(exploration_scale=scale) if scale < 1 else algo
                result = fb.simulate(env, algo, **run)
                print(f"{title}\n{result.summary()}", flush=True)
                (one,) = of_result(result, title, each=m)
                name = f"M = {m}, " + (f"ε = {epsilon:g}" if epsilon else "not private")
                curves.append(Curve(title, name, one.x, one.y, f"{colour} {':' if epsilon else '-'} {mark}"))
    return curves


def against(curves: list[Curve], ax: Any) -> list[str]:
    """Draws final regret per agent against epsilon, by M, and returns how it changes with M."""
    horizon, said = curves[0].x[-1], []
    for m, colour in zip(AGENTS, fb.plotting.COLOURS[1:]):
        mine = [one for one in curves if one.label.startswith(f"M = {m},")]
        private = [one for one in mine if "ε" in one.label]
        if not private:
            continue
        x = [float(one.label.split("= ")[-1]) for one in private]
        mean, error = zip(*((one.mean[-1], one.error[-1]) for one in private))
        ax.errorbar(x, mean, error, fmt="o:", markersize=4, capsize=2, color=colour, label=f"M = {m}, private")
        for one in mine:
            if "ε" not in one.label:
                ax.axhline(one.mean[-1], color=colour, linewidth=1, label=f"M = {m}, not private")
        if m == AGENTS[0]:
            falls = np.array(mean) / np.sqrt(AGENTS[1] / m)
            ax.plot(x, falls, "-.", color="#999999", label=f"M = {AGENTS[1]} by Corollary 1: {m} agents' / √2.5")
            continue
        for one in private:
            other = pick(curves, label=one.label.replace(f"M = {m}", f"M = {AGENTS[0]}"))[0]
            ratio, half = interval(one.y[-1] / other.mean[-1])
            of_other = interval(other.y[-1])[1] / other.mean[-1] * ratio
            said.append(f"{one.label} over M = {AGENTS[0]}: {ratio:.2f} ± {np.hypot(half, of_other):.2f}")
    ax.axhline(RANDOM * horizon, label="uniform play", **REFERENCE)
    ax.set(xscale="log", yscale="log", xlabel="$\\varepsilon$ of the noise on messages")
    return said


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_fig1a", lambda: measure(options))
    titles = list(dict.fromkeys(one.panel for one in curves))
    rows = 1 + len(titles) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(11.0, 4.9 * rows), squeeze=False)
    (left, right, *others), seen = axes.ravel(), []
    long = pick(curves, LONG)
    horizon, chance = long[0].x[-1], RANDOM * long[0].x[-1]
    draw(long, left, average=True)
    left.axhline(RANDOM, label="uniform play", **REFERENCE)
    left.set(xscale="log", yscale="log", xlabel="round $t$", ylabel="regret per agent and round", xlim=(1e3, horizon))
    left.set_title("(a) average up to round $t$")
    x, ends = [float(one.label.split("= ")[-1]) for one in long], np.stack([one.y[-1] for one in long])
    right.plot(x, ends, color="#999999", linewidth=0.8, label="")
    right.plot([], [], color="#999999", linewidth=0.8, label="one seed")
    for one, at in zip(long, x):
        colour = one.style.split()[0]
        name = f"{one.label}: {one.mean[-1]:,.0f} ± {one.error[-1]:,.0f}, {one.mean[-1] / chance:.1%} of uniform play"
        right.errorbar(at, one.mean[-1], one.error[-1], fmt="o", capsize=4, color=colour, label=name)
    right.set(xlabel="$\\varepsilon$ of the noise on messages", ylabel="regret per agent", xticks=x, ylim=(0, None))
    right.set_title(f"(b) after T = {horizon:,.0f} rounds; uniform play has {chance:,.0f}")
    share = ", ".join(f"{one.mean[-1] / chance:.1%} at {one.label}" for one in long)
    seen.append(f"at T = {horizon:,.0f} regret is {share} of uniform play ({long[0].n_seeds} seeds)")
    for one, other in itertools.pairwise(long):
        ratio, half = interval(one.y[-1] / other.y[-1])
        seen.append(f"{one.label} over {other.label}, seed by seed: {ratio:.2f} ± {half:.2f}")
    for title, ax in zip(titles[1:], others):
        panel = pick(curves, title)
        said, horizon = against(panel, ax), panel[0].x[-1]
        seen += [f"at T = {horizon:,.0f}, {one} (Corollary 1: 0.63)" for one in said if title == MANY]
        ax.set_ylabel("regret per agent")
        ax.set_title(f"{title}\nT = {horizon:,.0f}, {panel[0].n_seeds} seeds")
    for ax in (left, right, *others[: len(titles) - 1]):
        legend_below(ax)
    headline(
        figure,
        "FedUCB: a larger budget has less regret",
        f"FedUCB: M = {long[0].label[4:5]} agents, K = {K}, d = {D}, gap {GAP}, δ = 0.1, the paper's width, exact "
        f"noise; mean of {long[0].n_seeds} seeds ± 1 standard error\n"
        "dotted: no privacy claim, as raw data decide when to synchronise",
    )
    claim = '"the variation in asymptotic per-agent regret for varying" ε, "competitive even at large privacy budget"'
    claim += "; by Corollary 1 it falls as 1 / sqrt M" if MANY in titles else ""
    found = "; ".join(seen) + " (95 % intervals)"
    caption(figure, "Dubey & Pentland (2020)", Says("Fig. 1A", claim, "T = 10,000,000, 100 runs, M not said", found))
    save("dubey2020_fig1a", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
