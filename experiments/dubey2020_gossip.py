"""Draws what privacy costs FedUCB without a server (Algorithm 3 of Dubey & Pentland, 2020), by network.

python experiments/dubey2020_gossip.py [--smoke | --full] [--redraw]

Every agent adds noise to its own sums before it sends them to its neighbours, by one tree for each of its gamma
estimators. The paper draws nothing without a server; Remark 2 has regret grow like sqrt(chi gamma), where chi cliques
cover the graph. Left: group regret against epsilon (dashed: not private). Right: the same over rounds at the largest
epsilon, and without privacy. Without noise the network matters; with it hardly, in so few rounds. The certificate,
which is printed, claims nothing, as raw statistics decide when an agent asks; epsilon is that of the noise on messages.
"""

from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import tyro
from common import DubeyOptions, Says, at, caption, draw, legend_below, random_play, save
from curves import Curve, interval, of_result, pick

import fedbandit_jax as fb

M, K, D, EPSILONS = 8, 10, 5, (1.0, 5.0, 20.0)
BUDGET = fb.privacy.Budget(1.0, 0.1)
NETWORKS = {"complete": 1, "ring": 1}  # graph -> hops after which a message is dropped, gamma
COMMON: dict[str, Any] = dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / M))
OPEN, CHANCE = "not private", "an arm at random"


def algorithms(privacy: fb.privacy.Budget | None) -> dict[str, fb.Algorithm]:
    """Returns FedUCB with a controller, on every network, and on one without an edge."""
    algos: dict[str, fb.Algorithm] = {"controller": fb.algos.fed_ucb(privacy, **COMMON)}
    for name, gamma in NETWORKS.items():
        graph = fb.networks.make(name, M)
        chi = fb.networks.network(graph, gamma).n_cliques
        label = f"{name}, γ = {gamma}, χ = {chi}"
        algos[label] = fb.algos.GossipFedUCB(graph=graph, gamma=gamma, privacy=privacy, **COMMON)
    return algos | {"nobody talks": fb.algos.GossipFedUCB(graph=nx.empty_graph(M), privacy=privacy, **COMMON)}


def measure(options: DubeyOptions) -> list[Curve]:
    """Returns group regret over rounds of every network, with a panel for each epsilon and one without privacy."""
    env, run = fb.envs.gap(n_agents=M, n_arms=K, dim=D), options.run(48, 15_000, 100_000, seeds=(2, 4, 100))
    chosen = options.pick(slice(1, 2), slice(99), slice(99))
    private, open_ = (dict(list(algorithms(privacy).items())[chosen]) for privacy in (BUDGET, None))
    result, curves = fb.sweep(env, private, grid=dict(epsilon=EPSILONS), **run), []
    print(f"{result.summary()}\n{result.certificates[result.labels[-1]]}", flush=True)
    without = fb.sweep(env, open_, **run)
    print(without.summary(), flush=True)
    for epsilon in (None, *EPSILONS):
        panel = f"ε = {epsilon:g}" if epsilon else OPEN
        for name, colour in zip(private, fb.plotting.COLOURS):
            one = at(result, name, epsilon=epsilon) if epsilon else without[name]
            (drawn,) = of_result(one, panel)
            curves.append(Curve(panel, name, drawn.x, drawn.y, f"{colour} -", drawn.note))
        x = curves[-1].x
        curves.append(Curve(panel, CHANCE, x, random_play(env) * x, "#999999 :"))
    return curves


def main(options: DubeyOptions) -> None:
    curves = options.numbers("dubey2020_gossip", lambda: measure(options))
    figure, (left, right) = plt.subplots(1, 2, figsize=(15.0, 7.6), layout="constrained")
    horizon, n = curves[0].x[-1], curves[0].n_seeds
    for name in dict.fromkeys(one.label for one in curves):
        own, *private = pick(curves, label=name)
        colour, x = own.style.split()[0], [float(one.panel.removeprefix("ε = ")) for one in private]
        if name == CHANCE:
            left.axhline(own.mean[-1], linestyle=":", color=colour, label=name)
            continue
        mean, error = zip(*((one.mean[-1], one.error[-1]) for one in private))
        left.errorbar(x, mean, error, fmt="o-", markersize=5, capsize=2, color=colour, label=name)
        left.axhline(own.mean[-1], linestyle="--", linewidth=1, color=colour)
    left.set(xscale="log", yscale="log", xlabel="$\\varepsilon$ of the noise on messages", title="dashed: not private")
    left.set(ylabel="group regret after T rounds", xticks=EPSILONS, xticklabels=[f"{e:g}" for e in EPSILONS])
    shown = [(f"ε = {EPSILONS[-1]:g}", "-"), (OPEN, "--")]
    over = [one for panel, _ in shown for one in pick(curves, panel)]
    lines = dict(shown)
    draw(
        [
            Curve("", f"{one.label}, {one.panel}", one.x, one.y, f"{one.style.split()[0]} {lines[one.panel]}")
            for one in over
            if one.label != CHANCE
        ],
        right,
    )
    right.plot(over[0].x, pick(over, label=CHANCE)[0].mean[: len(over[0].x)], ":", color="#999999", label=CHANCE)
    right.set(xscale="log", yscale="log", xlabel="round $t$", ylabel="group regret")
    right.set_title(f"over rounds: ε = {EPSILONS[-1]:g}, and not private", fontsize="medium")
    for ax in (left, right):
        legend_below(ax)
    figure.suptitle(
        f"FedUCB without a server: M = {M}, K = {K}, d = {D}, gap 0.1, D = 20, δ = 0.1, T = {horizon:,.0f}, {n} seeds "
        "± 1 standard error\nclaim of private runs: none, as raw statistics decide when an agent asks",
        fontsize="medium",
    )
    seen = []
    for panel in dict.fromkeys(one.panel for one in curves):
        base, *others = (one for one in pick(curves, panel) if one.label != CHANCE)
        ratios = [(one.label.split(",")[0], *interval(one.y[-1] / base.y[-1])) for one in others]
        over = ", ".join(f"{name} {ratio:.2f} ± {half:.2f}" for name, ratio, half in ratios)
        seen.append(f"{panel}, over {base.label}: {over}")
    found = "; ".join(seen) + " (95 % intervals)"
    print(found)
    claim = "without a server regret is larger by a factor sqrt(chi gamma), which is 1 on a complete graph"
    caption(figure, "Dubey & Pentland (2020)", Says("Remark 2", claim, "no experiment in the paper", found))
    save("dubey2020_gossip", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
