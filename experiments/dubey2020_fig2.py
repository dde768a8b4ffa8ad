"""Draws Figure 2 of Dubey & Pentland (2020): regret of FedUCB against the gap between the best arm and the others.

python experiments/dubey2020_fig2.py [--smoke | --full]

Agents communicate in the order of M log T. There is one curve for every epsilon; its label has rho_min, the lower bound
of the eigenvalues of an agent's noisy regulariser. The paper has M = 10 agents, does not say how many rounds, and
reports that regret falls with the gap, and that the budget then matters less. Left: M = 2 agents, who all leave random
play (dotted) within T rounds. An agent explores, at a cost of about the gap a round, until its data outweigh the noise,
which takes longer the smaller the gap: regret is nearly the same at all gaps, and the curves stay almost parallel.
Right: M = 10 agents have more noise, and fewer rounds. At epsilon = 1 they play at random, and regret rises.
"""

import matplotlib.pyplot as plt
import tyro
from common import DubeyOptions, mean_error, per_agent, save

import fedbandit_jax as fb

GAPS = (0.05, 0.1, 0.2, 0.3)
EPSILONS = (1.0, 3.0, 10.0)
K, D = 10, 10


def main(options: DubeyOptions) -> None:
    gaps = GAPS[:: options.pick(3, 1, 1)]
    sizes = {2: options.run(100, 300_000, 300_000, seeds=(2, 3, 100))}
    sizes |= {10: options.run(100, 50_000, 50_000, seeds=(2, 3, 100))}
    figure, axes = plt.subplots(1, 2, figsize=(13.0, 6.2), layout="constrained")
    for (m, run), ax in list(zip(sizes.items(), axes))[: options.pick(1, 2, 2)]:
        envs, horizon = [fb.envs.gap(n_agents=m, n_arms=K, dim=D, gap=gap) for gap in gaps], run["horizon"]
        algos: dict[str, fb.algos.Federated] = {}
        for epsilon in EPSILONS:
            algo = fb.algos.fed_ucb(fb.privacy.Budget(epsilon, 0.1))
            low, _ = algo.bind(envs[0].spec, horizon).policy.rho  # pyright: ignore[reportAttributeAccessIssue]
            algos[f"ε = {epsilon:g}, $\\rho_{{\\min}}$ = {low:.0f}"] = algo
        algos["not private"] = fb.algos.fed_ucb()
        results = [fb.sweep(env, algos, **run) for env in envs]
        for label, colour in zip(algos, fb.plotting.COLOURS):
            finals = [per_agent(result[label])[:, -1] for result in results]
            mean, error = zip(*map(mean_error, finals))
            (last, of_last) = mean_error(finals[-1] / finals[0])
            print(f"M = {m}, {label}: " + ", ".join(f"{a:,.0f} ± {b:,.0f}" for a, b in zip(mean, error)), end="; ")
            print(f"largest over smallest gap: {last:.2f} ± {of_last:.2f}", flush=True)
            style = "o--" if algos[label].privacy is None else "o-"
            ax.errorbar(gaps, mean, error, fmt=style, markersize=4, color=colour, label=label)
        ax.plot(gaps, [(K - 1) / K * (gap + 0.1) * horizon for gap in gaps], ":", color="#999999", label="random arm")
        ax.set(title=f"M = {m}, T = {horizon:,}, {run['seeds']} seeds", xlabel="gap $\\Delta$", yscale="log")
        ax.set_ylabel("regret per agent after T rounds, ± one standard error")
        ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False, ncols=2)
    figure.suptitle(f"FedUCB, K = {K}, d = {D}, δ = 0.1; claim of private runs: none", fontsize="medium")
    save("dubey2020_fig2", options, figure)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
