"""Draws what privacy costs FedUCB without a server (Algorithm 3 of Dubey & Pentland, 2020), by network.

Agents add noise to their sums before they send them to neighbours, by one tree for each of gamma estimators. Nothing is
certified, as raw statistics decide when an agent asks. Remark 2 has regret grow like sqrt(chi gamma).
"""

from typing import Any

import networkx as nx
from curves import Curve, lasts, of_result, pick, random_play, ratio
from drawing import CHANCE, Panel, Picture, Says, main
from options import DubeyOptions

import fedbandit_jax as fb

M, K, D, EPSILONS, OPEN = 8, 10, 5, (1.0, 5.0, 20.0), "not private"
NETWORKS = {"complete": 1, "ring": 1}  # graph -> hops after which a message is dropped, gamma
COMMON: dict[str, Any] = dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / M))
CLAIM = "without a server regret is larger by a factor sqrt(chi gamma), which is 1 on a complete graph"


def algorithms(privacy: fb.privacy.Budget | None, chosen: slice) -> dict[str, fb.Algorithm]:
    """Returns FedUCB with a controller, on every network, and on one without an edge."""
    algos: dict[str, fb.Algorithm] = {"controller": fb.algos.fed_ucb(privacy, **COMMON)}
    for name, gamma in NETWORKS.items():
        graph = fb.networks.make(name, M)
        label = f"{name}, γ = {gamma}, χ = {len(fb.networks.network(graph, gamma).sizes)}"
        algos[label] = fb.algos.GossipFedUCB(graph=graph, gamma=gamma, privacy=privacy, **COMMON)
    algos["nobody talks"] = fb.algos.GossipFedUCB(graph=nx.empty_graph(M), privacy=privacy, **COMMON)
    return dict(list(algos.items())[chosen])


def measure(options: DubeyOptions) -> list[Curve]:
    env, run = fb.envs.gap(n_agents=M, n_arms=K, dim=D), options.run(48, 15_000, 100_000, seeds=(2, 8, 100))
    chosen, curves = options.pick(slice(1, 2), slice(99), slice(99)), []
    private, open_ = (algorithms(privacy, chosen) for privacy in (fb.privacy.Budget(1.0, 0.1), None))
    result = options.sweep(env, private, grid=dict(epsilon=EPSILONS), **run)
    print(result.certificates[result.labels[-1]])
    without = options.sweep(env, open_, **run)
    for epsilon in (None, *EPSILONS):
        panel = f"ε = {epsilon:g}" if epsilon else OPEN
        for name, colour, mark in zip(private, fb.plotting.COLOURS, "os^D"):
            one = result[f"{name}(epsilon={epsilon})"] if epsilon else without[name]
            look = f"{colour} {':' if epsilon else '-'} {mark}"
            curves += [drawn.but(label=name, style=look) for drawn in of_result(one, panel)]
        x = curves[-1].x
        curves.append(Curve(panel, CHANCE, x, random_play(env) * x, "#999999 :"))
    return curves


def picture(curves: list[Curve]) -> Picture:
    horizon, where = curves[0].x[-1], [*(f"ε = {epsilon:g}" for epsilon in EPSILONS), OPEN]
    names = list(dict.fromkeys(one.label for one in curves if one.label != CHANCE))
    ends = [lasts([pick(curves, panel, name)[0] for panel in where], name, range(len(where))) for name in names]
    control, *others = ends
    axes: dict[str, Any] = dict(yscale="log", spread=0.12, look=dict(linestyle="none"))
    axes["xticks"] = dict(enumerate(one.replace(" p", "\np") for one in where))
    level = {CHANCE: curves[-1].mean[-1]}
    left = Panel(ends, f"group regret, T = {horizon:,.0f}", "", "group regret at T", level=level, **axes)
    over = [one.over(control.y) for one in others]
    middle = Panel(over, "regret over a controller's", "", "ratio", label="", yticks=(1, 2, 3, 5), **axes)
    runs = [one for panel in (where[-2], OPEN) for one in pick(curves, panel) if one.label != CHANCE]
    words = f"not private, and dotted {where[-2]}", "round $t$", "group regret up to $t$"
    axes = dict(xscale="log", yscale="log", xlim=(10, None), ylim=(10, None))
    right, seen = Panel(runs, *words, kind="lines", label="", **axes), []
    for i, panel in enumerate(where):
        found = ", ".join(f"{one.label.split(',')[0]} {ratio(one.y[i], control.y[i])}" for one in others)
        seen.append(f"{panel}, over {control.label}: {found}")
    says = Says("Remark 2", CLAIM, "no experiment in the paper", "; ".join(seen) + " (± one standard error)")
    setting = f"""FedUCB without a server, with M = {M}, K = {K}, d = {D}, gap 0.1, D = 20 and δ = 0.1. Mean of
        {curves[0].n_seeds} seeds ± one standard error. γ is the number of hops of a message, χ the number of cliques.
        Dotted: no privacy claim"""
    title = "Without privacy the network matters, under noise hardly"
    return Picture([left, middle, right], title, setting, [says])


if __name__ == "__main__":
    main(measure, picture, __doc__, DubeyOptions)
