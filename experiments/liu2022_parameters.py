"""Draws the parameter study of Liu et al. (2022), Appendix E.2: regret after T rounds against epsilon, d, n, m and L.

python experiments/liu2022_parameters.py [--smoke | --full]

As in the authors' script m is varied with n = 5 m users on L = 5 servers, L with n = 5 L users in m = 5 clusters, and
the others around n = 40, m = 4, L = 5 and d = 10. The axis of (a) is the target epsilon, as in the paper; what the
noise gives by itself for all phases together is below it. In (a) FCLUB-DC and LinUCB, which have no epsilon, are those
of (b) at d = 10: the same runs.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS as COLOURED
from clusters import RECALIBRATED, SEATS, LiuOptions, decided, dressed, worth
from curves import Curve, pick, random_play, verdict
from drawing import Says, caption, headline, save

import fedbandit_jax as fb

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
HOME = dict(n_users=40, n_servers=5, n_clusters=4, dim=10)
STUDIES = {  # title -> axis, values, the shape at a value
    "(b) features (n=40, m=4, L=5)": ("d", (5, 10, 20), lambda d: {**HOME, "dim": d}),
    "(c) users (m=4, L=5)": ("n", (20, 40, 80), lambda n: {**HOME, "n_users": n}),
    "(d) clusters (n=5m, L=5)": ("m", (2, 5, 10), lambda m: {**HOME, "n_clusters": m, "n_users": 5 * m}),
    "(e) servers (n=5L, m=5)": ("L", (2, 5, 10), lambda s: {**HOME, "n_clusters": 5, "n_servers": s, "n_users": 5 * s}),
}
SHOWN = ("FCLUB-DC", "CDP-FCLUB-DC", "LinUCB")
HOME_TITLE = "(a) privacy (n=40, m=4, L=5, d=10)"
WORDS = {
    "ε": "target ε (below: noise alone, CDP-FCLUB-DC)",
    "d": "features d",
    "n": "users n",
    "m": "clusters m",
    "L": "servers L",
}
LOOKS = {
    name: COLOURED[name]
    for name in ("FCLUB-DC", "CDP-FCLUB-DC", "CDP-FCLUB-DC, recalibrated", "LinUCB", "uniform play")
}


def measure(options: LiuOptions) -> list[Curve]:
    """Returns final regrets of all seeds against each parameter, and those of uniform play."""
    run = options.run(500, 100_000, 100_000)
    every, env = options.methods(fb.privacy.Budget(1.0, 0.1)), options.instance()
    epsilons = EPSILONS[:: options.pick(5, 1, 1)]
    private = {name: every[name] for name in LOOKS if name.startswith("CDP")}
    result, curves = fb.sweep(env, private, grid=dict(epsilon=epsilons), **run, store=options.store), []
    for name, algo in private.items():
        finals = np.stack([result[f"{name}(epsilon={e})"].regret[:, -1] for e in epsilons])
        given = [worth(algo.replace(epsilon=e), env, run["horizon"]) for e in epsilons]
        curves.append(Curve(HOME_TITLE, name, epsilons, finals, LOOKS[name]))
        curves.append(Curve("worth", name, epsilons, given))
    random = random_play(env, options.seed) * run["horizon"]
    curves.append(Curve(HOME_TITLE, "uniform play", epsilons, [random] * len(epsilons), LOOKS["uniform play"]))
    found: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    for title, (_, values, shape_at) in STUDIES.items():
        values = values[: options.pick(1, 9, 9)]
        for shape in (tuple(shape_at(value).values()) for value in values):
            if shape not in found:
                env = options.instance(**dict(zip(HOME, shape)))
                one = fb.sweep(env, {name: every[name] for name in SHOWN}, **run, store=options.store)
                found[shape] = {name: one[name].regret[:, -1] for name in SHOWN}
                found[shape]["uniform play"] = np.full(run["seeds"], random_play(env, options.seed) * run["horizon"])
                print(shape, {name: f"{final.mean():,.0f}" for name, final in found[shape].items()}, flush=True)
        for name in (*SHOWN, "uniform play"):
            finals = np.stack([found[tuple(shape_at(value).values())][name] for value in values])
            curves.append(Curve(title, name, values, finals[:, :1] if name == "uniform play" else finals, LOOKS[name]))
    return [*curves, Curve("words", "T", [0], [run["horizon"]])]


def main(options: LiuOptions) -> None:
    curves = dressed(options.numbers("liu2022_parameters", lambda: measure(options)))
    horizon = pick(curves, "words")[0].y[0, 0]
    figure, grid = plt.subplots(2, 3, figsize=(11.0, 6.6), sharey=True)
    *axes, last = grid.ravel()
    order: dict[str, list[str]] = {"holds": [], "undecided": [], "reversed": []}
    for ax, title in zip(axes, (HOME_TITLE, *STUDIES)):
        panel = pick(curves, title)
        (random,) = pick(panel, label="uniform play")
        ax.axhline(1, color="#999999", linestyle="-.", label=random.label)
        for one in panel:
            colour, line, *mark = one.style.split()
            style: dict[str, Any] = dict(fmt="".join(mark) + line, color=colour, label=one.label, markersize=4)
            if one is not random:
                ax.errorbar(one.x, one.mean / random.mean, one.error / random.mean, capsize=2, **style)
            print(f"{title}, {one.label}: ", end="")
            print(", ".join(f"{x:g}: {m:,.0f} ± {e:,.0f}" for x, m, e in zip(one.x, one.mean, one.error)))
        final = {one.label: one.y for one in panel}
        letter = "ε" if title == HOME_TITLE else STUDIES[title][0]
        for i, x in enumerate(panel[0].x if title != HOME_TITLE else ()):
            order[verdict(final["FCLUB-DC"][i], final["LinUCB"][i]).split(",")[0]].append(f"{letter}={x:g}")
        ax.set(xlabel=WORDS[letter], yscale="log")
        ax.set_title(title.replace("=", " = "))
        if title == HOME_TITLE:
            ax.set(xscale="log")
            worths = pick(curves, "worth", "CDP-FCLUB-DC")[0].mean
            ticks = [(e, f"{e:g}\n{w:.2g}") for e, w in zip(panel[0].x, worths) if e != 8]  # too near to 10
            ax.set_xticks(*zip(*ticks), fontsize="small")
            ax.xaxis.minorticks_off()
            for one in pick(curves, "(b) features (n=40, m=4, L=5)"):
                if one.label in ("FCLUB-DC", "LinUCB"):
                    home = one.x == HOME["dim"]
                    for share, wrong in zip(one.mean[home] / random.mean[0], one.error[home] / random.mean[0]):
                        ax.axhline(share, color=one.style.split()[0])
                        ax.axhspan(share - wrong, share + wrong, color=one.style.split()[0], alpha=0.2, linewidth=0)
        else:
            ax.set(xticks=panel[0].x)
    handles = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels())}
    last.legend(handles.values(), handles.keys(), loc="center left", frameon=False)
    last.axis("off")
    for row in grid:
        row[0].set_ylabel("regret over uniform play's")
    n_seeds = curves[0].n_seeds
    seats = SEATS["consecutive"]
    headline(
        figure,
        "CDP-FCLUB-DC against budget, features, users, clusters and servers",
        f"Liu et al. (2022), Appendix E.2: {seats}, K = 10, δ = 0.1, T = {horizon:,.0f}, target ε = 1 but for (a)\n"
        f"mean of {n_seeds} seeds ± 1 standard error, in (a) a band; dotted: no privacy claim; solid: not private",
    )
    for one in pick(curves, "worth"):
        print(f"{one.label}, noise alone: {', '.join(f'{e:g}: {w:.3g}' for e, w in zip(one.x, one.mean))}")
    (printed,), (worths,) = pick(curves, HOME_TITLE, "CDP-FCLUB-DC"), pick(curves, "worth", "CDP-FCLUB-DC")
    (random,) = pick(curves, HOME_TITLE, "uniform play")
    ends = (f"target {printed.x[-1]:g}", f"target {printed.x[0]:g}")
    final = dict(zip(ends, printed.y[[-1, 0]]))
    shares = printed.mean / random.mean
    falls = "; ".join(
        f"{shares[i]:.2f} of uniform play's at target {printed.x[i]:g} (noise alone {worths.mean[i]:.2g})"
        for i in (0, -1)
    )
    ours = f"T=10^5, 10 seeds, 4 to 9 values; T={horizon:,.0f}, {n_seeds} seeds here"
    n = sum(map(len, order.values()))
    whole = "yes" if len(order["holds"]) == n else "in part" if order["holds"] else "no"
    ahead = f"{whole}: FCLUB-DC < LinUCB (95 %) "
    ahead += "; ".join(f"{word} at {', '.join(at) or 'none'}" for word, at in order.items())
    falls = f"{decided(final, [ends])}, from end to end: {falls} (a). {RECALIBRATED}"
    says = (
        Says("Appendix E.2", "regret of CDP-FCLUB-DC falls with ε", ours, falls),
        Says("Appendix E.2", "the order of Fig. 2(a) for other d, n, m and L", ours, f"{ahead} (b) to (e)"),
    )
    caption(figure, "Liu et al. (2022)", *says)
    save("liu2022_parameters", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
