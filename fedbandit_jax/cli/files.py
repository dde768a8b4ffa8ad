"""`fedbandit show` and `fedbandit data`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from fedbandit_jax.cli._run import report
from fedbandit_jax.report.results import Result


def show(result: tyro.conf.Positional[Path]) -> None:
    """Print the summary and the certificates of a saved result, and draw it again beside it.

    Args:
        result: an .npz or .json file written by `simulate` or `Result.save`.
    """
    from fedbandit_jax.report import plotting

    loaded = Result.load(result)
    report(loaded)
    picture = result.with_name(result.name.removesuffix(".npz").removesuffix(".json") + ".png")
    print(f"\nwrote {plotting.save_png(plotting.regret(loaded), picture)}")


def data(
    dataset: tyro.conf.Positional[Literal["mslr", "movielens"]],
    path: Path,
    features: Literal["title", "body"] = "title",
) -> None:
    """Check your copy of a data set that cannot be redistributed; mslr is cached for fast loading.

    Args:
        dataset: mslr is MSLR-WEB10K, a folder with Fold1/train.txt, vali.txt and test.txt; movielens a folder
            with ratings.csv, ratings.dat or u.data.
        path: folder of your copy.
        features: which features of mslr to cache.
    """
    import fedbandit_jax as fb

    if dataset == "movielens":
        community = fb.data.movielens(path)
        sizes = np.bincount(community.clusters)
        print(
            f"{community.title}, {len(sizes)} clusters of {sizes.min()} to {sizes.max()} users, "
            f"d = {community.items.shape[1]}"
        )
        return
    table = fb.data.mslr(path, features=features)
    print(
        f"{table.title}: {len(table.query_sizes)} queries, {len(table.features)} documents, at most "
        f"{table.query_sizes.max()} a query, d = {table.features.shape[1]}"
    )
