"""Draws what more rounds do to FCLUB-DC and CDP-FCLUB-DC of Liu et al. (2022): about ten times those of Figure 2 (a).

python experiments/liu2022_long.py [--smoke | --full]

Theorem 1: regret grows as sqrt T, up to logarithms, once clusters are found. (a) Regret of a round over that of random
play, in doublings of t: does the private algorithm learn, and from when on? (b) Are the clusters found? (c) Uploads and
downloads in doublings of t, seed by seed, which Theorem 2, O(d m L log T / log U), bounds; the line has constant 1 for
each of the two. The caption has the exponent of T in (T/10, T].
T = 2^20 - 2 ends a phase; from 2^21 on the sums of private statistics are too coarse in float32, and refused.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import SEATS, LiuOptions
from curves import Curve, exponent, mean_error, pick, random_play, standing
from drawing import Says, caption, headline, legend_of_all, save

import fedbandit_jax as fb

EPSILONS = (1.0, 4.0, 10.0)
LOOKS = ("#0072B2 - o", "#56B4E9 - ^", "#F59B55 : P", "#D55E00 : X", "#7A3600 : D")  # FCLUB-DC, LinUCB, by epsilon


def measure(options: LiuOptions) -> list[Curve]:
    """Returns regret, adjusted Rand index, uploads and downloads of all seeds at the ends of doublings of t."""
    run = {**options.run(500, 1_048_574, 1_048_574), "stride": "log"}
    env, horizon = options.instance(), run["horizon"]
    every = {epsilon: options.methods(fb.privacy.Budget(epsilon, 0.1)) for epsilon in EPSILONS}
    plain = {name: every[1.0][name] for name in ("FCLUB-DC", "LinUCB")}
    private = {f"CDP-FCLUB-DC, target ε = {epsilon:g}": every[epsilon]["CDP-FCLUB-DC"] for epsilon in EPSILONS}
    result = fb.sweep(env, {**plain, **private}, **run, store=options.store)
    points, ends = horizon / 2.0 ** np.arange(0, 7, 0.25)[::-1], horizon / 2.0 ** np.arange(8)[::-1]
    curves = [Curve("regret", "uniform play", points, random_play(env, options.seed) * points)]

    for name in result:
        one = result[name]
        regret = np.transpose([np.interp(points, one.rounds, seed) for seed in one.regret])
        curves.append(Curve("regret", name, points, regret))
        for panel, counts in (
            ("adjusted Rand index", one.gauges["adjusted Rand index"]),
            ("uploads and downloads", one.communication["rounds"]),
        ):
            curves.append(Curve(panel, name, ends, standing(one.rounds, counts, ends)))
    return curves


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_long", lambda: measure(options))
    random, *regrets = pick(curves, "regret")
    horizon, figure = random.x[-1], plt.figure(figsize=(11.0, 7.6))
    axes = figure.subplot_mosaic("aabb;cdef")
    a, b, counts = axes["a"], axes["b"], [axes[letter] for letter in "cdef"]
    bound = 2 * 10 * 4 * 5 * np.log(2) / np.log(1.01)  # d m L ln 2 / ln U, of uploads and of downloads
    sublinear, level, over, quiet = {}, [], [], 0
    for one, look in zip(regrets, LOOKS):
        colour, line, mark = look.split()
        name, doubled = one.label, slice(3, None, 4)
        x, share = one.x[doubled][1:], np.diff(one.y[doubled], axis=0) / np.diff(random.y[doubled], axis=0)
        early, late = (exponent(one, (one.x > end / 10.1) & (one.x <= end)) for end in (horizon / 8, horizon))
        text = "{:.2f} ± {:.2f}".format(*late)
        mean, error = mean_error(share.T)
        style: dict[str, Any] = dict(color=colour, fmt=mark + line, capsize=2, markersize=5)
        a.errorbar(x, mean, error, label=name, **style)
        if name != "LinUCB":
            sublinear[f"{name} {text}"] = late[0] - late[1] <= 0.5
        final, wrong = mean_error(one.y[-1])
        print(f"{name}: regret {final:,.0f} ± {wrong:,.0f} at T = {horizon:,.0f}; exponents, 95 %:", end=" ")
        print(f"{early[0]:.2f} ± {early[1]:.2f} in (T/80, T/8], {text} in (T/10, T]")
        print("  regret of a round over uniform play: " + ", ".join(f"{s:.4f} ± {e:.4f}" for s, e in zip(mean, error)))
        (rand,), (sent,) = (pick(curves, panel, name) for panel in ("adjusted Rand index", "uploads and downloads"))
        print(f"  adjusted Rand index at T: {', '.join(f'{value:.2f}' for value in rand.y[-1])}")
        if name != "LinUCB":
            b.errorbar(rand.x, rand.mean, rand.error, **style)
            ax, more = counts[len(level)], np.diff(sent.y, axis=0)
            ax.plot(sent.x[1:], np.median(more, 1), line, color=colour)
            ax.plot(sent.x[1:], more, mark, color=colour, markersize=5, alpha=0.6)
            ax.set_title(f"({'cdef'[len(level)]}) {name}".replace(", ", ",\n"), color=colour)
            if (more < bound / 4).any():
                ax.text(
                    0.5,
                    0.14,
                    "below: no burst of uploads\nin the doubling",
                    transform=ax.transAxes,
                    fontsize="small",
                    ha="center",
                )
            (mean, wrong), above = mean_error(more.T), (np.median(more, 1) > bound).sum()
            shown = ", ".join(f"{m:,.0f} ± {s:,.0f}" for m, s in zip(mean, wrong))
            print(f"  uploads and downloads in doublings of t: {shown}; in all {sent.mean[-1]:,.0f}")
            steps = np.median(more, 1)
            level.append(steps[-1] / steps[-2] - 1)
            over.append(f"{name} {level[-1]:+.0%} and {steps[-1] / bound:.2f}")
            quiet += (more < bound / 4).sum()
            print(f"  medians above the bound in {above} of {len(more)} doublings")
    a.axhline(1, color="#999999", linestyle="-.", label="uniform play")
    a.plot((horizon / 16, horizon), (0.4, 0.1), "--", color="#999999", label="(a) slope of regret $\\sqrt{T}$")
    sent = [np.diff(one.y, axis=0).max() for one in pick(curves, "uploads and downloads")]
    top = 1.05 * max(sent)
    for ax in counts:
        ax.axhline(bound, color="#333333", linewidth=1, label="(c)-(f) bound of Theorem 2 with constant 1")
        ax.set(xscale="log", ylim=(0, top))
        ax.set_xticks((20_000, 100_000, 1_000_000))
        ax.tick_params(labelleft=ax is counts[0])
    counts[0].set_ylabel("uploads and downloads\nin (t/2, t]")
    a.set(xscale="log", yscale="log", ylabel="regret in (t/2, t]\nover uniform play's")
    b.set(xscale="log", ylabel="adjusted Rand index at $t$")
    a.set_title("(a) does it learn?")
    b.set_title("(b) are the clusters found? (1: all)")
    for ax in (a, b, *counts):
        ax.set_xlabel("round $t$")
    legend_of_all(figure, ncols=4)
    n_seeds = regrets[0].n_seeds
    where = f"n = 40, m = 4 {SEATS['consecutive']}, L = 5, K = 10, d = 10, δ = 0.1, T = {horizon:,.0f}"
    headline(
        figure,
        "CDP-FCLUB-DC learns late, if at all",
        f"Liu et al. (2022), long runs: {where}\n(a), (b): mean of {n_seeds} seeds ± 1 standard error; (c)-(f): every "
        "seed, and lines through medians; dotted: no privacy claim; solid: not private",
    )
    ours = f"asymptotic; T = {horizon:,.0f}, {n_seeds} seeds here"
    whole = "yes" if all(sublinear.values()) else "in part" if any(sublinear.values()) else "no"
    fast = ", ".join(name for name, good in sublinear.items() if not good) or "none"
    slow = ", ".join(name for name, good in sublinear.items() if good) or "none"
    seen = f"{whole}: exponents of T in (T/10, T] (95 %) not above 1/2: {slow}; above: {fast}"
    first = Says("Theorem 1", "regret grows as √T log^1.5 T", ours, seen)
    says = f"{'consistent' if max(level) < 0.1 else 'not yet'}: change of the median from the last doubling but one to "
    says += f"the last, and the last over the line: {'; '.join(over)}. The line, 2 d m L ln 2 / ln U = {bound:,.0f}, "
    says += (
        "is the bound of a doubling with constant 1 for uploads and 1 for downloads. No burst of uploads falls into a "
    )
    says += f"doubling at {quiet} points, which have less than a fourth of it; a median half-way between dips"
    print(seen, says, sep="\n")
    claim = "uploads and downloads of CDP-FCLUB-DC are O(d m L log T / log U), which makes doublings of t equal"
    caption(figure, "Liu et al. (2022)", first, Says("Theorem 2", claim, ours, says))
    save("liu2022_long", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
