"""Decides the order of Figure 2 (a) of Liu et al. (2022) without noise, on 48 seeds, as ten leave it open.

(a) Paired differences of final regret, one row for each inequality that Section 5 implies. Seeds differ in how near two
of their four preference vectors are. (b) In which share of seeds the clusters are exactly right from round t on.
"""

import numpy as np
from clusters import LOOKS, WHERE, LiuOptions, decided
from curves import Curve, final, pick
from drawing import Panel, Picture, Says, main
from scipy import stats

SHOWN = ("FCLUB", "FCLUB-DC", "CLUB", "SCLUB", "LinUCB")
CLAIMS = [("FCLUB", "FCLUB-DC")] + [(one, other) for one in SHOWN[:2] for other in SHOWN[2:]]  # less regret, more


def right_from(rand_index: np.ndarray) -> np.ndarray:
    """Returns whether all clusters are right at this record and at all later ones, given an adjusted Rand index."""
    return np.logical_and.accumulate((rand_index > 1 - 1e-6)[..., ::-1], axis=-1)[..., ::-1]


def measure(options: LiuOptions) -> list[Curve]:
    run, every = options.run(500, 100_000, 100_000, seeds=(2, 48, 100), stride="log"), options.methods()
    result = options.sweep(options.instance(), {name: every[name] for name in SHOWN}, **run)
    curves = [Curve("regret", name, [run["horizon"]], [final(result[name])]) for name in SHOWN]
    few = np.unique(np.linspace(0, len(result.rounds) - 1, 40).round().astype(int))  # rounds are spaced by logarithms
    right = [right_from(result[name].gauges["adjusted Rand index"])[:, few].T for name in SHOWN[:2]]
    return curves + [Curve("right", name, result.rounds[few], one) for name, one in zip(SHOWN, right)]


def picture(curves: list[Curve]) -> Picture:
    ends, n = {one.label: one.y[-1] for one in pick(curves, "regret")}, curves[0].n_seeds
    differ = [Curve("", f"{b} minus {a}", [0], [ends[b] - ends[a]], LOOKS[a].split()[0]) for a, b in CLAIMS]
    left = Panel(differ, "right of 0: as the paper implies", "difference of regret at T, paired", kind="rows")
    left.band, left.also = float(stats.t.ppf(0.975, n - 1)), lambda ax: ax.axvline(0, color="#999999")
    right = [one.but(style=LOOKS[one.label]) for one in pick(curves, "right")]
    shares = Panel(right, "all clusters exactly right from $t$ on", "round $t$", "share of seeds", xscale="log")
    shares.xticks = (10_000, 30_000, 100_000)
    shares.axes |= dict(ylim=(0, 0.5), xlim=(9e3, 1.1e5))
    seen = f"in part, in these shares of seeds at T: {', '.join(f'{one.label} {one.mean[-1]:.0%}' for one in right)}"
    claim = "FCLUB and FCLUB-DC beat CLUB, SCLUB, LinUCB, as follows from what is said of CDP-FCLUB-DC"
    return Picture(
        [left, shares],
        "FCLUB and FCLUB-DC have the least regret",
        f"{WHERE}, T = {curves[0].x[0]:,.0f}, {n} seeds, not private. Bars are 95 % intervals in (a), and one standard "
        "error of a share in (b)",
        [
            Says("Fig. 2(a)", claim, f"10 seeds; {n} here", decided(ends, CLAIMS)),
            Says("Section 5, of MovieLens", "all user clusters are correctly detected", "synthetic users here", seen),
        ],
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
