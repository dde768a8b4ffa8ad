"""Compares when agents who come one at a time should exchange statistics, at equal privacy: does adaptivity gain?

python experiments/beyond_async.py [--smoke | --full] [--redraw]

The algorithm is asynchronous FedLinUCB (He et al. 2022) with noise: an agent uploads its own noisy sums, and downloads
everybody's. Coloured curves have the same noise budget, BLT noise of every agent, and greedy play. Uploads are fixed in
advance (every B of the agent's own rounds, or when these have grown by a factor), or follow a sparse vector test of
what the agent has learned since its last download (threshold D, 0.3 of epsilon), or ask the same question without
noise, which leaks. Their first V is 100 I, lest all ask at once. Black and grey curves are not private; horizontal
lines are agents who never talk. Regret is in units of that of greedy play alone or, where agents differ, of greedy
agents who share without noise, seed by seed. All agents are alike; or some come more often, by Zipf's law; or each has
one of two parameters; or of four, and Zipf's law. All constants were chosen on other seeds.
"""

import collections
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from beyond_schedules import compare
from curves import Curve, ends, pick, quotient, random_play
from drawing import legend_of_all, remark, save
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
RAW = [S.LogDet(np.log(growth), "he22") for growth in (1.01, 1.1, 2.0, 4.0)]
FAMILIES: dict[str, list[fb.Algorithm]] = {
    "every B = 25, 50, 100": [PRIVATE.replace(schedule=S.Every(batch)) for batch in (25, 50, 100)],
    "own rounds grow by 1.1 ... 3": [PRIVATE.replace(schedule=S.Geometric(g, first=20)) for g in GROWTHS],
    "private test, at most 64": [
        PRIVATE.replace(schedule=S.PrivateLogDet(d, 0.3, max_syncs=64, trigger="he22")) for d in THRESHOLDS
    ],
    "raw log det, at most 64": [PRIVATE.replace(schedule=S.LogDet(d, "he22", max_syncs=64)) for d in THRESHOLDS],
    "not private: He et al. (2022)": [PLAIN.replace(schedule=one) for one in RAW],
    "not private: greedy, own rounds grow": [GREEDY.replace(schedule=S.Geometric(g, first=2)) for g in (1.1, 1.5, 3.0)],
    "not private: greedy, raw log det": [GREEDY.replace(schedule=one) for one in RAW],
    "alone, not private: LinUCB": [fb.algos.LinUCB()],
    "alone, not private: greedy": [fb.algos.LinUCB(policy=fb.algos.UCB(exploration_scale=0.0))],
}
ZIPF = (1 / np.arange(1, M + 1)).tolist()
WORLDS: dict[str, dict[str, Any]] = {
    "all alike": dict(n_clusters=1),
    "unequal rates": dict(n_clusters=1, arrivals=ZIPF),
    "two parameters": dict(n_clusters=2),
    "four parameters, unequal rates": dict(n_clusters=4, arrivals=ZIPF),
}


SHOWN = {  # family -> colour, marker and line, and the words of the legend; from few uploads to many
    "every B = 25, 50, 100": ("#0072B2", "o-", "every 100, 50, 25 own rounds: certified"),
    "own rounds grow by 1.1 ... 3": ("#D55E00", "s-", "own rounds grow by 3 ... 1.1: certified"),
    "private test, at most 64": ("#009E73", "D-", "private test, D = 0.4 ... 0.05: certified"),
    "raw log det, at most 64": ("#CC79A7", "v:", "the same test without noise: no privacy claim"),
    "not private: He et al. (2022)": ("#555555", "o-", "not private: He et al. (2022)"),
    "not private: greedy, own rounds grow": ("#999999", "s-", "not private: greedy, own rounds grow"),
    "not private: greedy, raw log det": ("#000000", "D-", "not private: greedy, test without noise"),
    "alone, not private: LinUCB": ("#56B4E9", "-", "alone, not private: LinUCB"),
    "alone, not private: greedy": ("#E69F00", "-", "alone, not private: greedy"),
}
TITLES = {
    "all alike": "one parameter, equal rates",
    "unequal rates": "one parameter, rates by Zipf's law",
    "two parameters": "two parameters, equal rates",
    "four parameters, unequal rates": "four parameters, rates by Zipf's law",
}
NAMED = {
    "own rounds grow by 1.1 ... 3 (1)": f"grow by {GROWTHS[1]:g}",
    "private test, at most 64 (1)": f"D = {THRESHOLDS[1]:g}",
}
ALONE = "alone, not private: greedy (0)"
UNITS = {  # of regret in the panels, and its name on the axis
    "ab": (ALONE, "greedy play alone"),
    "cd": (
        "not private: greedy, own rounds grow (1)",
        "greedy agents\nwho share without noise (by 1.5; not from 0)",
    ),
}


def draw(ax: Any, title: str, found: dict[str, list[Curve]], unit: np.ndarray) -> None:
    """Draws regret in a unit against uploads, filled if certified; of who is alone a line, or what is off the axis."""
    off = []
    for name, ones in found.items():
        colour, look, label = SHOWN[name]
        mean, error = np.transpose([quotient(one.y[0], unit) for one in ones])
        if name.startswith("alone"):
            ax.plot([], [], look, color=colour, label=label)
            if mean[0] > 0.9:
                ax.axhline(mean[0], color=colour)
            else:
                off.append(f"{name.rpartition(' ')[2]} {mean[0]:.2f} ± {error[0]:.2f}")
            continue
        uploads = [one.mean[1] for one in ones]
        fill = colour if ones[0].note == "certified" else "white"
        ax.errorbar(uploads, mean, error, fmt=look, color=colour, mfc=fill, label=label, capsize=2, linewidth=1.2)
        for one, x, y in zip(ones, uploads, mean):
            if one.label in NAMED and not title.startswith(("(c", "(d")):
                shift = (16, 26) if name.startswith("private") else (0, -18)
                look = dict(
                    bbox=dict(facecolor="white", edgecolor="none", pad=0.5),
                    textcoords="offset points",
                    color=colour,
                    ha="center",
                    arrowprops=dict(arrowstyle="-", color=colour),
                )
                ax.annotate(NAMED[one.label], (x, y), shift, **look)
    if off:
        ax.text(0.03, 0.03, f"alone, below the axis: {', '.join(off)}", transform=ax.transAxes, fontsize="small")
    ax.set(xscale="log", xlabel="uploads of all agents", xlim=(60, 5_000))
    ax.set_title(title, fontsize="medium")
    ax.set_xticks([100, 300, 1_000, 3_000], ["100", "300", "1,000", "3,000"])
    ax.set_xticks([], minor=True)
    ax.grid(alpha=0.3)


def measure(options: Size) -> list[Curve]:
    """Returns final regret and uploads of every schedule in every world."""
    run = {**options.run(100, 20_000, 100_000), "seeds": options.pick(4, 16, 32), "stride": "log", "progress": False}
    run["key"] = jax.random.key(options.seed + 2024)  # not of the seeds on which constants were chosen
    curves = []
    for title, world in list(WORLDS.items())[:: options.pick(-4, 1, 1)]:
        env = fb.envs.clustered(n_users=M, n_servers=1, n_arms=K, dim=options.pick(3, D, D), **world)
        families = {name: ones[: options.pick(1, None, None)] for name, ones in FAMILIES.items()}
        algos = {f"{name} ({i})": one for name, ones in families.items() for i, one in enumerate(ones)}
        panel = f"{title}, T = {run['horizon']:,}"
        curves += ends(fb.sweep(env, algos, **run), panel, "rounds")
        uniform = random_play(env) * run["horizon"]
        curves.append(Curve(panel, "random play", [0], [uniform], "#999999 :", "not private"))
    return curves


def main(options: Size) -> None:
    curves = options.numbers("beyond_async", lambda: measure(options))
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 9), layout="constrained", sharey="row")
    said: dict[str, str] = collections.defaultdict(str)  # empty for what --smoke leaves out
    apart = []
    for ax, letter, title in zip(axes.flat, "abcd", dict.fromkeys(one.panel for one in curves)):
        found = {name: [one for one in pick(curves, title) if one.label.startswith(f"{name} (")] for name in FAMILIES}
        compare(title, found)
        by_label = {one.label: one for one in pick(curves, title)}
        unit = next(label for letters, (label, _) in UNITS.items() if letter in letters)
        draw(ax, f"({letter}) {TITLES[title.partition(', T')[0]]}", found, by_label[unit].y[0])
        for one in by_label.values():
            said[f"{letter}, {one.label}"] = f"{one.mean[0]:,.0f} ± {one.error[0]:,.0f}"
        if letter in "cd":
            shared = [one.y[0] for name, one in by_label.items() if not name.startswith(("alone", "random"))]
            apart += [quotient(y, by_label[ALONE].y[0])[0] for y in shared]
    axes[0, 0].set(yscale="log", ylim=(0.08, 1.5))
    axes[0, 0].set_yticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
    axes[1, 0].set(ylim=(0.9, 1.35))
    for ax, (_, words) in zip(axes[:, 0], UNITS.values()):
        ax.set_ylabel(f"regret at T / that of {words}")
    print(*(f"{name}: {words}" for name, words in said.items()), sep="\n")
    legend_of_all(figure, ncols=3)
    uniform, n_seeds = pick(curves, label="random play")[0].mean[0], curves[0].n_seeds
    alone = said[f"a, {ALONE}"]
    size = f"M = {M} agents, K = {K}, d = {D}, T = 20,000, ε = 1, δ = 0.1, {n_seeds} seeds ± one standard error"
    worth = f"in (a) greedy play alone has {alone}, random play {round(uniform, -2):,.0f}"
    figure.suptitle(f"{size} of the paired ratio;\n{worth}", fontsize="medium")
    grow, test = NAMED
    remark(
        figure,
        f"Where all agents have one parameter, (a) equal and (b) unequal rates, certified agents whose own rounds "
        f"{NAMED[grow]} have {said[f'a, {grow}']} and {said[f'b, {grow}']}, with a private test ({NAMED[test]}) "
        f"{said[f'a, {test}']} and {said[f'b, {test}']}, and greedy agents who play alone, without noise, {alone} "
        f"and {said[f'b, {ALONE}']} ({n_seeds} seeds). Where they have two parameters, (c), or four, (d), all who "
        f"share have {min(apart, default=0):.1f} to {max(apart, default=0):.1f} times the regret of greedy agents "
        "alone, whatever the schedule.",
    )
    save("beyond_async", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
