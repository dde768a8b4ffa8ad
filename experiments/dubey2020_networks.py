"""Draws regret of FedUCB without a controller (Algorithm 3 of Dubey & Pentland, 2020) against graph and time to live.

python experiments/dubey2020_networks.py [--smoke | --full] [--redraw]

Messages are dropped after gamma hops. Above: the graphs; agents of one colour are a clique (at gamma = 2 all are within
two hops) and answer each other's requests. (a) Group regret and (b) messages times hops, against gamma; the grey lines
are a controller, and agents who never talk. With a larger gamma cliques are larger, so that fewer of them (chi) cover
the graph, but what is learned is split over gamma estimators: the paper's factor is sqrt(chi gamma). (c) Regret
against chi gamma, where all graphs lie on one line. Nothing is private.
"""

from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from curves import Curve, exponent, final, pick, pm, the
from drawing import Panel, Picture, Says, main, slope
from matplotlib.axes import Axes
from options import DubeyOptions

import fedbandit_jax as fb

M, K, D, GAMMAS = 16, 10, 5, (1, 2, 3, 4)
COMMON: dict[str, Any] = dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / M))
REGRET, HOPS, PRODUCT = "group regret", "messages times hops", "group regret against chi gamma"
NAMES = {"erdos_renyi": "Erdős–Rényi", "hierarchical": "binary tree"}
ALONE = {"controller": "lower", "nobody talks": "upper"}


def colouring(name: str, gamma: int) -> fb.networks.Network:
    """Returns the cliques of a graph whose messages live gamma hops, or as many as its diameter."""
    graph = fb.networks.make(name, M)
    return fb.networks.network(graph, min(gamma, max(1, nx.diameter(graph))))


def draw(names: list[str], ax: Axes) -> None:
    """Draws graphs side by side, coloured by clique at gamma = 2."""
    for i, name in enumerate(names):
        graph, network = fb.networks.make(name, M), colouring(name, 2)
        sparse = name in ("line", "ring", "grid", "star", "hierarchical")
        layout = nx.kamada_kawai_layout(graph) if sparse else nx.circular_layout(graph)
        layout = {node: place + np.array([2.4 * i, 0]) for node, place in layout.items()}
        look: Any = dict(node_color=plt.get_cmap("tab20")(network.clique % 20), node_size=9, edge_color="#999999")
        nx.draw_networkx(graph, layout, ax=ax, with_labels=False, **look)
        ax.text(2.4 * i, 1.15, f"{NAMES.get(name, name)}: {network.n_cliques}", ha="center", fontsize="small")
    ax.axis("off")


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns regret and messages against gamma for every graph, and regret against chi gamma."""
    env = fb.envs.gap(n_agents=M, n_arms=K, dim=D)
    chosen: dict[str, list[int]] = {}
    algos: dict[str, fb.Algorithm] = {
        "controller": fb.algos.fed_ucb(**COMMON),
        "nobody talks": fb.algos.GossipFedUCB(graph=nx.empty_graph(M), **COMMON),
    }
    for name in options.pick(("star",), tuple(fb.networks.GRAPHS), tuple(fb.networks.GRAPHS)):
        graph = fb.networks.make(name, M)
        chosen[name] = [gamma for gamma in GAMMAS if gamma <= nx.diameter(graph)]
        algos |= {f"{name}, γ={g}": fb.algos.GossipFedUCB(graph=graph, gamma=g, **COMMON) for g in chosen[name]}
    run = options.run(48, 3_000, 24_000)
    result = options.sweep(env, algos, **run)
    regret, curves = {label: final(result[label]) for label in result}, []
    note = f"T = {run['horizon']:,}"
    for i, (name, gammas) in enumerate(chosen.items()):
        style, of = f"{fb.plotting.COLOURS[i]} - {'os^vDPX'[i]}", [f"{name}, γ={g}" for g in gammas]
        hops = [result[label].counts["hops"][:, -1] for label in of]
        product = [colouring(name, g).n_cliques * g for g in gammas]
        curves += [
            Curve(REGRET, name, gammas, [regret[label] for label in of], style, note),
            Curve(HOPS, name, gammas, hops, style, note),
            Curve(PRODUCT, name, product, [regret[label] for label in of], style, note),
        ]
    curves += [Curve(REGRET, name, [0], [regret[name]], note=note) for name in ALONE]
    return curves


def picture(curves: list[Curve]) -> Picture:
    every = pick(curves, PRODUCT)
    x = np.concatenate([one.x for one in every])
    order = np.argsort(x, kind="stable")
    whole = Curve("", "", x[order], np.concatenate([one.y for one in every])[order])
    power, half = exponent(whole)
    fit = np.exp(np.mean(np.log(whole.mean)) + power * (np.log(whole.x) - np.log(whole.x).mean()))
    live: dict[str, Any] = dict(xlabel="time to live γ, in hops", yscale="log", xticks=GAMMAS, spread=0.02)
    shown = []
    for title, words in ((REGRET, "group regret"), (HOPS, "messages × hops")):
        ones = [one.but(label=NAMES.get(one.label, one.label)) for one in pick(curves, title) if one.label not in ALONE]
        shown.append(Panel(ones, words, **live))
    shown[0].level = {f"(a) {name}, {side} line": the(curves, REGRET, name).mean[0] for name, side in ALONE.items()}
    last = Panel(every, "group regret against χγ", "cliques × time to live, χγ", label="", xscale="log", yscale="log")
    last.look = dict(linestyle="none")

    def lines(ax: Axes) -> None:
        ax.plot(whole.x, fit, color="#333333", linewidth=1, label=f"(c) fit: $(χγ)^{{{power:.2f} \\pm {half:.2f}}}$")
        slope(ax, 0.5, whole.x, fit[0], "(c) $(χγ)^{0.5}$, as in Theorem 2")

    last.also = lines
    word = "more than 0.5" if power - half > 0.5 else "less than 0.5" if power + half < 0.5 else "undecided"
    seen = f"over all graphs regret grows as (chi gamma)^({pm(power, half)}), {word}"
    for name in ("complete", "controller"):
        seen += "".join(f"; {name} {one.said(0)}" for one in pick(curves, REGRET, name))
    claim = "without a server regret is larger by a factor sqrt(chi gamma), as with a controller on a complete graph"
    graphs = Panel([], "cliques at γ = 2", also=lambda ax: draw([one.label for one in every], ax))
    return Picture(
        [*shown, last, graphs],
        "Regret grows with cliques and hops of a network",
        f"FedUCB without a controller, with M = {M}, K = {K}, d = {D}, gap 0.1, D = 20, {every[0].note}, not private. "
        f"Mean of {every[0].n_seeds} seeds ± one standard error, exponent ± half of its 95 % interval. Graphs have "
        "a colour for each clique at γ = 2",
        [Says("Theorem 2", claim, "no experiment in the paper", seen)],
        height=4.6,
        mosaic="abc;ddd",
        ncols=4,
        grid=dict(height_ratios=(3, 1)),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
