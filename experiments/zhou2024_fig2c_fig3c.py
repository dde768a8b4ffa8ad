"""Draws Figures 2 (c) and 3 (c) of Zhou & Chowdhury (2024): the cost of silo-level LDP on real data, M = 10 silos.

python experiments/zhou2024_fig2c_fig3c.py [--mslr DIR] [--as authors] [--smoke | --full]

The figures show regret over rounds at epsilon = 0.2, 1 and 5, with a tenth of the confidence width. MSLR-WEB10K may not
be redistributed: without your copy (--mslr DIR) they are drawn on scikit-learn's digits, and their titles say so. On
MSLR, whose means can be negative, our version has Gaussian rewards clipped to [0, 1].
"""

from typing import Any

import tyro
from common import RealOptions, finish

import fedbandit_jax as fb


def main(options: RealOptions) -> None:
    widths: dict[str, Any] = dict(exploration_scale=0.1, subgaussian=1.0)
    private = options.private_fed_lin_ucb(fb.privacy.Budget(5.0, 0.1), **widths)
    panels = {}
    for figure, features, components in (("Fig. 2(c)", "title", 5), ("Fig. 3(c)", "body", 7)):
        table = options.table(features, components)
        env = fb.envs.replay(**table.replay_arguments(), n_agents=10, rewards=options.real_rewards)
        size = f"δ=0.1, M=10, K≤{env.spec.n_arms}, d={env.spec.dim}"
        name = f"{figure}{'' if options.mslr else ' stand-in'}: {table.title}\n{size}"
        panels[name] = fb.sweep(
            env,
            [options.fed_lin_ucb(**widths), private],
            grid={"epsilon": [0.2, 1, 5]},
            **options.run(100, 5_000, 25_000),
        )
    names = [f"LDP-FedLinUCB(epsilon={epsilon})" for epsilon in (5, 1, 0.2)]
    finish("zhou2024_fig2c_fig3c", options, panels, list(zip(["FedLinUCB", *names], names)))


if __name__ == "__main__":
    main(tyro.cli(RealOptions, description=__doc__))
