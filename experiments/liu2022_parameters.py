"""Draws the parameter study of Liu et al. (2022), Appendix E.2: regret after T rounds against epsilon, d, n, m and L.

python experiments/liu2022_parameters.py [--smoke | --full]

As in the authors' script m is varied with n = 5 m users on L = 5 servers, L with n = 5 L users in m = 5 clusters, and
the others around n = 40, m = 4, L = 5 and d = 10. The axis of (a) is the target epsilon, as in the paper; what the
noise gives by itself for all phases together is below it. In (a) FCLUB-DC and LinUCB, which have no epsilon, are those
of (b) at d = 10: the same runs.
"""

import numpy as np
from clusters import LOOKS, PRIVATE, RECALIBRATED, SEATS, LiuOptions, decided, worth
from curves import Curve, final, pick, random_play, the, verdict
from drawing import CHANCE, Panel, Picture, Says, dressed, main

import fedbandit_jax as fb

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
HOME = dict(n_users=40, n_servers=5, n_clusters=4, dim=10)
STUDIES = {  # title -> axis, values, the shape at a value
    "(b) features (n=40, m=4, L=5)": ("d", (5, 10, 20), lambda d: {**HOME, "dim": d}),
    "(c) users (m=4, L=5)": ("n", (20, 40, 80), lambda n: {**HOME, "n_users": n}),
    "(d) clusters (n=5m, L=5)": ("m", (2, 5, 10), lambda m: {**HOME, "n_clusters": m, "n_users": 5 * m}),
    "(e) servers (n=5L, m=5)": ("L", (2, 5, 10), lambda s: {**HOME, "n_clusters": 5, "n_servers": s, "n_users": 5 * s}),
}
SHOWN = ("FCLUB-DC", "CDP-FCLUB-DC", "LinUCB")
HOME_TITLE = "(a) privacy (n=40, m=4, L=5, d=10)"
WORDS = {
    "ε": "target ε (below: noise alone, CDP-FCLUB-DC)",
    "d": "features d",
    "n": "users n",
    "m": "clusters m",
    "L": "servers L",
}


def measure(options: LiuOptions) -> list[Curve]:
    """Returns final regrets of all seeds against each parameter, and those of uniform play."""
    run = options.run(500, 100_000, 100_000)
    every, env = options.methods(fb.privacy.Budget(1.0, 0.1)), options.instance()
    epsilons = EPSILONS[:: options.pick(5, 1, 1)]
    private = {name: every[name] for name in LOOKS if name.startswith(PRIVATE)}
    result, curves = fb.sweep(env, private, grid=dict(epsilon=epsilons), **run, store=options.store), []
    for name, algo in private.items():
        finals = [final(result[f"{name}(epsilon={e})"]) for e in epsilons]
        given = [worth(algo.replace(epsilon=e), env, run["horizon"]) for e in epsilons]
        curves.append(Curve(HOME_TITLE, name, epsilons, finals, LOOKS[name]))
        curves.append(Curve("worth", name, epsilons, given))
    random = random_play(env, options.seed) * run["horizon"]
    curves.append(Curve(HOME_TITLE, CHANCE, epsilons, [random] * len(epsilons), LOOKS[CHANCE]))
    found: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    for title, (_, values, shape_at) in STUDIES.items():
        values = values[: options.pick(1, 9, 9)]
        for shape in (tuple(shape_at(value).values()) for value in values):
            if shape not in found:
                env = options.instance(**dict(zip(HOME, shape)))
                one = fb.sweep(env, {name: every[name] for name in SHOWN}, **run, store=options.store)
                found[shape] = {name: final(one[name]) for name in SHOWN}
                found[shape][CHANCE] = np.full(run["seeds"], random_play(env, options.seed) * run["horizon"])
                print(shape, {name: f"{values.mean():,.0f}" for name, values in found[shape].items()}, flush=True)
        for name in (*SHOWN, CHANCE):
            finals = np.stack([found[tuple(shape_at(value).values())][name] for value in values])
            curves.append(Curve(title, name, values, finals[:, :1] if name == CHANCE else finals, LOOKS[name]))
    return [*curves, Curve("words", "T", [0], [run["horizon"]])]


def picture(curves: list[Curve]) -> Picture:
    curves, horizon, n = dressed(curves, LOOKS), the(curves, "words").y[0, 0], curves[0].n_seeds
    ends, home = np.array([EPSILONS[0], EPSILONS[-1]]), []
    for one in pick(curves, next(iter(STUDIES))):  # the same runs as those of (a) that have no epsilon
        if one.label in ("FCLUB-DC", "LinUCB"):
            home.append(one.but(x=ends, y=one.y[one.x == HOME["dim"]].repeat(2, 0), style=one.style.split()[0]))
    shown, order = [], {"holds": [], "undecided": [], "reversed": []}
    for title in (HOME_TITLE, *STUDIES):
        panel = pick(curves, title)
        chance = the(panel, label=CHANCE).mean
        letter = "ε" if title == HOME_TITLE else STUDIES[title][0]
        ones = [one.per(chance) for one in panel if one.label != CHANCE]
        ones += [one.per(chance[0]) for one in home] if letter == "ε" else []
        words = title[4:], WORDS[letter], "regret over uniform play's" * (title[1] in "ad")
        shown.append(Panel(ones, *words, level={CHANCE: 1}, yscale="log", xticks=panel[0].x))
        if letter != "ε":
            ends = {one.label: one.y for one in panel}
            for x, better, worse in zip(panel[0].x, ends["FCLUB-DC"], ends["LinUCB"]):
                order[verdict(better, worse).split(",")[0]].append(f"{letter}={x:g}")
    given, printed = the(curves, "worth", PRIVATE), the(curves, HOME_TITLE, PRIVATE)
    shown[0].axes["xscale"] = "log"
    shown[0].xticks = {e: f"{e:g}\n{w:.2g}" for e, w in zip(printed.x, given.mean) if e != 8}  # too near to 10
    ends = f"target {printed.x[-1]:g}", f"target {printed.x[0]:g}"
    shares = printed.mean / the(curves, HOME_TITLE, CHANCE).mean
    falls = f"{decided(dict(zip(ends, printed.y[[-1, 0]])), [ends])}; of uniform play's: "
    falls += " and ".join(f"{shares[i]:.2f} at target {printed.x[i]:g} (noise {given.mean[i]:.2g})" for i in (0, -1))
    whole = "yes" if not order["undecided"] + order["reversed"] else "in part" if order["holds"] else "no"
    ahead = "; ".join(f"{word} at {', '.join(at) or 'none'}" for word, at in order.items())
    ours = f"T=10^5, 10 seeds, 4 to 9 values; T={horizon:,.0f}, {n} seeds here"
    return Picture(
        shown,
        "CDP-FCLUB-DC against budget, features, users, clusters and servers",
        f"{SEATS['consecutive']}, K = 10, δ = 0.1, T = {horizon:,.0f}, target ε = 1 except in (a). Mean of {n} seeds ± "
        "one standard error. Dotted: no privacy claim; solid: not private. (a) has below its axis what the noise gives",
        [
            Says("Appendix E.2", "regret of CDP-FCLUB-DC falls with ε", ours, f"{falls}. {RECALIBRATED}"),
            Says("Appendix E.2", "the order of Fig. 2(a)", ours, f"{whole}: FCLUB-DC < LinUCB (95 %) {ahead}"),
        ],
        height=4.6,
        shape=(2, 3),
        grid=dict(sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
