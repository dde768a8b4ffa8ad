"""Draws Figure 1 (c) of Dubey & Pentland (2020): regret of FedUCB for d = 4, 8 and 16 features.

python experiments/dubey2020_fig1c.py [--smoke | --full]

epsilon = 1 and delta = 0.1, and the threshold of synchronisation is the paper's for communication of order M log T.
Left: M = 100 agents as in the paper, where private agents learn nothing in our T rounds, whatever d is. Centre: M = 2
agents, and enough rounds for them to learn. Right: final regret against d with fitted exponents; it grows about like d,
and not like the paper's d^2. With M = 2, three million rounds are refused: float32 sums are too coarse for the noise.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import DubeyOptions, curve, mean_error, per_agent, save

import fedbandit_jax as fb

DIMENSIONS = np.array([4, 8, 16])
ALGOS = {"ε = 1": fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1)), "not private": fb.algos.fed_ucb()}
STYLES = {"ε = 1": "-", "not private": "--"}


def main(options: DubeyOptions) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(16.0, 5.4), layout="constrained")
    dimensions = options.pick(DIMENSIONS[:2], DIMENSIONS, DIMENSIONS)
    sizes = {100: options.run(100, 5_000, 100_000), 2: options.run(500, 500_000, 2_000_000)}
    for (m, run), ax, marker in zip(sizes.items(), axes[: options.pick(1, 2, 2)], "os"):
        finals = {}
        for d, colour in zip(dimensions, fb.plotting.COLOURS[1:]):
            result = fb.sweep(fb.envs.gap(n_agents=m, n_arms=16, dim=int(d)), ALGOS, **run)
            print(f"\nM = {m}, d = {d}\n{result.summary()}", flush=True)
            for algo, style in STYLES.items():
                curve(result[algo], ax, linestyle=style, color=colour, label=f"d = {d}, {algo}")
                finals.setdefault(algo, []).append(mean_error(per_agent(result[algo])[:, -1]))
        ax.set(title=f"M = {m}, {run['seeds']} seeds; ε = 1: claim none", xlabel="round $t$")
        ax.set(ylabel="regret per agent", xscale="log", yscale="log")
        ax.legend(fontsize="small")
        for (algo, style), colour in zip(STYLES.items(), fb.plotting.COLOURS[4:] if m == 2 else fb.plotting.COLOURS):
            mean, error = np.array(finals[algo]).T
            slope = np.polyfit(np.log(dimensions), np.log(mean), 1)[0]
            label = f"M = {m}, T = {run['horizon']:,}, {algo}: $d^{{{slope:.2f}}}$"
            print(f"{label}: {mean} ± {error}")
            axes[2].errorbar(dimensions, mean, error, fmt=marker + style, color=colour, markersize=5, label=label)
    axes[2].set(
        title="Final regret, exponents fitted", xlabel="dimension $d$", ylabel="regret per agent after T rounds"
    )
    axes[2].set(xscale="log", yscale="log")
    axes[2].set_xticks(dimensions, [str(d) for d in dimensions])
    axes[2].set_xticks([], minor=True)
    axes[2].legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False)
    save("dubey2020_fig1c", options, figure)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
