"""Draws Figure 3 (a) and (b) of Zhou & Chowdhury (2024): the cost of silo-level LDP on the synthetic instance.

python experiments/zhou2024_fig3ab.py [--as authors] [--smoke | --full]

The figures show regret over rounds: (a) varies epsilon at delta = 0.1, (b) varies delta at epsilon = 5.
"""

from typing import Any

import tyro
from drawing import Says
from silos import Options, finish

import fedbandit_jax as fb

A: list[tuple[float, float]] = [(0.2, 0.1), (1, 0.1), (5, 0.1)]  # (epsilon, delta) of the curves in panel (a)
B: list[tuple[float, float]] = [(5, 0.1), (5, 0.01), (5, 0.001)]  # likewise, in panel (b)


def label(epsilon: float, delta: float) -> str:
    return f"LDP-FedLinUCB (ε={epsilon}, δ={delta})"


def main(options: Options) -> None:
    env = fb.envs.sphere(*options.shape(100, 100, 10), rewards=options.rewards)
    private = {label(*b): options.private_fed_lin_ucb(fb.privacy.Budget(*b)) for b in (*A, *B)}

    def measure() -> dict[str, tuple[Any, fb.Result]]:
        result = fb.sweep(env, {"FedLinUCB": options.fed_lin_ucb(), **private}, **options.run(50, 10_000, 10_000))
        return {
            f"Fig. 3 ({panel}): {what}, M=100, K=100, d=10, B=25": (
                env,
                fb.concat([result[name] for name in ("FedLinUCB", *map(label, *zip(*budgets)))]),
            )
            for panel, budgets, what in (("a", A, "δ=0.1"), ("b", B, "ε=5"))
        }

    order = [[label(*b) for b in budgets] for budgets in (A[::-1], B)]
    claims = {pair: None for names in order for pair in zip(["FedLinUCB", *names], names)}
    says = Says("Fig. 3 (a), (b)", "regret falls with ε and with δ, towards FedLinUCB", "T=10,000, 25 runs", "")
    finish(options, measure, list(claims), says)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
