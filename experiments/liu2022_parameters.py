"""Draws the parameter study of Liu et al. (2022), Appendix E.2: regret after T rounds against epsilon, d, n, m and L.

As in the authors' script m is varied with n = 5 m users, L with n = 5 L users in 5 clusters. FCLUB-DC and LinUCB
have no epsilon: (a) shows their runs of (b) at d = 10.
"""

import numpy as np
from clusters import LOOKS, PRIVATE, RECALIBRATED, SEATS, LiuOptions, decided, worth
from curves import Curve, final, pick, random_play, the, verdict
from drawing import CHANCE, Panel, Picture, Says, dressed, main

import fedbandit_jax as fb

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
HOME = dict(n_users=40, n_servers=5, n_clusters=4, dim=10)
STUDIES = {  # title -> axis, its words, values, the shape at a value
    "(b) features (n=40, m=4, L=5)": ("d", "features d", (5, 10, 20), lambda d: dict(dim=d)),
    "(c) users (m=4, L=5)": ("n", "users n", (20, 40, 80), lambda n: dict(n_users=n)),
    "(d) clusters (n=5m, L=5)": ("m", "clusters m", (2, 5, 10), lambda m: dict(n_clusters=m, n_users=5 * m)),
    "(e) servers (n=5L, m=5)": ("L", "servers L", (2, 5, 10), lambda s: dict(n_clusters=5, n_servers=s, n_users=5 * s)),
}
SHOWN = ("FCLUB-DC", "CDP-FCLUB-DC", "LinUCB")
HOME_TITLE = "(a) privacy (n=40, m=4, L=5, d=10)"


def measure(options: LiuOptions) -> list[Curve]:
    run, every, env = options.run(500, 100_000, 100_000), options.methods(), options.instance()
    epsilons, horizon = EPSILONS[:: options.pick(5, 1, 1)], run["horizon"]
    private = {name: every[name] for name in LOOKS if name.startswith(PRIVATE)}
    result, curves = fb.sweep(env, private, grid=dict(epsilon=epsilons), **run), []
    for name, algo in private.items():
        finals = [final(result[f"{name}(epsilon={e})"]) for e in epsilons]
        given = [worth(algo.replace(epsilon=e), env, horizon) for e in epsilons]
        curves += [Curve(HOME_TITLE, name, epsilons, finals, LOOKS[name]), Curve("worth", name, epsilons, given)]
    random = random_play(env, options.seed) * horizon
    curves.append(Curve(HOME_TITLE, CHANCE, epsilons, [random] * len(epsilons), LOOKS[CHANCE]))
    for title, (_, _, values, shape) in STUDIES.items():
        values = values[: options.pick(1, 9, 9)]
        envs = [options.instance(**HOME | shape(value)) for value in values]
        results = [options.sweep(env, {name: every[name] for name in SHOWN}, title=title, **run) for env in envs]
        for name in SHOWN:
            curves.append(Curve(title, name, values, [final(one[name]) for one in results], LOOKS[name]))
        chance = [random_play(env, options.seed) * horizon for env in envs]
        curves.append(Curve(title, CHANCE, values, chance, LOOKS[CHANCE]))
    return [*curves, Curve("words", "T", [0], [horizon])]


def picture(curves: list[Curve]) -> Picture:
    curves, horizon, n = dressed(curves, LOOKS), the(curves, "words").y[0, 0], curves[0].n_seeds
    ends, home = np.array([EPSILONS[0], EPSILONS[-1]]), []
    for one in pick(curves, next(iter(STUDIES))):  # (a) shows them too, as they have no epsilon
        if one.label in ("FCLUB-DC", "LinUCB"):
            home.append(one.but(x=ends, y=one.y[one.x == HOME["dim"]].repeat(2, 0), style=one.style.split()[0]))
    shown, order = [], {"holds": [], "undecided": [], "reversed": []}
    epsilon = {HOME_TITLE: ("ε", "target ε (below: noise alone)")}
    for title, (letter, words, *_) in (epsilon | STUDIES).items():
        panel = pick(curves, title)
        *values, chance = panel
        ones = [one.per(chance.mean) for one in values]
        ones += [one.per(chance.mean[0]) for one in home] if letter == "ε" else []
        shown.append(Panel(ones, title[4:], words, level={CHANCE: 1}, yscale="log", xticks=panel[0].x))
        if letter != "ε":
            both = (the(values, label=name).y for name in ("FCLUB-DC", "LinUCB"))
            for x, better, worse in zip(panel[0].x, *both):
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
        ylabel="regret over uniform play's",
        grid=dict(sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
