"""Draws Theorem 3 of Chowdhury & Zhou (2023): pure DP by a shuffler of bits in place of secure aggregation.

python experiments/chowdhury2023_shuffle.py [--radius exact] [--smoke]

The theorem has the same orders of regret and of bits as with secure aggregation; the noise has half of epsilon. Panel
(d) is what a user sends in a batch of n users. The paper counts the bits of a message before it is mapped to the bits
that are shuffled; these are as many as the protocol of Cheu & Yan (2021) needs, with the constants of its proof.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import HORIZONS, RadiusOptions, elimination, power, ratio
from common import save

import fedbandit_jax as fb

LABELS = ("CDP-SE", "LDP-SE", "Dist-DP-SE", "Shuffle-DP-SE")
EPSILONS = (0.1, 0.5, 1.0)


def main(options: RadiusOptions) -> None:
    figure, grid = plt.subplots(2, 2, figsize=(13, 11.5), layout="constrained")
    (*panels, last), run = list(grid.flat), options.arguments(HORIZONS["easy"])
    env = fb.envs.arms(10, instance="easy")
    lines = {f"{one} / Dist-DP-SE": [] for one in ("Shuffle-DP-SE", "CDP-SE", "LDP-SE")}
    for ax, letter, epsilon in zip(panels, "abc", EPSILONS):
        algos = {label: elimination(label, epsilon, radius=options.radius) for label in LABELS}
        result = fb.sweep(env, algos, **run)
        title = f"({letter}) easy instances, ε={epsilon}\nK=10, T={power(result.rounds[-1])}, p=0.1, {options.how}"
        fb.plotting.regret(result, title=title, ax=ax)
        print(f"\n{title}\n{result.summary()}")
        for pair, found in lines.items():
            found.append(ratio(result, *pair.split(" / ")))
    for label in LABELS:
        algo = elimination(label, EPSILONS[-1])
        protocol = algo.bind(env.spec, run["horizon"]).protocol
        asked = np.flatnonzero(protocol.users)
        users, bits = np.asarray(protocol.users)[asked], np.asarray(protocol.bits)[asked]
        last.plot(users, bits, "o-", color=fb.plotting.colour(algo), label=label)
        rise, power_law = (np.polyfit(np.log2(users), y, 1)[0] for y in (bits, np.log2(bits)))
        print(f"{label}: {bits[0]:,.0f} to {bits[-1]:,.0f} bits for n = {users[0]} to {users[-1]:,} users, ", end="")
        print(f"{rise:.3g} more for twice as many users, or as n^{power_law:.2f}")
    last.set(xscale="log", yscale="log", xlabel="n users in a batch", ylabel="bits that a user sends")
    last.set_title(f"(d) communication, ε={EPSILONS[-1]:g}", fontsize="medium")
    last.grid(alpha=0.3)
    last.legend(frameon=False)
    words = [f"{pair}: " + ", ".join(f"{r:.2f} ± {e:.2f}" for r, e in found) for pair, found in lines.items()]
    caption = "The paper: regret and bits of the same order as with secure aggregation (Theorem 3).\n"
    caption += "Ratios of mean regret at T seen here, panels (a) to (c), ± 1 s.e.:\n" + "\n".join(words)
    figure.supxlabel(caption, fontsize="medium", x=0.01, ha="left")
    print(caption)
    save(f"chowdhury2023_shuffle_{options.variant}", options, figure)


if __name__ == "__main__":
    main(tyro.cli(RadiusOptions, description=__doc__))
