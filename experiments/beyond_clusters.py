"""Draws what private clustering costs: regret against the number of clusters, certified, printed and without privacy.

python experiments/beyond_clusters.py [--movielens DIR] [--smoke | --full]

Every user has a private stream of sums, released at times fixed in advance, and is served by the sums of all who are
taken to be alike: found by a mixture of linear models under the known noise (`fb.algos.Mixture`), or nobody (one model
for each user). Both are certified for each interaction. Beside them are the algorithms of Liu et al. (2022), without
privacy and with the noise as printed, of which nothing is proved. Nothing was chosen on these seeds. The users of the
last group are the 40 most active ones of your copy of MovieLens, each with her own preferences; how sums are pooled was
chosen with the same users in sight. `beyond_clusters_paper.py` has the paper's instance, small delta and tuned widths.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import LiuOptions, mean_error, save

import fedbandit_jax as fb

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data" / "ml-latest-small"  # default, if it exists
CLUSTERS, DELTA = (1, 2, 4, 6, 8, 10), 0.1
TIMES = fb.schedules.Geometric(1.2, first=300)
MIXTURE = fb.algos.Mixture(theta_norm=0.5**0.5)  # E[y] - 1/2 is <x, theta> with a theta of this norm at most


def streams(grouping: fb.algos.Grouping, epsilon: float | None = None, delta: float = DELTA) -> fb.Algorithm:
    """Returns a private stream for every user, released at `TIMES`; without an epsilon it is not private."""
    privacy = None
    if epsilon is not None:
        budget = fb.privacy.Budget(epsilon, delta)
        privacy = fb.privacy.Mechanism(
            budget, "blt", unit="visit", statistic=fb.privacy.Linear(centred=True, gram_scale=0.5)
        )
    return fb.algos.Grouped(grouping=grouping, schedule=TIMES, privacy=privacy)


@dataclasses.dataclass(frozen=True)
class Clusters(LiuOptions):
    """Draw the figure.

    Args:
        movielens: folder of your copy of MovieLens.
    """

    movielens: Path | None = BESIDE if BESIDE.is_dir() else None

    def algorithms(self) -> dict[str, fb.Algorithm]:
        """Returns the algorithms by what the legend says."""
        mixture, alone = MIXTURE, fb.algos.Alone()
        printed = self.methods(fb.privacy.Budget(1.0, DELTA))
        return {
            "mixture, ε = 1": streams(mixture, 1.0),
            "mixture, ε = 5": streams(mixture, 5.0),
            "one model a user, ε = 1": streams(alone, 1.0),
            "one model a user, ε = 5": streams(alone, 5.0),
            "mixture, not private": streams(mixture),
            **{f"{name}, not private": printed[name] for name in ("FCLUB-DC", "CLUB", "SCLUB", "LinUCB")},
            "CDP-FCLUB-DC as printed, ε = 1": printed["CDP-FCLUB-DC"],
        }

    def worlds(self) -> dict[str, fb.Environment]:
        """Returns the instances by the label of the axis."""
        made: dict[str, Any] = {
            f"m = {m}": fb.envs.clustered(n_clusters=m, gap=0.5 if m <= 4 else 0.3) for m in CLUSTERS
        }
        if self.movielens is not None:
            data = fb.data.movielens(self.movielens, n_users=40, n_clusters=4, thetas="user")
            made["MovieLens"] = fb.envs.community(**data.arguments(), n_servers=5)
        return dict(list(made.items())[:: self.pick(4, 1, 1)])


def main(options: Clusters) -> None:
    run = {**options.run(2_000, 100_000, 100_000), "key": jax.random.key(options.seed + 2027)}
    worlds, algorithms = options.worlds(), options.algorithms()
    figure, ax = plt.subplots(figsize=(13.0, 6.5), layout="constrained")
    found = {}
    for where, env in worlds.items():
        result = fb.sweep(env, algorithms, **run)
        found[where] = [(*mean_error(result[name].regret[:, -1]), result[name].certificate.claim) for name in result]
        lines = (f"{a:8,.0f} ± {b:5,.0f}  {claim:10}  {name}" for name, (a, b, claim) in zip(result, found[where]))
        print(where, *lines, sep="\n", flush=True)
    places, width = np.arange(len(worlds)), 0.8 / len(algorithms)
    for i, name in enumerate(algorithms):
        mean, error, claims = zip(*(found[where][i] for where in worlds))
        hatch = "" if claims[0] == "certified" else "///"
        style: dict[str, Any] = dict(
            color=fb.plotting.COLOURS[i % len(fb.plotting.COLOURS)], hatch=hatch, edgecolor="white"
        )
        ax.bar(places + (i - len(algorithms) / 2 + 0.5) * width, mean, width, yerr=error, label=name, **style)
    ax.set_xticks(places, list(worlds))
    ax.set(yscale="log", ylabel=f"regret after {run['horizon']:,} rounds")
    ax.set_title(
        f"n = 40 users, K = 10, d = 10, δ = {DELTA:g}; {run['seeds']} seeds ± one standard error; hatched: claim none"
    )
    figure.legend(fontsize="small", ncols=5, loc="outside lower center")
    save("beyond_clusters", options, figure)


if __name__ == "__main__":
    main(tyro.cli(Clusters, description=__doc__))
