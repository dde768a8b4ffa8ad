"""Draws Figure 2 (b) of Liu et al. (2022): regret and clusters on MovieLens, 40 users on 5 servers, T = 200,000.

The authors take 40 of 1,000 users of a file that is not published. Here users and items come from your copy of
MovieLens (ml-latest-small; the most active users), or are made up without a copy, as the title says.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from clusters import LiuOptions, liu_figure
from drawing import Says

import fedbandit_jax as fb


@dataclasses.dataclass(frozen=True)
class Fig2b(LiuOptions):
    """Draw the figure.

    Args:
        movielens: folder of your copy of MovieLens; by default ratings are made up.
        thetas: whether a user's preference vector is her own (user) or her cluster's (centroid).
        clusters: m, the number of clusters that k-means finds.
        users: largest number of users; the most active ones are taken.
        scale: factor on all confidence widths.
    """

    movielens: tyro.conf.DisallowNone[Path | None] = None
    thetas: Literal["user", "centroid"] = "centroid"
    clusters: int = 4
    users: int = 40
    scale: float = 1.0

    @property
    def variant(self) -> str:
        """Returns what distinguishes the names of the files."""
        return f"{self.thetas}_{self.users}_{self.scale:g}"

    def data(self) -> fb.data.Community:
        """Returns the data of the folder, or made-up users around random centres."""
        if self.movielens is not None:
            shape: dict[str, Any] = dict(n_users=self.users, n_clusters=self.clusters, thetas=self.thetas)
            return fb.data.movielens(self.movielens, **shape)
        rng = np.random.default_rng(self.seed)
        clusters = np.arange(self.users) % self.clusters
        spread = 0.0 if self.thetas == "centroid" else 0.3
        rows = rng.standard_normal((self.clusters, 9))[clusters] + spread * rng.standard_normal((self.users, 9))
        thetas, items = (
            np.hstack([part / np.linalg.norm(part, axis=1, keepdims=True), np.ones((len(part), 1))]) / np.sqrt(2)
            for part in (rows, rng.standard_normal((500, 9)))
        )
        return fb.data.Community(items=items, thetas=thetas, clusters=clusters, title="made up, no MovieLens here")


def main(options: Fig2b) -> None:
    env, title = None, ""
    if not options.redraw:
        data, what = options.data(), "made-up" if options.movielens is None else "MovieLens"
        env = fb.envs.community(**data.arguments(), n_servers=5)
        where = f"n = {len(data.thetas)} users on L = 5 servers, m = {options.clusters} clusters (k-means)"
        own = f"one preference vector per {'cluster' if options.thetas == 'centroid' else 'user'}"
        title = f"Liu et al. (2022), Fig. 2 (b): {what}, {where}, K = 10, d = 10\n{own}. Target ε = 1, δ = 0.1"
        title += f", confidence widths × {options.scale:g}" if options.scale != 1 else ""
    paper = Says("Fig. 2 (b)", "", "T=200,000, 40 of 1,000 users, 10 seeds", "")
    liu_figure(options, env, options.methods(scale=options.scale), title, paper, options.run(500, 200_000, 262_142))


if __name__ == "__main__":
    main(tyro.cli(Fig2b, description=__doc__))
