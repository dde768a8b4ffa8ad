"""Asks with which constants Dist-DP-SE matches DP-SE, as Chowdhury & Zhou (2023) say of their Figures 1 to 3.

python experiments/chowdhury2023_matches.py [--smoke]

Final regret of Dist-DP-SE over that of DP-SE, against the factor between the sizes of batches (2 in Algorithm 1, 4 in
the authors' code), with the radii of Lemma 2 and with radii from the exact law of the noise. DP-SE has epochs and
radii of its own. A cumulative regret is constant once one arm is left, so that more users hardly change the ratio.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import HORIZONS, ArmsSize, elimination, power, ratio
from common import save

import fedbandit_jax as fb

GROWTHS = (2, 3, 4, 6, 8, 12, 16)
PANELS = (("easy", 0.1), ("easy", 0.5), ("easy", 1.0), ("hard", 0.1), ("hard", 0.5), ("hard", 1.0))
RADII = ("theory", "exact")


def main(options: ArmsSize) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(14, 8.4), layout="constrained", sharex=True, sharey=True)
    growths, n_seeds = GROWTHS[:2] if options.smoke else GROWTHS, 0
    for ax, (instance, epsilon) in zip(axes.flat, PANELS):
        algos = {
            f"{radius} {growth}": elimination("Dist-DP-SE", epsilon, radius=radius, growth=growth)
            for radius in RADII
            for growth in growths
        }
        env = fb.envs.arms(10, instance=instance)
        run = options.arguments(HORIZONS[instance])
        n_seeds = run["seeds"]
        result = fb.sweep(env, {"DP-SE": elimination("DP-SE", epsilon), **algos}, **run)
        for radius, marker in zip(RADII, fb.plotting.MARKERS):
            value, error = np.transpose([ratio(result, f"{radius} {growth}", "DP-SE") for growth in growths])
            colour = fb.plotting.colour(result[f"{radius} {growths[0]}"])
            ax.errorbar(growths, value, error, fmt=f"{marker}-", color=colour, label=f"Dist-DP-SE, {radius} radii")
            found = ", ".join(f"{g}: {v:.2f} ± {e:.2f}" for g, v, e in zip(growths, value, error))
            print(f"{instance}, epsilon={epsilon}, {radius} radii, growth {found}")
        ax.axhline(1, color=fb.plotting.colour(result["DP-SE"]), label="DP-SE")
        regret = result["DP-SE"].regret[:, -1]
        size = f"K=10, T={power(result.rounds[-1])}, p=0.1"
        ax.set_title(f"{instance} instances, ε={epsilon}, {size}\nDP-SE: {regret.mean():,.0f}", fontsize="medium")
        ax.set_xscale("log", base=2)
        ax.set_xticks(growths, [str(growth) for growth in growths])
        ax.grid(alpha=0.3)
    for ax in axes[:, 0]:
        ax.set_ylabel("final regret over that of DP-SE")
    for ax in axes[1]:
        ax.set_xlabel("factor between sizes of batches")
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].legend(frameon=False)
    figure.suptitle(
        "The paper: at large T, the regret of Dist-DP-SE matches that of DP-SE, whose constants are not its own.\n"
        f"Ratio of mean final regret over {n_seeds} instances, bars: 1 s.e. of the paired ratio"
    )
    save("chowdhury2023_matches", options, figure)


if __name__ == "__main__":
    main(tyro.cli(ArmsSize, description=__doc__))
