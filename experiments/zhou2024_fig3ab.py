"""Draws Figure 3 (a) and (b) of Zhou & Chowdhury (2024): the cost of silo-level LDP on the synthetic instance."""

from itertools import chain, pairwise

from silos import LDP, Options, Panels, draw

import fedbandit_jax as fb

BUDGETS = {"a): δ=0.1": [(0.2, 0.1), (1, 0.1), (5, 0.1)], "b): ε=5": [(5, 0.1), (5, 0.01), (5, 0.001)]}
NAMES = {panel: [f"{LDP} (ε={epsilon}, δ={delta})" for epsilon, delta in of] for panel, of in BUDGETS.items()}
(A, B), OPEN = NAMES.values(), "FedLinUCB"
CLAIMS = list(dict.fromkeys([*pairwise([OPEN, *A[::-1]]), *pairwise([OPEN, *B])]))
SAYS = "regret falls with ε and with δ, towards FedLinUCB", "T=10,000, 25 runs"


def measure(options: Options) -> Panels:
    algos, env = {OPEN: options.algorithms(fb.privacy.Budget(5, 0.1))[0]}, options.sphere()
    for name, budget in zip([*A, *B], chain(*BUDGETS.values())):
        algos[name] = options.algorithms(fb.privacy.Budget(*budget), LDP)[1]
    result = fb.sweep(env, algos, **options.run(50, 10_000, 10_000))
    of = {panel: fb.concat([result[name] for name in (OPEN, *names)]) for panel, names in NAMES.items()}
    return {f"Fig. 3 ({panel}, M=100, K=100, d=10, B=25": (env, found) for panel, found in of.items()}


if __name__ == "__main__":
    draw(measure, CLAIMS, SAYS, __doc__)
