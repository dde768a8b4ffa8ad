"""Draws the parameter study of Liu et al. (2022), Appendix E.2: regret after T rounds against epsilon, d, n, m and L.

python experiments/liu2022_parameters.py [--smoke | --full]

One parameter at a time is varied around n = 40 users, L = 5 servers and d = 10 features; m is the number of clusters.
In the paper's range of epsilon, 0.1 to 10, noise that is really added lets nothing be learned in T = 10^5 rounds, so
that ours goes on to 10^4.
"""

from typing import Any

import matplotlib.pyplot as plt
import tyro
from common import LiuOptions, mean_error, save

import fedbandit_jax as fb

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 100.0, 1e3, 1e4)
VALUES = {
    "d": ("dim", (5, 10, 15, 20)),
    "n": ("n_users", (20, 40, 60, 80)),
    "m": ("n_clusters", (2, 4, 6, 8, 10)),
    "L": ("n_servers", (2, 4, 5, 6, 8, 10)),
}
SHOWN = ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "SCLUB", "LinUCB", "Homo")
COLOURS = dict(zip((*SHOWN, "CDP-FCLUB-DC, less noise"), fb.plotting.COLOURS))


def draw(ax, points, values) -> None:
    """Draws the mean final regret against a parameter, with one standard deviation over seeds."""
    for name in points[0]:
        finals = [point[name] for point in points]
        mean, spread = zip(*((final.mean(), final.std(ddof=1)) for final in finals))
        ax.errorbar(values, mean, spread, fmt="o-", markersize=3, color=COLOURS[name], label=name, capsize=2)
    ax.set_yscale("log")
    ax.grid(alpha=0.3)


def main(options: LiuOptions) -> None:
    run = {**options.run(500, 50_000, 100_000), "seeds": options.pick(2, 5, 10)}
    every = options.methods(fb.privacy.Budget(1.0, 0.1))
    figure, axes = plt.subplots(1, 5, figsize=(21.0, 5.0), layout="constrained", sharey=True)
    private = {name: algo for name, algo in every.items() if name.startswith("CDP")}
    epsilons = EPSILONS[:: options.pick(5, 1, 1)]
    result = fb.sweep(fb.envs.clustered(), private, grid=dict(epsilon=epsilons), **run)
    points = [{n: result[f"{n}(epsilon={e})"].regret[:, -1] for n in private} for e in epsilons]
    draw(axes[0], points, epsilons)
    axes[0].set(xscale="log", xlabel="$\\varepsilon$", ylabel=f"regret after {run['horizon']:,} rounds")
    shown = SHOWN[:: options.pick(4, 1, 1)]
    letters = list(VALUES.items())[:: options.pick(3, 1, 1)]
    for ax, (letter, (parameter, values)) in zip(axes[1:], letters):
        values, points = values[: options.pick(1, 9, 9)], []
        for value in values:
            shape: dict[str, Any] = {parameter: value}
            env = fb.envs.clustered(**shape, gap=0.3)
            result = fb.sweep(env, {name: every[name] for name in shown}, **run)
            points.append({name: result[name].regret[:, -1] for name in shown})
            order = ", ".join(f"{name} {mean_error(final)[0]:.0f}" for name, final in points[-1].items())
            print(f"{letter} = {value}: {order}", flush=True)
        draw(ax, points, values)
        ax.set(xlabel=f"${letter}$", xticks=values)
    handles = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
    save("liu2022_parameters", options, figure)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
