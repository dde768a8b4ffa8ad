"""The command `fedbandit show`: print and draw a saved result again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro

from fedbandit_jax.cli._command import Command, report


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowCommand(Command):
    """Print the summary and the certificates of a saved result, and draw its figure again if asked to.

    For example:
      fedbandit show results/linear-1a2b3c4d.npz
      fedbandit show results/linear-1a2b3c4d.npz --picture again.png

    Args:
        result: .npz file that `fedbandit simulate` or `Result.save` has written; one that has changed since is refused.
        picture: a file to draw regret into, which ends in .png, .pdf or .svg; without an ending it is a PNG and a PDF.
            Default: no picture is drawn.
    """

    result: tyro.conf.Positional[Path]
    picture: Path | None = None

    def run(self) -> int:
        """Prints the result, draws it if asked to, and returns 0; JAX is not needed."""
        import fedbandit_jax as fb

        if self.result.is_dir():
            raise ValueError(f"the result must be a file, got the folder {str(self.result)!r}; see `fedbandit report`")
        loaded = fb.Result.load(self.result)
        report(loaded)
        if self.picture is not None:
            drawn = fb.plotting.save(fb.plotting.regret(loaded), self.picture)
            names = " and ".join(map(str, drawn))
            print(f"\nwrote {names}")
        return 0
