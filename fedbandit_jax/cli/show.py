"""The command `fedbandit show`: print and draw a saved result again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro

from fedbandit_jax.cli._run import Command, report


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowCommand(Command):
    """Print the summary and the certificates of a saved result, and draw its figure again.

    The figure is written beside the result, with the ending .png.

    For example:
      fedbandit show results/sphere-1a2b3c4d.npz

    Args:
        result: .npz or .json file that `fedbandit simulate` or `Result.save` has written.
    """

    result: tyro.conf.Positional[Path]

    def run(self) -> int:
        """Prints and draws the result, and returns 0; JAX is not needed."""
        import fedbandit_jax as fb

        loaded = fb.Result.load(self.result)
        report(loaded)
        picture = self.result.with_name(self.result.name.removesuffix(".npz").removesuffix(".json") + ".png")
        print(f"\nwrote {fb.plotting.save_png(fb.plotting.regret(loaded), picture)}")
        return 0
