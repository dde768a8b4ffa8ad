"""`fedbandit show`: a saved result again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro

from fedbandit_jax.cli._run import Command, report


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowCommand(Command):
    """Print the summary and the certificates of a saved result, and draw it again beside it.

    For example:
      fedbandit show results/sphere-1a2b3c4d.npz

    Args:
        result: an .npz or .json file written by `simulate` or `Result.save`.
    """

    result: tyro.conf.Positional[Path]

    def run(self) -> int:
        """Needs no jax."""
        import fedbandit_jax as fb

        loaded = fb.Result.load(self.result)
        report(loaded)
        picture = self.result.with_name(self.result.name.removesuffix(".npz").removesuffix(".json") + ".png")
        print(f"\nwrote {fb.plotting.save_png(fb.plotting.regret(loaded), picture)}")
        return 0
