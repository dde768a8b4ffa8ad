"""Draws regret of FedUCB without a controller (Algorithm 3 of Dubey & Pentland, 2020) against graph and time to live.

Messages are dropped after gamma hops. With a larger gamma fewer cliques (chi) cover the graph, but gamma estimators
share the data. The paper's factor is sqrt(chi gamma). Agents of a clique answer each other's requests.
"""

from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from curves import Curve, exponent, final, pick, pm, the
from drawing import REFERENCE, Panel, Picture, Says, main, slope
from matplotlib.axes import Axes
from options import DubeyOptions

import fedbandit_jax as fb

M, K, D, GAMMAS = 16, 10, 5, (1, 2, 3, 4)
COMMON: dict[str, Any] = dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / M))
REGRET, HOPS, PRODUCT = "group regret", "messages times hops", "group regret against chi gamma"
NAMES = {"erdos_renyi": "Erdős–Rényi", "hierarchical": "binary tree"}
ALONE = ("controller", "nobody talks")
CLAIM = "without a server regret is larger by a factor sqrt(chi gamma), as with a controller on a complete graph"


def cliques(name: str, gamma: int) -> fb.networks.Network:
    """Returns the cliques of a graph whose messages live gamma hops, or as many as its diameter."""
    graph = fb.networks.make(name, M)
    return fb.networks.network(graph, min(gamma, max(1, nx.diameter(graph))))


def draw(names: list[str], ax: Axes) -> None:
    """Draws graphs side by side, coloured by clique at gamma = 2."""
    for i, name in enumerate(names):
        graph, network = fb.networks.make(name, M), cliques(name, 2)
        sparse = name in ("line", "ring", "grid", "star", "hierarchical")
        layout = nx.kamada_kawai_layout(graph) if sparse else nx.circular_layout(graph)
        layout = {node: place + np.array([2.4 * i, 0]) for node, place in layout.items()}
        look: Any = dict(node_color=plt.get_cmap("tab20")(network.clique % 20), node_size=9, edge_color="#999999")
        nx.draw_networkx(graph, layout, ax=ax, with_labels=False, **look)
        ax.text(2.4 * i, 1.15, f"{NAMES.get(name, name)}: {len(network.sizes)}", ha="center", fontsize="small")
    ax.axis("off")


def measure(options: DubeyOptions) -> list[Curve]:
    names, run = options.pick(("star",), *[tuple(fb.networks.GRAPHS)] * 2), options.run(48, 3_000, 24_000)
    graphs, curves = {name: fb.networks.make(name, M) for name in names}, []
    chosen = {name: [gamma for gamma in GAMMAS if gamma <= nx.diameter(graph)] for name, graph in graphs.items()}
    made: Any = fb.algos.GossipFedUCB
    algos = dict(zip(ALONE, (fb.algos.fed_ucb(**COMMON), made(graph=nx.empty_graph(M), **COMMON))))
    for name, graph in graphs.items():
        algos |= {f"{name}, γ={g}": made(graph=graph, gamma=g, **COMMON) for g in chosen[name]}
    result = options.sweep(fb.envs.gap(n_agents=M, n_arms=K, dim=D), algos, **run)
    note = f"T = {run['horizon']:,}"
    for i, (name, gammas) in enumerate(chosen.items()):
        style, of = f"{fb.plotting.COLOURS[i]} - {'os^vDPX'[i]}", [result[f"{name}, γ={g}"] for g in gammas]
        regret, hops = [final(one) for one in of], [one.counts["hops"][:, -1] for one in of]
        product = [len(cliques(name, g).sizes) * g for g in gammas]
        points = {REGRET: (gammas, regret), HOPS: (gammas, hops), PRODUCT: (product, regret)}
        curves += [Curve(panel, name, *values, style, note) for panel, values in points.items()]
    return curves + [Curve(REGRET, name, [0], [final(result[name])], note=note) for name in ALONE]


def picture(curves: list[Curve]) -> Picture:
    every = pick(curves, PRODUCT)
    x = np.concatenate([one.x for one in every])
    order = np.argsort(x, kind="stable")
    whole = Curve("", "", x[order], np.concatenate([one.y for one in every])[order])
    power, half = exponent(whole)
    fit = np.exp(np.mean(np.log(whole.mean)) + power * (np.log(whole.x) - np.log(whole.x).mean()))
    live: dict[str, Any] = dict(xlabel="time to live γ, in hops", yscale="log", xticks=GAMMAS, spread=0.02)
    named = [one.but(label=NAMES.get(one.label, one.label)) for one in curves if one.label not in ALONE]
    shown = [Panel(pick(named, panel), panel.replace("times", "×"), **live) for panel in (REGRET, HOPS)]

    def alone(ax: Axes) -> None:
        for one in (the(curves, REGRET, name) for name in ALONE):
            ax.axhline(one.mean[0], **REFERENCE)
            place: Any = dict(xycoords=("axes fraction", "data"), textcoords="offset points", ha="center", size="small")
            ax.annotate(one.label, (0.5, one.mean[0]), (0, 2), **place)

    def lines(ax: Axes) -> None:
        ax.plot(whole.x, fit, color="#333333", linewidth=1, label=f"(c) fit: $(χγ)^{{{power:.2f} \\pm {half:.2f}}}$")
        slope(ax, 0.5, whole.x, fit[0], "(c) $(χγ)^{0.5}$, as in Theorem 2")

    shown[0].also = alone
    axes: Any = dict(label="", xscale="log", yscale="log", look=dict(linestyle="none"), also=lines)
    shown.append(Panel(every, "group regret against χγ", "cliques × time to live, χγ", **axes))
    shown.append(Panel([], "cliques at γ = 2", also=lambda ax: draw([one.label for one in every], ax)))
    word = "more than 0.5" if power - half > 0.5 else "less than 0.5" if power + half < 0.5 else "undecided"
    seen = f"over all graphs regret grows as (chi gamma)^({pm(power, half)}), {word}"
    for name in ("complete", "controller"):
        seen += "".join(f"; {name} {one.said(0)}" for one in pick(curves, REGRET, name))
    says = Says("Theorem 2", CLAIM, "no experiment in the paper", seen)
    setting = f"""FedUCB without a controller, with M = {M}, K = {K}, d = {D}, gap 0.1, D = 20, {every[0].note}, not
        private. Mean of {every[0].n_seeds} seeds ± one standard error, exponent ± half of its 95 % interval. Graphs
        have a colour for each clique at γ = 2"""
    layout: Any = dict(height=4.6, mosaic="abc;ddd", grid=dict(height_ratios=(3, 1)))
    return Picture(shown, "Regret grows with cliques and hops of a network", setting, [says], **layout)


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
