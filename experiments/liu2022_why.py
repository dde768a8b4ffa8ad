"""Shows why CDP-FCLUB-DC of Liu et al. (2022) fails once its noise is really added: one cause removed at a time.

python experiments/liu2022_why.py [--smoke | --full]

The instance is that of Figure 2 (a), and epsilon = 1 or 10 is asked for. Bars are regret at T, with the standard error.

1. Merging: noisy estimates of all local clusters are near 0, so that all merge into one global cluster.
2. Width: the confidence width grows with the root of what is added to the diagonal, and with the noise on sum x y.
3. Shift: 3 rho I at every upload outweighs sum x x'. Then theta is sum x y over a constant, which is not corrected for
   how often a direction was played, and as every reward is positive, what was played most looks best. A width makes up
   for that: sqrt(c x' (c I + G)^-1 x) is about 1 - x' G x / (2 c), the smaller the more often x was played.
4. Lag: without this shift determinants hardly grow, there are a few hundred uploads instead of 10^5, and servers learn
   late. With "less noise" counts of rounds decide, uploads are as few, and the whole width remains: so it is worse than
   the printed noise wherever that suffices.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import LIU_GAP, LiuOptions, mean_error, random_play, save, worth

import fedbandit_jax as fb

APART: dict[str, Any] = dict(alpha_2=1e-6)  # no estimates are so near that clusters merge
GREEDY: dict[str, Any] = dict(exploration_scale=0.0)
CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no merging": APART,
    "no width": GREEDY,
    "neither": {**APART, **GREEDY},
    "2ρI once, no 3ρI": dict(shift="once"),
    "2ρI once, neither": {**APART, **GREEDY, "shift": "once"},
}


def main(options: LiuOptions) -> None:
    env = fb.envs.clustered(n_clusters=4, seating="consecutive", gap=LIU_GAP)
    run = {**options.run(500, 100_000, 131_070), "n_seeds": options.pick(2, 5, 10)}
    epsilons = options.pick((1.0,), (1.0, 10.0), (1.0, 10.0))
    figure, axes = plt.subplots(1, len(epsilons), figsize=(15.0, 6.0), layout="constrained", sharey=True, squeeze=False)
    for epsilon, ax in zip(epsilons, axes[0]):
        every = options.methods(fb.privacy.Budget(epsilon, 0.1))
        algos = {name: every[name] for name in ("FCLUB-DC", "LinUCB", "Homo-DC")}
        given = {}
        for name, short in (("CDP-FCLUB-DC", "printed"), ("CDP-FCLUB-DC, less noise", "less noise")):
            given[short] = worth(every[name], env, run["horizon"])
            kept = {change: with_ for change, with_ in CHANGES.items() if short == "printed" or "once" not in change}
            algos |= {f"{short}: {change}": every[name].replace(**with_) for change, with_ in kept.items()}
        result = fb.sweep(env, dict(list(algos.items())[:: options.pick(4, 1, 1)]), **run)
        print(f"epsilon = {epsilon:g} asked, worth: {given}")
        for i, label in enumerate(result):
            mean, error = mean_error(result[label].regret[:, -1])
            sent = result[label].communication["rounds"][:, -1].mean()
            clusters = result[label].gauges["clusters"][:, -1].mean()
            colour = fb.plotting.COLOURS[0 if ":" not in label else 1 if "printed" in label else 2]
            ax.barh(i, mean, xerr=error, color=colour)
            ax.annotate(f" {sent:,.0f} sent, {clusters:.1f} clusters", (mean + error, i), va="center", fontsize="small")
            print(f"{label}: {mean:,.0f} +- {error:,.0f}, {sent:,.0f} uploads and downloads, {clusters:.1f} clusters")
        random = random_play(env, options.seed) * run["horizon"]
        ax.axvline(random, color="k", linestyle=":", label=f"random play: {random:,.0f}")
        ax.set(yticks=np.arange(len(result.labels)), yticklabels=result.labels, xlim=(0, 1.5 * random))
        worths = ", ".join(f"{short} worth ε={value:.2g}" for short, value in given.items())
        ax.set(xlabel="regret at T", title=f"ε={epsilon:g} asked; noise: {worths}")
        ax.invert_yaxis() if ax is axes[0, 0] else None
        ax.legend(loc="lower right", fontsize="small")
    where = f"n=40, m=4 (consecutive seats), L=5, K=10, d=10, δ=0.1, T={run['horizon']:,}"
    figure.suptitle(f"Why CDP-FCLUB-DC fails: {where}; mean of {run['n_seeds']} seeds ± 1 s.e.")
    save("liu2022_why", options, figure)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
