"""Draws Figure 2 (a) of Zhou & Chowdhury (2024): silo-level LDP against shuffle DP by amplification, at tiny budgets.

python experiments/zhou2024_fig2a.py [--as authors] [--smoke | --full]

The figure shows regret over rounds at epsilon = 10^-4 and 10^-3. The paper says that shuffling lowers regret, which is
undecided: at such budgets both are nearly uniform play, and at 10^-3 the effect is below 3 % (see
docs/reproduction/zhou2024.md). The authors' noise for the shuffle model is that of Theorem 5.3 without its constant. By
the constants of its lemma shuffling needs more noise than no shuffling at all, so that our version has the same noise
in both models; beside them it shows secure aggregation at the same budget, which is certified.
"""

from typing import Any

import tyro
from drawing import Says
from silos import Options, finish

import fedbandit_jax as fb

DELTA = 1e-4


def main(options: Options) -> None:
    env = fb.envs.sphere(*options.shape(100, 100, 10), rewards=options.rewards)
    budget = fb.privacy.Budget(1e-4, DELTA)
    algos = [
        options.fed_lin_ucb(),
        options.private_fed_lin_ucb(budget),
        options.private_fed_lin_ucb(budget, "SDP-FedLinUCB", trust="shuffle_amplified"),
    ]
    if not options.authors:
        algos.append(options.private_fed_lin_ucb(budget, "SecAgg-FedLinUCB", trust="secagg", release="blt"))
    title = f"Fig. 2 (a): δ={DELTA:g}, M=100, K=100, d=10, B=25"
    run: dict[str, Any] = dict(grid={"epsilon": [1e-4, 1e-3]}, **options.run(50, 10_000, 10_000))
    claims = [(f"SDP-FedLinUCB(epsilon={epsilon})", f"LDP-FedLinUCB(epsilon={epsilon})") for epsilon in (1e-4, 1e-3)]
    says = Says("Fig. 2 (a)", "shuffling by amplification has less regret than silo-level LDP", "T=10,000, 25 runs", "")
    finish(options, lambda: {title: (env, fb.sweep(env, algos, **run))}, claims, says, at_end=True)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
