"""Draws Figure 2 (b) of Zhou & Chowdhury (2024): silo-level LDP against shuffle DP by the vector-sum protocol.

The authors' regulariser for the vector sum does not follow from its noise: 4,259, and 4,877 for silo-level LDP.
"""

from silos import LDP, VECTOR_SUM, Options, Panels, draw

import fedbandit_jax as fb

SAYS = "the vector sum has less regret than silo-level LDP", "T=10,000, 25 runs"


def measure(options: Options) -> Panels:
    algos, env = options.algorithms(fb.privacy.Budget(0.2, 0.1), LDP, VECTOR_SUM), options.sphere()
    result = fb.sweep(env, algos, **options.run(50, 10_000, 10_000))
    return {"Fig. 2 (b): ε=0.2, δ=0.1, M=100, K=100, d=10, B=25": (env, result)}


if __name__ == "__main__":
    draw(measure, [(VECTOR_SUM, LDP)], SAYS, __doc__)
