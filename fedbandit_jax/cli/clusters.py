"""The command `fedbandit simulate clusters`: users on many servers who are alike within clusters (Liu et al. 2022)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

from typing_extensions import override

from fedbandit_jax.cli._run import Comparison, Files, Output, Simulation, check_values

Algorithm = Literal[
    "FCLUB",
    "FCLUB-DC",
    "CDP-FCLUB-DC",
    "CDP-Homo-DC",
    "Homo",
    "Homo-DC",
    "CLUB",
    "SCLUB",
    "LinUCB",
    "Mixture",
    "CDP-Mixture",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClustersSimulation(Simulation):
    """Compare algorithms that must find out which of n users on L servers are alike.

    In every round one of the users comes to their server and is offered K items. Users of the same cluster like the
    same items, but nobody tells who is in which cluster. The algorithms are:
      LinUCB         learns every user separately
      CLUB, SCLUB    find clusters of users on every server separately
      FCLUB          also merges clusters across servers (Liu et al. 2022)
      Homo           takes all users to be alike
      Mixture        groups users who fit one linear model, at times fixed in advance (ours)
      ...-DC         uploads and downloads only now and then (delayed communication)
      CDP-...        adds noise to all that leaves a server (cluster differential privacy); certified are
                     CDP-Mixture, and CDP-Homo-DC with --trigger count

    The command prints regrets, uploads and downloads, how right the clusters are (adjusted Rand index), and
    certificates. It writes OUT/NAME.npz and two pictures, each as PNG and PDF. If it is stopped by Ctrl-C or SIGTERM,
    the same command continues where it was.

    For example:
      fedbandit simulate clusters
      fedbandit simulate clusters --algorithms FCLUB-DC CDP-FCLUB-DC --epsilon 1 100 10000
      fedbandit simulate clusters --algorithms Homo-DC CDP-Homo-DC --trigger count --clusters 1
      fedbandit simulate clusters --movielens DIR --clusters 10 --horizon 200000

    Args:
        movielens: folder of your copy of MovieLens, whose users and items are then used instead of synthetic ones.
        algorithms: the algorithms to compare, see above.
        epsilon: epsilons of the budgets of the algorithms with CDP, each > 0.
        delta: delta of these budgets, in (0, 1).
        users: n, the number of users; with --movielens the n most active ones.
        servers: L, the number of servers, 1 to n.
        clusters: m, the number of clusters, 1 to n; with --movielens k-means finds them.
        arms: K, the number of items offered in every round.
        dim: d, the number of features of an item.
        gap: least distance between the preference vectors of two clusters, in [0.001, 1]; not with --movielens.
        upload: U >= 1, the factor by which statistics of a local cluster must grow before it uploads (algorithms with
            DC).
        download: D >= 1, the factor by which those of its global cluster must exceed its own before it downloads
            (algorithms with DC).
        trigger: what must grow by these factors, the determinant of the statistics or the count of rounds in them
            (algorithms with DC).
        shift: how noisy matrices are kept positive definite, where rho bounds the noise: by adding 3 rho I at every
            upload, or 2 rho I once, when a phase begins (algorithms with CDP).
        alpha_1: factor > 0 of the distance beyond which FCLUB separates two users of a server.
        alpha_2: factor > 0 of the distance within which FCLUB merges clusters of different servers.
        exploration_scale: factor on the confidence width.
        horizon: T, the number of rounds.
        seeds: number of independent repetitions.
        random_seed: seed of the random number generator.
    """

    flag_of: ClassVar = {"path": "movielens"}

    movielens: Path | None = None
    algorithms: tuple[Algorithm, ...] = (
        "FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CDP-Mixture", "CLUB", "SCLUB", "LinUCB", "Homo"
    )  # fmt: skip
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

    @override
    def comparison(self) -> Comparison:
        import fedbandit_jax as fb

        check_values("algorithms", self.algorithms)
        private = any("CDP" in name for name in self.algorithms)
        delayed_ones, merging = (any(part in name for name in self.algorithms) for part in ("DC", "FCLUB"))
        self.applies_to("algorithms with CDP", private, "epsilon", "delta")
        self.applies_to(
            "CDP-FCLUB-DC and CDP-Homo-DC", bool({"CDP-FCLUB-DC", "CDP-Homo-DC"} & {*self.algorithms}), "shift"
        )
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
        stream = fb.privacy.Mechanism(budget, "blt", visits=1, centred=True, gram_scale=0.5)
        known = {
            "FCLUB": fb.algos.FCLUB(upload=1, download=1, **merge),
            "FCLUB-DC": fb.algos.FCLUB(**delayed, **merge, name="FCLUB-DC"),
            "CDP-FCLUB-DC": fb.algos.FCLUB(**noisy, **merge, name="CDP-FCLUB-DC"),
            "CDP-Homo-DC": fb.algos.homo_dc(**noisy, **scale),
            "Homo": fb.algos.homo(**scale),
            "Homo-DC": fb.algos.homo_dc(**delayed, **scale),
            "CLUB": fb.algos.CLUB(**scale),
            "SCLUB": fb.algos.SCLUB(**scale),
            "Mixture": fb.algos.Grouped(),
            "CDP-Mixture": fb.algos.Grouped(
                grouping=fb.algos.Mixture(theta_norm=0.5**0.5), privacy=stream, name="CDP-Mixture"
            ),
            "LinUCB": fb.algos.LinUCB(policy=fb.algos.UCB(**scale)),
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
