"""Draws what privacy costs FedUCB without a server (Algorithm 3 of Dubey & Pentland, 2020), by network.

python experiments/dubey2020_gossip.py [--smoke | --full]

Every agent adds noise to its own sums before it sends them to its neighbours, by one tree for each of its gamma
estimators. The paper draws nothing without a server; Remark 2 has regret grow like sqrt(chi gamma), where chi cliques
cover the graph. Left: group regret against epsilon (dashed: not private). Right: the same over rounds. Without noise
the network matters; with it hardly, in so few rounds. The certificate, which is printed, claims nothing, as raw
statistics decide when an agent asks; epsilon is that of the noise on its messages.
"""

from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import tyro
from common import DubeyOptions, at, mean_error, save

import fedbandit_jax as fb

M, K, D, EPSILONS = 8, 10, 5, (1.0, 5.0, 20.0)
BUDGET = fb.privacy.Budget(1.0, 0.1)
NETWORKS = {"complete": 1, "ring": 1}  # graph -> hops after which a message is dropped, gamma
COMMON: dict[str, Any] = dict(schedule=fb.schedules.LogDet(20.0), policy=fb.algos.LogDetUCB(regularization=1 / M))


def algorithms(privacy: fb.privacy.Budget | None) -> dict[str, fb.Algorithm]:
    """Returns FedUCB with a controller, on every network, and on one without an edge."""
    algos: dict[str, fb.Algorithm] = {"controller": fb.algos.fed_ucb(privacy, **COMMON)}
    for name, gamma in NETWORKS.items():
        graph = fb.networks.make(name, M)
        chi = fb.networks.network(graph, gamma).n_cliques
        label = f"{name}, γ = {gamma}, χ = {chi}"
        algos[label] = fb.algos.GossipFedUCB(graph=graph, gamma=gamma, privacy=privacy, **COMMON)
    return algos | {"nobody talks": fb.algos.GossipFedUCB(graph=nx.empty_graph(M), privacy=privacy, **COMMON)}


def main(options: DubeyOptions) -> None:
    env, run = fb.envs.gap(n_agents=M, n_arms=K, dim=D), options.run(48, 15_000, 100_000, seeds=(2, 2, 100))
    chosen = options.pick(slice(1, 2), slice(99), slice(99))
    private, plain = (dict(list(algorithms(privacy).items())[chosen]) for privacy in (BUDGET, None))
    result, plain = fb.sweep(env, private, grid=dict(epsilon=EPSILONS), **run), fb.sweep(env, plain, **run)
    figure, (left, right) = plt.subplots(1, 2, figsize=(13.5, 6.0), layout="constrained")
    for (name, colour), marker in zip(zip(private, fb.plotting.COLOURS), "os^vD"):
        ones = [at(result, name, epsilon=epsilon) for epsilon in EPSILONS]
        mean, error = zip(*(mean_error(one.regret[:, -1]) for one in ones))
        own, of_own = mean_error(plain[name].regret[:, -1])
        print(
            f"{name}: not private {own:,.0f} ± {of_own:,.0f}, "
            + ", ".join(
                f"ε = {e:g}: {a:,.0f} ± {b:,.0f} ({one.counts['messages'][:, -1].mean():,.0f} messages)"
                for e, a, b, one in zip(EPSILONS, mean, error, ones)
            )
        )
        left.errorbar(EPSILONS, mean, error, fmt=marker + "-", markersize=5, color=colour, label=name)
        left.axhline(own, linestyle="--", linewidth=1, color=colour)
        for one, style in zip((*ones, plain[name]), ("-", "-", "-", "--")):
            right.plot(one.rounds, one.regret.mean(0), style, color=colour, linewidth=1)
    limit = (K - 1) / K * 0.2 * M
    left.axhline(limit * run["horizon"], linestyle=":", color="#999999", label="an arm at random")
    right.plot(result.rounds, limit * np.asarray(result.rounds), ":", color="#999999")
    left.set(xscale="log", yscale="log", xlabel="$\\varepsilon$ of the noise on messages", title="dashed: not private")
    left.set_ylabel(f"group regret after {run['horizon']:,} rounds, ± one standard error")
    left.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
    left.legend(fontsize="small")
    right.set(xscale="log", yscale="log", xlabel="round $t$", ylabel="group regret, mean over seeds")
    right.set_title("over rounds: ε = 1, 5 and 20 from above; dashed: not private")
    certificate = result.certificates[result.labels[-1]]
    figure.suptitle(
        f"FedUCB without a server: M = {M}, K = {K}, d = {D}, gap 0.1, D = 20, δ = 0.1, {run['seeds']} seeds; "
        f"certificate: claim {certificate.claim}, as raw statistics decide when an agent asks",
        fontsize="medium",
    )
    print(f"\nCertificate of the last\n{certificate}")
    save("dubey2020_gossip", options, figure)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
