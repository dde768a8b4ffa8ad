"""Draws certified FedUCB and gossip, and the printed algorithms with and without privacy.

Filled markers are certified for epsilon = 1. (a) Algorithm 1 of Dubey & Pentland (2020) as printed; a private test in
place of its trigger; batches that grow, fixed in advance; and the same with secure aggregation. (b) On networks Gossip
adds up what all silos within gamma hops release. D and the first release were chosen on other seeds.
"""

from typing import Any

from curves import ends, panels, pick, uniform
from drawing import CHANCE, Curve, Panel, Picture, Size, level, main, uncertified
from recipes import GREEDY, HALF

import fedbandit_jax as fb

A, M, K, D, BUDGET = fb.algos, 100, 100, 10, fb.privacy.Budget(1.0, 0.1)
WIDE, THEORY = A.LogDetUCB(regularization=1 / M), A.LogDetUCB(spectral="theory")
SLIGHT = A.UCB(regularizer="project", confidence="known_noise", exploration_scale=0.05)
PRINTED = fb.privacy.Mechanism(BUDGET, "tree", "silo_local_matrix", std="dubey2020")
BLT, SHARP = (fb.privacy.Mechanism(BUDGET, one, statistic=HALF) for one in ("blt", fb.privacy.Decaying(1.5)))
LOG_DET, GROWING = fb.schedules.LogDet, fb.schedules.Geometric
NETWORKS = {"complete": (1, 12, 0.3), "grid": (6, 50, 1.0), "ring": (10, 50, 1.0)}  # gamma, first release, their D


def controlled() -> dict[str, fb.Algorithm]:
    tests = fb.schedules.PrivateLogDet(10.0, max_syncs=32)
    growing = A.fed_ucb(SHARP, policy=GREEDY.policy, schedule=GROWING(1.5, 12), learns_in_batch=False)
    return {
        "FedUCB as printed, D = 30": A.fed_ucb(PRINTED, policy=THEORY, schedule=LOG_DET(30.0, "dp20")),
        "private test, D = 10": A.fed_ucb(BLT, policy=SLIGHT, schedule=tests, learns_in_batch=False),
        "growing batches, greedy": growing,
        "growing batches, greedy, secure aggregation": growing.replace(trust="secagg", first=3),
        "not private: FedLinUCB, lazy": A.fed_lin_ucb(learns_in_batch=False),
        "not private: FedLinUCB": A.fed_lin_ucb(),
        "not private: FedUCB, D = 30": A.fed_ucb(policy=WIDE, schedule=LOG_DET(30.0)),
        "not private: FedUCB, D = 0.3": A.fed_ucb(policy=WIDE, schedule=LOG_DET(0.3)),
    }


def on_networks(options: Size, n_agents: int) -> dict[str, fb.Algorithm]:
    algos: dict[str, fb.Algorithm] = {}
    for name, (gamma, first, own) in list(NETWORKS.items())[: options.pick(1, 3, 3)]:
        graph: dict[str, Any] = dict(graph=fb.networks.make(name, n_agents))
        plain = A.Gossip(gamma=gamma, policy=A.Greedy(), schedule=GROWING(1.5, first=first), **graph)
        printed = A.GossipFedUCB(privacy=BUDGET, schedule=LOG_DET(30.0), **graph)
        algos[f"{name}: Algorithm 3 with noise, γ = 1"] = printed
        algos[f"{name}: Gossip, γ = {gamma}"] = plain.replace(privacy=SHARP)
        algos[f"{name}: Gossip, γ = {gamma}, not private"] = plain
        free = A.GossipFedUCB(policy=WIDE, schedule=LOG_DET(own), **graph)
        algos[f"{name}: Algorithm 3, γ = 1, not private"] = free
    return algos


def measure(options: Size) -> list[Curve]:
    env = fb.envs.sphere(*options.shape(M, K, D), rewards="bernoulli")
    run, curves = options.run(60, 10_000, 10_000, fresh=2024, stride="log"), []
    both = {"with a controller": controlled(), "on a network": on_networks(options, env.spec.n_agents)}
    for title, algos in both.items():
        curves += ends(options.sweep(env, algos, **run), f"{title}, T = {run['horizon']:,}", "rounds")
    return [*curves, uniform(env, run["horizon"])]


def picture(curves: list[Curve]) -> Picture:
    shown, said = [], {one.label: one.said(0) for one in curves}
    for title in panels(curves)[:-1]:
        ones = []
        for one in pick(curves, title):
            name = one.label.replace(", secure", ",\nsecure").replace(", lazy", ",\nsynchronised sums only")
            look = {"certified": f"{fb.plotting.COLOURS[1]} o", "none": "#555555 s"}.get(one.note, "#555555 o")
            ones.append(Curve(title, name, one.x[:1], one.y[:1], look, one.note))
        panel = Panel(ones, title.partition(", T")[0], "group regret at T", kind="rows", xscale="log", xlim=(150, 6e5))
        panel.level, panel.open = level(curves), uncertified
        shown.append(panel)
    return Picture(
        shown,
        "Certified variants of FedUCB, and FedUCB as printed",
        f"M = {M}, K = {K}, d = {D}, T = 10,000, ε = 1, δ = 0.1. Mean of {curves[0].n_seeds} seeds ± one standard "
        "error. Blue: certified; squares: with noise, no privacy claim; open circles: not private",
        f"(a): FedUCB as printed has {said['FedUCB as printed, D = 30']}, and proves nothing. Certified and with "
        f"secure aggregation regret is {said['growing batches, greedy, secure aggregation']}. FedUCB without privacy "
        f"has {said['not private: FedUCB, D = 0.3']}. With noise of every silo it is "
        f"{said['growing batches, greedy']}. (b): on a complete network Gossip has {said['complete: Gossip, γ = 1']}, "
        f"and Algorithm 3 with noise {said['complete: Algorithm 3 with noise, γ = 1']}. On grid and ring Algorithm 3 "
        "without privacy has the same regret, as at γ = 1 its cliques are the same. "
        f"Uniform play has {said[CHANCE].split()[0]}.",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
