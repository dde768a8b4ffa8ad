"""Draws Figure 1 (c) of Dubey & Pentland (2020): regret of FedUCB for d = 4, 8 and 16 features.

python experiments/dubey2020_fig1c.py [--smoke | --full] [--redraw]

epsilon = 1 and delta = 0.1, and the threshold of synchronisation is the paper's for communication of order M log T.
(a) M = 100 agents as in the paper, where private agents still play at random after our T rounds, whatever d is, so
that the paper's claim, which is about private agents, is not tested. (b) M = 2 agents, and more rounds. (c) Regret
after T rounds against d with fitted exponents. The paper has K <= d^2 arms and does not say how many; K is 16
here for all d.
"""

import matplotlib.pyplot as plt
import tyro
from curves import Curve, exponent, of_result, pick, random_play
from drawing import Says, caption, draw, headline, legend_of_all, save, slope
from options import DubeyOptions

import fedbandit_jax as fb

DIMENSIONS, K = (4, 8, 16), 16
ALGOS = {"ε = 1": fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1)), "not private": fb.algos.fed_ucb()}
LINES = {"ε = 1": ":", "not private": "-"}
HORIZONS = {100: (50, 5_000, 100_000), 2: (50, 500_000, 2_000_000)}  # M -> T for smoke, default and full


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns regret per agent over rounds for every M, d and algorithm, and that of uniform play."""
    curves = []
    for m, horizons in HORIZONS.items():
        run = options.run(*horizons)
        for d, colour, mark in zip(DIMENSIONS[: options.pick(2, 3, 3)], fb.plotting.COLOURS[1:], "os^"):
            env = fb.envs.gap(n_agents=options.pick(4, m, m), n_arms=K, dim=d)
            result = fb.sweep(env, ALGOS, **run)
            print(f"\nM = {m}, d = {d}\n{result.summary()}", flush=True)
            for one in of_result(result, f"M = {m}", each=m):
                curves.append(
                    Curve(one.panel, f"d = {d}, {one.label}", one.x, one.y, f"{colour} {LINES[one.label]} {mark}")
                )
        each, x = random_play(fb.envs.gap(n_agents=m, n_arms=K, dim=4)) / m, curves[-1].x  # the same for all d
        curves.append(Curve(f"M = {m}", "uniform play", x, each * x, "#999999 :"))
    return curves


def against(curves: list[Curve], algo: str) -> Curve:
    """Returns the final regret per agent against d, (3,) points."""
    mine = [one for one in curves if one.label.endswith(f", {algo}")]
    x = [float(one.label.split(",")[0].removeprefix("d = ")) for one in mine]
    return Curve("", algo, x, [one.y[-1] for one in mine])


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_fig1c", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(11.5, 4.8))
    seen = []
    for (m, marker), ax, letter in zip({100: "o", 2: "s"}.items(), axes, "ab"):
        panel = pick(curves, f"M = {m}")
        horizon = panel[0].x[-1]
        draw(sorted(panel, key=lambda one: ("random" in one.label, "not" in one.label)), ax, average=True)
        ax.set(xlabel="round $t$", xlim=(0, horizon))
        ax.set_title(f"({letter}) up to round $t$, M = {m}, T = {horizon:,.0f}")
        chance = pick(panel, label="uniform play")[0].mean[-1]
        for algo, line in LINES.items():
            one = against(panel, algo)
            power, half = exponent(one)
            share = ", ".join(f"{value:.0%}" for value in one.mean / chance)
            seen.append(f"M = {m}, {algo}: d^{power:.2f} ± {half:.2f} ({share} of uniform play at d = 4, 8, 16)")
            name = f"M = {m}, {algo}: power {power:.2f} ± {half:.2f}"
            look = dict(fmt=f"{marker}{line}", color="#CC79A7" if "ε" in algo else "#000000", markersize=5, capsize=2)
            axes[2].errorbar(one.x, one.mean, one.error, label=name, **look)
    axes[0].set(ylim=(0, None), ylabel="regret per agent and round")
    axes[2].set(xlabel="dimension $d$", ylabel="regret per agent", xscale="log", yscale="log")
    axes[2].set_xticks(DIMENSIONS, DIMENSIONS)
    axes[2].minorticks_off()
    d = against(pick(curves, "M = 2"), "ε = 1")
    slope(axes[2], 2.0, d.x, 0.6 * d.mean[0], "$d^2$, as the paper says")
    axes[2].set_title("(c) after T rounds")
    last = curves[-1].x[-1]
    axes[1].set(xscale="log", yscale="log", xlim=(last / 1000, last))
    legend_of_all(figure, ncols=4)
    headline(
        figure,
        "FedUCB: regret against the number of features",
        f"FedUCB: K = {K}, gap 0.1, δ = 0.1, the paper's width, exact noise; mean of {curves[0].n_seeds} seeds ± 1 "
        "standard error, exponents ± half of 95 % intervals\n"
        "dotted: no privacy claim, as raw data decide when to synchronise",
    )
    claim = 'with ε = 1 and M = 100 regret has "essentially a quadratic dependence" on d'
    found = "not tested at M = 100 with privacy, where agents play at random in so few rounds; " + "; ".join(seen)
    caption(figure, "Dubey & Pentland (2020)", Says("Fig. 1C", claim, "M = 100, K <= d², T not said, 100 runs", found))
    save("dubey2020_fig1c", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
