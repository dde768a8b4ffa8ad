"""Shows why CDP-FCLUB-DC of Liu et al. (2022) fails once its noise is really added: one cause removed at a time.

python experiments/liu2022_why.py [--smoke | --full]

The instance is that of Figure 2 (a), and epsilon = 1 or 10 is asked for. Bars are regret at T, with the standard error.

- Merging: noisy estimates of all local clusters are near 0, so that all merge; but Homo-DC, which merges everybody
  without noise, does better than what is left.
- Width: beta grows with the root of what is added to the diagonal, and with the noise on sum x y.
- Shift: the 3 rho I that is added at every upload hides the width. With c I on the diagonal and G = sum x x', the bonus
  sqrt(c x' (c I + G)^-1 x) is about 1 - x' G x / (2 c), nearly the same for all items. "Less noise" adds 2 rho I once,
  so that its widths do matter: that is why it does worse than the printed noise, at an equal worth, too.
- Lag: without 3 rho I determinants hardly grow, and there are far fewer uploads and downloads.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import LiuOptions, liu_users, mean_error, random_play, save, worth

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
    env = liu_users()
    run = {**options.run(500, 100_000, 131_070), "seeds": options.pick(2, 5, 10)}
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
        random = random_play(env, options.seed) * run["horizon"]
        print(f"epsilon = {epsilon:g} asked, worth: {given}")
        for i, label in enumerate(result):
            mean, error = mean_error(result[label].regret[:, -1])
            sent = result[label].communication["rounds"][:, -1].mean()
            clusters = result[label].gauges["clusters"][:, -1].mean()
            colour, hatch = fb.plotting.colour(result[label]), "///" if "less" in label else ""
            ax.barh(i, mean, xerr=error, color=colour, hatch=hatch, edgecolor="white")
            text = f" {sent:,.0f} sent, {clusters:.1f} clusters"
            ax.annotate(text, (1.05 * random, i), va="center", fontsize="small")
            print(f"{label}: {mean:,.0f} +- {error:,.0f}, {sent:,.0f} uploads and downloads, {clusters:.1f} clusters")
        ax.axvline(random, color="k", linestyle=":", label=f"random play: {random:,.0f}")
        ax.set(yticks=np.arange(len(result.labels)), yticklabels=result.labels, xlim=(0, 1.6 * random))
        worths = ", ".join(f"{short} worth ε={value:.2g}" for short, value in given.items())
        ax.set(xlabel="regret at T", title=f"ε={epsilon:g} asked; noise: {worths}")
        ax.legend(loc="lower right", fontsize="small")
    axes[0, 0].invert_yaxis()
    where = f"n=40, m=4 (consecutive seats), L=5, K=10, d=10, δ=0.1, T={run['horizon']:,}"
    figure.suptitle(f"Why CDP-FCLUB-DC fails: {where}; mean of {run['seeds']} seeds ± 1 s.e.")
    save("liu2022_why", options, figure)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
