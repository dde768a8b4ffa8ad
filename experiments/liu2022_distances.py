"""Measures Theorem 1 of Liu et al. (2022) in m and in the distance of clusters, with all pairs at one distance.

python experiments/liu2022_distances.py [--smoke | --full]

On random preference vectors more clusters are nearer to each other, so that sqrt m of the theorem's second term and 1 /
gamma^2 of its first cannot be told apart. Here all pairs of the m vectors are gamma apart: they are (sqrt(1 - gamma^2)
e_0 + gamma e_i, 1) / sqrt 2. (a) Regret of FCLUB-DC against m at each distance. (b) The round from which on all
clusters are right, seed by seed: the theorem has n d log T / gamma^2. They change at ends of phases, whose lengths
double.
"""

import numpy as np
from clusters import SEATS, LiuOptions
from curves import Curve, exponent, final, pick, pm
from drawing import Panel, Picture, Says, main, slope
from liu2022_order import right_from
from matplotlib.axes import Axes

import fedbandit_jax as fb

CLUSTERS, DISTANCES, DIM, USERS = (2, 4, 8), (0.5, 1.0), 10, 40
LOOKS = ("#7FB8DA o", "#0072B2 s")  # shades of FCLUB-DC


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
            regret[i, j], found[i, j] = final(one), np.where(right[:, -1], first, np.nan)
    labels = [f"distance {distance}" for distance in distances]
    both = (("regret", regret), ("round", found))
    return [Curve(panel, name, clusters, one) for panel, values in both for name, one in zip(labels, values)]


def seeds(rounds: list[Curve], ax: Axes) -> None:
    """Draws in how many seeds all clusters are right from a round on, a row for each m and distance."""
    ends, rows = sorted({first for one in rounds for first in one.y.ravel() if np.isfinite(first)}), []
    for j, m in enumerate(rounds[0].x):
        for i, (late, look) in enumerate(zip(rounds, LOOKS)):
            rows.append((3 * j + i, f"m = {m:g}, {late.label.replace('distance', 'γ =')}"))
            place = np.where(np.isfinite(late.y[j]), np.searchsorted(ends, late.y[j]), len(ends))
            for at, count in zip(*np.unique(place, return_counts=True)):
                ax.plot(at, 3 * j + i, look[-1], color=look[:7], markersize=3 * count**0.5)
                ax.annotate(f"{count}", (at, 3 * j + i), (7, -3), textcoords="offset points", fontsize="small")
    ax.set_yticks(*zip(*rows))
    ax.set_xticks(range(len(ends) + 1), [*(f"{end:,.0f}" for end in ends), "later"], fontsize="small", rotation=45)
    ax.margins(0.1)
    ax.invert_yaxis()


def picture(curves: list[Curve]) -> Picture:
    regrets, rounds = pick(curves, "regret"), pick(curves, "round")
    shown = [
        one.but(label=one.label.replace("distance", "distance γ ="), style=look) for one, look in zip(regrets, LOOKS)
    ]
    left = Panel(shown, "regret by the number of clusters", "clusters m", "regret at T", xscale="log", yscale="log")
    left.xticks, m = regrets[0].x, regrets[0].x
    left.also = lambda ax: slope(ax, 0.5, m, 0.8 * regrets[0].mean[0], "slope of $\\sqrt{m}$")
    right = Panel([], "seeds in which all clusters are right from ... on", "round", also=lambda ax: seeds(rounds, ax))
    found = "; ".join(f"{one.label} {pm(*exponent(one))}" for one in regrets)
    shares, powers, gammas = [], [], DISTANCES[: len(rounds)]
    for j, clusters in enumerate(m):
        first = np.stack([late.y[j] for late in rounds])
        shares.append(f"m = {clusters:g} in {' and '.join(f'{x:.0%}' for x in np.isfinite(first).mean(1))}")
        if np.isfinite(first).all() and len(gammas) > 1:
            powers.append(f"m = {clusters:g} γ^({pm(*exponent(Curve('', '', gammas, first)))})")
    late = f"undecided; seeds with all clusters right at T, at γ = {' and '.join(f'{one:g}' for one in gammas)}: "
    late += f"{', '.join(shares)}; exponents of the time until then, where all find them: {'; '.join(powers) or 'none'}"
    n = regrets[0].n_seeds
    ours = f"asymptotic; {n} seeds here"
    return Picture(
        [left, right],
        "Closer clusters are found later",
        f"FCLUB-DC, not private, with all pairs of preference vectors at one distance γ. n = {USERS}, "
        f"{SEATS['random']}, L = 5, K = 10 of 4,096 items, d = {DIM}, T = 131,070. Mean of {n} seeds ± "
        "one standard error",
        [
            Says("Theorem 1", "regret grows with √m once clusters are found", ours, f"exponents of m (95 %): {found}"),
            Says("Theorem 1", "clusters are found after O(n d log T / γ²) rounds", ours, late),
        ],
        height=3.5,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
