"""Noise at equal privacy of all releases against the visits of a user, by how close together she may come.

The largest variance of a private prefix sum of S = 80 batches, times the squared sensitivity to all that one user
contributes. A panel is a rule for her. If silos count together, it is the same at any number of silos; in (e), (f) each
of four silos admits a quarter of the visits. Nothing is drawn at random.
"""

import numpy as np
from curves import pick
from drawing import LOGS, Axes, Curve, Panel, Picture, Size, main

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
COLOURS = (fb.plotting.COLOURS[1], *fb.plotting.COLOURS[3:6], "#332288")
LOOKS = [f"{colour} {mark}" for colour, mark in zip(COLOURS, "sD^oX")]


def noise(release: Release, users: Users) -> float:
    return release.largest_variance() * release.sensitivity_sq(users)


def measure(options: Size) -> list[Curve]:
    n, visits, curves = options.pick(8, S, S), options.pick(VISITS[:2], VISITS, VISITS), []
    for rule, (per_batch, apart, silos, own) in RULES.items():
        fits = [r for r in visits if not r % silos and (r // silos - 1) * apart < n]
        users, times = [Users(r // silos, per_batch, apart) for r in fits], silos if own else silos**2
        made = {name: [noise(make(n), one) for one in users] for name, make in RELEASES.items()}
        made["BandMF"] = [noise(BandMF(n, one)(n), one) for one in users]
        curves += [Curve(rule, name, fits, times * np.array(values)) for name, values in made.items()]
    return curves


def picture(curves: list[Curve]) -> Picture:
    grouped, shown, best = pick(curves, next(iter(RULES))), [], []
    group = dict(zip(grouped[0].x, np.sqrt(np.min([one.mean for one in grouped], axis=0))))
    for i, rule in enumerate(RULES):
        found = [one.but(y=np.sqrt(one.y)).per([group[x] for x in one.x]) for one in pick(curves, rule)]
        ones = [one.but(label=NAMES[one.label], style=look) for one, look in zip(found, LOOKS)]
        least, last = min(one.mean[-1] for one in ones), ones[0].x[-1]

        def also(ax: Axes, least: float = least, last: float = last) -> None:
            ax.axhline(1, color="0.8", zorder=0)
            if least < 1 - NEAR:
                ax.annotate(f"{least:.2f}", (last, least), (0, -18), textcoords="offset points", ha="center")
            if last < VISITS[-1]:
                words = f"{VISITS[-1]} visits\ndo not fit"
                ax.text(18, 1.2, words, ha="right", fontsize="small", color="#666666")

        panel = Panel(ones, rule, "visits of a user" if i > 2 else "", spread=0.07, xticks=VISITS, also=also)
        panel.yticks = (0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 3, 4)
        panel.look = dict(mfc="none", markersize=7, linewidth=0.8)
        panel.axes |= dict(LOGS, xlim=(0.7, 23), ylim=(0.24, 4.5))
        shown.append(panel)
        best.append(f"{least:.2f} ({last:g} visits)")
    first = {one.label: one.mean[0] for one in shown[0].curves}
    equal = [name for name, value in first.items() if value <= 1 + NEAR]
    return Picture(
        shown,
        "Noise of releases at equal privacy of returning users",
        f"Sums of S = {S} batches at equal privacy of all that one user contributes. Drawn is the largest standard "
        "deviation of a sum × the sensitivity, over the best release's in (a). Points are set apart",
        "Against group privacy, (a), the standard deviation of the best release at the most visits of a panel is "
        f"{', '.join(best[1:])} in (b) to (f). In (a) {len(equal)} releases are equal within {100 * NEAR:g} %: "
        f"{', '.join(equal)}. A binary tree has {first[NAMES['tree']]:.1f} times their standard deviation, and noise "
        f"on every batch {first[NAMES['input_perturbation']]:.1f} times. Nothing is drawn at random.",
        shape=(2, 3),
        ylabel="standard deviation / group privacy's best",
        grid=dict(sharex=True, sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
