"""Draws what Zhou & Chowdhury (2024) allow for and do not measure: a budget of its own for every silo.

python experiments/zhou2024_budgets.py [--smoke | --full]

Definition 2.1 has an (epsilon_i, delta_i) for every silo. A share of the silos asks for epsilon = 0.2, and the others
for 5. The noise of the sum has the mean of the variances of all silos, so that regret is between those of the two
budgets, and few strict silos cost all others much. On the paper's synthetic instance with 2,000 rounds, certified, with
BLT noise and widths from the law of the noise.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, quotient
from drawing import Says, caption, save
from options import Size

import fedbandit_jax as fb

M, K, D, DELTA = 100, 100, 10, 0.1
STRICT, LOOSE, SILOS = 0.2, 5.0, (0, 10, 25, 50, 75, 100)


def private(strict: int) -> fb.Algorithm:
    """Returns the certified algorithm where so many silos are strict."""
    budgets = tuple(fb.privacy.Budget(epsilon, DELTA) for epsilon in [STRICT] * strict + [LOOSE] * (M - strict))
    sharp = fb.algos.UCB(regularizer="project", confidence="known_noise")
    return fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(budgets, release="blt"), policy=sharp)


def measure(options: Size) -> list[Curve]:
    """Returns final regrets against the number of strict silos, and what certificates say of silos."""
    env = fb.envs.sphere(n_agents=M, n_arms=K, dim=D, rewards="bernoulli")
    run = {**options.run(100, 2_000, 10_000), "throw": True, "store": options.store}
    result = fb.sweep(env, {f"{n}": private(n) for n in SILOS}, **run)
    print(result.summary())
    for n in SILOS:
        found = result[f"{n}"].certificate
        print(f"{n} strict silos: {found.claim}, epsilon {sorted({round(one[2], 2) for one in found.per_silo})}")
    regrets = np.stack([result[f"{n}"].regret[:, -1] for n in SILOS])
    return [Curve(f"T = {run['horizon']:,}", "certified", SILOS, regrets, "#0072B2 - o")]


def main(options: Size) -> None:
    (one,) = options.numbers("zhou2024_budgets", lambda: measure(options))
    figure, ax = plt.subplots(figsize=(6.6, 4.8), layout="constrained")
    ax.errorbar(one.x, one.mean, one.error, fmt="o-", color="#0072B2", capsize=2)
    ax.set(
        ylabel="group regret at T",
        xlabel=f"silos that ask for ε = {STRICT:g}, of {M}; others for {LOOSE:g}",
    )
    ax.set_ylim(0, None)
    ax.grid(alpha=0.3)
    for strict, words in ((0, f"all at ε = {LOOSE:g}"), (-1, f"all at ε = {STRICT:g}")):
        ax.axhline(one.mean[strict], color="#999999", linestyle="-.", linewidth=1)
        ax.annotate(words, (50, one.mean[strict]), xytext=(0, 3), textcoords="offset points", size="small")
    size = f"M = {M}, K = {K}, d = {D}, {one.panel}, δ = {DELTA}"
    title = f"LDP-FedLinUCB with a budget for every silo, certified\n{size}; {one.n_seeds} seeds ± one standard error"
    ax.set_title(title, fontsize="medium")
    values = ", ".join(f"{n:g}: {mean:,.0f} ± {error:,.0f}" for n, mean, error in zip(one.x, one.mean, one.error))
    few, most = (quotient(one.y[i], one.y[0]) for i in (1, -1))
    seen = (
        f"{SILOS[1]} strict silos of {M} (ε = {STRICT:g} among ε = {LOOSE:g}) have {few[0]:.2f} ± {few[1]:.2f} times "
        f"the regret of none, and {SILOS[-1]} {most[0]:.2f} ± {most[1]:.2f} times; regret by strict silos, ± one "
        f"standard error of {one.n_seeds} seeds: {values}"
    )
    print(seen)
    says = Says("Definition 2.1", "every silo has a budget of its own (no experiment)", "this instance", seen)
    caption(figure, "Zhou & Chowdhury (2024)", says)
    save("zhou2024_budgets", options, figure, [one])


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
