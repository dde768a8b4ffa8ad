"""Measures Theorem 1 of Liu et al. (2022) in m and in the distance of clusters, with all pairs at one distance.

Where there are more clusters, random preference vectors are nearer to each other, which mixes up √m and 1 / γ². Here
all pairs of the m vectors are γ apart. Clusters change at ends of phases, whose lengths double.
"""

import numpy as np
from clusters import SEATS, LiuOptions
from curves import Curve, exponent, final, pick, pm
from drawing import LOGS, Axes, Panel, Picture, Says, main, slope
from liu2022_order import right_from

import fedbandit_jax as fb

CLUSTERS, DISTANCES, DIM, USERS = (2, 4, 8), (0.5, 1.0), 10, 40
LOOKS = ("#7FB8DA o", "#0072B2 s")  # shades of FCLUB-DC


def apart(n_clusters: int, distance: float) -> fb.Environment:
    """Returns 40 users on 5 servers in m clusters of equal sizes, whose vectors are all `distance` apart.

    They are (sqrt(1 - distance^2) e_0 + distance e_i, 1) / sqrt 2.
    """
    items = np.random.default_rng(0).standard_normal((4096, DIM - 1))
    u = np.zeros((n_clusters, DIM - 1))
    u[:, 0], u[:, 1 : n_clusters + 1] = np.sqrt(1 - distance**2), distance * np.eye(n_clusters)
    cluster, units = np.arange(USERS) % n_clusters, (u, items / np.linalg.norm(items, axis=1, keepdims=True))
    thetas, items = (np.hstack([part, np.ones((len(part), 1))]) / np.sqrt(2) for part in units)
    return fb.envs.community(items, thetas[cluster], cluster, n_servers=5)


def measure(options: LiuOptions) -> list[Curve]:
    run = options.run(500, 131_070, 131_070, seeds=(2, 16, 16), stride="log")
    clusters, curves = CLUSTERS[: options.pick(1, 3, 3)], []
    for distance in DISTANCES[: options.pick(1, 2, 2)]:
        runs = [fb.simulate(apart(m, distance), fb.algos.FCLUB(), **run) for m in clusters]
        found = []
        for one in runs:
            right = right_from(one.gauges["adjusted Rand index"])
            first = one.rounds[np.minimum((~right).sum(1), len(one.rounds) - 1)]
            found.append(np.where(right[:, -1], first, np.nan))
        both = (("regret", [final(one) for one in runs]), ("round", found))
        curves += [Curve(panel, f"distance {distance}", clusters, values) for panel, values in both]
    return sorted(curves, key=lambda one: one.panel)


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
    m, n, gammas = regrets[0].x, regrets[0].n_seeds, DISTANCES[: len(rounds)]
    shown = [one.but(label=one.label.replace("ce", "ce γ ="), style=look) for one, look in zip(regrets, LOOKS)]
    left = Panel(shown, "regret by the number of clusters", "clusters m", "regret at T", **LOGS)
    left.xticks, left.also = m, lambda ax: slope(ax, 0.5, m, 0.8 * regrets[0].mean[0], "slope of $\\sqrt{m}$")
    right = Panel(
        [], "from when on all clusters are right", "round (numbers: seeds)", also=lambda ax: seeds(rounds, ax)
    )
    found = "; ".join(f"{one.label} {pm(*exponent(one))}" for one in regrets)
    shares, powers = [], []
    for clusters, first in zip(m, np.stack([late.y for late in rounds], 1)):
        shares.append(f"m = {clusters:g} in {' and '.join(f'{x:.0%}' for x in np.isfinite(first).mean(1))}")
        if np.isfinite(first).all() and len(gammas) > 1:
            powers.append(f"m = {clusters:g} γ^({pm(*exponent(Curve('', '', gammas, first)))})")
    late = f"undecided; seeds with all clusters right at T, at γ = {' and '.join(f'{one:g}' for one in gammas)}: "
    late += f"{', '.join(shares)}; exponents of the time until then, where all find them: {'; '.join(powers) or 'none'}"
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
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, LiuOptions)
