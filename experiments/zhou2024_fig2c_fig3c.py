"""Draws Figures 2 (c) and 3 (c) of Zhou & Chowdhury (2024): the cost of silo-level LDP on real data, M = 10 silos.

Without your copy of MSLR-WEB10K (--mslr DIR) they are drawn on scikit-learn's digits, and their titles say so.
"""

from itertools import pairwise

from silos import LDP, NARROW, Panels, RealOptions, draw

import fedbandit_jax as fb

ORDER = ["FedLinUCB", *(f"{LDP}(epsilon={epsilon})" for epsilon in (5, 1, 0.2))]
SAYS = "on MSLR-WEB10K regret falls with ε, towards FedLinUCB", "MSLR, T=25,000, 25 runs"


def measure(options: RealOptions) -> Panels:
    algos, panels = options.algorithms(fb.privacy.Budget(5.0, 0.1), LDP, **NARROW), {}
    run = options.run(50, 5_000, 25_000, grid={"epsilon": [0.2, 1, 5]})
    for figure, features, components in (("Fig. 2 (c)", "title", 5), ("Fig. 3 (c)", "body", 7)):
        env, of = options.environment(features, components, n_agents=10)
        size = f"δ=0.1, M=10, K ≤ {env.spec.n_arms}, d={env.spec.dim}, B=25"
        panels[f"{figure}: {of}\n{size}"] = env, fb.sweep(env, algos, **run)
    return panels


if __name__ == "__main__":
    draw(measure, list(pairwise(ORDER)), SAYS, __doc__, RealOptions)
