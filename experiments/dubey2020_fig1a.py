"""Draws Figure 1 (a) of Dubey & Pentland (2020): regret per agent of FedUCB after T rounds against epsilon.

python experiments/dubey2020_fig1a.py [--smoke | --full]

There are M = 2 or 5 agents with d = 10 and K = 10 arms (the paper names neither M nor K), delta = 0.1, and the
threshold of synchronisation is the paper's for communication of order M log T. The paper has T = 10^7 and 100 runs, and
calls the regret "competitive"; --full is that size (two days of one core). Left, with the width as printed: regret
falls with epsilon and hardly depends on M, as in Theorem 1; by Corollary 1 it would fall like 1 / sqrt M. Centre: the
same runs over rounds. Agents play almost at random until the data outweigh the noise. Right, with a tenth of that
width, agents learn at once from their own raw statistics, whatever epsilon is.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import DubeyOptions, at, curve, mean_error, per_agent, save

import fedbandit_jax as fb

AGENTS, K, D, GAP = (2, 5), 10, 10, 0.1
EPSILONS = (0.1, 1.0, 5.0)
RANDOM = (K - 1) / K * (GAP + 0.1)  # mean regret of an arm at random, per round and agent
PLAIN, PRIVATE = fb.algos.fed_ucb(), fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1))


def final(m: int, scale: float, run: dict, colour: str, ax) -> fb.Result:
    """Runs M agents, and draws their regret after T rounds against epsilon."""
    env = fb.envs.gap(n_agents=m, n_arms=K, dim=D, gap=GAP)
    algos = dict(private=PRIVATE.replace(exploration_scale=scale), plain=PLAIN.replace(exploration_scale=scale))
    result = fb.sweep(env, algos, grid=dict(epsilon=EPSILONS), **run)
    print(f"\nM = {m}, width times {scale}\n{result.summary()}", flush=True)
    mean, error = zip(*(mean_error(per_agent(at(result, "private", epsilon=e))[:, -1]) for e in EPSILONS))
    plain, plain_error = mean_error(per_agent(result["plain"])[:, -1])
    print(*(f"  ε = {e:g}: {a:,.0f} ± {b:,.0f}" for e, a, b in zip(EPSILONS, mean, error)), sep="\n")
    print(f"  not private: {plain:,.1f} ± {plain_error:,.1f}", flush=True)
    ax.errorbar(EPSILONS, mean, error, fmt="o-", markersize=4, color=colour, label=f"M = {m}, private")
    ax.axhline(plain, color=colour, linestyle="--", linewidth=1, label=f"M = {m}, not private")
    return result


def main(options: DubeyOptions) -> None:
    figure, (left, centre, right) = plt.subplots(1, 3, figsize=(17.0, 5.6), layout="constrained")
    long = options.run(200, 300_000, 10_000_000, seeds=(2, 3, 100))
    short = options.run(200, 30_000, 40_000, seeds=(2, 3, 100))
    for m, colour in zip(AGENTS[: options.pick(1, 2, 2)], fb.plotting.COLOURS[1:]):
        result = final(m, 1.0, long, colour, left)
        for epsilon, style in zip(EPSILONS, (":", "--", "-")):
            label = f"M = {m}, ε = {epsilon:g}"
            curve(at(result, "private", epsilon=epsilon), centre, color=colour, linestyle=style, label=label)
        final(m, 0.1, short, colour, right)
    ends = np.array([1, long["horizon"]])
    centre.plot(ends, RANDOM * ends, color="#999999", label="an arm at random")
    centre.set(title="the same runs over rounds", xscale="log", yscale="log", xlabel="round $t$")
    centre.set(ylabel="regret per agent")
    for ax, run, width in ((left, long, "width as printed"), (right, short, "a tenth of the width")):
        ax.axhline(RANDOM * run["horizon"], color="#999999", label="an arm at random")
        ax.set(title=f"{width}, T = {run['horizon']:,}, {run['seeds']} seeds", xscale="log", yscale="log")
        ax.set(xlabel="$\\varepsilon$ of the noise on messages", ylabel="regret per agent after T rounds")
        ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    for ax in (left, centre, right):
        ax.legend(fontsize="small")
    figure.suptitle(
        f"FedUCB, d = {D}, K = {K}, gap {GAP}, δ = 0.1, bars and bands: one standard error; claim of private "
        "runs: none, as raw data decide when to synchronise",
        fontsize="medium",
    )
    save("dubey2020_fig1a", options, figure)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
