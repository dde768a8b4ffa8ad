"""Draws Figure 1 (b) of Dubey & Pentland (2020): regret of FedUCB over rounds, for three amounts of communication.

python experiments/dubey2020_fig1b.py [--smoke | --full] [--redraw]

M = 100 agents communicate in the order of M log T, M^1.5 or M T (every round), with epsilon = 1 or without privacy. The
paper does not say how many rounds it has. Left, with the confidence width as printed, and without privacy. Centre, the
same width with privacy, for as many rounds as agents need to learn: 10,000, where all would still play at random, are
far too few. Right, a tenth of that width: agents learn at once from their own raw rows. The noise is calibrated
exactly, and Lambda is a quantile of its law; both are far smaller than printed.
"""

from typing import Any

import matplotlib.pyplot as plt
import tyro
from common import DubeyOptions, Says, caption, draw, legend_below, random_play, save
from curves import Curve, of_result, pick, verdict

import fedbandit_jax as fb

M, BUDGET = 100, fb.privacy.Budget(1.0, 0.1)
SCHEDULES: dict[str, Any] = {
    "M log T": fb.schedules.LogDet("M log T"),
    "M^1.5": fb.schedules.LogDet("M^1.5"),
    "M T": fb.schedules.Every(1),
}
PANELS: dict[str, tuple[Any, float, tuple[int, int, int], tuple[int, int, int]]] = {
    # title -> budget, factor on the width, T for smoke, default and full, and the seeds
    "not private, width as printed": (None, 1.0, (50, 10_000, 100_000), (2, 8, 100)),
    "ε = 1, width as printed": (BUDGET, 1.0, (50, 200_000, 1_000_000), (2, 3, 100)),
    "ε = 1, a tenth of the width": (BUDGET, 0.1, (50, 10_000, 100_000), (2, 8, 100)),
}


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns the regret per agent of every panel and schedule, and that of random play."""
    env, curves = fb.envs.gap(*options.shape(M, 25, 10)), []
    for title, (budget, scale, horizons, seeds) in PANELS.items():
        run = options.run(*horizons, seeds=seeds)
        for (name, schedule), colour in zip(SCHEDULES.items(), fb.plotting.COLOURS[1:]):
            algo = fb.algos.fed_ucb(budget, schedule=schedule).replace(exploration_scale=scale)
            result = fb.simulate(env, algo, **run)
            print(f"{title}\n{result.summary()}", flush=True)
            (one,) = of_result(result, title, each=M)
            syncs = result.communication["rounds"][:, -1].mean()
            note = f"{syncs:,.0f} synchronisations" + (f", claim {result.certificate.claim}" if budget else "")
            curves.append(Curve(title, name, one.x, one.y, f"{colour} -", note))
        x = curves[-1].x
        curves.append(Curve(title, "an arm at random", x, random_play(env) / M * x, "#999999 :"))
    return curves


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_fig1b", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(20.0, 7.5), layout="constrained", sharey=True)
    seen = []
    for title, ax in zip(PANELS, axes):
        panel = pick(curves, title)
        draw(panel, ax)
        ends = {one.label: one.y[-1] for one in panel}
        order = (("M^1.5", "M log T"), ("M T", "M^1.5"))
        seen.append(f"{title}: " + ", ".join(f"{a} < {b} {verdict(ends[a], ends[b])}" for a, b in order))
        size = f"T = {panel[0].x[-1]:,.0f}, {panel[0].n_seeds} seeds ± 1 standard error"
        ax.set_title(f"{title}\nM = {M}, K = 25, d = 10, δ = 0.1, {size}", fontsize="medium")
        ax.set(xlabel="round $t$", ylabel="regret per agent", xscale="log", yscale="log")
        legend_below(ax)
    axes[0].set_ylim(bottom=1)  # of all, after all are drawn
    print("\n".join(seen))
    says = Says(
        "Fig. 1B",
        "more communication has less regret, private or not",
        "M = 100, T not said, 100 runs",
        "; ".join(seen),
    )
    caption(figure, "Dubey & Pentland (2020)", says)
    save("dubey2020_fig1b", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
