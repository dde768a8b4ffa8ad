"""Draws what more rounds do to FCLUB-DC and CDP-FCLUB-DC of Liu et al. (2022): about ten times those of Figure 2 (a).

python experiments/liu2022_long.py [--smoke | --full]

Theorem 1: regret grows as sqrt T, up to logarithms, once clusters are found. (a) Regret of a round over that of random
play, in doublings of t: does the private algorithm learn, and from when on? (b) Are the clusters found? (c) Uploads and
downloads in doublings of t, which Theorem 2, O(d m L log T / log U), bounds; the line has constant 1 for each of the
two. The legend of (a) has the exponent of T in (T/10, T].
T = 2^20 - 2 ends a phase; from 2^21 on the sums of private statistics are too coarse in float32, and refused.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import LiuOptions, Says, caption, mean_error, random_play, save, slope
from curves import Curve, exponent, pick

import fedbandit_jax as fb

EPSILONS = (1.0, 4.0, 10.0)
COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#CC79A7")  # FCLUB-DC and LinUCB as elsewhere


def measure(options: LiuOptions) -> list[Curve]:
    """Returns regret, adjusted Rand index, uploads and downloads of all seeds at the ends of doublings of t."""
    run = {**options.run(500, 1_048_574, 1_048_574), "seeds": options.pick(2, 4, 10), "stride": "log"}
    env, horizon = options.instance(), run["horizon"]
    every = {epsilon: options.methods(fb.privacy.Budget(epsilon, 0.1)) for epsilon in EPSILONS}
    plain = {name: every[1.0][name] for name in ("FCLUB-DC", "LinUCB")}
    private = {f"CDP-FCLUB-DC, ε={epsilon:g} asked": every[epsilon]["CDP-FCLUB-DC"] for epsilon in EPSILONS}
    result = fb.sweep(env, {**plain, **private}, **run, store=options.store)
    points, ends = horizon / 2.0 ** np.arange(0, 7, 0.25)[::-1], horizon / 2.0 ** np.arange(8)[::-1]
    curves = [Curve("regret", "random play", points, random_play(env, options.seed) * points)]

    def kept(panel: str, name: str, values: np.ndarray, at: np.ndarray) -> Curve:
        return Curve(panel, name, at, np.transpose([np.interp(at, result.rounds, one) for one in values]))

    for name in result:
        one = result[name]
        curves += [kept("regret", name, one.regret, points)]
        curves += [kept("adjusted Rand index", name, one.gauges["adjusted Rand index"], ends)]
        curves += [kept("uploads and downloads", name, one.communication["rounds"], ends)]
    return curves


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_long", lambda: measure(options))
    random, *regrets = pick(curves, "regret")
    horizon, figure = random.x[-1], plt.figure(figsize=(19.0, 7.0), layout="constrained")
    a, b, c = figure.subplots(1, 3)
    sublinear, level = [], []
    for one, colour, mark in zip(regrets, COLOURS, "osDXP"):
        name, doubled = one.label, slice(3, None, 4)
        x, share = one.x[doubled][1:], np.diff(one.y[doubled], axis=0) / np.diff(random.y[doubled], axis=0)
        early, late = (exponent(one, (one.x > end / 10.1) & (one.x <= end)) for end in (horizon / 8, horizon))
        text = f"{late[0]:.2f} ± {late[1]:.2f}"
        mean, error = mean_error(share.T)
        style: dict[str, Any] = dict(color=colour, fmt=f"{mark}-", capsize=2)
        a.errorbar(x, mean, error, label=f"{name}: T^({text})", **style)
        sublinear.append(f"{name} {text}")
        final, wrong = mean_error(one.y[-1])
        print(f"{name}: regret {final:,.0f} ± {wrong:,.0f} at T = {horizon:,.0f}; exponents, 95 %:", end=" ")
        print(f"{early[0]:.2f} ± {early[1]:.2f} in (T/80, T/8], {text} in (T/10, T]")
        print("  regret of a round over random play: " + ", ".join(f"{s:.4f} ± {e:.4f}" for s, e in zip(mean, error)))
        (rand,), (sent,) = (pick(curves, panel, name) for panel in ("adjusted Rand index", "uploads and downloads"))
        print(f"  adjusted Rand index at T: {', '.join(f'{value:.2f}' for value in rand.y[-1])}")
        if name != "LinUCB":
            b.errorbar(rand.x, rand.mean, rand.error, label=name, **style)
            more, wrong = mean_error(np.diff(sent.y, axis=0).T)
            c.errorbar(sent.x[1:], more, wrong, label=name, **style)
            shown = ", ".join(f"{m:,.0f} ± {s:,.0f}" for m, s in zip(more, wrong))
            print(f"  uploads and downloads in doublings of t: {shown}; in all {sent.mean[-1]:,.0f}")
            level.append(f"{name} {', '.join(f'{m:,.0f}' for m in more[-3:])}")
    a.axhline(1, color="k", linestyle=":", label="random play")
    slope(a, -0.5, (horizon / 16, horizon), 0.5, "regret as √T")
    a.set(yscale="log", title="(a) regret of a round over random play's, in (t/2, t]")
    bound = 2 * 10 * 4 * 5 * np.log(2) / np.log(1.01)  # d m L ln 2 / ln U, of uploads and of downloads
    c.axhline(bound, color="k", linestyle=":", label=f"2 d m L ln 2 / ln U = {bound:,.0f}")
    c.legend(fontsize="small")
    b.set(ylim=(-0.05, 1.05), title="(b) adjusted Rand index of the clusters at $t$")
    c.set(yscale="log", title="(c) uploads and downloads in (t/2, t]: level if O(log T)")
    for ax in (a, b, c):
        ax.set(xscale="log", xlabel="round $t$")
        ax.grid(alpha=0.3, which="both")
    a.legend(fontsize="small")
    where = f"n=40, m=4 (consecutive seats), L=5, K=10, d=10, δ=0.1, T={horizon:,.0f}"
    figure.suptitle(f"{where}; mean of {regrets[0].n_seeds} seeds ± 1 s.e.")
    ours = f"asymptotic; {regrets[0].n_seeds} seeds here"
    first = Says(
        "Theorem 1", "regret grows as √T log^1.5 T", ours, "exponent in (T/10, T], 95 %: " + "; ".join(sublinear)
    )
    second = Says(
        "Theorem 2",
        "uploads and downloads of CDP-FCLUB-DC are O(d m L log T / log U)",
        ours,
        "in the last doublings: " + "; ".join(level),
    )
    caption(figure, "Liu et al. (2022)", first, second)
    save("liu2022_long", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
