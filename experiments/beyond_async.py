"""Compares when agents who come one at a time should exchange statistics, at equal privacy: does adaptivity gain?

python experiments/beyond_async.py [--smoke | --full] [--redraw]

The algorithm is asynchronous FedLinUCB (He et al. 2022) with noise: an agent uploads its own noisy sums, and downloads
everybody's. Coloured curves have the same noise budget, BLT noise of every agent, and greedy play. Uploads are fixed in
advance (every B of the agent's own rounds, or when these have grown by a factor), or follow a sparse vector test of
what the agent has learned since its last download (threshold D, 0.3 of epsilon), or ask the same question without
noise, which leaks. Their first V is 100 I, lest all ask at once. Black, grey and wine curves are not private;
horizontal lines are agents who never talk. Regret is in units of that of greedy play alone, seed by seed. All agents
are alike; or some come more often, by Zipf's law; or each has one of two parameters; or of four, and Zipf's law. All
constants were chosen on other seeds.
"""

import collections
from typing import Any

import numpy as np
from curves import Curve, ends, panels, pick, random_play, ratio
from drawing import CHANCE, Panel, Picture, main
from options import Size

import fedbandit_jax as fb

S, M, K, D = fb.schedules, 20, 10, 10
NOISE = fb.privacy.Mechanism(
    fb.privacy.Budget(1.0, 0.1), release="blt", unit="visit", statistic=fb.privacy.Linear(centred=True, gram_scale=0.5)
)
PLAIN = fb.algos.async_fed_lin_ucb()
GREEDY = PLAIN.replace(policy=fb.algos.Greedy())
PRIVATE = PLAIN.replace(policy=fb.algos.Greedy(regularization=100.0), privacy=NOISE)
THRESHOLDS, GROWTHS = (0.05, 0.1, 0.2, 0.4), (1.1, 1.3, 1.5, 2.0, 3.0)
RAW = {growth: S.LogDet(np.log(growth), "he22") for growth in (1.01, 1.1, 2.0, 4.0)}
FAMILIES: dict[str, dict[str, fb.Algorithm]] = {
    "every B": {f"every {batch} own rounds": PRIVATE.replace(schedule=S.Every(batch)) for batch in (25, 50, 100)},
    "growing": {f"own rounds grow by {g:g}": PRIVATE.replace(schedule=S.Geometric(g, first=20)) for g in GROWTHS},
    "private test": {
        f"private test, D = {d:g}": PRIVATE.replace(
            schedule=S.PrivateLogDet(d, share=0.3, max_syncs=64, trigger="he22")
        )
        for d in THRESHOLDS
    },
    "raw test": {
        f"test without noise, D = {d:g}": PRIVATE.replace(schedule=S.LogDet(d, "he22", max_syncs=64))
        for d in THRESHOLDS
    },
    "he22": {f"not private: He et al. (2022), growth {g:g}": PLAIN.replace(schedule=one) for g, one in RAW.items()},
    "greedy growing": {
        f"not private: greedy, own rounds grow by {g:g}": GREEDY.replace(schedule=S.Geometric(g, first=2))
        for g in (1.1, 1.5, 3.0)
    },
    "greedy raw": {f"not private: greedy, growth {g:g}": GREEDY.replace(schedule=one) for g, one in RAW.items()},
    "LinUCB": {"alone, not private: LinUCB": fb.algos.LinUCB()},
    "greedy": {"alone, not private: greedy": fb.algos.LinUCB(policy=fb.algos.UCB(exploration_scale=0.0))},
}
ZIPF = (1 / np.arange(1, M + 1)).tolist()
WORLDS: dict[str, dict[str, Any]] = {
    "all alike": dict(n_clusters=1),
    "unequal rates": dict(n_clusters=1, arrivals=ZIPF),
    "two parameters": dict(n_clusters=2),
    "four parameters, unequal rates": dict(n_clusters=4, arrivals=ZIPF),
}
SHOWN = {  # family -> colour, marker and line, and the words of the legend; from few uploads to many
    "every B": ("#D55E00", "o-", "every 100, 50, 25 own rounds: certified"),
    "growing": ("#56B4E9", "s-", "own rounds grow by 3 ... 1.1: certified"),
    "private test": ("#E69F00", "D-", "private test, threshold D = 0.4 ... 0.05: certified"),
    "raw test": ("#CC79A7", "v:", "test without noise, the same D: no privacy claim"),
    "he22": ("#000000", "o-", "not private: He et al. (2022), growth 4 ... 1.01"),
    "greedy growing": ("#999999", "s-", "not private: greedy, own rounds grow by 3 ... 1.1"),
    "greedy raw": ("#882255", "D-", "not private: greedy, growth of det V 4 ... 1.01"),
    "LinUCB": ("", "", "alone, not private: LinUCB"),
    "greedy": ("", "", "alone, not private: greedy"),
}
TITLES = {
    "all alike": "one parameter, equal rates",
    "unequal rates": "one parameter, rates by Zipf's law",
    "two parameters": "two parameters, equal rates",
    "four parameters, unequal rates": "four parameters, rates by Zipf's law",
}
NAMED = (f"own rounds grow by {GROWTHS[1]:g}", f"private test, D = {THRESHOLDS[1]:g}")  # in the caption
ALONE = "alone, not private: greedy"  # whose regret is the unit


def measure(options: Size) -> list[Curve]:
    """Returns final regret and uploads of every schedule in every world."""
    run = options.run(100, 20_000, 100_000, seeds=(4, 16, 32), fresh=2024, stride="log")
    curves, colours = [], {label: SHOWN[family][0] for family, of in FAMILIES.items() for label in of}
    for title, world in list(WORLDS.items())[:: options.pick(-4, 1, 1)]:
        env = fb.envs.clustered(n_users=M, n_servers=1, n_arms=K, dim=options.pick(3, D, D), **world)
        algos = {
            label: one for of in FAMILIES.values() for label, one in list(of.items())[: options.pick(1, None, None)]
        }
        panel = f"{title}, T = {run['horizon']:,}"
        for one in ends(fb.sweep(env, algos, **run), panel, "rounds"):
            curves.append(one.but(style=colours[one.label]))
        uniform = random_play(env) * run["horizon"]
        curves.append(Curve(panel, CHANCE, [0], [uniform], "#999999 -.", "not private"))
    return curves


def picture(curves: list[Curve]) -> Picture:
    shown, apart = [], []
    said: dict[str, str] = collections.defaultdict(str)  # empty for what --smoke leaves out
    for letter, title in zip("abcd", panels(curves)):
        of = {one.label: one for one in pick(curves, title)}
        unit, lines, level = of[ALONE].y[0], [], {CHANCE: of[CHANCE].mean[0] / of[ALONE].mean[0]}
        said |= {f"{letter}, {name}": ratio(one.y[0], unit) for name, one in of.items()}
        for name, each in FAMILIES.items():
            ones = [of[label] for label in each if label in of]
            colour, look, label = SHOWN[name]
            if ones[0].label.startswith("alone"):
                level[label] = ones[0].mean[0] / unit.mean()
                continue
            line = Curve(title, label, [one.mean[1] for one in ones], [one.y[0] for one in ones], f"{colour} {look}")
            lines.append(line.but(note=ones[0].note).over(unit))
        apart += [value for one in lines for value in one.mean if letter in "cd"]
        panel = Panel(lines, TITLES[title.partition(", T")[0]], "uploads of all agents", level=level)
        panel.open, panel.look = lambda one: one.note != "certified", dict(capsize=0, elinewidth=0.6)
        panel.xticks, panel.axes["xlim"], panel.axes["xscale"] = (100, 300, 1_000, 3_000), (60, 5_000), "log"
        if letter in "ab":
            panel.axes |= dict(yscale="log", ylim=(0.08, 12))
            panel.yticks = (0.1, 0.2, 0.5, 1, 2, 5, 10)
        else:
            panel.axes["ylim"] = min(one.mean.min() for one in lines) - 0.3, max(one.mean.max() for one in lines) + 0.3
        panel.axes["ylabel"] = "regret over greedy play alone" * (letter in "ac")
        shown.append(panel)
    n, (grow, test) = curves[0].n_seeds, NAMED
    return Picture(
        shown,
        "Sharing pays if agents are alike, and costs otherwise",
        f"M = {M} agents, K = {K}, d = {D}, T = 20,000, ε = 1, δ = 0.1. Mean of {n} seeds ± one standard error of the "
        "paired ratio. Grey lines are uniform play and agents who never talk, outside (c) and (d)",
        "The unit is the regret of greedy agents who play alone, without noise. Where all have one parameter, (a) and "
        f"(b), certified agents whose own rounds grow by 1.3 have {said[f'a, {grow}']} and {said[f'b, {grow}']}. With "
        f"a private test, D = 0.1, they have {said[f'a, {test}']} and {said[f'b, {test}']} ({n} seeds). Where agents "
        f"have two parameters, (c), or four, (d), all who share have {min(apart, default=0):.1f} to "
        f"{max(apart, default=0):.1f}, whatever the schedule.",
        height=6.4,
        shape=(2, 2),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
