"""Users with streams of their own, private and grouped, and agents who come one at a time."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from curves import CHANCE, Curve, ends, panels, pick, the, uniform
from drawing import LOGS, Experiment, Panel, Picture, dressed, promised, uncertified
from liu2022 import LiuOptions
from options import Size
from recipes import BUDGET, HALF

import fedbandit_jax as fb

CLUSTERS, DELTA = (1, 2, 4, 6, 8, 10, 40), 0.1
TIMES = fb.schedules.Geometric(1.2, first=300)
MIXTURE = fb.algos.Mixture(theta_norm=0.5**0.5)  # E[y] - 1/2 is <x, theta> with a theta of this norm at most
MIXED, ONE = "mixture of linear models", "one model a user"
PRINTED = "CDP-FCLUB-DC as printed, ε = 1"
LOOKS = {  # the papers' algorithms have the colours of their own pictures
    PRINTED: "#D55E00 D :",
    CHANCE: "#999999 , -.",
    f"{ONE}, ε = 1": "#009E73 o -",
    f"{ONE}, ε = 5": "#009E73 s -",
    "CLUB, not private": "#E69F00 v -",
    "SCLUB, not private": "#CC79A7 ^ -",
    "LinUCB, not private": "#56B4E9 < -",
    "FCLUB-DC, not private": "#0072B2 > -",
    f"{MIXED}, ε = 1": "#882255 o -",
    f"{MIXED}, ε = 5": "#882255 s -",
    f"{MIXED}, not private": "#882255 v -",
}
LAST = 120  # where MovieLens is drawn, right of all numbers of clusters


def streams(grouping: Any, epsilon: float | None = None, delta: float = DELTA) -> fb.Algorithm:
    """Returns a private stream for every user, released at `TIMES`; without an epsilon it is not private."""
    algo = fb.algos.Grouped(grouping=grouping, schedule=TIMES)
    if epsilon is None:
        return algo
    budget = fb.privacy.Budget(epsilon, delta)
    return algo.replace(privacy=fb.privacy.Mechanism(budget, "blt", unit="visit", statistic=HALF))


@dataclasses.dataclass(frozen=True)
class Clusters(LiuOptions):
    """Draw the figure.

    Args:
        movielens: folder of your copy of MovieLens; by default it is left out.
    """

    movielens: tyro.conf.DisallowNone[Path | None] = None


def clusters(options: Clusters) -> list[Curve]:
    """Draws what private clustering costs: regret against the number of clusters, certified, printed and without
    privacy.

    Every user has a private stream of sums, released at fixed times. The sums of similar users serve each of them. We
    compare with the algorithms of Liu et al. (2022). Nothing was chosen on these seeds, but pooling was chosen with the
    users of MovieLens in sight. beyond_clusters_paper has the paper's instance.
    """
    run, printed = options.run(500, 100_000, 100_000, fresh=2027, store=options.store), options.methods()
    groups = {MIXED: MIXTURE, ONE: fb.algos.Alone()}
    algos = {f"{name}, ε = {e:g}": streams(how, e) for name, how in groups.items() for e in (1.0, 5.0)}
    algos[f"{MIXED}, not private"] = streams(MIXTURE)
    algos |= {f"{name}, not private": printed[name] for name in ("FCLUB-DC", "CLUB", "SCLUB", "LinUCB")}
    algos[PRINTED] = printed["CDP-FCLUB-DC"]
    worlds: dict[str, fb.Environment] = {
        f"m = {m}": options.instance(n_clusters=m, gap=0.5 if m <= 4 else 0.3, seating="random")
        for m in CLUSTERS[: options.pick(1, 7, 7)]
    }
    if options.movielens is not None:
        data = fb.data.movielens(options.movielens, n_users=40, n_clusters=4, thetas="user")
        worlds["MovieLens"] = fb.envs.community(**data.arguments(), n_servers=5)
    curves = []
    for where, env in list(worlds.items())[:: options.pick(8, 1, 1)]:
        curves += ends(options.sweep(env, algos, title=where, **run), where)
        curves.append(uniform(env, run["horizon"], where))
    return dressed(curves, LOOKS)


def draw_clusters(curves: list[Curve]) -> Picture:
    titles = panels(curves)
    places = [float(title.partition("m = ")[2] or LAST) for title in titles]
    joined, shown = sum(place < LAST for place in places), []
    for name, look in LOOKS.items():
        ones = [the(curves, title, name) for title in titles]
        label = f"{name}: {promised(ones[0].note)}" if "ε" in name else name
        for part in (slice(joined), slice(joined, None)):
            if places[part]:
                shown.append(Curve("", label, places[part], [one.y[0] for one in ones[part]], look, ones[0].note))
    panel = Panel(shown, "", "m, clusters of users", "regret at T", spread=0.012, open=uncertified, **LOGS)
    panel.xticks = dict(zip(places, (title.removeprefix("m = ") for title in titles)))
    setting = f"""40 users, random seats on 5 servers, K = 10, d = 10, T = 100,000, δ = {DELTA:g}. Mean of
        {curves[0].n_seeds} seeds ± one standard error. Clusters are at least 0.5 apart up to m = 4, and 0.3 beyond"""
    return Picture([panel], "A certified mixture learns where clusters are few", setting, height=4.7)


DELTAS, EPSILONS, WIDTHS = (1e-6, 1e-3, 0.1), (1.0, 5.0), (0.05, 0.2, 1.0)
BASELINES = {"FCLUB-DC": "#0072B2 ^", "SCLUB": "#CC79A7 D", "LinUCB": "#56B4E9 >"}
PAPER_LOOKS = {
    f"{MIXED}, ε = 1": "#882255 o",
    f"{MIXED}, ε = 5": "#882255 s",
    f"{MIXED}, not private": "#882255 v",
    f"{ONE}, not private": "#009E73 <",
    **BASELINES,
}


def clusters_paper(options: LiuOptions) -> list[Curve]:
    """Measures private clustering on the paper's own instance, at small delta, and against tuned baselines.

    The instance of Liu et al. (2022) has consecutive seats and no least distance. (a) The mixture of
    beyond_clusters against delta. A delta of 0.1 may publish four of forty users. (b) The paper's algorithms
    against the factor on their widths. Ours play greedily. Nothing was chosen on this key.
    """
    deltas, widths = DELTAS[-options.pick(1, 3, 3) :], WIDTHS[-options.pick(1, 3, 3) :]
    noisy = {f"{MIXED}, ε = {e:g}": {d: streams(MIXTURE, e, d) for d in deltas} for e in EPSILONS}
    open_ = {f"{MIXED}, not private": {0: streams(MIXTURE)}, f"{ONE}, not private": {0: streams(fb.algos.Alone())}}
    tuned = {name: {width: options.methods(scale=width)[name] for width in widths} for name in BASELINES}
    run = options.run(500, 100_000, 100_000, seeds=(2, 8, 16), fresh=2032, store=options.store)
    finals = partial(options.finals, options.instance(), looks=PAPER_LOOKS, noted=True, **run)
    chance = uniform(options.instance(), run["horizon"])
    return [*finals(noisy, "delta"), *finals(open_, "plain"), chance, *finals(tuned, "width")]


def draw_clusters_paper(curves: list[Curve]) -> Picture:
    private, widths, n = pick(curves, "delta"), pick(curves, "width"), curves[0].n_seeds
    shown = [one.but(label=f"{one.label}: certified") for one in private]
    for one in pick(curves, "plain") + widths:
        label = one.label if one.panel == "plain" else f"{one.label}, not private; in (a) at its best width of (b)"
        ends = DELTAS[0] / 4, DELTAS[-1] * 4  # of lines of what has no delta
        shown.append(one.but(label=label, x=np.array(ends), y=one.y[[one.mean.argmin()] * 2]))
    words = "the mixture of linear models against δ", "δ", "regret at T"
    left = Panel(shown, *words, **LOGS, ylim=(400, 8_000))
    words = "the paper's algorithms, not private", "factor on the widths; 1: as in theory"
    right = Panel(widths, *words, **LOGS, label="", xticks={width: f"{width:g}" for width in WIDTHS})
    left.xticks = {1e-6: "$10^{-6}$", 1e-3: "0.001", 0.1: "0.1"}
    left.open = right.open = lambda one: one.note == "not private"
    setting = f"""The instance of Liu et al. (2022): 40 users, 4 clusters (consecutive seats, no least distance), 5
        servers, K = 10, d = 10, T = 100,000. Mean of {n} seeds ± one standard error. Uniform play has
        {np.round(the(curves, CHANCE).mean[0], -2):,.0f}"""
    return Picture([left, right], "At δ = 0.1 a certified mixture matches LinUCB", setting, grid=dict(sharey=True))


S = fb.schedules
NOISE = fb.privacy.Mechanism(BUDGET, release="blt", unit="visit", statistic=HALF)
OPEN = fb.algos.async_fed_lin_ucb()
GREEDY = OPEN.replace(policy=fb.algos.Greedy())
NOISY = OPEN.replace(policy=fb.algos.Greedy(regularization=100.0), privacy=NOISE)
THRESHOLDS, GROWTHS = (0.05, 0.1, 0.2, 0.4), (1.1, 1.3, 1.5, 2.0, 3.0)
RAW = {growth: S.LogDet(np.log(growth), "he22") for growth in (1.01, 1.1, 2.0, 4.0)}
TESTS = {d: S.PrivateLogDet(d, share=0.3, max_syncs=64, trigger="he22") for d in THRESHOLDS}
LEAKY = {d: S.LogDet(d, "he22", max_syncs=64) for d in THRESHOLDS}
FAMILIES: list[tuple[str, Any, dict[float, Any], str, str]] = [  # how labels begin, recipe, schedules, style, legend
    ("every {} own rounds", NOISY, {n: S.Every(n) for n in (25, 50, 100)}, "#D55E00 o-",
     "every 100, 50, 25 own rounds: certified"),
    ("own rounds grow by {:g}", NOISY, {g: S.Geometric(g, first=20) for g in GROWTHS}, "#56B4E9 s-",
     "own rounds grow by 3 ... 1.1: certified"),
    ("private test, D = {:g}", NOISY, TESTS, "#E69F00 D-", "private test, threshold D = 0.4 ... 0.05: certified"),
    ("test without noise, D = {:g}", NOISY, LEAKY, "#CC79A7 v:", "test without noise, the same D: no privacy claim"),
    ("not private: He et al. (2022), growth {:g}", OPEN, RAW, "#000000 o-",
     "not private: He et al. (2022), growth 4 ... 1.01"),
    ("not private: greedy, own rounds grow by {:g}", GREEDY, {g: S.Geometric(g, first=2) for g in (1.1, 1.5, 3.0)},
     "#999999 s-", "not private: greedy, own rounds grow by 3 ... 1.1"),
    ("not private: greedy, growth {:g}", GREEDY, RAW, "#882255 D-", "not private: greedy, growth of det V 4 ... 1.01"),
]  # fmt: skip
ALONE, LINUCB = "alone, not private: greedy", "alone, not private: LinUCB"  # regret of the first is the unit
ZIPF = (1 / np.arange(1, 21)).tolist()
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "all alike": ("one parameter, equal rates", dict(n_clusters=1)),
    "unequal rates": ("one parameter, rates by Zipf's law", dict(n_clusters=1, arrivals=ZIPF)),
    "two parameters": ("two parameters, equal rates", dict(n_clusters=2)),
    "four parameters, unequal rates": ("four parameters, rates by Zipf's law", dict(n_clusters=4, arrivals=ZIPF)),
}


def asynchronous(options: Size) -> list[Curve]:
    """Compares when agents that come one at a time should exchange statistics, at equal privacy: does adaptivity gain?

    Asynchronous FedLinUCB (He et al. 2022) with noise: an agent uploads its own noisy sums, and downloads everybody's.
    Uploads are fixed in advance, or follow a sparse vector test (0.3 of epsilon), or ask the same question without
    noise, which leaks. Their first V is 100 I, or all would ask at once. Constants were chosen on other seeds.
    """
    run = options.run(100, 20_000, 100_000, seeds=(4, 16, 32), fresh=2024, stride="log")
    curves, algos, colours = [], {}, {}
    for words, algo, schedules, style, _ in FAMILIES:
        for value, one in list(schedules.items())[: options.pick(1, None, None)]:
            algos[words.format(value)] = algo.replace(schedule=one)
            colours[words.format(value)] = style.split()[0]
    algos[LINUCB] = fb.algos.LinUCB()
    algos[ALONE] = fb.algos.LinUCB(policy=fb.algos.UCB(exploration_scale=0.0))
    for title, (_, world) in list(WORLDS.items())[:: options.pick(-4, 1, 1)]:
        env = fb.envs.clustered(n_users=20, n_servers=1, n_arms=10, dim=options.pick(3, 10, 10), **world)
        panel = f"{title}, T = {run['horizon']:,}"
        found = ends(fb.sweep(env, algos, **run), panel, "rounds")
        curves += [one.but(style=colours.get(one.label, "")) for one in found]
        curves.append(uniform(env, run["horizon"], panel))
    return curves


def draw_asynchronous(curves: list[Curve]) -> Picture:
    shown = []
    for letter, title in zip("abcd", panels(curves)):
        of = {one.label: one for one in pick(curves, title)}
        unit, lines = of[ALONE].y[0], []
        for words, _, schedules, style, label in FAMILIES:
            ones = [of[name] for value in schedules if (name := words.format(value)) in of]
            line = Curve(title, label, [one.mean[1] for one in ones], [one.y[0] for one in ones], style, ones[0].note)
            lines.append(line.over(unit))
        panel = Panel(lines, WORLDS[title.partition(", T")[0]][0], "uploads of all agents", open=uncertified)
        panel.level = {name: of[name].mean[0] / unit.mean() for name in (CHANCE, LINUCB, ALONE)}
        panel.look, panel.xticks = dict(capsize=0, elinewidth=0.6), (100, 300, 1_000, 3_000)
        panel.xlim, panel.xscale = (60, 5_000), "log"
        if letter in "ab":
            panel.yscale, panel.ylim = "log", (0.08, 12)
            panel.yticks = (0.1, 0.2, 0.5, 1, 2, 5, 10)
        else:
            panel.ylim = 0.8, max(one.mean.max() for one in lines) + 0.3
        shown.append(panel)
    setting = f"""M = 20 agents, K = 10, d = 10, T = 20,000, ε = 1, δ = 0.1. Mean of {curves[0].n_seeds} seeds ± one
        standard error of the paired ratio. Grey lines are uniform play and agents who never talk, outside (c) and
        (d)"""
    return Picture(
        shown,
        "Sharing pays if agents are alike, and costs otherwise",
        setting,
        height=6.4,
        shape=(2, 2),
        ylabel="regret over greedy play alone",
    )


FIGURES = {
    "beyond_clusters": Experiment(clusters, draw_clusters, Clusters),
    "beyond_clusters_paper": Experiment(clusters_paper, draw_clusters_paper, LiuOptions),
    "beyond_async": Experiment(asynchronous, draw_asynchronous),
}
