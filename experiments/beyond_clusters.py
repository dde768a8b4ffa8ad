"""Draws what private clustering costs: regret against the number of clusters, certified, printed and without privacy.

Every user has a private stream of sums, released at fixed times. The sums of similar users serve each of them. We
compare with the algorithms of Liu et al. (2022). Nothing was chosen on these seeds, but pooling was chosen with the
users of MovieLens in sight. `beyond_clusters_paper.py` has the paper's instance.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import tyro
from clusters import LiuOptions
from curves import ends, panels, the, uniform
from drawing import CHANCE, LOGS, Curve, Panel, Picture, dressed, main, promised, uncertified
from recipes import HALF

import fedbandit_jax as fb

CLUSTERS, DELTA = (1, 2, 4, 6, 8, 10, 40), 0.1
TIMES = fb.schedules.Geometric(1.2, first=300)
MIXTURE = fb.algos.Mixture(theta_norm=0.5**0.5)  # E[y] - 1/2 is <x, theta> with a theta of this norm at most
MIXED, ONE = "mixture of linear models", "one model a user"
PRINTED = "CDP-FCLUB-DC as printed, ε = 1"
LOOKS = {  # the papers' algorithms have the colours of their own pictures
    PRINTED: "#D55E00 D :",
    CHANCE: "#999999 , -.",
    f"{ONE}, ε = 1": "#009E73 o -",
    f"{ONE}, ε = 5": "#009E73 s -",
    "CLUB, not private": "#E69F00 v -",
    "SCLUB, not private": "#CC79A7 ^ -",
    "LinUCB, not private": "#56B4E9 < -",
    "FCLUB-DC, not private": "#0072B2 > -",
    f"{MIXED}, ε = 1": "#882255 o -",
    f"{MIXED}, ε = 5": "#882255 s -",
    f"{MIXED}, not private": "#882255 v -",
}
LAST = 120  # where MovieLens is drawn, right of all numbers of clusters


def streams(grouping: Any, epsilon: float | None = None, delta: float = DELTA) -> fb.Algorithm:
    """Returns a private stream for every user, released at `TIMES`; without an epsilon it is not private."""
    algo = fb.algos.Grouped(grouping=grouping, schedule=TIMES)
    if epsilon is None:
        return algo
    budget = fb.privacy.Budget(epsilon, delta)
    return algo.replace(privacy=fb.privacy.Mechanism(budget, "blt", unit="visit", statistic=HALF))


@dataclasses.dataclass(frozen=True)
class Clusters(LiuOptions):
    """Draw the figure.

    Args:
        movielens: folder of your copy of MovieLens; by default it is left out.
    """

    movielens: tyro.conf.DisallowNone[Path | None] = None


def measure(options: Clusters) -> list[Curve]:
    run, printed = options.run(500, 100_000, 100_000, fresh=2027, store=options.store), options.methods()
    groups = {MIXED: MIXTURE, ONE: fb.algos.Alone()}
    algos = {f"{name}, ε = {e:g}": streams(how, e) for name, how in groups.items() for e in (1.0, 5.0)}
    algos[f"{MIXED}, not private"] = streams(MIXTURE)
    algos |= {f"{name}, not private": printed[name] for name in ("FCLUB-DC", "CLUB", "SCLUB", "LinUCB")}
    algos[PRINTED] = printed["CDP-FCLUB-DC"]
    worlds: dict[str, fb.Environment] = {
        f"m = {m}": options.instance(n_clusters=m, gap=0.5 if m <= 4 else 0.3, seating="random")
        for m in CLUSTERS[: options.pick(1, 7, 7)]
    }
    if options.movielens is not None:
        data = fb.data.movielens(options.movielens, n_users=40, n_clusters=4, thetas="user")
        worlds["MovieLens"] = fb.envs.community(**data.arguments(), n_servers=5)
    curves = []
    for where, env in list(worlds.items())[:: options.pick(8, 1, 1)]:
        curves += ends(options.sweep(env, algos, title=where, **run), where)
        curves.append(uniform(env, run["horizon"], where))
    return dressed(curves, LOOKS)


def picture(curves: list[Curve]) -> Picture:
    titles = panels(curves)
    places = [float(title.partition("m = ")[2] or LAST) for title in titles]
    joined, shown = sum(place < LAST for place in places), []
    for name, look in LOOKS.items():
        ones = [the(curves, title, name) for title in titles]
        label = f"{name}: {promised(ones[0].note)}" if "ε" in name else name
        for part in (slice(joined), slice(joined, None)):
            if places[part]:
                shown.append(Curve("", label, places[part], [one.y[0] for one in ones[part]], look, ones[0].note))
    panel = Panel(shown, "", "m, clusters of users", "regret at T", spread=0.012, open=uncertified, **LOGS)
    panel.xticks = dict(zip(places, (title.removeprefix("m = ") for title in titles)))

    def said(world: int, name: str) -> str:
        return the(curves, titles[world], name).said(0)

    two, differ = (partial(said, world) for world in (min(1, joined - 1), joined - 1))  # m = 2 and 40
    return Picture(
        [panel],
        "A certified mixture learns where clusters are few",
        f"40 users, random seats on 5 servers, K = 10, d = 10, T = 100,000, δ = {DELTA:g}. Mean of {curves[0].n_seeds} "
        "seeds ± one standard error. Clusters are at least 0.5 apart up to m = 4, and 0.3 beyond",
        f"With two clusters the certified mixture has {two(f'{MIXED}, ε = 1')} at ε = 1 and {two(f'{MIXED}, ε = 5')} "
        f"at ε = 5. FCLUB-DC has {two('FCLUB-DC, not private')} without privacy, CDP-FCLUB-DC as printed "
        f"{two(PRINTED)} and uniform play {two(CHANCE).split()[0]}. Where no two of the 40 users are alike the mixture "
        f"has {differ(f'{MIXED}, ε = 1')} at ε = 1, and one model a user {differ(f'{ONE}, ε = 1')}.",
        height=4.7,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, Clusters)
