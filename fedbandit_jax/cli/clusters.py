"""`fedbandit simulate clusters`: users on many servers who are alike within clusters (Liu et al. 2022)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

from fedbandit_jax.cli._run import Comparison, Files, Output, Simulation, check_values

Algorithm = Literal["FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CDP-Homo-DC", "Homo", "Homo-DC", "CLUB", "SCLUB", "LinUCB"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClustersSimulation(Simulation):
    """Compare clusterings of bandits: one user a round, on one of L servers, and who is alike must be found.

    FCLUB clusters users on their servers and merges clusters across servers (Liu et al. 2022); CLUB and SCLUB cluster
    on every server by itself, LinUCB learns each user alone, Homo takes all to be alike. DC uploads and downloads now
    and then, CDP adds noise to all that leaves a server. Prints regrets, uploads, how right the clusters are and
    certificates; writes OUT/NAME.npz, .json and two pictures. Stopped by Ctrl-C or SIGTERM, the same command continues
    where it was.

    For example:
      fedbandit simulate clusters
      fedbandit simulate clusters --algorithms FCLUB-DC CDP-FCLUB-DC --epsilon 1 100 10000
      fedbandit simulate clusters --algorithms Homo-DC CDP-Homo-DC --trigger count --clusters 1
      fedbandit simulate clusters --movielens DIR --clusters 10 --horizon 200000

    Args:
        movielens: folder of your copy of MovieLens, whose users and items are used; default: synthetic ones.
        algorithms: which to compare.
        epsilon: budgets of those with CDP, each > 0.
        delta: in (0, 1), of those with CDP.
        users: n; with --movielens the n most active.
        servers: L, 1 to n.
        clusters: m, 1 to n; with --movielens those of k-means.
        arms: K items offered each round.
        dim: d.
        gap: least distance of preference vectors, in [0.001, 1]; not with --movielens.
        upload: U >= 1, growth of a local cluster's statistics at which it uploads (algorithms with DC).
        download: D >= 1, likewise of the global ones.
        trigger: what grows, the determinant or the count of rounds (algorithms with DC).
        shift: add 3 rho I with noise at every upload, or 2 rho I once (algorithms with CDP).
        alpha_1: factor of the distance at which FCLUB parts users, > 0.
        alpha_2: factor of the distance below which FCLUB merges clusters, > 0.
        exploration_scale: factor on the confidence width.
        horizon: T, rounds.
        seeds: independent repetitions.
        random_seed: of the random number generator.
    """

    flag_of: ClassVar = {"path": "movielens"}

    movielens: Path | None = None
    algorithms: tuple[Algorithm, ...] = ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CLUB", "SCLUB", "LinUCB", "Homo")
    epsilon: tuple[float, ...] = (1.0,)
    delta: float = 0.1
    users: int = 40
    servers: int = 5
    clusters: int = 2
    arms: int = 10
    dim: int = 10
    gap: float = 0.5
    upload: float = 1.01
    download: float = 1.01
    trigger: Literal["determinant", "count"] = "determinant"
    shift: Literal["every", "once"] = "every"
    alpha_1: float = 1.5
    alpha_2: float = 2.0
    exploration_scale: float = 1.0
    horizon: int = 100_000
    seeds: int = 10
    random_seed: int = 0
    output: Files = dataclasses.field(default_factory=Output)

    def comparison(self) -> Comparison:
        """One algorithm for each name."""
        import fedbandit_jax as fb

        check_values("algorithms", self.algorithms)
        private = any("CDP" in name for name in self.algorithms)
        delayed_ones, merging = (any(part in name for name in self.algorithms) for part in ("DC", "FCLUB"))
        self.applies_to("algorithms with CDP", private, "epsilon", "delta", "shift")
        self.applies_to("algorithms with DC", delayed_ones, "upload", "download", "trigger")
        self.applies_to("FCLUB", merging, "alpha_1", "alpha_2")
        self.applies_to("synthetic users, not to --movielens", self.movielens is None, "gap")
        budget, *_ = [fb.privacy.Budget(epsilon, self.delta) for epsilon in self.epsilon]
        if self.movielens is None:
            world = fb.envs.clustered(
                self.users, self.servers, self.clusters, n_arms=self.arms, dim=self.dim, gap=self.gap
            )
            title = f"n={self.users}, "
        else:
            found = fb.data.movielens(self.movielens, dim=self.dim, n_users=self.users, n_clusters=self.clusters)
            world = fb.envs.community(**found.arguments(), n_servers=self.servers, n_arms=self.arms)
            title = f"{found.title}\n"
        scale: dict[str, Any] = dict(exploration_scale=self.exploration_scale)
        merge: dict[str, Any] = dict(alpha_1=self.alpha_1, alpha_2=self.alpha_2, **scale)
        delayed: dict[str, Any] = dict(upload=self.upload, download=self.download, trigger=self.trigger)
        noisy: dict[str, Any] = dict(budget=budget, shift=self.shift, **delayed)
        known = {
            "FCLUB": fb.algos.FCLUB(upload=1, download=1, **merge),
            "FCLUB-DC": fb.algos.FCLUB(**delayed, **merge, name="FCLUB-DC"),
            "CDP-FCLUB-DC": fb.algos.FCLUB(**noisy, **merge, name="CDP-FCLUB-DC"),
            "CDP-Homo-DC": fb.algos.homo_dc(**noisy, **scale),
            "Homo": fb.algos.homo(**scale),
            "Homo-DC": fb.algos.homo_dc(**delayed, **scale),
            "CLUB": fb.algos.CLUB(**scale),
            "SCLUB": fb.algos.SCLUB(**scale),
            "LinUCB": fb.algos.LinUCB(exploration=fb.algos.UCB(**scale)),
        }
        return Comparison(
            world,
            [known[name] for name in self.algorithms],
            name="clusters",
            title=f"{title}L={self.servers}, m={self.clusters}, K={self.arms}, d={self.dim}",
            epsilon=self.epsilon if private else (),
            delta=self.delta,
            gauge="adjusted Rand index",
        )
