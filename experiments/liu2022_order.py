"""Decides the order of Figure 2 (a) of Liu et al. (2022) without noise, on 48 seeds, as ten leave it open.

python experiments/liu2022_order.py [--smoke | --full]

(a) Paired differences of final regret, one row for each inequality that Section 5 implies: its text compares
CDP-FCLUB-DC with the others, and says that it is worse than FCLUB and FCLUB-DC. Seeds differ in how near two of their
four preference vectors are, so that ten of them do not decide. (b) In which share of seeds the clusters are exactly
right from round t on. The paper says of MovieLens that they are ("after all user clusters are correctly detected").
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LOOKS, SEATS, LiuOptions, decided
from curves import Curve, interval, mean_error, pick, verdict
from drawing import Says, caption, headline, legend_of_all, save

import fedbandit_jax as fb

SHOWN = ("FCLUB", "FCLUB-DC", "CLUB", "SCLUB", "LinUCB")
CLAIMS = [("FCLUB", "FCLUB-DC")] + [(one, other) for one in SHOWN[:2] for other in SHOWN[2:]]  # less regret, more


def right_from(rand_index: np.ndarray) -> np.ndarray:
    """Returns whether all clusters are right at this record and at all later ones, given an adjusted Rand index."""
    return np.logical_and.accumulate((rand_index > 1 - 1e-6)[..., ::-1], axis=-1)[..., ::-1]


def measure(options: LiuOptions) -> list[Curve]:
    """Returns the final regrets of all seeds, and over time whether clusters are right."""
    every = options.methods(fb.privacy.Budget(1.0, 0.1))
    run = {**options.run(500, 100_000, 100_000), "seeds": options.pick(2, 48, 100), "stride": "log"}
    result = fb.sweep(options.instance(), {name: every[name] for name in SHOWN}, **run, store=options.store)
    print(result.summary())
    curves = [Curve("regret", name, [run["horizon"]], result[name].regret[:, -1][None]) for name in SHOWN]
    few = np.unique(np.linspace(0, len(result.rounds) - 1, 40).round().astype(int))  # rounds are spaced by logarithms
    right = [right_from(result[name].gauges["adjusted Rand index"])[:, few].T for name in SHOWN[:2]]
    return curves + [Curve("right", name, result.rounds[few], one) for name, one in zip(SHOWN, right)]


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_order", lambda: measure(options))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.8))
    final = {one.label: one.y[-1] for one in pick(curves, "regret")}
    for i, (better, worse) in enumerate(CLAIMS):
        mean, half = interval(final[worse] - final[better])
        colour, _, mark = LOOKS[better].split()
        left.errorbar(mean, i, xerr=half, fmt=mark, color=colour, capsize=3)
        text = f"{mean:,.0f} ± {half:,.0f}"
        left.annotate(text, (1.02, i), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        print(f"{better} < {worse} {verdict(final[better], final[worse])}", end="; s.e. ")
        print(f"{mean_error(final[worse] - final[better])[1]:.0f}")
    left.axvline(0, color="#999999")
    left.set(yticks=range(len(CLAIMS)), yticklabels=[f"{worse} minus {better}" for better, worse in CLAIMS])
    left.set(xlabel="difference of regret at T, paired, with 95 % interval", ylim=(len(CLAIMS) - 0.5, -0.5))
    left.set_title("(a) right of 0: as the paper implies")
    shares = []
    for one in pick(curves, "right"):
        colour, _, mark = LOOKS[one.label].split()
        wrong = np.sqrt(one.mean * (1 - one.mean) / one.n_seeds)
        right.errorbar(one.x, one.mean, wrong, fmt=f"{mark}-", color=colour, label=one.label, capsize=3, markersize=5)
        shares.append(f"{one.label} {one.mean[-1]:.0%}")
    right.set(xscale="log", xlabel="round $t$", ylabel="share of seeds", ylim=(0, 0.5), xlim=(9e3, 1.1e5))
    right.set_xticks((10_000, 30_000, 100_000))
    right.set_title("(b) all clusters exactly right from $t$ on")
    legend_of_all(figure)
    where, n = f"n = 40, m = 4 {SEATS['consecutive']}, L = 5, K = 10, d = 10", curves[0].n_seeds
    what = f"{where}, T = {curves[0].x[0]:,.0f}, {n} seeds; not private"
    bars = "bars: (a) 95 % intervals, (b) ± 1 standard error of a share"
    headline(figure, "FCLUB and FCLUB-DC have the least regret", f"Liu et al. (2022), Fig. 2 (a): {what}\n{bars}")
    for name in SHOWN:
        print("{}: {:,.0f} ± {:,.0f}".format(name, *mean_error(final[name])))
    shown = f"in part: {', '.join(shares)} of seeds have all clusters right at T (b)"
    claim = "FCLUB and FCLUB-DC beat CLUB, SCLUB, LinUCB, as follows from what is said of CDP-FCLUB-DC"
    seen = f"{decided(final, CLAIMS[1:])}. FCLUB < FCLUB-DC {verdict(final['FCLUB'], final['FCLUB-DC'])} (95 %) (a)"
    first = Says("Fig. 2(a)", claim, f"10 seeds; {n} here", seen)
    second = Says("Section 5, of MovieLens", "all user clusters are correctly detected", "synthetic users here", shown)
    print(f"{first.seen}\n{shown}")
    caption(figure, "Liu et al. (2022)", first, second)
    save("liu2022_order", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
