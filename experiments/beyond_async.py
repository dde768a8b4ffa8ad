"""Compares when agents who come one at a time should exchange statistics, at equal privacy: does adaptivity gain?

python experiments/beyond_async.py [--smoke | --full] [--redraw]

The algorithm is asynchronous FedLinUCB (He et al. 2022) with noise: an agent uploads its own noisy sums, and downloads
everybody's. Coloured curves have the same noise budget, BLT noise of every agent, and greedy play. Uploads are fixed in
advance (every B of the agent's own rounds, or when these have grown by a factor), or follow a sparse vector test of
what the agent has learned since its last download (threshold D, 0.3 of epsilon), or ask the same question without
noise, which leaks. Their first V is 100 I, lest all ask at once. Black and grey curves are not private; triangles are
agents who never talk. All agents are alike; or some come more often, by Zipf's law; or each has one of two
parameters; or of four, and Zipf's law. All constants were chosen on other seeds.
"""

import collections
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from beyond_schedules import compare
from curves import Curve, ends, pick, random_play
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
    "alone, not private: LinUCB": ("#56B4E9", "^", "alone, not private: LinUCB"),
    "alone, not private: greedy": ("#E69F00", "^", "alone, not private: greedy"),
}
ALONE = 6_000  # where agents who upload nothing are drawn, right of all uploads


def draw(ax: Any, title: str, found: dict[str, list[Curve]]) -> None:
    """Draws regret against uploads, with filled markers for what is certified."""
    for name, ones in found.items():
        colour, look, label = SHOWN[name]
        uploads = [ALONE if name.startswith("alone") else one.mean[1] for one in ones]
        mean, error = [one.mean[0] for one in ones], [one.error[0] for one in ones]
        fill = colour if ones[0].note == "certified" else "white"
        ax.errorbar(uploads, mean, error, fmt=look, color=colour, mfc=fill, label=label, capsize=2, linewidth=1.2)
    ax.set(xscale="log", xlabel="uploads of all agents", xlim=(60, 9_000))
    ax.set_title(title.partition(", T")[0], fontsize="medium")
    ax.set_xticks([100, 300, 1_000, 3_000, ALONE], ["100", "300", "1,000", "3,000", "alone"])
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
    figure, axes = plt.subplots(2, 2, figsize=(10, 8.4), layout="constrained")
    said: dict[str, str] = collections.defaultdict(str)  # empty for what --smoke leaves out
    for ax, letter, title in zip(axes.flat, "abcd", dict.fromkeys(one.panel for one in curves)):
        found = {name: [one for one in pick(curves, title) if one.label.startswith(f"{name} (")] for name in FAMILIES}
        compare(title, found)
        draw(ax, f"({letter}) {title}", found)
        for one in pick(curves, title):
            said[f"{letter}, {one.label}"] = f"{one.mean[0]:,.0f} ± {one.error[0]:,.0f}"
        if "parameter" not in title:
            ax.set(yscale="log", ylim=(45, 900))
    for ax in axes[:, 0]:
        ax.set_ylabel("regret of all agents at T")
    print(*(f"{name}: {words}" for name, words in said.items()), sep="\n")
    legend_of_all(figure, ncols=3)
    uniform = pick(curves, label="random play")[0].mean[0]
    size = f"M = {M}, K = {K}, d = {D}, T = 20,000, ε = 1, δ = 0.1, {curves[0].n_seeds} seeds ± one standard error"
    figure.suptitle(f"{size}; random play {round(uniform, -2):,.0f}; (c), (d) not from 0", fontsize="medium")
    grow, test = "own rounds grow by 1.1 ... 3 (1)", "private test, at most 64 (1)"
    remark(
        figure,
        f"Where all agents have one parameter, equal and unequal rates, certified agents whose own rounds grow by 1.3 "
        f"have {said[f'a, {grow}']} and {said[f'b, {grow}']}, with a private test (D = 0.1) {said[f'a, {test}']} and "
        f"{said[f'b, {test}']}, and greedy agents who play alone, without noise, "
        f"{said['a, alone, not private: greedy (0)']} and {said['b, alone, not private: greedy (0)']} (16 seeds). "
        "Where they have two parameters or four, all who share have two to four times the regret of those alone, "
        "whatever the schedule.",
    )
    save("beyond_async", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
