"""Measures private clustering on the paper's own instance, at small delta, and against tuned baselines.

The instance of Liu et al. (2022) has consecutive seats and no least distance. (a) The mixture of `beyond_clusters.py`
against delta. A delta of 0.1 may publish four of forty users. (b) The paper's algorithms against the factor on their
widths. Ours play greedily. Nothing was chosen on this key.
"""

import numpy as np
from beyond_clusters import MIXED, MIXTURE, ONE, streams
from clusters import LiuOptions
from curves import along, pick, the, uniform
from drawing import CHANCE, LOGS, Curve, Panel, Picture, main

import fedbandit_jax as fb

DELTAS, EPSILONS, WIDTHS = (1e-6, 1e-3, 0.1), (1.0, 5.0), (0.05, 0.2, 1.0)
PRIVATE = {1.0: "#882255 o", 5.0: "#882255 s"}
PLAIN = {MIXED: "#882255 v", ONE: "#009E73 <"}
BASELINES = {"FCLUB-DC": "#0072B2 ^", "SCLUB": "#CC79A7 D", "LinUCB": "#56B4E9 >"}


def measure(options: LiuOptions) -> list[Curve]:
    deltas, widths = DELTAS[-options.pick(1, 3, 3) :], WIDTHS[-options.pick(1, 3, 3) :]
    algos = {f"{e:g} {d:g}": streams(MIXTURE, e, d) for e in EPSILONS for d in deltas}
    algos |= {MIXED: streams(MIXTURE), ONE: streams(fb.algos.Alone())}
    for width in widths:
        algos |= {f"{name} {width:g}": options.methods(scale=width)[name] for name in BASELINES}
    run = options.run(500, 100_000, 100_000, seeds=(2, 8, 16), fresh=2032, store=options.store)
    result, curves = options.sweep(options.instance(), algos, **run), []
    for e, look in PRIVATE.items():
        ones = [result[f"{e:g} {d:g}"] for d in deltas]
        assert all(one.certificate.claim == "certified" for one in ones)
        curves.append(along("delta", f"{MIXED}, ε = {e:g}", deltas, ones, look))
    curves += [along("plain", f"{name}, not private", [0], [result[name]], look) for name, look in PLAIN.items()]
    curves.append(uniform(options.instance(), run["horizon"]))
    for name, look in BASELINES.items():
        curves.append(along("width", name, widths, (result[f"{name} {width:g}"] for width in widths), look))
    return curves


def picture(curves: list[Curve]) -> Picture:
    private, widths, n = pick(curves, "delta"), pick(curves, "width"), curves[0].n_seeds
    shown = [one.but(label=f"{one.label}: certified") for one in private]
    for one in pick(curves, "plain") + widths:
        label = one.label if one.panel == "plain" else f"{one.label}, not private; in (a) at its best width of (b)"
        ends = DELTAS[0] / 4, DELTAS[-1] * 4  # of lines of what has no delta
        shown.append(one.but(label=label, x=np.array(ends), y=one.y[[one.mean.argmin()] * 2]))
    words = "the mixture of linear models against δ", "δ", "regret at T"
    left = Panel(shown, *words, **LOGS, ylim=(400, 8_000))
    words = "the paper's algorithms, not private", "factor on the widths; 1: as in theory"
    right = Panel(widths, *words, xscale="log", label="", xticks={width: f"{width:g}" for width in WIDTHS})
    left.xticks = {1e-6: "$10^{-6}$", 1e-3: "0.001", 0.1: "0.1"}
    left.open = right.open = lambda one: one.note == "not private"
    one, five, linear = (the(curves, label=name) for name in (f"{MIXED}, ε = 1", f"{MIXED}, ε = 5", "LinUCB"))
    return Picture(
        [left, right],
        "At δ = 0.1 a certified mixture matches LinUCB",
        "The instance of Liu et al. (2022): 40 users, 4 clusters (consecutive seats, no least distance), 5 servers, K "
        f"= 10, d = 10, T = 100,000. Mean of {n} seeds ± one standard error. Uniform play has "
        f"{np.round(the(curves, CHANCE).mean[0], -2):,.0f}",
        f"At δ = 0.1 the certified mixture has {one.said()} at ε = 1 and {five.said()} at ε = 5, and at δ = 10⁻⁶ "
        f"{one.said(0)} and {five.said(0)}. LinUCB without privacy has {linear.said()} at the width of theory and "
        f"{linear.said(0)} at its best one ({n} seeds; best widths are of the same seeds).",
        grid=dict(sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
