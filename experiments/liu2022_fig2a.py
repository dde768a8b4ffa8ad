"""Draws Figure 2 (a) of Liu et al. (2022): regret and clusters on synthetic data, 40 users on 5 servers, T = 10^5.

The authors' script loads one draw of preference vectors from a file; here every seed has its own. Their factor on
confidence widths is 1, but 0.005 for CDP-FCLUB-DC; here --scale applies to all methods.
"""

import dataclasses
from typing import Literal

import tyro
from clusters import SEATS, LiuOptions, liu_figure
from drawing import Says


@dataclasses.dataclass(frozen=True)
class Fig2a(LiuOptions):
    """Draw the figure.

    Args:
        clusters: m, the number of clusters of users.
        seating: whether clusters fill up servers one after the other, or are spread over servers at random.
        scale: factor on all confidence widths.
    """

    clusters: int = 4
    seating: Literal["consecutive", "random"] = "consecutive"
    scale: float = 1.0

    @property
    def variant(self) -> str:
        """Returns what distinguishes the names of the files."""
        return f"m{self.clusters}_{self.seating}_{self.scale:g}"


def main(options: Fig2a) -> None:
    env = options.instance(n_clusters=options.clusters, seating=options.seating)
    where = f"n = 40 users on L = 5 servers, m = {options.clusters} {SEATS[options.seating]}, K = 10, d = 10"
    title = f"Liu et al. (2022), Fig. 2 (a): {where}\ntarget ε = 1, δ = 0.1"
    title += f", confidence widths × {options.scale:g}" if options.scale != 1 else ""
    paper = Says("Fig. 2 (a)", "", "T=10^5, 10 seeds", "")
    liu_figure(options, env, options.methods(scale=options.scale), title, paper, options.run(500, 100_000, 131_070))


if __name__ == "__main__":
    main(tyro.cli(Fig2a, description=__doc__))
