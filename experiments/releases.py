"""Noise at equal privacy of all releases against the visits of a user, by how close together she may come.

python experiments/releases.py [--smoke]

The largest variance of a private prefix sum of S = 80 batches, times the squared sensitivity to all that one user
contributes. A panel is a rule for her: any batches without a bound for one of them (group privacy), one visit a batch,
and one visit a batch with batches that are 5 or 20 apart. Drawn are standard deviations, in units of that of the best
release by group privacy, at the same number of visits. Nothing is drawn at random.
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

NEAR = 0.03  # share by which noise is called equal
S, VISITS, WIDTHS = 80, (1, 4, 16), (5, 10, 20, 40, 80)
RULES = {  # panel: per_batch and apart
    "any batches, any number in one": (None, 1),
    "one visit a batch, any batches": (1, 1),
    "one visit a batch, 5 batches apart": (1, 5),
    "one visit a batch, 20 batches apart": (1, 20),
}
COLOURS = (fb.plotting.COLOURS[1], *fb.plotting.COLOURS[3:7], "0.5", "k")
NAMES = {
    "tree": "binary tree",
    "sqrt_toeplitz": "√ Toeplitz",
    "blt": "buffered linear Toeplitz (BLT)",
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
        **RELEASES,
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
    figure, axes = plt.subplots(2, 2, figsize=(10, 8.8), layout="constrained", sharex=True, sharey=True)
    group = np.sqrt(np.min([one.mean for one in pick(curves, next(iter(RULES)))], axis=0))
    best = {}
    for ax, letter, rule in zip(axes.flat, "abcd", RULES):
        deviations = {one.label: np.sqrt(one.mean) / group[: len(one.x)] for one in pick(curves, rule)}
        for i, (one, colour, mark) in enumerate(zip(pick(curves, rule), COLOURS, "sD^oXP*")):
            look = dict(color=colour, markerfacecolor="none", markersize=7, linewidth=0.8)
            ax.plot(one.x * 1.07 ** (i - 3.5), deviations[one.label], f"{mark}-", label=NAMES[one.label], **look)
            print(f"{rule}, {one.label}: " + ", ".join(f"{x:.0f}: {y:.5g}" for x, y in zip(one.x, one.mean)))
        best[rule] = np.min(list(deviations.values()), axis=0)
        ax.axhline(1, color="0.8", zorder=0)
        ax.set(xscale="log", yscale="log", xlim=(0.7, 23), ylim=(0.35, 4.5))
        ax.set_title(f"({letter}) {rule}", fontsize="medium")
        ax.set_xticks(VISITS, [str(visits) for visits in VISITS])
        ax.set_yticks([0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 3, 4])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
        if best[rule][-1] < 1 - NEAR:
            words = f"{best[rule][-1]:.2f}"
            ax.annotate(
                words, (VISITS[len(best[rule]) - 1], best[rule][-1]), (0, -18), textcoords="offset points", ha="center"
            )
        if len(best[rule]) < len(VISITS):
            ax.text(18, 1.2, f"{VISITS[-1]} visits\ndo not fit", ha="right", fontsize="small", color="#666666")
    for ax in axes[:, 0]:
        ax.set_ylabel("standard deviation / group privacy's best")
    for ax in axes[1]:
        ax.set_xlabel("visits of a user")
    legend_of_all(figure, ncols=3)
    figure.suptitle(
        f"Releases of the sums of S = {S} batches at equal privacy of all that one user contributes: the largest\n"
        "standard deviation of a sum × the sensitivity, over that of the best release in (a); points are set apart",
        fontsize="medium",
    )
    others = list(best.values())[1:]
    less = ", ".join(f"{least[-1]:.2f} ({VISITS[len(least) - 1]} visits)" for least in others)
    first = {one.label: one.mean[0] ** 0.5 / group[0] for one in curves if one.panel == next(iter(RULES))}
    equal = [NAMES[name] for name, value in first.items() if value <= 1 + NEAR]
    remark(
        figure,
        "Against group privacy, (a), the standard deviation of the best release at the most visits of a panel falls to "
        f"{less} in (b), (c) and (d). By group privacy, (a), {len(equal)} releases are equal within {100 * NEAR:g} %: "
        f"{', '.join(equal)}; a binary tree has {first['tree']:.1f} times their standard deviation, noise on every "
        f"batch {first['input_perturbation']:.1f} times. Nothing is drawn at random.",
    )
    save("releases", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(ReleasesSize, description=__doc__))
