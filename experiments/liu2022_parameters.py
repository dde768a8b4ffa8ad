"""Draws the parameter study of Liu et al. (2022), Appendix E.2: regret after T rounds against epsilon, d, n, m and L.

python experiments/liu2022_parameters.py [--smoke | --full]

As in the authors' script m is varied with n = 5 m users on L = 5 servers, L with n = 5 L users in m = 5 clusters, and
the others around n = 40, m = 4, L = 5 and d = 10. The axis of (a) is the epsilon that the noise is worth for all phases
together; the one asked for, which is the paper's axis, is beside the points. (At 100 nothing is proved: the far tails
of the noise, which are never drawn, are missing.)
"""

import functools
from typing import Any

import matplotlib.pyplot as plt
import tyro
from common import LiuOptions, liu_users, mean_error, random_play, save, worth

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


def draw(ax, name, algo, values, finals, text=()) -> None:
    """Draws the mean final regret against a parameter, with one standard deviation over seeds."""
    mean, spread = zip(*((final.mean(), final.std(ddof=1)) for final in finals))
    style: dict[str, Any] = dict(fmt="s-" if "less" in name else "o-", color=fb.plotting.colour(algo), label=name)
    ax.errorbar(values, mean, spread, markersize=3, capsize=2, **style)
    for label, x, y in zip(text, values, mean):
        ax.annotate(f"{label:g}", (x, y), xytext=(2, 5), textcoords="offset points", fontsize="x-small")


def main(options: LiuOptions) -> None:
    run = {**options.run(500, 50_000, 100_000), "seeds": options.pick(2, 5, 10)}
    every = options.methods(fb.privacy.Budget(1.0, 0.1))
    figure, axes = plt.subplots(1, 5, figsize=(21.0, 5.6), layout="constrained", sharey=True)
    env, epsilons = liu_users(), EPSILONS[:: options.pick(5, 1, 1)]
    private = {name: algo for name, algo in every.items() if name.startswith("CDP")}
    result = fb.sweep(env, private, grid=dict(epsilon=epsilons), **run)
    for name, algo in private.items():
        finals = [result[f"{name}(epsilon={e})"].regret[:, -1] for e in epsilons]
        given = [worth(algo.replace(epsilon=e), env, run["horizon"]) for e in epsilons]
        draw(axes[0], name, algo, given, finals, epsilons)
        for e, g, (mean, error) in zip(epsilons, given, map(mean_error, finals)):
            print(f"{name}: epsilon = {e:g} asked, {g:.3g} given: {mean:,.0f} +- {error:,.0f}")
    axes[0].set(xscale="log", xlabel="ε that the noise is worth (asked: beside points)")
    axes[0].set(title="(a) privacy (n=40, m=4, L=5, d=10)", ylabel=f"regret after {run['horizon']:,} rounds")

    @functools.cache
    def run_shape(*shape: int) -> dict:
        env = liu_users(**dict(zip(HOME, shape)))
        result = fb.sweep(env, {name: every[name] for name in SHOWN[:: options.pick(2, 1, 1)]}, **run)
        random = random_play(env, options.seed) * run["horizon"]
        found = {name: result[name].regret[:, -1] for name in result}
        text = ", ".join("{} {:.0f} +- {:.0f}".format(name, *mean_error(final)) for name, final in found.items())
        print(f"{dict(zip(HOME, shape))}: {text}, random play {random:.0f}", flush=True)
        return found

    for ax, (title, (letter, values, shape)) in zip(axes[1:], STUDIES.items()):
        values = values[: options.pick(1, 9, 9)]
        found = [run_shape(*shape(value).values()) for value in values]
        for name in found[0]:
            draw(ax, name, every[name], values, [point[name] for point in found])
        ax.set(title=title, xlabel=f"${letter}$", xticks=values)
    for ax in axes:
        ax.set_yscale("log")
        ax.grid(alpha=0.3)
    axes[0].axhline(random_play(env, options.seed) * run["horizon"], color="k", linestyle=":", label="random play")
    handles = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
    where = "K=10, consecutive seats, no least gap, ε=1 asked and δ=0.1 but for (a)"
    seeds = f"mean of {run['seeds']} seeds ± 1 standard deviation"
    figure.suptitle(f"Appendix E.2 of Liu et al. (2022): {where}; {seeds}")
    save("liu2022_parameters", options, figure)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
