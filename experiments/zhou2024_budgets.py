"""Draws what Zhou & Chowdhury (2024) allow for and do not measure: a budget of its own for every silo.

Definition 2.1 has an (epsilon_i, delta_i) for every silo. The noise of the sum has the mean of the variances of all
silos, so that few strict silos cost all others much.
"""

from curves import Curve, ratio
from drawing import REFERENCE, Panel, Picture, Says, main
from matplotlib.axes import Axes
from options import Size

import fedbandit_jax as fb

M, K, D, DELTA = 100, 100, 10, 0.1
STRICT, LOOSE, SILOS = 0.2, 5.0, (0, 10, 25, 50, 75, 100)


def measure(options: Size) -> list[Curve]:
    env, algos = fb.envs.sphere(n_agents=M, n_arms=K, dim=D, rewards="bernoulli"), {}
    run = options.run(100, 2_000, 10_000, throw=True, store=options.store)
    sharp = fb.algos.UCB(regularizer="project", confidence="known_noise")
    for n in SILOS:
        budgets = tuple(fb.privacy.Budget(epsilon, DELTA) for epsilon in [STRICT] * n + [LOOSE] * (M - n))
        algos[n] = fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(budgets, release="blt"), policy=sharp)
        found = algos[n].certificate(env.spec, run["horizon"])
        print(f"{n} strict silos: {found.claim}, epsilon {sorted({round(one[2], 2) for one in found.per_silo})}")
    return options.finals(env, {"certified": algos}, f"T = {run['horizon']:,}", {"certified": "#0072B2 - o"}, **run)


def picture(curves: list[Curve]) -> Picture:
    (one,) = curves

    def ends(ax: Axes) -> None:
        for strict, words in ((0, f"all at ε = {LOOSE:g}"), (-1, f"all at ε = {STRICT:g}")):
            ax.axhline(one.mean[strict], **REFERENCE)
            ax.annotate(words, (50, one.mean[strict]), xytext=(0, 3), textcoords="offset points", size="small")

    setting = f"""LDP-FedLinUCB with a budget for every silo, certified. M = {M}, K = {K}, d = {D}, {one.panel}, δ =
        {DELTA}. Mean of {one.n_seeds} seeds ± one standard error"""
    words = "", f"silos that ask for ε = {STRICT:g}, of {M}; others for {LOOSE:g}", "group regret at T"
    values = ", ".join(f"{n:g}: {one.said(i)}" for i, n in enumerate(one.x))
    seen = (
        f"{SILOS[1]} strict silos of {M} (ε = {STRICT:g} among ε = {LOOSE:g}) have {ratio(one.y[1], one.y[0])} times "
    )
    seen += f"the regret of none, and {SILOS[-1]} {ratio(one.y[-1], one.y[0])} times; regret by strict silos, ± one "
    seen += f"standard error of {one.n_seeds} seeds: {values}"
    says = Says("Definition 2.1", "every silo has a budget of its own (no experiment)", "this instance", seen)
    title = f"{SILOS[1]} strict silos of {M} raise regret {one.mean[1] / one.mean[0]:.1f} times"
    panel = Panel(curves, *words, label="", also=ends, ylim=(0, None))
    return Picture([panel], title, setting, [says])


if __name__ == "__main__":
    main(measure, picture, __doc__)
