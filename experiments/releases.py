"""Noise at equal privacy of all releases against the visits of a user, by how close together she may come.

python experiments/releases.py [--smoke]

The largest variance of a private prefix sum of S = 80 batches, times the squared sensitivity to all that one user
contributes. A panel is a rule for her: any batches without a bound for one of them (group privacy), one visit a batch,
and one visit a batch with batches that are 5 or 20 apart. Nothing is drawn at random.
"""

import dataclasses
from collections.abc import Callable

import matplotlib.pyplot as plt
import tyro
from common import Size, save
from curves import Curve, pick

import fedbandit_jax as fb
from fedbandit_jax.privacy import RELEASES, Banded, BandMF, MultiBlt, Release, Users

S, VISITS, WIDTHS = 80, (1, 4, 16), (5, 10, 20, 40, 80)
RULES = {  # panel: per_batch and apart
    "any batches, any number in one": (None, 1),
    "one visit a batch, any batches": (1, 1),
    "one visit a batch, 5 batches apart": (1, 5),
    "one visit a batch, 20 batches apart": (1, 20),
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
    figure, axes = plt.subplots(1, 4, figsize=(15, 4.8), layout="constrained", sharey=True)
    for ax, rule in zip(axes, RULES):
        for one, colour, mark in zip(pick(curves, rule), (*fb.plotting.COLOURS[1:7], "0.5", "k"), "svD^oXP*"):
            ax.plot(one.x, one.mean, f"{mark}-", color=colour, label=one.label, markersize=5)
            print(f"{rule}, {one.label}: " + ", ".join(f"{x:.0f}: {y:.5g}" for x, y in zip(one.x, one.mean)))
        ax.set(xscale="log", yscale="log", xlabel="visits of a user", title=rule)
        ax.set_xticks(VISITS, [str(visits) for visits in VISITS])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("largest variance × squared sensitivity")
    figure.suptitle(f"Releases of the sums of S = {S} batches at equal privacy of all that one user contributes")
    axes[0].legend(frameon=False, fontsize="small")
    save("releases", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(ReleasesSize, description=__doc__))
