"""Draws Figure 2 of Dubey & Pentland (2020): regret of FedUCB against the gap between the best arm and the others.

python experiments/dubey2020_fig2.py [--smoke | --full]

M = 10 agents communicate in the order of M log T. There is one curve for every epsilon; its label has rho_min, the
lower bound of the eigenvalues of an agent's noisy regulariser. In the paper regret falls with the gap, and the budget
matters less and less. Here regret rises with the gap, and the curves stay parallel: agents explore, which costs about
the gap in every round, until they synchronise, and the threshold D and T decide when that is. Agents who synchronise
every round never wait, and their curve is flat.
"""

import matplotlib.pyplot as plt
import tyro
from common import DubeyOptions, mean_error, per_agent, save

import fedbandit_jax as fb

GAPS = (0.05, 0.1, 0.2, 0.3)
EPSILONS = (1.0, 10.0, 100.0)
M, K, D = 10, 25, 10


def main(options: DubeyOptions) -> None:
    run = options.run(100, 50_000, 1_000_000)
    envs, horizon = [fb.envs.gap(n_agents=M, n_arms=K, dim=D, gap=gap) for gap in GAPS], run["horizon"]
    algos: dict[str, fb.algos.Federated] = {}
    for epsilon in EPSILONS:
        algo = fb.algos.fed_ucb(fb.privacy.Budget(epsilon, 0.1))
        low, _ = algo.bind(envs[0].spec, horizon).policy.rho  # pyright: ignore[reportAttributeAccessIssue]
        algos[f"ε = {epsilon:g}, $\\rho_{{\\min}}$ = {low:.0f}, claim none"] = algo
    algos["not private"] = fb.algos.fed_ucb()
    algos["not private, synchronised every round"] = fb.algos.fed_ucb(schedule=fb.schedules.Every(1))
    results = [fb.sweep(env, algos, **run) for env in envs[:: options.pick(3, 1, 1)]]
    gaps = GAPS[:: options.pick(3, 1, 1)]
    for gap, result in zip(gaps, results):
        print(f"\ngap {gap}\n{result.summary()}")
    figure, ax = plt.subplots(figsize=(7.0, 5.6), layout="constrained")
    for label, colour in zip(algos, fb.plotting.COLOURS):
        mean, error = zip(*(mean_error(per_agent(result[label])[:, -1]) for result in results))
        style = "o--" if algos[label].privacy is None else "o:"
        ax.errorbar(gaps, mean, error, fmt=style, markersize=4, color=colour, label=label)
    ax.plot(gaps, [(K - 1) / K * (gap + 0.1) * horizon for gap in gaps], color="#999999", label="an arm at random")
    ax.set(title=f"M = {M}, K = {K}, d = {D}, {run['seeds']} seeds", xlabel="gap $\\Delta$", yscale="log")
    ax.set_ylabel(f"regret per agent after {horizon:,} rounds")
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False, ncols=2)
    save("dubey2020_fig2", options, figure)


if __name__ == "__main__":
    main(tyro.cli(DubeyOptions, description=__doc__))
