"""Draws the running times of Appendix E.4 of Liu et al. (2022): seconds for T rounds against the number of users.

python experiments/liu2022_runtime.py [--smoke | --full]

The paper's appendix has the time of every method at n = 40 and T = 10^5, on synthetic users and on MovieLens.
Compilation is not counted, and as many seeds run together as there are cores. bench/clustering.py measures more.
"""

import os
import time

import matplotlib.pyplot as plt
import tyro
from common import LiuOptions, liu_users, save

import fedbandit_jax as fb


def main(options: LiuOptions) -> None:
    run = {**options.run(512, 20_480, 102_400), "progress": False}
    users = options.pick((20,), (40, 200), (40, 200, 1_000, 5_000))
    methods = list(options.methods(fb.privacy.Budget(1.0, 0.1)).items())[:: options.pick(5, 1, 1)]
    figure, ax = plt.subplots(figsize=(8.0, 5.4), layout="constrained")
    for name, algo in methods:
        speeds = []
        for n in users:
            env = liu_users(n_users=n)
            fb.simulate(env, algo, **run)  # compiles the program, untimed
            started = time.perf_counter()
            fb.simulate(env, algo, **run)
            speeds.append(run["seeds"] * run["horizon"] / (time.perf_counter() - started))
        print(f"{name}: " + ", ".join(f"{s:,.0f} rounds/s (n = {n})" for n, s in zip(users, speeds)), flush=True)
        seconds = [run["seeds"] * run["horizon"] / speed for speed in speeds]
        second = name in ("Homo-DC", "CDP-FCLUB-DC, less noise")  # of its colour
        ax.plot(users, seconds, "s-" if second else "o-", color=fb.plotting.colour(algo), label=name)
    ax.set(xscale="log", yscale="log", xlabel="users n", xticks=users, xticklabels=users)
    ax.xaxis.minorticks_off()
    ax.set_ylabel(f"seconds for {run['seeds']} seeds x {run['horizon']:,} rounds")
    ax.set_title(f"Appendix E.4 of Liu et al. (2022): m=4, L=5, K=10, d=10, {os.cpu_count()} CPU cores")
    ax.grid(alpha=0.3, which="both")
    ax.legend(fontsize="small")
    save("liu2022_runtime", options, figure)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
