"""Draws Figure 1 (b) of Dubey & Pentland (2020): regret of FedUCB over rounds, for three amounts of communication.

python experiments/dubey2020_fig1b.py [--smoke | --full]

M = 100 agents communicate in the order of M log T, M^1.5 or M T (every round), with epsilon = 1 (solid) or without
privacy (dashed). Left, with the confidence width as printed, more communication means less regret without privacy. With
privacy all curves are linear, because 10^4 rounds are far too few (the paper does not say how many it has here). Right,
with a tenth of that width, more communication means less regret with privacy, too. The threshold D of Theorem 1 is so
large that private agents do not synchronise once.
"""

import matplotlib.pyplot as plt
import tyro
from common import DubeyOptions, at, curve, save

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(1.0, 0.1)
SCHEDULES = {
    "M log T": fb.schedules.LogDet("M log T"),
    "M^1.5": fb.schedules.LogDet("M^1.5"),
    "M T": fb.schedules.Every(1),
}
SCALES = {1.0: "width as printed", 0.1: "a tenth of the width"}


def main(options: DubeyOptions) -> None:
    algos = {f"{name}, ε = 1": fb.algos.fed_ucb(BUDGET, schedule=schedule) for name, schedule in SCHEDULES.items()}
    algos |= {f"{name}, not private": fb.algos.fed_ucb(schedule=schedule) for name, schedule in SCHEDULES.items()}
    env = fb.envs.gap(n_agents=100, n_arms=25, dim=10)
    run = options.run(100, 10_000, 100_000)
    result = fb.sweep(env, algos, grid=dict(exploration_scale=list(SCALES)), **run)
    print(f"\n{result.summary()}")
    figure, axes = plt.subplots(1, 2, figsize=(12.0, 5.2), layout="constrained", sharey=True)
    for (scale, title), ax in zip(SCALES.items(), axes):
        for algo, colour in zip(algos, fb.plotting.COLOURS[1:4] * 2):
            one = at(result, algo, exploration_scale=scale)
            private = one.certificate.epsilon is not None
            label = f"{algo}: {one.communication['rounds'][:, -1].mean():,g} syncs"
            label += f", claim {one.certificate.claim}" if private else ""
            curve(one, ax, linestyle="-" if private else "--", color=colour, label=label)
        ax.set(title=f"M = 100, d = 10, {title}, {run['seeds']} seeds", xscale="log", yscale="log")
        ax.set(xlabel="round $t$", ylabel="regret per agent")
        ax.legend(fontsize="small")
    save("dubey2020_fig1b", options, figure)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
