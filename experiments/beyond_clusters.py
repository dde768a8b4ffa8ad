"""Draws what private clustering costs: regret against the number of clusters, certified, printed and without privacy.

python experiments/beyond_clusters.py [--movielens DIR] [--smoke | --full] [--redraw]

Every user has a private stream of sums, released at times fixed in advance, and is served by the sums of all who are
taken to be alike: found by a mixture of linear models under the known noise (`fb.algos.Mixture`), or nobody (one model
for each user). Both are certified for each interaction. Beside them are the algorithms of Liu et al. (2022), without
privacy and with the noise as printed, of which nothing is proved. Nothing was chosen on these seeds. The users of the
last group are the 40 most active ones of your copy of MovieLens, each with her own preferences; how sums are pooled was
chosen with the same users in sight. With m = 40 clusters no two users are alike. `beyond_clusters_paper.py` has the
paper's instance, small delta and tuned widths.
"""

import dataclasses
from pathlib import Path
from typing import Any

import tyro
from clusters import LiuOptions
from curves import Curve, ends, panels, random_play, the
from drawing import CHANCE, Panel, Picture, dressed, main, promised

import fedbandit_jax as fb

CLUSTERS, DELTA = (1, 2, 4, 6, 8, 10, 40), 0.1
TIMES = fb.schedules.Geometric(1.2, first=300)
MIXTURE = fb.algos.Mixture(theta_norm=0.5**0.5)  # E[y] - 1/2 is <x, theta> with a theta of this norm at most

LOOKS = {  # colours of the papers' algorithms are those of their own pictures
    "CDP-FCLUB-DC as printed, ε = 1": "#D55E00 D :",
    CHANCE: "#999999 , -.",
    "one model a user, ε = 1": "#009E73 o -",
    "one model a user, ε = 5": "#009E73 s -",
    "CLUB, not private": "#E69F00 v -",
    "SCLUB, not private": "#CC79A7 ^ -",
    "LinUCB, not private": "#56B4E9 < -",
    "FCLUB-DC, not private": "#0072B2 > -",
    "mixture of linear models, ε = 1": "#882255 o -",
    "mixture of linear models, ε = 5": "#882255 s -",
    "mixture of linear models, not private": "#882255 v -",
}
LAST = 120  # where MovieLens is drawn, right of all numbers of clusters


def streams(grouping: Any, epsilon: float | None = None, delta: float = DELTA) -> fb.Algorithm:
    """Returns a private stream for every user, released at `TIMES`; without an epsilon it is not private."""
    privacy = None
    if epsilon is not None:
        budget = fb.privacy.Budget(epsilon, delta)
        privacy = fb.privacy.Mechanism(
            budget, "blt", unit="visit", statistic=fb.privacy.Linear(centred=True, gram_scale=0.5)
        )
    return fb.algos.Grouped(grouping=grouping, schedule=TIMES, privacy=privacy)


@dataclasses.dataclass(frozen=True)
class Clusters(LiuOptions):
    """Draw the figure.

    Args:
        movielens: folder of your copy of MovieLens; by default it is left out.
    """

    movielens: tyro.conf.DisallowNone[Path | None] = None

    def algorithms(self) -> dict[str, fb.Algorithm]:
        """Returns the algorithms by what the legend says."""
        mixture, alone = MIXTURE, fb.algos.Alone()
        printed = self.methods(fb.privacy.Budget(1.0, DELTA))
        return {
            "mixture of linear models, ε = 1": streams(mixture, 1.0),
            "mixture of linear models, ε = 5": streams(mixture, 5.0),
            "one model a user, ε = 1": streams(alone, 1.0),
            "one model a user, ε = 5": streams(alone, 5.0),
            "mixture of linear models, not private": streams(mixture),
            **{f"{name}, not private": printed[name] for name in ("FCLUB-DC", "CLUB", "SCLUB", "LinUCB")},
            "CDP-FCLUB-DC as printed, ε = 1": printed["CDP-FCLUB-DC"],
        }

    def worlds(self) -> dict[str, fb.Environment]:
        """Returns the instances by the label of the axis."""
        made: dict[str, Any] = {
            f"m = {m}": self.instance(n_clusters=m, gap=0.5 if m <= 4 else 0.3, seating="random")
            for m in CLUSTERS[: self.pick(1, 7, 7)]
        }
        if self.movielens is not None:
            data = fb.data.movielens(self.movielens, n_users=40, n_clusters=4, thetas="user")
            made["MovieLens"] = fb.envs.community(**data.arguments(), n_servers=5)
        return dict(list(made.items())[:: self.pick(8, 1, 1)])


def measure(options: Clusters) -> list[Curve]:
    """Returns the final regret of every algorithm in every world."""
    run = options.run(500, 100_000, 100_000, fresh=2027)
    algorithms, curves = options.algorithms(), []
    for where, env in options.worlds().items():
        curves += ends(options.sweep(env, algorithms, title=where, **run, store=options.store), where)
        curves.append(Curve(where, CHANCE, [0], [random_play(env) * run["horizon"]], note="not private"))
    return dressed(curves, LOOKS)


def picture(curves: list[Curve]) -> Picture:
    titles = panels(curves)
    places = [float(title.partition("m = ")[2] or LAST) for title in titles]
    joined = sum(place < LAST for place in places)
    shown = []
    for name, look in LOOKS.items():
        ones = [the(curves, title, name) for title in titles]
        for part in (slice(joined), slice(joined, None)):
            if places[part]:
                y = [one.y[0] for one in ones[part]]
                label = f"{name}: {promised(ones[0].note)}" if "ε" in name else name
                shown.append(Curve("", label, places[part], y, look, ones[0].note))
    panel = Panel(shown, "", "m, clusters of users", "regret at T", spread=0.012, xscale="log", yscale="log")
    panel.open = lambda one: one.note != "certified"
    panel.xticks = dict(zip(places, (title.removeprefix("m = ") for title in titles)))
    two, all_differ = titles[min(1, joined - 1)], titles[joined - 1]  # the worlds with m = 2 and 40

    def said(name: str, title: str) -> str:
        return the(curves, title, name).said(0)

    mixture, alone = "mixture of linear models, ε = ", "one model a user, ε = 1"
    return Picture(
        [panel],
        "A certified mixture learns where clusters are few",
        f"40 users, random seats on 5 servers, K = 10, d = 10, T = 100,000, δ = {DELTA:g}. Mean of {curves[0].n_seeds} "
        "seeds ± one standard error. Clusters are at least 0.5 apart up to m = 4, and 0.3 beyond",
        f"With two clusters the certified mixture has {said(mixture + '1', two)} at ε = 1 and "
        f"{said(mixture + '5', two)} at ε = 5. FCLUB-DC has {said('FCLUB-DC, not private', two)} without privacy, "
        f"CDP-FCLUB-DC as printed {said('CDP-FCLUB-DC as printed, ε = 1', two)} and uniform play "
        f"{said(CHANCE, two).split()[0]}. Where no two of the 40 users are alike the mixture has "
        f"{said(mixture + '1', all_differ)} at ε = 1, and one model a user {said(alone, all_differ)}.",
        height=4.7,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__, Clusters)
