"""Draws Figure 2 (a) of Zhou & Chowdhury (2024): silo-level LDP against shuffle DP by amplification, at tiny budgets.

The paper says that shuffling lowers regret. By the constants of its lemma, shuffling needs more noise than no
shuffling. So ours has the same noise in both models. The authors' noise leaves the constant out.
"""

from silos import LDP, SDP, SECAGG, Options, Panels, draw

import fedbandit_jax as fb

EPSILONS, DELTA = (1e-4, 1e-3), 1e-4
CLAIMS = [(f"{SDP}(epsilon={epsilon})", f"{LDP}(epsilon={epsilon})") for epsilon in EPSILONS]
SAYS = "shuffling by amplification has less regret than silo-level LDP", "T=10,000, 25 runs"


def measure(options: Options) -> Panels:
    algos = options.algorithms(fb.privacy.Budget(EPSILONS[0], DELTA), LDP, SDP, SECAGG)
    run, env = options.run(50, 10_000, 10_000, grid={"epsilon": list(EPSILONS)}), options.sphere()
    return {f"Fig. 2 (a): δ={DELTA:g}, M=100, K=100, d=10, B=25": (env, fb.sweep(env, algos, **run))}


if __name__ == "__main__":
    draw(measure, CLAIMS, SAYS, __doc__, at_end=True)
