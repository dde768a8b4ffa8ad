"""Draws Figure 3 (d) of Zhou & Chowdhury (2024): shuffle DP by amplification on real data, M = 100 silos.

Without your copy of MSLR-WEB10K (--mslr DIR) it is drawn on scikit-learn's digits, and its title says so.
"""

from silos import LDP, NARROW, SDP, SECAGG, Panels, RealOptions, draw

import fedbandit_jax as fb

CLAIM = "on MSLR-WEB10K shuffling by amplification has less regret than silo-level LDP"
SAYS = CLAIM, "MSLR, T=25,000, 25 runs"


def measure(options: RealOptions) -> Panels:
    env, of = options.environment("body", 7, n_agents=options.pick(10, 100, 100))
    algos = options.algorithms(fb.privacy.Budget(1e-4, 1e-4), LDP, SDP, SECAGG, **NARROW)
    size = f"ε = δ = 0.0001, M=100, K ≤ {env.spec.n_arms}, d={env.spec.dim}, B=25"
    return {f"Fig. 3 (d): {of}\n{size}": (env, fb.sweep(env, algos, **options.run(50, 5_000, 25_000)))}


if __name__ == "__main__":
    draw(measure, [("FedLinUCB", SDP), (SDP, LDP)], SAYS, __doc__, RealOptions, at_end=True)
