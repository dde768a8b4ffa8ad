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
import tyro
from curves import Curve, exponent, pick
from drawing import Says, caption, headline, legend_of_all, save, slope
from matplotlib.axes import Axes
from options import DubeyOptions

import fedbandit_jax as fb

M, K, D, GAMMAS = 16, 10, 5, (1, 2, 3, 4)
COMMON: dict[str, Any] = dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / M))
REGRET, HOPS, PRODUCT = "group regret", "messages times hops", "group regret against chi gamma"
TITLES = {REGRET: "(a) group regret", HOPS: "(b) messages × hops", PRODUCT: "(c) group regret against χγ"}
NAMES = {"erdos_renyi": "Erdős–Rényi", "hierarchical": "binary tree"}
ALONE = {"controller": "#555555 -", "nobody talks": "#BBBBBB -"}


def colouring(name: str, gamma: int) -> fb.networks.Network:
    """Returns the cliques of a graph whose messages live gamma hops, or as many as its diameter."""
    graph = fb.networks.make(name, M)
    return fb.networks.network(graph, min(gamma, max(1, nx.diameter(graph))))


def draw(name: str, ax: Axes, gamma: int) -> None:
    """Draws a graph, coloured by clique."""
    graph, network = fb.networks.make(name, M), colouring(name, gamma)
    sparse = name in ("line", "ring", "grid", "star", "hierarchical")
    layout = nx.kamada_kawai_layout(graph) if sparse else nx.circular_layout(graph)
    colours = plt.get_cmap("tab20")(network.clique % 20)
    nx.draw_networkx(graph, layout, ax=ax, node_color=colours, node_size=30, with_labels=False, edge_color="#999999")
    title = f"{NAMES.get(name, name)}\n{network.n_cliques} clique{'s' * (network.n_cliques > 1)}"
    ax.set_title(title, fontsize="small")
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
    result = fb.sweep(env, algos, **run)
    print(result.summary())
    regret, curves = {label: result[label].regret[:, -1] for label in result}, []
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
    curves += [Curve(REGRET, name, [0], [regret[name]], look, note) for name, look in ALONE.items()]
    return curves


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_networks", lambda: measure(options))
    figure = plt.figure(figsize=(11.0, 6.9))
    halves: Any = figure.subfigures(2, 1, height_ratios=(1, 2.6))
    names = [one.label for one in pick(curves, HOPS)]
    for ax, name in zip(halves[0].subplots(1, len(names), squeeze=False)[0], names):
        draw(name, ax, 2)
    left, middle, right = axes = halves[1].subplots(1, 3)
    for title, ax in zip((REGRET, HOPS, PRODUCT), axes):
        for i, one in enumerate(pick(curves, title)):
            colour, line, *marker = one.style.split()
            if not marker:
                ax.axhline(one.mean[0], color=colour, linestyle=line, label=one.label)
                continue
            line, apart = ("", 1.0) if title == PRODUCT else (line, 0.02 * (i - 3) + 1)
            look: dict[str, Any] = dict(color=colour, label=NAMES.get(one.label, one.label), markersize=5, capsize=2)
            ax.errorbar(one.x * apart, one.mean, one.error, fmt=f"{marker[0]}{line}", **look)
        ax.set(xlabel="time to live γ, in hops (points set apart)", yscale="log")
        ax.set_title(TITLES[title])
    for ax in (left, middle):
        ax.set(xticks=GAMMAS, xlim=(0.8, GAMMAS[-1] + 0.3))
    every = pick(curves, PRODUCT)
    order = np.argsort(x := np.concatenate([one.x for one in every]), kind="stable")
    whole = Curve("", "", x[order], np.concatenate([one.y for one in every])[order])
    power, half = exponent(whole)
    fit = np.exp(np.mean(np.log(whole.mean)) + power * (np.log(whole.x) - np.log(whole.x).mean()))
    right.plot(whole.x, fit, color="#333333", linewidth=1, label=f"(c) fit: $(χγ)^{{{power:.2f} \\pm {half:.2f}}}$")
    slope(right, 0.5, whole.x, fit[0], "(c) $(χγ)^{0.5}$, as in Theorem 2")
    right.set(xscale="log", xlabel="cliques × time to live, χγ")
    legend_of_all(figure, ncols=4)
    n, size = every[0].n_seeds, every[0].note
    headline(
        figure,
        "Regret grows with cliques and hops of a network",
        f"FedUCB without a controller: M = {M}, K = {K}, d = {D}, gap 0.1, D = 20, {size}, not private; mean of {n} "
        "seeds ± 1 standard error\nabove: a colour for each clique at γ = 2; exponent ± half of its 95 % interval",
    )
    complete, control = pick(curves, REGRET, "complete"), pick(curves, REGRET, "controller")[0]
    word = "more than 0.5" if power - half > 0.5 else "less than 0.5" if power + half < 0.5 else "undecided"
    found = f"over all graphs regret grows as (chi gamma)^({power:.2f} ± {half:.2f}), {word}"
    if complete:
        over, error = complete[0].mean[0], complete[0].error[0]
        found += (
            f"; complete graph {over:,.0f} ± {error:,.0f}, controller {control.mean[0]:,.0f} ± {control.error[0]:,.0f}"
        )
    claim = "without a server regret is larger by a factor sqrt(chi gamma), as with a controller on a complete graph"
    caption(halves[1], "Dubey & Pentland (2020)", Says("Theorem 2", claim, "no experiment in the paper", found))
    save("dubey2020_networks", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
