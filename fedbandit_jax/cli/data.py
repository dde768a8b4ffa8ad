"""The command `fedbandit data`: check your copy of a data set that cannot be redistributed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import tyro

from fedbandit_jax.cli._command import Command


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataCommand(Command):
    """Check your copy of a data set that cannot be redistributed, and print what is in it.

    The files of mslr are also parsed once and cached beside the originals, so that they load fast from then on.

    For example:
      fedbandit data mslr --path MSLR-WEB10K --features body
      fedbandit data movielens --path ml-25m

    Args:
        dataset: mslr is MSLR-WEB10K, a folder with Fold1/train.txt, Fold1/vali.txt and Fold1/test.txt; movielens is
            MovieLens, a folder with ratings.csv, ratings.dat or u.data.
        path: folder of your copy.
        features: which half of the features of mslr to load.
    """

    dataset: tyro.conf.Positional[Literal["mslr", "movielens"]]
    path: Path
    features: Literal["title", "body"] = "title"

    def run(self) -> int:
        """Loads the data set, prints one line about it, and returns 0."""
        import numpy as np

        import fedbandit_jax as fb

        self.applies_to("mslr", self.dataset == "mslr", "features")
        if self.dataset == "movielens":
            found = fb.data.movielens(self.path)
            sizes = np.bincount(found.clusters)
            about = f"{len(sizes)} clusters of {sizes.min()} to {sizes.max()} users, d = {found.items.shape[1]}"
            print(f"{found.title}, {about}")
        else:
            found = fb.data.mslr(self.path, features=self.features)
            about = f"{len(found.query_sizes)} queries, {len(found.features)} documents"
            most = f"at most {found.query_sizes.max()} a query, d = {found.features.shape[1]}"
            print(f"{found.title}: {about}, {most}")
        return 0
