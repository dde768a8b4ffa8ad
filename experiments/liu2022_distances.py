"""Measures Theorem 1 of Liu et al. (2022) in m and in the distance of clusters, with all pairs at one distance.

python experiments/liu2022_distances.py [--smoke | --full]

On random preference vectors more clusters are nearer to each other, so that sqrt m of the theorem's second term and 1 /
gamma^2 of its first cannot be told apart. Here all pairs of the m vectors are gamma apart: they are (sqrt(1 - gamma^2)
e_0 + gamma e_i, 1) / sqrt 2. (a) Regret of FCLUB-DC against m at each distance. (b) The round from which on all
clusters are right, seed by seed: the theorem has n d log T / gamma^2. They change at ends of phases, whose lengths
double.
"""

import matplotlib.pyplot as plt
import numpy as np
import tyro
from clusters import SEATS, LiuOptions
from curves import Curve, exponent, pick
from drawing import Says, caption, headline, legend_of_all, save, slope
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
    run = {**options.run(500, 131_070, 131_070), "seeds": options.pick(2, 16, 16), "stride": "log"}
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


def main(options: LiuOptions) -> None:
    curves = options.numbers("liu2022_distances", lambda: measure(options))
    regrets, rounds = pick(curves, "regret"), pick(curves, "round")
    distances, clusters = DISTANCES[: len(regrets)], regrets[0].x.astype(int)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.9))
    found, powers, shares, rows, open_ = [], [], [], [], []
    ends = sorted({first for one in rounds for first in one.y.ravel() if np.isfinite(first)})
    for i, (one, late, gamma) in enumerate(zip(regrets, rounds, distances)):
        colour, mark = ("#7FB8DA", "#0072B2")[i], "os"[i]  # shades of FCLUB-DC
        power, half = exponent(one)
        found.append(f"{power:.2f} ± {half:.2f} at γ = {gamma:g}")
        open_.append(abs(power - 0.5) <= half and half > 0.25)
        label = f"distance γ = {gamma:g}"
        left.errorbar(one.x, one.mean, one.error, fmt=f"{mark}-", color=colour, capsize=3, label=label)
        for j, (m, mean, error, first) in enumerate(zip(clusters, one.mean, one.error, np.sort(late.y))):
            place = np.where(np.isfinite(first), np.searchsorted(ends, first), len(ends))
            rows.append((3 * j + i, f"m = {m}, γ = {gamma:g}"))
            for at, seeds in zip(*np.unique(place, return_counts=True)):
                spot, size = (at, rows[-1][0]), 5 * seeds**0.5
                right.plot(*spot, mark, color=colour, markersize=size)
                right.annotate(f"{seeds}", spot, (size / 2 + 2, -3), textcoords="offset points", fontsize="small")
            share = f"right at T in {np.isfinite(first).mean():.0%}"
            print(f"m = {m}, {one.label}: regret {mean:,.0f} ± {error:,.0f}; {share}, rounds {first.tolist()}")
    slope(left, 0.5, clusters, 0.8 * regrets[0].mean[0], "(a) slope of $\\sqrt{m}$")
    left.set(xlabel="clusters m", ylabel="regret at T", xscale="log", yscale="log")
    left.set_title("(a) regret against the number of clusters")
    left.xaxis.minorticks_off()
    left.set_xticks(clusters, clusters)
    right.set_yticks(*zip(*rows))
    right.set_xticks(range(len(ends) + 1), [*(f"{end:,.0f}" for end in ends), "not by T"])
    right.axvline(len(ends) - 0.5, color="#999999")
    right.set(xlim=(-0.5, len(ends) + 0.5), xlabel="round (they change at ends of phases only)")
    right.set_title("(b) from when on all clusters are right, in so many seeds")
    right.margins(y=0.1)
    right.invert_yaxis()
    legend_of_all(figure)
    for j, m in enumerate(clusters):
        first = np.stack([late.y[j] for late in rounds])
        shares.append(f"m = {m} in " + " and ".join(f"{share:.0%}" for share in np.isfinite(first).mean(1)))
        if np.isfinite(first).all() and len(distances) > 1:
            power, half = exponent(Curve("", "", distances, first))
            powers.append(f"m = {m}: γ^({power:.2f} ± {half:.2f})")
            open_.append(half > 0.5)
    where = f"n = {USERS}, {SEATS['random']}, L = 5, K = 10 of 4,096 items, d = {DIM}, T = 131,070"
    n_seeds = regrets[0].n_seeds
    what = "Liu et al. (2022): FCLUB-DC (not private), all pairs of preference vectors at one distance γ"
    headline(figure, "Closer clusters are found later", f"{what}; mean of {n_seeds} seeds ± 1 standard error\n{where}")
    ours = f"asymptotic; {n_seeds} seeds here"
    words = "undecided, errors are too wide: " if any(open_) else ""
    words += f"exponents of m {'; '.join(found)} (95 %) (a); at T not all seeds have found their clusters (b)"
    first = Says("Theorem 1", "regret grows with √m once clusters are found", ours, words)
    gammas = " and ".join(f"{one:g}" for one in distances)
    late = "undecided: " if len(powers) < len(clusters) or any(open_) else ""
    late += f"(b) seeds with all clusters right at T, at γ = {gammas}: {', '.join(shares)}; exponents of γ of the time "
    late += (
        f"until then, where all find them: {'; '.join(powers) or 'none'} (95 %), of {len(distances)} distances only, "
    )
    late += "and of rounds that are ends of phases, which double"
    second = Says("Theorem 1", "clusters are found after O(n d log T / γ²) rounds", "the same", late)
    print(first.seen, second.seen, sep="\n")
    caption(figure, "Liu et al. (2022)", first, second)
    save("liu2022_distances", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
