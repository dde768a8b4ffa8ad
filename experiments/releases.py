"""Noise at equal privacy of all releases against the visits of a user, by how close together she may come.

python experiments/releases.py [--smoke]

The largest variance of a private prefix sum of S = 80 batches, times the squared sensitivity to all that one user
contributes. A panel is a rule for her: any batches without a bound for one of them (group privacy), one visit a batch,
and one visit a batch with batches that are 5 or 20 apart. If silos count together, it is the same at any number of
silos. In two more panels each of four silos admits a quarter of the visits, 5 batches apart, and has its own noise, or
one noise is on their sum. Drawn are standard deviations, in units of that of the best release by group privacy, at the
same number of visits. Nothing is drawn at random.
"""

import numpy as np
from curves import Curve, pick
from drawing import Panel, Picture, main
from matplotlib.axes import Axes
from options import Size

import fedbandit_jax as fb
from fedbandit_jax.privacy import RELEASES, BandMF, Release, Users

NEAR = 0.03  # share by which noise is called equal
S, VISITS = 80, (1, 4, 16)
RULES = {  # panel: per_batch, apart, silos that count separately, and whether each has its own noise
    "any batches, any number in one": (None, 1, 1, True),
    "one visit a batch, any batches": (1, 1, 1, True),
    "one visit a batch, 5 batches apart": (1, 5, 1, True),
    "one visit a batch, 20 batches apart": (1, 20, 1, True),
    "4 silos, 5 batches apart, own noise": (1, 5, 4, True),
    "4 silos, 5 batches apart, one noise": (1, 5, 4, False),
}
NAMES = {
    "tree": "binary tree",
    "sqrt_toeplitz": "√ Toeplitz",
    "blt": "buffered linear Toeplitz (BLT)",
    "input_perturbation": "noise on every batch",
    "BandMF": "banded, for several visits",
}
LOOKS = [f"{colour} {mark}" for colour, mark in zip((fb.plotting.COLOURS[1], *fb.plotting.COLOURS[3:6], "k"), "sD^oX")]


def noise(release: Release, users: Users) -> float:
    return release.largest_variance() * release.sensitivity_sq(users)


def of_releases(n_syncs: int, users: Users) -> dict[str, float]:
    """Returns the noise of every release by name."""
    made = {**RELEASES, "BandMF": BandMF(n_syncs, users)}
    return {name: noise(release(n_syncs), users) for name, release in made.items()}


def measure(options: Size) -> list[Curve]:
    """Returns a curve for every release and rule, against visits that fit into S batches."""
    n, visits, curves = options.pick(8, S, S), options.pick(VISITS[:2], VISITS, VISITS), []
    for rule, (per_batch, apart, silos, own) in RULES.items():
        fits = [r for r in visits if not r % silos and (r // silos - 1) * apart < n]
        found, times = [of_releases(n, Users(r // silos, per_batch, apart)) for r in fits], silos if own else silos**2
        curves += [Curve(rule, name, fits, [times * one[name] for one in found]) for name in found[0]]
    return curves


def picture(curves: list[Curve]) -> Picture:
    first, *_ = grouped = pick(curves, next(iter(RULES)))
    group = dict(zip(first.x, np.sqrt(np.min([one.mean for one in grouped], axis=0))))
    shown, best = [], []
    for rule in RULES:
        ones = [
            Curve(rule, NAMES[one.label], one.x, np.sqrt(one.mean) / [group[x] for x in one.x], look)
            for one, look in zip(pick(curves, rule), LOOKS)
        ]
        least, last = np.min([one.mean for one in ones], axis=0), ones[0].x[-1]

        def also(ax: Axes, least: np.ndarray = least, last: float = last) -> None:
            ax.axhline(1, color="0.8", zorder=0)
            if least[-1] < 1 - NEAR:
                at = last, least[-1]
                ax.annotate(f"{least[-1]:.2f}", at, (0, -18), textcoords="offset points", ha="center")
            if last < VISITS[-1]:
                words = f"{VISITS[-1]} visits\ndo not fit"
                ax.text(18, 1.2, words, ha="right", fontsize="small", color="#666666")

        panel = Panel(
            ones, rule, "visits of a user" if rule in list(RULES)[3:] else "", spread=0.07, xticks=VISITS, also=also
        )
        panel.yticks, panel.look = (
            (0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 3, 4),
            dict(mfc="none", markersize=7, linewidth=0.8),
        )
        panel.axes |= dict(xscale="log", yscale="log", xlim=(0.7, 23), ylim=(0.24, 4.5))
        shown.append(panel)
        best.append((least[-1], last))
    for panel in shown[::3]:
        panel.axes["ylabel"] = "standard deviation / group privacy's best"
    less = ", ".join(f"{least:.2f} ({visits:g} visits)" for least, visits in best[1:])
    first = {one.label: one.mean[0] for one in shown[0].curves}
    equal = [name for name, value in first.items() if value <= 1 + NEAR]
    return Picture(
        shown,
        "Noise of releases at equal privacy of returning users",
        f"Sums of S = {S} batches at equal privacy of all that one user contributes. Drawn is the largest standard "
        "deviation of a sum × the sensitivity, over that of the best release in (a). Points are set apart",
        "Against group privacy, (a), the standard deviation of the best release at the most visits of a panel is "
        f"{less} in (b) to (f). In (a) {len(equal)} releases are equal within {100 * NEAR:g} %: "
        f"{', '.join(equal)}. A binary tree has {first[NAMES['tree']]:.1f} times their standard deviation, and noise "
        f"on every batch {first[NAMES['input_perturbation']]:.1f} times. Nothing is drawn at random.",
        shape=(2, 3),
        height=6.3,
        grid=dict(sharex=True, sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
