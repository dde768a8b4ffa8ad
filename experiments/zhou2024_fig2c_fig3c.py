"""Draws Figures 2 (c) and 3 (c) of Zhou & Chowdhury (2024): the cost of silo-level LDP on real data, M = 10 silos.

python experiments/zhou2024_fig2c_fig3c.py [--mslr DIR] [--as authors] [--smoke | --full]

The figures show regret over rounds at epsilon = 0.2, 1 and 5, with a tenth of the confidence width. MSLR-WEB10K may not
be redistributed: without your copy (--mslr DIR) they are drawn on scikit-learn's digits, and their titles say so. On
MSLR, whose means can be negative, our version has means (1 + <x, theta>) / 2 and rewards of 0 or 1; with --as authors
rewards are those of their code, without noise and not linear in what agents see.
"""

from typing import Any

import tyro
from drawing import Says
from silos import RealOptions, finish

import fedbandit_jax as fb


def main(options: RealOptions) -> None:
    widths: dict[str, Any] = dict(exploration_scale=0.1, subgaussian=1.0)
    private = options.private_fed_lin_ucb(fb.privacy.Budget(5.0, 0.1), **widths)

    def measure() -> dict[str, tuple[Any, fb.Result]]:
        panels: dict[str, tuple[Any, fb.Result]] = {}
        for figure, features, components in (("Fig. 2 (c)", "title", 5), ("Fig. 3 (c)", "body", 7)):
            env, of = options.environment(features, components, n_agents=10)
            size = f"δ=0.1, M=10, K ≤ {env.spec.n_arms}, d={env.spec.dim}, B=25"
            name = f"{figure}: {of}\n{size}"
            algos, grid = [options.fed_lin_ucb(**widths), private], {"epsilon": [0.2, 1, 5]}
            panels[name] = env, fb.sweep(env, algos, grid=grid, **options.run(50, 5_000, 25_000))
        return panels

    names = [f"LDP-FedLinUCB(epsilon={epsilon})" for epsilon in (5, 1, 0.2)]
    on = "" if options.mslr else "not tested, as there is no copy of MSLR here; on digits, which are nothing like it, "
    claim = "on MSLR-WEB10K regret falls with ε, towards FedLinUCB"
    says = Says("Figs. 2 (c), 3 (c)", claim, "MSLR, T=25,000, 25 runs", on)
    finish(options, measure, list(zip(["FedLinUCB", *names], names)), says)


if __name__ == "__main__":
    main(tyro.cli(RealOptions, description=__doc__))
