"""Noise at equal privacy of all releases against the visits of a user, by how close together she may come.

python experiments/releases.py [--smoke]

The largest variance of a private prefix sum of S = 80 batches, times the squared sensitivity to all that one user
contributes. A panel is a rule for her: any batches without a bound for one of them (group privacy), one visit a batch,
and one visit a batch with batches that are 5 or 20 apart. Nothing is drawn at random.
"""

import dataclasses
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, pick
from drawing import legend_of_all, remark, save
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.privacy import RELEASES, Banded, BandMF, MultiBlt, Release, Users

S, VISITS, WIDTHS = 80, (1, 4, 16), (5, 10, 20, 40, 80)
RULES = {  # panel: per_batch and apart
    "any batches, any number in one": (None, 1),
    "one visit a batch, any batches": (1, 1),
    "one visit a batch, 5 batches apart": (1, 5),
    "one visit a batch, 20 batches apart": (1, 20),
}
COLOURS = (*fb.plotting.COLOURS[1:7], "0.5", "k")
NAMES = {
    "tree": "binary tree",
    "honaker": "tree, Honaker's estimates",
    "sqrt_toeplitz": "√ Toeplitz",
    "blt": "BLT",
    "input_perturbation": "noise on every batch",
    "MultiBlt": "BLT for several visits",
    "BandMF": "banded, for several visits",
    "Banded": "banded √ Toeplitz, best width",
}


@dataclasses.dataclass(frozen=True)
class ReleasesSize(Size):
    """Draw the noise of releases for users who return."""


def noise(release: Release, users: Users) -> float:
    return release.largest_variance() * release.sensitivity_sq(users)


def of_releases(n_syncs: int, users: Users, widths: tuple[int, ...]) -> dict[str, float]:
    """Returns the noise of every release by name; of `Banded` that of the best width."""
    made: dict[str, Callable[[int], Release]] = {
        **{name: release for name, release in RELEASES.items() if name != "prefix_tree"},
        "MultiBlt": MultiBlt(users),
        "BandMF": BandMF(max(widths), users),
    }
    found = {name: noise(release(n_syncs), users) for name, release in made.items()}
    return {**found, "Banded": min(noise(Banded(width)(n_syncs), users) for width in widths)}


def measure(options: ReleasesSize) -> list[Curve]:
    """Returns a curve for every release and rule, against visits that fit into S batches."""
    n, widths = options.pick(8, S, S), options.pick((5, 8), WIDTHS, WIDTHS)
    visits = options.pick(VISITS[:2], VISITS, VISITS)
    curves = []
    for rule, (per_batch, apart) in RULES.items():
        fits = [r for r in visits if r == 1 or (r - 1) * apart < n]
        found = [of_releases(n, Users(r, per_batch, apart), widths) for r in fits]
        curves += [Curve(rule, name, fits, [one[name] for one in found]) for name in found[0]]
    return curves


def main(options: ReleasesSize) -> None:
    curves = options.numbers("releases", lambda: measure(options))
    figure, axes = plt.subplots(2, 2, figsize=(10, 8.4), layout="constrained", sharex=True, sharey=True)
    shown = {}
    for ax, letter, rule in zip(axes.flat, "abcd", RULES):
        least = np.min([one.mean for one in pick(curves, rule)], axis=0)
        for i, (one, colour, mark) in enumerate(zip(pick(curves, rule), COLOURS, "svD^oXP*")):
            apart = one.x * 1.1 ** (i - 3.5)  # so that those on one another can be told apart
            ax.plot(apart, one.mean / least, f"{mark}-", color=colour, label=NAMES[one.label], linewidth=0.8)
            print(f"{rule}, {one.label}: " + ", ".join(f"{x:.0f}: {y:.5g}" for x, y in zip(one.x, one.mean)))
        shown[rule] = least
        worth = ", ".join(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in least)
        ax.set(xscale="log", yscale="log")
        ax.set_title(f"({letter}) {rule}\nnoise of the best: {worth}", fontsize="medium")
        ax.set_xticks(VISITS, [str(visits) for visits in VISITS])
        ax.set_yticks([1, 1.2, 1.5, 2, 3, 5, 10])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    for ax in axes[:, 0]:
        ax.set_ylabel("noise over that of the best release")
    for ax in axes[1]:
        ax.set_xlabel("visits of a user (points are set apart)")
    axes[1, 1].text(VISITS[-1], 1.5, "16 visits\ndo not fit", ha="center", fontsize="small", color="#666666")
    legend_of_all(figure, ncols=4)
    figure.suptitle(
        f"Releases of the sums of S = {S} batches at equal privacy of all that one user contributes.\n"
        "Noise: the largest variance of a sum × the squared sensitivity; nothing is drawn at random",
        fontsize="medium",
    )
    group, *others = shown.values()
    less = ", ".join(f"{np.sqrt(least[-1] / group[len(least) - 1]):.2f}" for least in others)
    remark(
        figure,
        "Against group privacy, (a), the standard deviation of the best release at the most visits of a panel falls to "
        f"{less} in (b), (c) and (d). Where visits may be anywhere, (a), five releases are equal.",
    )
    save("releases", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(ReleasesSize, description=__doc__))
