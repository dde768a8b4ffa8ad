"""Draws what Zhou & Chowdhury (2024) allow for and do not measure: budgets of every silo, and users who return.

python experiments/zhou2024_users.py [--smoke | --full]

Definition 2.1 has an (epsilon_i, delta_i) for every silo. Left, a share of the silos asks for epsilon = 0.2, and the
others for 5. The noise of the sum has the mean of the variances of all silos, so that regret is between those of the
two budgets, and few strict silos cost all others much. In Appendix G.4 a user may come back to her silo. Right, up to r
visits of a user are protected together at (1, 0.1), by group privacy of Gaussian noise: r times the standard deviation.
That costs far more than (1/r, 0.1) for each visit, which is a weaker promise: sixteen such visits together have
epsilon = 18.4 at delta = 0.1. Both are on the paper's synthetic instance with 2,000 rounds, certified, with BLT noise
and widths from the law of the noise.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, mean_error, save
from matplotlib.axes import Axes

import fedbandit_jax as fb

M, K, D, DELTA = 100, 100, 10, 0.1
STRICT, LOOSE = 0.2, 5.0
STRICT_SILOS = (0, 10, 25, 50, 75, 100)
VISITS = (1, 2, 4, 8, 16)
UCB = fb.algos.UCB(regularizer="project", confidence="known_noise")


def private(epsilons: list[float], visits: int = 1) -> fb.Algorithm:
    """Returns the certified algorithm with a budget for every silo, or one for all."""
    budgets = tuple(fb.privacy.Budget(epsilon, DELTA) for epsilon in epsilons)
    return fb.algos.private_fed_lin_ucb(
        fb.privacy.Mechanism(budgets, release="blt", unit=fb.privacy.Users(visits)), policy=UCB
    )


def bars(result: fb.Result, labels: list[str], places: np.ndarray, ax: Axes, label: str) -> None:
    """Draws final regrets with standard errors against places on the axis, and prints them with what is certified."""
    mean, error = zip(*(mean_error(result[name].regret[:, -1]) for name in labels))
    ax.errorbar(places, mean, error, fmt="o-", markersize=4, label=label)
    for name, a, b in zip(labels, mean, error):
        found = result[name].certificate
        of_silos = sorted({round(one[2], 2) for one in found.per_silo}) or [round(found.epsilon_exact or 0.0, 2)]
        print(f"  {name}: {a:,.0f} ± {b:,.0f}, {found.claim}, ε of silos {of_silos}", flush=True)


def main(options: Size) -> None:
    env = fb.envs.sphere(n_agents=M, n_arms=K, dim=D, rewards="bernoulli")
    run = {**options.run(100, 2_000, 10_000), "throw": True}
    mixed = {f"{n} silos at {STRICT:g}": private([STRICT] * n + [LOOSE] * (M - n)) for n in STRICT_SILOS}
    visits = {f"r = {r}": private([1.0], r) for r in VISITS}
    smaller = {f"ε = 1/{r}": private([1.0 / r]) for r in VISITS}
    plain = {"not private": fb.algos.fed_lin_ucb(policy=fb.algos.UCB(regularizer="project"), learns_in_batch=False)}
    result = fb.sweep(env, {**mixed, **visits, **smaller, **plain}, **run)
    print(f"T = {run['horizon']:,}, {run['seeds']} seeds\n{result.summary()}\n")
    figure, (left, right) = plt.subplots(1, 2, figsize=(14.0, 5.6), layout="constrained", sharey=True)
    bars(result, list(mixed), np.array(STRICT_SILOS), left, f"ε = {STRICT:g} in these, {LOOSE:g} in the others")
    bars(result, list(visits), np.array(VISITS), right, "ε = 1, δ = 0.1 for r visits together")
    bars(result, list(smaller), np.array(VISITS), right, "ε = 1/r, δ = 0.1 for each visit by itself")
    for ax in (left, right):
        ax.axhline(result["not private"].regret[:, -1].mean(), color="#999999", label="not private")
        ax.set(yscale="log", ylabel="group regret")
        ax.legend(fontsize="small")
    left.set(xlabel=f"silos that ask for ε = {STRICT:g}, of {M}", title="every silo has a budget of its own")
    right.set(xlabel="r, visits of one user to her silo", xscale="log", title="users who return")
    right.set_xticks(VISITS, [str(r) for r in VISITS])
    figure.suptitle(
        f"M = {M}, K = {K}, d = {D}, T = {run['horizon']:,}, δ = {DELTA}, {run['seeds']} seeds ± one standard error; "
        "silo-level LDP, certified",
        fontsize="medium",
    )
    save("zhou2024_users", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
