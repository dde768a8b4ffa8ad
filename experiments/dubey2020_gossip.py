"""Draws what privacy costs FedUCB without a server (Algorithm 3 of Dubey & Pentland, 2020), by network.

python experiments/dubey2020_gossip.py [--smoke | --full] [--redraw]

Every agent adds noise to its own sums before it sends them to its neighbours, by one tree for each of its gamma
estimators. The paper draws nothing without a server; Remark 2 has regret grow like sqrt(chi gamma), where chi cliques
cover the graph. (a) Group regret by epsilon, and without noise. (b) The same over that of a controller, seed by seed.
(c) Over rounds, at the largest epsilon and without noise. Without noise the network matters; with it hardly, in so few
rounds. The certificate, which is printed, claims nothing, as raw statistics decide when an agent asks; epsilon is that
of the noise on messages.
"""

import dataclasses
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import tyro
from curves import Curve, interval, of_result, pick, quotient, random_play
from drawing import REFERENCE, Says, caption, draw, headline, legend_of_all, save
from options import DubeyOptions

import fedbandit_jax as fb

M, K, D, EPSILONS = 8, 10, 5, (1.0, 5.0, 20.0)
BUDGET = fb.privacy.Budget(1.0, 0.1)
NETWORKS = {"complete": 1, "ring": 1}  # graph -> hops after which a message is dropped, gamma
COMMON: dict[str, Any] = dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / M))
OPEN, CHANCE = "not private", "uniform play"


def algorithms(privacy: fb.privacy.Budget | None) -> dict[str, fb.Algorithm]:
    """Returns FedUCB with a controller, on every network, and on one without an edge."""
    algos: dict[str, fb.Algorithm] = {"controller": fb.algos.fed_ucb(privacy, **COMMON)}
    for name, gamma in NETWORKS.items():
        graph = fb.networks.make(name, M)
        chi = fb.networks.network(graph, gamma).n_cliques
        label = f"{name}, γ = {gamma}, χ = {chi}"
        algos[label] = fb.algos.GossipFedUCB(graph=graph, gamma=gamma, privacy=privacy, **COMMON)
    return algos | {"nobody talks": fb.algos.GossipFedUCB(graph=nx.empty_graph(M), privacy=privacy, **COMMON)}


def at(result: fb.Result, algorithm: str, **point: Any) -> fb.Result:
    """Returns the result of one algorithm of a sweep at one point of its grid."""
    (label,) = (label for label, where in result.coordinates.items() if where == {"algorithm": algorithm, **point})
    return result[label]


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns group regret over rounds of every network, with a panel for each epsilon and one without privacy."""
    env, run = fb.envs.gap(n_agents=M, n_arms=K, dim=D), options.run(48, 15_000, 100_000, seeds=(2, 8, 100))
    chosen = options.pick(slice(1, 2), slice(99), slice(99))
    private, open_ = (dict(list(algorithms(privacy).items())[chosen]) for privacy in (BUDGET, None))
    result, curves = fb.sweep(env, private, grid=dict(epsilon=EPSILONS), **run), []
    print(f"{result.summary()}\n{result.certificates[result.labels[-1]]}", flush=True)
    without = fb.sweep(env, open_, **run)
    print(without.summary(), flush=True)
    for epsilon in (None, *EPSILONS):
        panel = f"ε = {epsilon:g}" if epsilon else OPEN
        for name, colour, mark in zip(private, fb.plotting.COLOURS, "os^D"):
            one = at(result, name, epsilon=epsilon) if epsilon else without[name]
            (drawn,) = of_result(one, panel)
            curves.append(Curve(panel, name, drawn.x, drawn.y, f"{colour} {':' if epsilon else '-'} {mark}"))
        x = curves[-1].x
        curves.append(Curve(panel, CHANCE, x, random_play(env) * x, "#999999 :"))
    return curves


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_gossip", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 4.6))
    horizon, n = curves[0].x[-1], curves[0].n_seeds
    where = [*(f"ε = {epsilon:g}" for epsilon in EPSILONS), OPEN]
    names = list(dict.fromkeys(one.label for one in curves if one.label != CHANCE))
    base = [pick(curves, panel, names[0])[0].y[-1] for panel in where]
    for i, name in enumerate(names):
        ends = [pick(curves, panel, name)[0] for panel in where]
        colour, _, mark = ends[0].style.split()
        look: dict[str, Any] = dict(fmt=mark, markersize=5, capsize=2, color=colour)
        x = np.arange(len(where)) + 0.12 * (i - 1.5)
        axes[0].errorbar(x, [one.mean[-1] for one in ends], [one.error[-1] for one in ends], **look, label=name)
        if i:
            ratio, error = zip(*(quotient(one.y[-1], of) for one, of in zip(ends, base)))
            axes[1].errorbar(x, ratio, error, **look)
    axes[0].axhline(curves[-1].mean[-1], label=CHANCE, **REFERENCE)
    axes[1].axhline(1, color="#000000", linewidth=1)
    over = [one for panel in (where[-2], OPEN) for one in pick(curves, panel) if one.label != CHANCE or panel == OPEN]
    draw([dataclasses.replace(one, label="_") for one in over], axes[2])
    axes[2].set(xscale="log", yscale="log", xlabel="round $t$", xlim=(10, None), ylim=(10, None))
    ends = [one.mean[-1] for one in over if one.panel == where[-2]]
    words = f"{where[-2]}: all {len(ends)} within {max(ends) / min(ends) - 1:.0%} at T"
    axes[2].text(0.03, 0.97, words, transform=axes[2].transAxes, va="top", fontsize="small")
    for ax in axes[:2]:
        ax.set(xticks=range(len(where)), xticklabels=[one.replace(" p", "\np") for one in where], yscale="log")
        ax.tick_params("x", labelsize="small")
    axes[1].set(yticks=(1, 2, 3, 5), yticklabels=(1, 2, 3, 5))
    axes[1].minorticks_off()
    titles = (
        f"(a) group regret, T = {horizon:,.0f}",
        "(b) regret over that of a controller",
        "(c) group regret over rounds",
    )
    for ax, title, label in zip(axes, titles, ("group regret at T", "ratio", "group regret up to $t$")):
        ax.set_title(title)
        ax.set_ylabel(label)
    legend_of_all(figure, ncols=5)
    headline(
        figure,
        "Without privacy the network matters, under noise hardly",
        f"FedUCB without a server: M = {M}, K = {K}, d = {D}, gap 0.1, D = 20, δ = 0.1; mean of {n} seeds ± 1 standard "
        f"error\nγ: hops of a message, χ: cliques; (c) solid: not private; dotted: {where[-2]}, no privacy claim",
    )
    seen = []
    for panel in dict.fromkeys(one.panel for one in curves):
        base, *others = (one for one in pick(curves, panel) if one.label != CHANCE)
        ratios = [(one.label.split(",")[0], *interval(one.y[-1] / base.y[-1])) for one in others]
        over = ", ".join(f"{name} {ratio:.2f} ± {half:.2f}" for name, ratio, half in ratios)
        seen.append(f"{panel}, over {base.label}: {over}")
    found = "; ".join(seen) + " (95 % intervals)"
    claim = "without a server regret is larger by a factor sqrt(chi gamma), which is 1 on a complete graph"
    caption(figure, "Dubey & Pentland (2020)", Says("Remark 2", claim, "no experiment in the paper", found))
    save("dubey2020_gossip", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
