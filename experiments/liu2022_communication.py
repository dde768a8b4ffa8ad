"""Draws uploads and downloads over time, for Theorem 2 and Appendix E.3 of Liu et al. (2022).

python experiments/liu2022_communication.py [--smoke | --full]

Local clusters upload when their statistics have grown by a factor U, and download when those of their global cluster
are D times their own. (a) FCLUB exchanges something in every round; FCLUB-DC exchanges ever less, O(log T) if U and D
are 1.01. With the noise and shifts of CDP-FCLUB-DC there is an upload in nearly every round until the shifts that have
been added outweigh those of one more upload. (b) Regret against communication, for U = D from 1 to 10.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import LiuOptions, liu_users, mean_error, save, worth

import fedbandit_jax as fb

RATIOS = (1.0, 1.001, 1.01, 1.1, 1.5, 3.0, 10.0)
SHOWN = ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CDP-FCLUB-DC, less noise", "Homo-DC")


def main(options: LiuOptions) -> None:
    env = liu_users()
    every = options.methods(fb.privacy.Budget(1.0, 0.1))
    run = {**options.run(1_000, 131_070, 1_048_574), "seeds": options.pick(2, 5, 10), "stride": "log"}
    result = fb.sweep(env, {name: every[name] for name in SHOWN}, **run)
    figure, (left, right) = plt.subplots(1, 2, figsize=(14.0, 5.6), layout="constrained")
    for name, style in fb.plotting.styles(result).items():
        curves = result[name].communication["rounds"]
        mean, spread = curves.mean(0), curves.std(0)
        seen = mean > 0  # 0 before the first step of 64 rounds has been counted
        given = f": noise worth ε = {worth(every[name], env, run['horizon']):.2g}" if name.startswith("CDP") else ""
        look = dict(color=style.colour, marker=style.marker, markevery=0.1)
        left.loglog(result.rounds[seen], mean[seen], label=name + given, **look)
        left.fill_between(
            result.rounds, np.maximum(mean - spread, 1), mean + spread, seen, color=style.colour, alpha=0.2
        )
        slopes = np.diff(np.interp(result.rounds[-1] / np.array([16, 4, 1]), result.rounds, mean))
        print(f"{name}: {mean[-1]:,.0f} uploads and downloads; {slopes[0]:,.0f} in (T/16, T/4], {slopes[1]:,.0f} since")
    left.set(xlabel="round $t$", ylabel="uploads and downloads")
    left.set_title("(a) U = D = 1.01, but FCLUB 1, less noise 1.1 of counts; ± 1 standard deviation", fontsize="medium")
    left.legend(fontsize="small")
    points = []
    for ratio in RATIOS[:: options.pick(3, 1, 1)]:
        algo = every["FCLUB-DC"].replace(upload=ratio, download=ratio)
        how: dict[str, Any] = {**run, "horizon": options.pick(1_000, 100_000, 100_000)}
        one = fb.simulate(env, algo, **how)
        points.append((*mean_error(one.communication["rounds"][:, -1]), *mean_error(one.regret[:, -1])))
        right.annotate(f"{ratio:g}", (points[-1][0], points[-1][2]), xytext=(4, 4), textcoords="offset points")
        sent, _, regret, error = points[-1]
        print(f"U = D = {ratio:g}: {sent:,.0f} uploads and downloads, regret {regret:.0f} +- {error:.0f}")
    x, dx, y, dy = np.array(points).T
    right.errorbar(x, y, dy, dx, fmt="o-", color=fb.plotting.colour(every["FCLUB-DC"]))
    right.set(xscale="log", xlabel="uploads and downloads", ylabel="regret at T")
    right.set_title("(b) FCLUB-DC to T = 100,000, U = D at each point; ± 1 s.e.", fontsize="medium")
    for ax in (left, right):
        ax.grid(alpha=0.3)
    where = f"n=40, m=4 (consecutive seats), L=5, K=10, d=10; ε=1 asked, δ=0.1; mean of {run['seeds']} seeds"
    figure.suptitle(f"Theorem 2 and Appendix E.3 of Liu et al. (2022): {where}")
    save("liu2022_communication", options, figure)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
