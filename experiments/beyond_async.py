"""Compares when agents that come one at a time should exchange statistics, at equal privacy: does adaptivity gain?

Asynchronous FedLinUCB (He et al. 2022) with noise: an agent uploads its own noisy sums, and downloads everybody's.
Uploads are fixed in advance, or follow a sparse vector test (0.3 of epsilon), or ask the same question without noise,
which leaks. Their first V is 100 I, or all would ask at once. Constants were chosen on other seeds.
"""

import collections
from typing import Any

import numpy as np
from curves import ends, panels, pick, ratio, uniform
from drawing import CHANCE, Curve, Panel, Picture, Size, main, uncertified
from recipes import HALF

import fedbandit_jax as fb

S, M, K, D = fb.schedules, 20, 10, 10
NOISE = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt", unit="visit", statistic=HALF)
PLAIN = fb.algos.async_fed_lin_ucb()
GREEDY = PLAIN.replace(policy=fb.algos.Greedy())
PRIVATE = PLAIN.replace(policy=fb.algos.Greedy(regularization=100.0), privacy=NOISE)
THRESHOLDS, GROWTHS = (0.05, 0.1, 0.2, 0.4), (1.1, 1.3, 1.5, 2.0, 3.0)
RAW = {growth: S.LogDet(np.log(growth), "he22") for growth in (1.01, 1.1, 2.0, 4.0)}
TESTS = {d: S.PrivateLogDet(d, share=0.3, max_syncs=64, trigger="he22") for d in THRESHOLDS}
LEAKY = {d: S.LogDet(d, "he22", max_syncs=64) for d in THRESHOLDS}
FAMILIES: list[tuple[str, Any, dict[float, Any], str, str]] = [  # how labels begin, recipe, schedules, style, legend
    ("every {} own rounds", PRIVATE, {n: S.Every(n) for n in (25, 50, 100)}, "#D55E00 o-",
     "every 100, 50, 25 own rounds: certified"),
    ("own rounds grow by {:g}", PRIVATE, {g: S.Geometric(g, first=20) for g in GROWTHS}, "#56B4E9 s-",
     "own rounds grow by 3 ... 1.1: certified"),
    ("private test, D = {:g}", PRIVATE, TESTS, "#E69F00 D-", "private test, threshold D = 0.4 ... 0.05: certified"),
    ("test without noise, D = {:g}", PRIVATE, LEAKY, "#CC79A7 v:", "test without noise, the same D: no privacy claim"),
    ("not private: He et al. (2022), growth {:g}", PLAIN, RAW, "#000000 o-",
     "not private: He et al. (2022), growth 4 ... 1.01"),
    ("not private: greedy, own rounds grow by {:g}", GREEDY, {g: S.Geometric(g, first=2) for g in (1.1, 1.5, 3.0)},
     "#999999 s-", "not private: greedy, own rounds grow by 3 ... 1.1"),
    ("not private: greedy, growth {:g}", GREEDY, RAW, "#882255 D-", "not private: greedy, growth of det V 4 ... 1.01"),
]  # fmt: skip
ALONE, LINUCB = "alone, not private: greedy", "alone, not private: LinUCB"  # regret of the first is the unit
ZIPF = (1 / np.arange(1, M + 1)).tolist()
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "all alike": ("one parameter, equal rates", dict(n_clusters=1)),
    "unequal rates": ("one parameter, rates by Zipf's law", dict(n_clusters=1, arrivals=ZIPF)),
    "two parameters": ("two parameters, equal rates", dict(n_clusters=2)),
    "four parameters, unequal rates": ("four parameters, rates by Zipf's law", dict(n_clusters=4, arrivals=ZIPF)),
}
GROW, TEST = f"own rounds grow by {GROWTHS[1]:g}", f"private test, D = {THRESHOLDS[1]:g}"  # in the caption


def measure(options: Size) -> list[Curve]:
    run = options.run(100, 20_000, 100_000, seeds=(4, 16, 32), fresh=2024, stride="log")
    curves, algos, colours = [], {}, {}
    for words, algo, schedules, style, _ in FAMILIES:
        for value, one in list(schedules.items())[: options.pick(1, None, None)]:
            algos[words.format(value)] = algo.replace(schedule=one)
            colours[words.format(value)] = style.split()[0]
    algos[LINUCB] = fb.algos.LinUCB()
    algos[ALONE] = fb.algos.LinUCB(policy=fb.algos.UCB(exploration_scale=0.0))
    for title, (_, world) in list(WORLDS.items())[:: options.pick(-4, 1, 1)]:
        env = fb.envs.clustered(n_users=M, n_servers=1, n_arms=K, dim=options.pick(3, D, D), **world)
        panel = f"{title}, T = {run['horizon']:,}"
        found = ends(fb.sweep(env, algos, **run), panel, "rounds")
        curves += [one.but(style=colours.get(one.label, "")) for one in found]
        curves.append(uniform(env, run["horizon"], panel))
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, apart = [], []
    said: dict[str, str] = collections.defaultdict(str)  # empty for what --smoke leaves out
    for letter, title in zip("abcd", panels(curves)):
        of = {one.label: one for one in pick(curves, title)}
        unit, lines = of[ALONE].y[0], []
        said |= {f"{letter}, {name}": ratio(one.y[0], unit) for name, one in of.items()}
        for words, _, schedules, style, label in FAMILIES:
            ones = [of[name] for value in schedules if (name := words.format(value)) in of]
            line = Curve(title, label, [one.mean[1] for one in ones], [one.y[0] for one in ones], style, ones[0].note)
            lines.append(line.over(unit))
        apart += [value for one in lines for value in one.mean if letter in "cd"]
        panel = Panel(lines, WORLDS[title.partition(", T")[0]][0], "uploads of all agents", open=uncertified)
        panel.level = {name: of[name].mean[0] / unit.mean() for name in (CHANCE, LINUCB, ALONE)}
        panel.look, panel.xticks = dict(capsize=0, elinewidth=0.6), (100, 300, 1_000, 3_000)
        panel.axes |= dict(xlim=(60, 5_000), xscale="log")
        if letter in "ab":
            panel.axes |= dict(yscale="log", ylim=(0.08, 12))
            panel.yticks = (0.1, 0.2, 0.5, 1, 2, 5, 10)
        else:
            panel.axes["ylim"] = 0.8, max(one.mean.max() for one in lines) + 0.3
        shown.append(panel)
    n = curves[0].n_seeds
    return Picture(
        shown,
        "Sharing pays if agents are alike, and costs otherwise",
        f"M = {M} agents, K = {K}, d = {D}, T = 20,000, ε = 1, δ = 0.1. Mean of {n} seeds ± one standard error of the "
        "paired ratio. Grey lines are uniform play and agents who never talk, outside (c) and (d)",
        "The unit is the regret of greedy agents who play alone, without noise. Where all have one parameter, (a) and "
        f"(b), certified agents whose own rounds grow by 1.3 have {said[f'a, {GROW}']} and {said[f'b, {GROW}']}. With "
        f"a private test, D = 0.1, they have {said[f'a, {TEST}']} and {said[f'b, {TEST}']} ({n} seeds). Where agents "
        f"have two parameters, (c), or four, (d), all who share have {min(apart, default=0):.1f} to "
        f"{max(apart, default=0):.1f}, whatever the schedule.",
        height=6.4,
        shape=(2, 2),
        ylabel="regret over greedy play alone",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
