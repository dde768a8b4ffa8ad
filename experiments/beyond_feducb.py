"""Draws FedUCB and gossip that are certified, beside the printed algorithms with and without privacy.

python experiments/beyond_feducb.py [--smoke | --full] [--redraw]

Filled markers are certified for epsilon = 1. Left, with a controller: Algorithm 1 of Dubey & Pentland (2020) as
printed; a private test in place of its trigger, and agents that act on released statistics, with widths from the law of
the noise; batches that grow, fixed in advance, with greedy agents; and that with secure aggregation. Right, on
networks: Algorithm 3 has cliques and gamma estimators, and gamma = 1 was best without privacy; ours adds up what all
silos within gamma hops release. Numbers such as D and the first release were chosen on other seeds.
"""

from typing import Any

import jax
import matplotlib.pyplot as plt
import tyro
from common import Size, save
from curves import Curve, ends, pick

import fedbandit_jax as fb

A, M, K, D, BUDGET = fb.algos, 100, 100, 10, fb.privacy.Budget(1.0, 0.1)
WIDE, THEORY = A.LogDetUCB(regularization=1 / M), A.LogDetUCB(spectral="theory")
SLIGHT = A.UCB(regularizer="project", confidence="known_noise", exploration_scale=0.05)
PRINTED = fb.privacy.Mechanism(BUDGET, "prefix_tree", "silo_local_matrix", calibration="theorem")
BLT = fb.privacy.Mechanism(BUDGET, "blt", statistic=fb.privacy.Linear(centred=True, gram_scale=0.5))
SHARP = fb.privacy.Mechanism(
    BUDGET, fb.privacy.Decaying(1.5), statistic=fb.privacy.Linear(centred=True, gram_scale=0.5)
)
LOG_DET = fb.schedules.LogDet
NETWORKS = {"complete": (1, 12, 0.3), "grid": (6, 50, 1.0), "ring": (10, 50, 1.0)}  # gamma, first release, their D


def controlled() -> dict[str, fb.Algorithm]:
    tests = fb.schedules.PrivateLogDet(10.0, max_syncs=32)
    growing = A.fed_ucb(SHARP, policy=A.Greedy(), schedule=fb.schedules.Geometric(1.5, 12), learns_in_batch=False)
    return {
        "FedUCB as printed, D = 30": A.fed_ucb(PRINTED, policy=THEORY, schedule=LOG_DET(30.0, "dp20")),
        "private test, D = 10": A.fed_ucb(BLT, policy=SLIGHT, schedule=tests, learns_in_batch=False),
        "growing batches, greedy": growing,
        "that with secure aggregation": growing.replace(trust="secagg", first=3),
        "not private: FedLinUCB, lazy": A.fed_lin_ucb(learns_in_batch=False),
        "not private: FedLinUCB": A.fed_lin_ucb(),
        "not private: FedUCB, D = 30": A.fed_ucb(policy=WIDE, schedule=LOG_DET(30.0)),
        "not private: FedUCB, D = 0.3": A.fed_ucb(policy=WIDE, schedule=LOG_DET(0.3)),
    }


def on_networks(options: Size, n_agents: int) -> dict[str, fb.Algorithm]:
    algos: dict[str, fb.Algorithm] = {}
    for name, (gamma, first, threshold) in list(NETWORKS.items())[: options.pick(1, 3, 3)]:
        graph: dict[str, Any] = dict(graph=fb.networks.make(name, n_agents))
        plain = A.Gossip(gamma=gamma, policy=A.Greedy(), schedule=fb.schedules.Geometric(1.5, first=first), **graph)
        algos[f"{name}: Algorithm 3 with noise"] = A.GossipFedUCB(privacy=BUDGET, schedule=LOG_DET(30.0), **graph)
        algos[f"{name}: ours, γ = {gamma}"] = plain.replace(privacy=SHARP)
        algos[f"{name}: ours, not private"] = plain
        algos[f"{name}: Algorithm 3, not private"] = A.GossipFedUCB(policy=WIDE, schedule=LOG_DET(threshold), **graph)
    return algos


def measure(options: Size) -> list[Curve]:
    """Returns final regret and synchronisations of every algorithm, with a controller and on networks."""
    env = fb.envs.sphere(*options.shape(M, K, D), rewards="bernoulli")
    run = {**options.run(60, 10_000, 10_000), "stride": "log", "key": jax.random.key(options.seed + 2024)}
    panels = {"with a controller": controlled(), "on a network": on_networks(options, env.spec.n_agents)}
    curves = []
    for title, algos in panels.items():
        curves += ends(fb.sweep(env, algos, **run), f"{title}, T = {run['horizon']:,}", "rounds")
    return curves


def main(options: Size) -> None:
    curves = options.numbers("beyond_feducb", lambda: measure(options))
    figure, axes = plt.subplots(1, 2, figsize=(16.0, 5.6), layout="constrained")
    for ax, title in zip(axes, dict.fromkeys(one.panel for one in curves)):
        panel = pick(curves, title)
        for place, one in enumerate(reversed(panel)):
            (mean, syncs), error = one.mean, one.error[0]
            print(f"{one.label}: {mean:,.0f} ± {error:,.0f}, {syncs:,.0f} synchronisations, {one.note}")
            colour = fb.plotting.COLOURS[1] if one.note == "certified" else "#777777"
            look: dict[str, Any] = dict(fmt="o", color=colour, mfc=colour if one.note == "certified" else "white")
            ax.errorbar(mean, place, xerr=error, **look, markersize=7)
            ax.text(1.15 * (mean + error), place, f"{mean:,.0f} ± {error:,.0f}", va="center", fontsize="small")
        ax.set_yticks(range(len(panel)), [one.label for one in reversed(panel)], fontsize="small")
        ax.set(xscale="log", xlabel="group regret, ± one standard error", title=title, xlim=(100, 3e6))
        ax.grid(alpha=0.3)
    figure.suptitle(f"{M} silos, K = {K}, d = {D}, ε = 1, δ = 0.1, {curves[0].n_seeds} seeds; filled: certified")
    save("beyond_feducb", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
