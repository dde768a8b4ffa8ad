"""Shows what certified privacy at silo level costs when every part of Private-FedLinUCB is as good as we know how.

python experiments/beyond.py [--smoke | --full]

Left: regret against epsilon at delta = 0.1, on the synthetic instance of Zhou & Chowdhury (2024); all algorithms have
the same confidence constants alpha, R and S. Right: what each improvement contributes at epsilon = 1. "Lazy" agents act
on released statistics only, and so never on raw data of the present batch.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, mean_error, save
from matplotlib.axes import Axes

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(1.0, 0.1)
BEST = dict(release="blt", regularizer="project", confidence="known_noise")


def private(name: str, **parameters) -> fb.Algorithm:
    return fb.algos.private_fed_lin_ucb(BUDGET, name=name).replace(**parameters)


ACROSS = [
    fb.algos.fed_lin_ucb(name="not private"),
    private("tree, Thm 5.1, as printed", calibration="theorem", learns_in_batch=True),
    private("tree, exact noise, lazy"),
    private("BLT, exact noise, lazy", release="blt"),
    private("BLT, projected, known noise", **BEST),
    private("secure aggregation, the same", trust="secagg", **BEST),
]
STEPS = [
    private("tree, Theorem 5.1, as printed", calibration="theorem", learns_in_batch=True),
    private("lazy agents: certified", calibration="theorem"),
    private("exact accounting"),
    private("Honaker's estimate", release="honaker"),
    private("BLT in place of the tree", release="blt"),
    private("width from the known noise", release="blt", confidence="known_noise"),
    private("projected Gram matrix", **BEST),
    private("B = 50", schedule=50, **BEST),
    private("secure aggregation, B = 25", trust="secagg", **BEST),
    private("secure aggregation, B = 10", trust="secagg", schedule=10, **BEST),
    fb.algos.fed_lin_ucb(name="not private, lazy", learns_in_batch=False),
    fb.algos.fed_lin_ucb(name="not private"),
]


def bars(result: fb.Result, ax: Axes) -> None:
    """Draws the final regret of every step, and its excess over no privacy as a share of the first step's excess."""
    mean, error = mean_error(np.stack([result[label].regret[:, -1] for label in result], axis=1))
    colours = ["#009E73" if one.claim == "certified" else "#999999" for one in result.certificates.values()]
    ax.barh(result.labels, mean, xerr=error, color=colours)
    for i, value in enumerate(mean):
        share = (value - mean[-1]) / (mean[0] - mean[-1])
        ax.text(value * 1.08, i, f"{value:,.0f} ({share:.1%} of the excess)", va="center", fontsize="small")
    ax.set(xscale="log", xlabel=f"group regret after {result.rounds[-1]} rounds", xlim=(None, mean.max() * 20))
    ax.set_title("One ingredient after the other, ε = 1, δ = 0.1 (green: certified)", fontsize="medium")
    ax.invert_yaxis()


def main(options: Size) -> None:
    env = fb.envs.sphere(n_agents=100, n_arms=100, dim=10, rewards="bernoulli")
    run = options.run(200, 4_000, 10_000)
    across = fb.sweep(env, ACROSS, grid={"epsilon": [0.2, 0.5, 1.0, 2.0, 5.0]}, **run)
    steps = fb.sweep(env, STEPS, **run)
    figure, (left, right) = plt.subplots(1, 2, figsize=(13.5, 6.0), layout="constrained")
    fb.plotting.against_epsilon(across, title=f"M=100, K=100, d=10, δ=0.1, {run['seeds']} seeds", ax=left)
    bars(steps, right)
    for name, result in (("across", across), ("steps", steps)):
        print(f"\n{result.summary()}")
        if not options.smoke:
            result.save(f"results/beyond_{name}")
    print(f"\nCertificate of the projected Gram matrix\n{steps['projected Gram matrix'].certificate}")
    save("beyond", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
