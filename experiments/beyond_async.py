"""Compares when agents who come one at a time should exchange statistics, at equal privacy: does adaptivity gain?

python experiments/beyond_async.py [--smoke | --full] [--redraw]

The algorithm is asynchronous FedLinUCB (He et al. 2022) with noise: an agent uploads its own noisy sums, and downloads
everybody's. Coloured curves have the same noise budget, BLT noise of every agent, and greedy play. Uploads are fixed in
advance (every B of the agent's own rounds, or when these have grown by a factor), or follow a sparse vector test of
what the agent has learned since its last download (threshold D, 0.3 of epsilon), or ask the same question without
noise, which leaks. Their first V is 100 I, lest all ask at once. Grey curves are not private; dotted lines are agents
who never talk. All agents are alike; or some come more often, by Zipf's law; or each has one of two parameters; or of
four, and Zipf's law. All constants were chosen on other seeds.
"""

from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from beyond_schedules import compare
from common import Size, promised, save
from curves import Curve, ends, pick

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


def draw(ax: Any, title: str, found: dict[str, list[Curve]]) -> None:
    """Draws regret against uploads, with filled markers for what is certified."""
    for i, (name, ones) in enumerate(found.items()):
        mean, error = [one.mean[0] for one in ones], [one.error[0] for one in ones]
        claim, grey = ones[0].note, ("#000000", "#777777", "#bbbbbb")[i % 3]
        if name.startswith("alone"):
            ax.axhline(mean[0], color=grey, linestyle=(":", "--")["greedy" in name], label=name)
            continue
        colour = grey if name.startswith("not") else fb.plotting.COLOURS[i + 1]
        look: dict[str, Any] = dict(
            fmt=f"{'osDv'[i % 4]}-", linewidth=1, mfc=colour if claim == "certified" else "white"
        )
        label = name if name.startswith("not") else f"{name}: {promised(claim)}"
        ax.errorbar([one.mean[1] for one in ones], mean, error, **look, color=colour, label=label, capsize=2)
    ax.set(title=title, xscale="log", yscale="log", xlabel="uploads of all agents")
    ax.grid(alpha=0.3, which="both")


def measure(options: Size) -> list[Curve]:
    """Returns final regret and uploads of every schedule in every world."""
    run = {**options.run(100, 20_000, 100_000), "seeds": options.pick(4, 16, 32), "stride": "log", "progress": False}
    run["key"] = jax.random.key(options.seed + 2024)  # not of the seeds on which constants were chosen
    curves = []
    for title, world in list(WORLDS.items())[:: options.pick(-4, 1, 1)]:
        env = fb.envs.clustered(n_users=M, n_servers=1, n_arms=K, dim=options.pick(3, D, D), **world)
        families = {name: ones[: options.pick(1, None, None)] for name, ones in FAMILIES.items()}
        algos = {f"{name} ({i})": one for name, ones in families.items() for i, one in enumerate(ones)}
        curves += ends(fb.sweep(env, algos, **run), f"{title}, T = {run['horizon']:,}", "rounds")
    return curves


def main(options: Size) -> None:
    curves = options.numbers("beyond_async", lambda: measure(options))
    figure, axes = plt.subplots(1, len(WORLDS), figsize=(21.0, 6.6), layout="constrained", sharey=True)
    for ax, title in zip(axes, dict.fromkeys(one.panel for one in curves)):
        found = {name: [one for one in pick(curves, title) if one.label.startswith(f"{name} (")] for name in FAMILIES}
        for one in pick(curves, title):
            print(f"{title}, {one.label}: {one.mean[0]:,.0f} ± {one.error[0]:,.0f} ({one.mean[1]:,.0f})")
        compare(title, found)
        draw(ax, title, found)
    axes[0].set_ylabel("regret of all agents at T")
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize="small", loc="outside lower center", ncols=3)
    size = f"M = {M}, K = {K}, d = {D}, ε = 1, δ = 0.1, {curves[0].n_seeds} seeds ± one standard error"
    figure.suptitle(f"When agents who come one at a time should exchange statistics: {size}", fontsize="medium")
    save("beyond_async", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
