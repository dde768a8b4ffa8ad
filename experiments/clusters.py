"""What the two panels of Figure 2 of Liu et al. (2022) share: how methods look, what the paper claims, and the drawing.

Letters: m clusters of users, L servers, T rounds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from common import LiuOptions, Says, caption, mean_error, random_play, save, worth
from common import draw as draw_curves
from curves import Curve, exponent, pick, quotient, verdict
from matplotlib.ticker import MaxNLocator

import fedbandit_jax as fb

LOOKS = {  # colour and line; variants of one algorithm share a colour, and differ in line
    "FCLUB": "#0072B2 --",
    "FCLUB-DC": "#0072B2 -",
    "CDP-FCLUB-DC": "#D55E00 -",
    "CDP-FCLUB-DC, less noise": "#D55E00 --",
    "CLUB": "#E69F00 -",
    "SCLUB": "#CC79A7 -",
    "LinUCB": "#56B4E9 -",
    "Homo": "#009E73 -",
    "Homo-DC": "#009E73 --",
    "random play": "#999999 :",
}
PLAIN = ("FCLUB", "FCLUB-DC")
PRIVATE, OTHERS = "CDP-FCLUB-DC", ("SCLUB", "CLUB", "LinUCB", "Homo", "Homo-DC")
CLAIMS: tuple[tuple[str, list[tuple[str, str]]], ...] = (  # words, pairs of less and more regret
    (
        "FCLUB and FCLUB-DC beat CLUB, SCLUB and LinUCB (as follows from what is said of CDP-FCLUB-DC)",
        [(one, other) for one in PLAIN for other in ("CLUB", "SCLUB", "LinUCB")],
    ),
    (f"{PRIVATE} beats {', '.join(OTHERS)}", [(PRIVATE, other) for other in OTHERS]),
    ("delayed communication costs regret", [("FCLUB", "FCLUB-DC")]),
)


def measured(options: LiuOptions, env: Any, methods: dict[str, Any], name: str, title: str, **run: Any) -> list[Curve]:
    """Runs the methods; returns regrets and adjusted Rand indices of all seeds at 40 rounds, and the title."""
    result = fb.sweep(env, methods, **run, store=options.store)
    print(result.summary())
    kept = np.unique(np.linspace(0, len(result.rounds) - 1, 40).round().astype(int))
    x, curves = result.rounds[kept], []
    for label in result:
        note = f"noise worth ε={worth(methods[label], env, run['horizon']):.2g}" if label.startswith("CDP") else ""
        rand = result[label].gauges["adjusted Rand index"][:, kept].T
        curves.append(Curve("regret", label, x, result[label].regret[:, kept].T, LOOKS[label], note))
        curves.append(Curve("clusters", label, x, rand, LOOKS[label], note))
        sent = ", ".join(f"{what} {counts[:, -1].mean():,.0f}" for what, counts in result[label].counts.items())
        print(f"{label}: {sent}; adjusted Rand index at T {', '.join(f'{one:.2f}' for one in rand[-1])}")
    random = random_play(env, options.seed)
    if not options.smoke:
        result.save(Path("results") / name)
    random_curve = Curve("regret", "random play", x, random * x, LOOKS["random play"])
    return [*curves, random_curve, Curve("title", title, [0], [0])]


def liu_figure(
    name: str, options: LiuOptions, env: Any, methods: dict[str, Any], title: str, where: str, size: str, **run: Any
) -> None:
    """Draws regret and clusters over time with one standard error, and writes where the paper's order holds.

    Args:
        name: name of the files.
        options: those of the command line.
        env: the environment; not used with --redraw.
        methods: algorithms by name.
        title: title of the figure; with --redraw it is that of the CSV.
        where: figure of the paper.
        size: its size.
        run: arguments of `fb.sweep`.
    """
    *curves, titled = options.numbers(name, lambda: measured(options, env, methods, name, title, **run))
    regrets, clusters = pick(curves, "regret"), pick(curves, "clusters")
    figure, axes = plt.subplots(1, 3, figsize=(18.0, 8.6), layout="constrained")
    n_seeds, horizon = regrets[0].n_seeds, regrets[0].x[-1]
    figure.suptitle(f"{titled.label}\nT={horizon:,.0f}; mean of {n_seeds} seeds ± 1 standard error")
    for ax in axes[:2]:
        draw_curves(regrets, ax)
    final = {one.label: one.y[-1] for one in regrets}
    axes[0].set(ylim=(0, 1.6 * final["LinUCB"].mean()), title="(a) regret, up to 1.6 times that of LinUCB")
    axes[1].set(yscale="log", title="(b) all of it, on a logarithmic scale")
    axes[1].set_ylim(bottom=max(1.0, min(one.mean[1] for one in regrets)))
    draw_curves(clusters, axes[2])
    axes[2].set(ylim=(-0.05, 1.05), title="(c) adjusted Rand index of the clusters found")
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel("round $t$")
    axes[0].set_ylabel("regret")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside right center", frameon=False)
    for label, values in final.items():
        mean, error = mean_error(values) if len(values) > 1 else (values[0], 0.0)
        print(f"{label}: {mean:,.0f} ± {error:,.0f}")
    says = []
    for claim, pairs in CLAIMS:
        found = {f"{one} < {other}": verdict(final[one], final[other]) for one, other in pairs}
        right = [text.startswith("holds") for text in found.values()]
        whole = "yes" if all(right) else "in part" if any(right) else "no"
        words = "; ".join(f"{pair} {text}" for pair, text in found.items())
        says.append(Says(where, claim, f"{size}; {n_seeds} seeds here", f"{whole}: {words} (95 %)"))
    more = ", ".join("{:.1f} ± {:.1f} times {}".format(*quotient(final[PRIVATE], final[one]), one) for one in PLAIN)
    says.append(Says(where, f"{PRIVATE} is a little worse than FCLUB and FCLUB-DC", "the same", f"regret is {more}"))
    if where.endswith("(a)"):
        late = {one.label: exponent(one, one.x > 0.1 * horizon) for one in regrets if "Homo" in one.label}
        words = ", ".join(f"{label} T^({power:.2f} ± {half:.2f})" for label, (power, half) in late.items())
        says.append(Says(where, "Homo and Homo-DC suffer linear regret", "the same", f"{words} in (T/10, T] (95 %)"))
    else:
        right = {one.label: one.y[-1] > 1 - 1e-6 for one in clusters if "FCLUB" in one.label}
        words = ", ".join(f"{label} {found.mean():.0%}" for label, found in right.items())
        claim = f'{PRIVATE} is ahead "after all user clusters are correctly detected"'
        says.append(Says(where, claim, "the same", f"seeds with all clusters right at T: {words}"))
    print("\n".join(f"{one.claim}: {one.seen}" for one in says))
    caption(figure, "Liu et al. (2022)", *says)
    save(name, options, figure, [*curves, titled])
