"""Asks what private clustering is worth on the paper's own instance, at small delta, and beside tuned baselines.

python experiments/beyond_clusters_paper.py [--smoke | --full]

`beyond_clusters.py` has random seats, clusters at least 0.5 apart and delta = 0.1. Here is the instance of Liu et al.
(2022): 40 users in 4 clusters, both with consecutive numbers, and no least distance. (a) The mixture at epsilon = 1 and
5 against delta, 0.1 of which may publish four of forty users. (b) The paper's algorithms, none private, against the
factor on their widths, which is 1 in theory; ours play greedily. The key is one that nothing was chosen on.
"""

from typing import Any

import jax
import matplotlib.pyplot as plt
import tyro
from beyond_clusters import MIXTURE, streams
from clusters import LiuOptions
from curves import Curve, pick, random_play, verdict
from drawing import legend_of_all, remark, save

import fedbandit_jax as fb

DELTAS, EPSILONS, WIDTHS = (1e-6, 1e-3, 0.1), (1.0, 5.0), (0.05, 0.2, 1.0)
MIXED = "mixture of linear models"
BASELINES = ("FCLUB-DC", "SCLUB", "LinUCB")
LOOKS = (
    "#882255 v",
    "#009E73 <",
    "#0072B2 ^",
    "#CC79A7 D",
    "#56B4E9 >",
)  # of the two others without privacy, and these


def measure(options: LiuOptions) -> list[Curve]:
    """Returns final regrets of all seeds, against delta and against the factor on widths."""
    deltas, widths = DELTAS[-options.pick(1, 3, 3) :], WIDTHS[-options.pick(1, 3, 3) :]
    algos = {f"{e:g} {d:g}": streams(MIXTURE, e, d) for e in EPSILONS for d in deltas}
    algos |= {MIXED: streams(MIXTURE), "one model a user": streams(fb.algos.Alone())}
    for width in widths:
        every = options.methods(fb.privacy.Budget(1.0, 0.1), width)
        algos |= {f"{name} {width:g}": every[name] for name in BASELINES}
    key = jax.random.key(options.seed + 2032)
    run = {**options.run(500, 100_000, 100_000), "seeds": options.pick(2, 8, 16), "key": key}
    result = fb.sweep(options.instance(), algos, **run, store=options.store)
    claims = {name: result[name].certificate.claim for name in result}
    assert all(claims[f"{e:g} {d:g}"] == "certified" for e in EPSILONS for d in deltas)
    final = {name: result[name].regret[:, -1] for name in result}
    curves = [
        Curve("delta", f"{MIXED}, ε = {e:g}", deltas, [final[f"{e:g} {d:g}"] for d in deltas], look, "certified")
        for e, look in zip(EPSILONS, ("#882255 o", "#882255 s"))
    ]
    looks = iter(LOOKS)
    for name in (MIXED, "one model a user"):
        curves.append(Curve("plain", f"{name}, not private", [0], [final[name]], next(looks), "not private"))
    uniform = random_play(options.instance()) * run["horizon"]
    curves.append(Curve("random play", "random play", [0], [uniform], "#999999 -.", "not private"))
    for name in BASELINES:
        y = [final[f"{name} {w:g}"] for w in widths]
        curves.append(Curve("width", name, widths, y, next(looks), "not private"))
    return curves


def main(options: LiuOptions) -> None:
    curves = options.numbers("beyond_clusters_paper", lambda: measure(options))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5.4), layout="constrained", sharey=True)
    for one, marker in zip(pick(curves, "delta"), "os"):
        left.errorbar(
            one.x, one.mean, one.error, fmt=f"{marker}-", color=one.style.split()[0], label=f"{one.label}: certified"
        )
    ends = DELTAS[0] / 4, DELTAS[-1] * 4  # of lines of what has no delta
    for one in pick(curves, "plain") + pick(curves, "width"):
        colour, mark = one.style.split()
        plain: dict[str, Any] = dict(fmt=f"{mark}-", color=colour, mfc="white", linewidth=1)
        best = one.mean.argmin()
        name = one.label if one.panel == "plain" else f"{one.label}, not private; in (a) at its best width of (b)"
        left.errorbar(ends, [one.mean[best]] * 2, [one.error[best]] * 2, label=name, **plain)
        if one.panel == "width":
            right.errorbar(one.x, one.mean, one.error, **plain)
    said = {one.label: [f"{m:,.0f} ± {e:,.0f}" for m, e in zip(one.mean, one.error)] for one in curves}
    for private in pick(curves, "delta"):
        for other in pick(curves, "width"):
            words = [f"δ = {d:g} {verdict(y, other.y[other.mean.argmin()])}" for d, y in zip(private.x, private.y)]
            print(f"{private.label} < {other.label} at its best width: {', '.join(words)}")
    print(*(f"{name}: {', '.join(words)}" for name, words in said.items()), sep="\n")
    left.set(xscale="log", yscale="log", ylim=(400, 8_000), xlabel="δ", ylabel="regret at T")
    left.set_xticks(DELTAS, ["$10^{-6}$", "0.001", "0.1"])
    right.set(xscale="log", xlabel="factor on the widths; 1: as in theory")
    right.set_xticks(WIDTHS, [f"{width:g}" for width in WIDTHS])
    for ax, title in (
        (left, "(a) the mixture of linear models against δ"),
        (right, "(b) the paper's algorithms, not private"),
    ):
        ax.set_title(title, fontsize="medium")
        ax.set_xticks([], minor=True)
        ax.grid(alpha=0.3)
    uniform = pick(curves, "random play")[0].mean[0]
    size = f"T = 100,000, {curves[0].n_seeds} seeds ± one standard error; random play {round(uniform, -2):,.0f}"
    where = "40 users, 4 clusters (consecutive seats, no least distance), 5 servers, K = 10, d = 10"
    figure.suptitle(f"The instance of Liu et al. (2022): {where},\n{size}", fontsize="medium")
    legend_of_all(figure, ncols=2)
    one, five = said[f"{MIXED}, ε = 1"], said[f"{MIXED}, ε = 5"]
    remark(
        figure,
        f"At δ = 0.1 the certified mixture has {one[-1]} at ε = 1 and {five[-1]} at ε = 5; at δ = 10⁻⁶ it has "
        f"{one[0]} and {five[0]}, where LinUCB without privacy has {said['LinUCB'][-1]} at the width of theory and "
        f"{said['LinUCB'][0]} at its best one ({curves[0].n_seeds} seeds; best widths are of the same seeds).",
    )
    save("beyond_clusters_paper", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
