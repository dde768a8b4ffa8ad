"""Draws Figure 3 (d) of Zhou & Chowdhury (2024): shuffle DP by amplification on real data, M = 100 silos.

python experiments/zhou2024_fig3d.py [--mslr DIR] [--as authors] [--smoke | --full]

The figure shows regret over rounds at epsilon = delta = 10^-4, with a tenth of the confidence width. Without your copy
of MSLR-WEB10K it is drawn on scikit-learn's digits, and its title says so. Our version also has secure aggregation.
"""

from typing import Any

import tyro
from drawing import Says
from silos import RealOptions, finish

import fedbandit_jax as fb


def main(options: RealOptions) -> None:
    env, of = options.environment("body", 7, n_agents=options.pick(10, 100, 100))
    widths: dict[str, Any] = dict(exploration_scale=0.1, subgaussian=1.0)
    budget = fb.privacy.Budget(1e-4, 1e-4)
    algos = [
        options.fed_lin_ucb(**widths),
        options.private_fed_lin_ucb(budget, **widths),
        options.private_fed_lin_ucb(budget, "SDP-FedLinUCB", trust="shuffle_amplified", **widths),
    ]
    if not options.authors:
        secagg = options.private_fed_lin_ucb(budget, "SecAgg-FedLinUCB", trust="secagg", release="blt", **widths)
        algos.append(secagg)
    run = options.run(50, 5_000, 25_000)
    size = f"ε = δ = 0.0001, M=100, K ≤ {env.spec.n_arms}, d={env.spec.dim}, B=25"
    title = f"Fig. 3 (d): {of}\n{size}"
    claims = [("FedLinUCB", "SDP-FedLinUCB"), ("SDP-FedLinUCB", "LDP-FedLinUCB")]
    on = "" if options.mslr else "not tested, as there is no copy of MSLR here; on digits, which are nothing like it, "
    claim = "on MSLR-WEB10K shuffling by amplification has less regret than silo-level LDP"
    says = Says("Fig. 3 (d)", claim, "MSLR, T=25,000, 25 runs", on)
    finish(options, lambda: {title: (env, fb.sweep(env, algos, **run))}, claims, says, at_end=True)


if __name__ == "__main__":
    main(tyro.cli(RealOptions, description=__doc__))
