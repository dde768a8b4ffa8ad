"""`fedbandit simulate --family clustered`: users on many servers who are alike within clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fedbandit_jax.cli._run import check_budgets, run_and_save
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable

Name = Literal["FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CDP-Homo-DC", "Homo", "Homo-DC", "CLUB", "SCLUB", "LinUCB"]


def simulate(
    family: Literal["linear", "fed_ucb", "arms", "clustered"] = "clustered",
    movielens: Path | None = None,
    algorithms: tuple[Name, ...] = ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "CLUB", "SCLUB", "LinUCB", "Homo"),
    epsilon: tuple[float, ...] = (1.0,),
    delta: float = 0.1,
    users: int = 40,
    servers: int = 5,
    clusters: int = 2,
    arms: int = 10,
    dim: int = 10,
    gap: float = 0.5,
    upload: float = 1.01,
    download: float = 1.01,
    trigger: Literal["determinant", "count"] = "determinant",
    shift: Literal["every", "once"] = "every",
    alpha_1: float = 1.5,
    alpha_2: float = 2.0,
    exploration_scale: float = 1.0,
    horizon: int = 100_000,
    seeds: int = 10,
    seed: int = 0,
    out: Path = Path("results"),
) -> None:
    """Compare clusterings of bandits: one user a round, on one of L servers, and who is alike must be found.

    FCLUB clusters users on their servers and merges clusters across servers (Liu et al. 2022); CLUB and SCLUB cluster
    on every server by itself, LinUCB learns each user alone, Homo takes all to be alike. DC uploads and downloads now
    and then, CDP adds noise to all that leaves a server. Prints regrets, uploads, how right the clusters are and
    certificates; writes OUT/clustered.npz, .json and two pictures, over those of an earlier run. Stopped by Ctrl-C, the
    same command continues where it was.

    For example:
      fedbandit simulate --family clustered
      fedbandit simulate --family clustered --algorithms FCLUB-DC CDP-FCLUB-DC --epsilon 1 100 10000
      fedbandit simulate --family clustered --algorithms Homo-DC CDP-Homo-DC --trigger count --clusters 1
      fedbandit simulate --family clustered --movielens DIR --clusters 10 --horizon 200000

    Args:
        family: of algorithms.
        movielens: folder of your copy of MovieLens, whose users and items are used; default: synthetic ones.
        algorithms: which to compare.
        epsilon: budgets of those with CDP, each > 0.
        delta: in (0, 1).
        users: n; with --movielens the n most active.
        servers: L, 1 to n.
        clusters: m, 1 to n; with --movielens those of k-means.
        arms: K items offered each round.
        dim: d.
        gap: least distance of preference vectors, in [0.001, 1]; not with --movielens.
        upload: U >= 1, growth of a local cluster's statistics at which it uploads (algorithms with DC).
        download: D >= 1, likewise of the global ones.
        trigger: what grows, the determinant or the count of rounds.
        shift: add 3 rho I with noise at every upload, or 2 rho I once.
        alpha_1: factor of the distance at which FCLUB parts users, > 0.
        alpha_2: factor of the distance below which FCLUB merges clusters, > 0.
        exploration_scale: factor on the confidence width.
        horizon: T, rounds.
        seeds: independent repetitions.
        seed: of the random number generator.
        out: folder for the results.
    """
    import fedbandit_jax as fb

    del family
    check_writable("out", out)
    check_budgets(epsilon, delta)
    horizon = validate.integer("horizon", horizon, at_least=1)
    validate.within("seed", seed, 0, 2**32 - 1)
    if not algorithms or len(set(algorithms)) < len(algorithms):
        raise ValueError(f"algorithms must name at least one, each once, got {' '.join(algorithms) or 'none'}")
    if movielens is None:
        world = fb.envs.clustered(users, servers, clusters, n_arms=arms, dim=dim, gap=gap)
        title = f"n={users}, L={servers}, m={clusters}, K={arms}, d={dim}"
    else:
        found = fb.data.movielens(movielens, dim=dim, n_users=users, n_clusters=clusters)
        world = fb.envs.community(**found.arguments(), n_servers=servers, n_arms=arms)
        title = f"{found.title}\nL={servers}, m={clusters}, K={arms}, d={dim}"
    budget = fb.privacy.Budget(epsilon[0], delta)
    scale: dict[str, Any] = dict(exploration_scale=exploration_scale)
    merge: dict[str, Any] = dict(alpha_1=alpha_1, alpha_2=alpha_2, **scale)
    delayed: dict[str, Any] = dict(upload=upload, download=download, trigger=trigger)
    known = {
        "FCLUB": fb.algos.fclub(upload=1, download=1, **merge),
        "FCLUB-DC": fb.algos.fclub(**delayed, **merge, name="FCLUB-DC"),
        "CDP-FCLUB-DC": fb.algos.fclub(budget, shift=shift, **delayed, **merge, name="CDP-FCLUB-DC"),
        "CDP-Homo-DC": fb.algos.homo_dc(budget, shift=shift, **delayed, **scale),
        "Homo": fb.algos.homo(**scale),
        "Homo-DC": fb.algos.homo_dc(**delayed, **scale),
        "CLUB": fb.algos.club(**scale),
        "SCLUB": fb.algos.sclub(**scale),
        "LinUCB": fb.algos.lin_ucb(**scale),
    }
    private = any(name.startswith("CDP") for name in algorithms)
    sizes = (users, servers, clusters, arms, dim, gap, exploration_scale, horizon, seeds, seed)
    run_and_save(
        world,
        [known[name] for name in algorithms],
        grid={"epsilon": epsilon} if private else {},
        request=repr((str(movielens), algorithms, epsilon, delta, delayed, shift, merge, sizes)),
        out=out,
        name="clustered",
        title=title,
        gauge="adjusted Rand index",
        horizon=horizon,
        n_seeds=seeds,
        seed=seed,
    )
