"""Draws regret of FedUCB without a controller (Algorithm 3 of Dubey & Pentland, 2020) against graph and time to live.

python experiments/dubey2020_networks.py [--smoke | --full]

Messages are dropped after gamma hops. Above: the graphs; agents of one colour are a clique (at gamma = 2 all are within
two hops) and answer each other's requests. Below: group regret, and messages times hops, against gamma; the grey lines
are a controller, and agents who never talk. With a larger gamma cliques are larger, so that fewer of them (chi) cover
the graph, but what is learned is split over gamma estimators: the paper's factor is sqrt(chi gamma).
"""

from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import tyro
from common import Size, mean_error, save
from matplotlib.axes import Axes

import fedbandit_jax as fb

M, GAMMAS = 16, (1, 2, 3, 4)
COMMON: dict[str, Any] = dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / M))


def draw(name: str, ax: Axes, gamma: int) -> None:
    """Draws a graph, coloured by clique."""
    graph = fb.networks.make(name, M)
    network = fb.networks.network(graph, min(gamma, max(1, nx.diameter(graph))))
    sparse = name in ("line", "ring", "grid", "hierarchical")
    layout = nx.kamada_kawai_layout(graph) if sparse else nx.circular_layout(graph)
    colours = plt.get_cmap("tab20")(network.clique % 20)
    nx.draw_networkx(graph, layout, ax=ax, node_color=colours, node_size=70, with_labels=False, edge_color="#999999")
    ax.set_title(f"{name}, cliques at γ=2: {network.n_cliques}", fontsize="small")
    ax.axis("off")


def curve(ax: Axes, name: str, gammas: list[int], values: dict[str, np.ndarray], i: int) -> None:
    """Draws the mean and standard error over seeds against gamma; i sets the curve apart from others."""
    mean, error = mean_error(np.stack([values[f"{name}, γ={gamma}"] for gamma in gammas], axis=1))
    style, colour = "os^vDPX"[i] + ("-", "--")[i % 2], fb.plotting.COLOURS[i]
    ax.errorbar(np.array(gammas) + 0.03 * (i - 3), mean, error, fmt=style, color=colour, label=name)


def main(options: Size) -> None:
    env = fb.envs.gap(n_agents=M, n_arms=10, dim=5)
    chosen: dict[str, list[int]] = {}
    algos: dict[str, fb.Algorithm] = {
        "controller": fb.algos.fed_ucb(**COMMON),
        "nobody talks": fb.algos.GossipFedUCB(graph=nx.empty_graph(M), **COMMON),
    }
    for name in options.pick(("star",), tuple(fb.networks.GRAPHS), tuple(fb.networks.GRAPHS)):
        graph = fb.networks.make(name, M)
        chosen[name] = [gamma for gamma in GAMMAS if gamma <= nx.diameter(graph)]
        algos |= {f"{name}, γ={g}": fb.algos.GossipFedUCB(graph=graph, gamma=g, **COMMON) for g in chosen[name]}
    result = fb.sweep(env, algos, **options.run(48, 3_000, 24_000))
    regret = {label: result[label].regret[:, -1] for label in result}
    hops = {label: result[label].counts["hops"][:, -1] for label in result}
    figure = plt.figure(figsize=(14.0, 8.0), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1, 2))
    above, below = halves
    for ax, name in zip(above.subplots(1, len(chosen), squeeze=False)[0], chosen):
        draw(name, ax, 2)
    left, right = below.subplots(1, 2)
    for i, (name, gammas) in enumerate(chosen.items()):
        for ax, values in ((left, regret), (right, hops)):
            curve(ax, name, gammas, values, i)
    for label, style in (("controller", "--"), ("nobody talks", ":")):
        left.axhline(regret[label].mean(), color="grey", linestyle=style, label=label)
    left.set(xlabel="time to live γ", ylabel=f"group regret after {result.rounds[-1]} rounds", xticks=GAMMAS)
    right.set(xlabel="time to live γ", ylabel="messages × hops", yscale="log", xticks=GAMMAS)
    right.legend(*left.get_legend_handles_labels(), fontsize="small", ncols=2, loc="lower right")
    print(result.summary())
    if not options.smoke:
        result.save("results/dubey2020_networks")
    save("dubey2020_networks", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
