"""Draws Figure 2 (b) of Zhou & Chowdhury (2024): silo-level LDP against shuffle DP by the vector-sum protocol.

python experiments/zhou2024_fig2b.py [--as authors] [--smoke | --full]

The figure shows regret over rounds at epsilon = 0.2, delta = 0.1 on the paper's synthetic instance. The authors' code
has a regulariser for the vector sum that does not follow from its noise, 4,259; that of silo-level LDP is 4,877.
"""

import tyro
from drawing import Says
from silos import Options, finish

import fedbandit_jax as fb


def main(options: Options) -> None:
    env = fb.envs.sphere(*options.shape(100, 100, 10), rewards=options.rewards)
    budget = fb.privacy.Budget(0.2, 0.1)
    algos = [
        options.fed_lin_ucb(),
        options.private_fed_lin_ucb(budget),
        options.private_fed_lin_ucb(budget, "SDP-FedLinUCB (vector sum)", trust="shuffle_vector_sum"),
    ]
    shuffled = algos[2].name
    claims = [(shuffled, "LDP-FedLinUCB")]
    run = options.run(50, 10_000, 10_000)
    title = "Fig. 2 (b): ε=0.2, δ=0.1, M=100, K=100, d=10, B=25"
    says = Says("Fig. 2 (b)", "the vector sum has less regret than silo-level LDP", "T=10,000, 25 runs", "")
    finish(options, lambda: {title: (env, fb.sweep(env, algos, **run))}, claims, says)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
