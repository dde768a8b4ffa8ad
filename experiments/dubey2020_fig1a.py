"""Draws Figure 1 (a) of Dubey & Pentland (2020): regret per agent of FedUCB after T rounds against epsilon.

python experiments/dubey2020_fig1a.py [--smoke | --full]

There are M = 2, 5 or 20 agents, delta = 0.1, and the threshold of synchronisation is the paper's for communication of
order M log T. Dashed lines are not private. Left, with the confidence width as printed, regret falls with epsilon but
rises with M, because every silo adds noise and the agents hardly synchronise. At epsilon <= 1 they learn next to
nothing in T rounds (the paper has T = 10^7; to run that, change the last number of `options.run`). Right, with a tenth
of that width, agents learn in time from their own raw statistics.
"""

import matplotlib.pyplot as plt
import tyro
from common import DubeyOptions, at, mean_error, per_agent, save

import fedbandit_jax as fb

AGENTS = (2, 5, 20)
EPSILONS = (0.1, 1.0, 10.0, 100.0)
SCALES = {1.0: "width as printed", 0.1: "a tenth of the width"}


def main(options: DubeyOptions) -> None:
    algos = dict(private=fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1)), plain=fb.algos.fed_ucb())
    grid = dict(epsilon=EPSILONS, exploration_scale=list(SCALES))
    run = options.run(200, 50_000, 1_000_000)
    figure, axes = plt.subplots(1, 2, figsize=(12.0, 5.2), layout="constrained", sharey=True)
    for m, colour in zip(AGENTS[: options.pick(2, 3, 3)], fb.plotting.COLOURS[1:]):
        result = fb.sweep(fb.envs.gap(n_agents=m, n_arms=25, dim=10), algos, grid=grid, **run)
        print(f"\nM = {m}\n{result.summary()}", flush=True)
        for scale, ax in zip(SCALES, axes):
            private = [at(result, "private", epsilon=epsilon, exploration_scale=scale) for epsilon in EPSILONS]
            mean, error = zip(*(mean_error(per_agent(one)[:, -1]) for one in private))
            label = f"M = {m}: private, claim {private[0].certificate.claim}"
            ax.errorbar(EPSILONS, mean, error, fmt="o:", markersize=4, color=colour, label=label)
            plain = per_agent(at(result, "plain", exploration_scale=scale))[:, -1].mean()
            ax.axhline(plain, color=colour, linestyle="--", linewidth=1, label=f"M = {m}: not private")
    for (_, title), ax in zip(SCALES.items(), axes):
        ax.set(title=f"d = 10, {title}, {run['seeds']} seeds", xscale="log", yscale="log")
        ax.set(xlabel="$\\varepsilon$", ylabel=f"regret per agent after {run['horizon']:,} rounds")
        ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        ax.legend(fontsize="small", ncols=2)
    save("dubey2020_fig1a", options, figure)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
