"""Measures Theorem 1 of Liu et al. (2022) in m and in the distance of clusters, with all pairs at one distance.

python experiments/liu2022_distances.py [--smoke | --full]

On random preference vectors more clusters are nearer to each other, so that sqrt m of the theorem's second term and 1 /
gamma^2 of its first cannot be told apart. Here all pairs of the m vectors are gamma apart: they are (sqrt(1 - gamma^2)
e_0 + gamma e_i, 1) / sqrt 2. (a) Regret of FCLUB-DC against m at each distance. (b) The round from which on all
clusters are right, against the distance: the theorem has n d log T / gamma^2.
"""

import re

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import LiuOptions
from curves import Curve, exponent, pick
from drawing import Says, caption, legend_below, save, slope
from liu2022_order import right_from

import fedbandit_jax as fb

CLUSTERS, DISTANCES, DIM, USERS = (2, 4, 8), (0.5, 1.0), 10, 40


def apart(n_clusters: int, distance: float) -> fb.Environment:
    """Returns 40 users on 5 servers in m clusters of equal sizes, whose vectors are all `distance` apart."""
    rng = np.random.default_rng(0)
    items = rng.standard_normal((4096, DIM - 1))
    u = np.zeros((n_clusters, DIM - 1))
    u[:, 0], u[:, 1 : n_clusters + 1] = np.sqrt(1 - distance**2), distance * np.eye(n_clusters)
    cluster = np.arange(USERS) % n_clusters
    thetas = np.hstack([u, np.ones((n_clusters, 1))])[cluster] / np.sqrt(2)
    items = np.hstack([items / np.linalg.norm(items, axis=1, keepdims=True), np.ones((len(items), 1))]) / np.sqrt(2)
    return fb.envs.community(items, thetas, cluster, n_servers=5)


def measure(options: LiuOptions) -> list[Curve]:
    """Returns regrets, and rounds of the right clusters (nan if never), of all seeds over m for each distance."""
    run = {**options.run(500, 131_070, 131_070), "seeds": options.pick(2, 4, 16), "stride": "log"}
    clusters, distances = CLUSTERS[: options.pick(1, 3, 3)], DISTANCES[: options.pick(1, 2, 2)]
    regret, found = (np.empty((len(distances), len(clusters), run["seeds"])) for _ in range(2))
    for j, m in enumerate(clusters):
        for i, distance in enumerate(distances):
            one = fb.simulate(apart(m, distance), fb.algos.FCLUB(), **run, store=options.store)
            right = right_from(one.gauges["adjusted Rand index"])
            first = one.rounds[np.minimum((~right).sum(1), len(one.rounds) - 1)]
            regret[i, j], found[i, j] = one.regret[:, -1], np.where(right[:, -1], first, np.nan)
    labels = [f"distance {distance}" for distance in distances]
    both = (("regret", regret), ("round", found))
    return [Curve(panel, name, clusters, one) for panel, values in both for name, one in zip(labels, values)]


def in_math(text: str) -> str:
    """Returns a text whose power, such as m^(0.5 ± 0.1), is written as one."""
    return re.sub(r"(\w)\^\((.*)\)", lambda found: f"${found[1]}^{{{found[2]}}}$".replace("±", r"\pm"), text)


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_distances", lambda: measure(options))
    regrets, rounds = pick(curves, "regret"), pick(curves, "round")
    distances, clusters = DISTANCES[: len(regrets)], regrets[0].x.astype(int)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.9), layout="constrained")
    found, powers, shares = [], [], []
    for one, late, colour, mark in zip(regrets, rounds, fb.plotting.COLOURS, "osDX"):
        power = "{:.2f} ± {:.2f}".format(*exponent(one))
        left.errorbar(
            one.x,
            one.mean,
            one.error,
            fmt=f"{mark}-",
            color=colour,
            capsize=2,
            label=in_math(f"{one.label}: m^({power})"),
        )
        found.append(f"{power} at {one.label}")
        for m, mean, error, first in zip(clusters, one.mean, one.error, late.y):
            seen = f"right at T in {np.isfinite(first).mean():.0%}"
            print(f"m = {m}, {one.label}: regret {mean:,.0f} ± {error:,.0f}; {seen}, rounds {np.sort(first).tolist()}")
    slope(left, 0.5, clusters, regrets[-1].mean[0], "$\\sqrt{m}$")
    left.set(xlabel="clusters m", ylabel="regret at T (axis not from 0)")
    left.set_title("(a) regret against m, exponents ± half of 95 % intervals", fontsize="medium")
    for m, colour, mark, where in zip(clusters, fb.plotting.COLOURS, "osD", range(len(clusters))):
        first = np.stack([late.y[where] for late in rounds])
        every = np.isfinite(first).all(1)  # distances at which all seeds have found their clusters
        shares.append(f"m={m} in " + " and ".join(f"{share:.0%}" for share in np.isfinite(first).mean(1)))
        if every.any():
            one = Curve("", "", np.array(distances)[every], first[every])
            text = f"m = {m}" + (": γ^({:.2f} ± {:.2f})".format(*exponent(one)) if every.sum() > 1 else "")
            right.errorbar(one.x, one.mean, one.error, fmt=f"{mark}-", color=colour, label=in_math(text), capsize=2)
            powers += [text] if every.sum() > 1 else []
        else:
            right.plot([], [], f"{mark}-", color=colour, label=f"m = {m}: not in all seeds")
    slope(right, -2, distances, 40_000, "slope of $1 / γ^2$")
    right.set(xlabel="distance γ of clusters", ylabel="round from which on all clusters are right")
    right.set_title("(b) when clusters are found, if in all seeds", fontsize="medium")
    for ax, ticks in ((left, clusters), (right, distances)):
        ax.set(xscale="log", yscale="log")
        ax.xaxis.minorticks_off()
        ax.set_xticks(ticks, [f"{one:g}" for one in ticks])
        legend_below(ax, ncols=2)
    size = f"n = {USERS} (random seats), L = 5, K = 10 of 4,096 items, d = {DIM}, T = 131,070"
    n_seeds = regrets[0].n_seeds
    what = f"FCLUB-DC, all pairs of preference vectors at one distance; mean of {n_seeds} seeds ± 1 standard error"
    figure.suptitle(f"{what}\n{size}", fontsize="medium")
    ours = f"asymptotic; {n_seeds} seeds here"
    first = Says("Theorem 1", "regret grows with √m once clusters are found", ours, "; ".join(found))
    late = f"exponents of γ of this time, where all seeds find them: {'; '.join(powers) or 'none'}. "
    late += f"Seeds with all clusters right at T, at γ = {' and '.join(f'{one:g}' for one in distances)}: "
    second = Says("Theorem 1", "clusters are found after O(n d log T / γ²) rounds", ours, late + ", ".join(shares))
    print(first.seen, second.seen, sep="\n")
    caption(figure, "Liu et al. (2022)", first, second)
    save("liu2022_distances", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
