"""Draws Figure 2 (b) of Liu et al. (2022): regret and clusters on MovieLens.

python experiments/liu2022_fig2b.py [--movielens DIR] [--thetas centroid] [--smoke | --full]

Without a copy of MovieLens, users and items of the same kind are made up, and the title says so. The copy
ml-latest-small has 610 users, which are taken instead of the paper's 1,000. With --thetas user, users of a cluster are
only similar, as k-means finds them; with --thetas centroid they are exactly alike, as the paper's theory assumes. In
10^5 rounds each user of 610 comes 164 times, which is too few for FCLUB to tell them apart, so that it does as badly as
Homo. Users come as often as in Figure 2 (a) with --users 40 --thetas centroid --clusters 2.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from common import LiuOptions, liu_figure

import fedbandit_jax as fb

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data" / "ml-latest-small"  # default, if it exists


@dataclasses.dataclass(frozen=True)
class Fig2b(LiuOptions):
    """Draw the figure.

    Args:
        movielens: folder of your copy of MovieLens.
        thetas: whether a user's preference vector is her own (user) or that of her cluster (centroid).
        clusters: m, the number of clusters that k-means finds.
        users: largest number of users; the most active ones are taken.
    """

    movielens: Path | None = BESIDE if BESIDE.is_dir() else None
    thetas: Literal["user", "centroid"] = "user"
    clusters: int = 5
    users: int = 1000

    def data(self) -> fb.data.Community:
        """Returns the data of the folder, or 200 made-up users around random centres."""
        if self.movielens is not None:
            users = self.pick(min(60, self.users), self.users, self.users)
            shape: dict[str, Any] = dict(n_users=users, n_clusters=self.clusters, thetas=self.thetas)
            return fb.data.movielens(self.movielens, **shape)
        rng = np.random.default_rng(self.seed)
        clusters = np.arange(200) % self.clusters
        spread = 0.0 if self.thetas == "centroid" else 0.3
        rows = rng.standard_normal((self.clusters, 9))[clusters] + spread * rng.standard_normal((200, 9))
        thetas, items = (
            np.hstack([part / np.linalg.norm(part, axis=1, keepdims=True), np.ones((len(part), 1))]) / np.sqrt(2)
            for part in (rows, rng.standard_normal((500, 9)))
        )
        return fb.data.Community(items=items, thetas=thetas, clusters=clusters, title="made up, no MovieLens here")


def main(options: Fig2b) -> None:
    data = options.data()
    env = fb.envs.community(**data.arguments(), n_servers=5)
    run = options.run(1_000, 100_000, 524_286)
    result = fb.sweep(env, options.methods(fb.privacy.Budget(1.0, 0.1)), **run)
    title = f"Fig. 2(b): {data.title}\nL=5, m={options.clusters}".replace(" (", "\n(")
    liu_figure(f"liu2022_fig2b_{options.thetas}_{len(data.thetas)}", options, result, title)


if __name__ == "__main__":
    main(tyro.cli(Fig2b, description=__doc__))
