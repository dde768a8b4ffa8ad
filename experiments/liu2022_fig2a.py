"""Draws Figure 2 (a) of Liu et al. (2022): regret and clusters on synthetic data, 40 users on 5 servers, T = 10^5.

python experiments/liu2022_fig2a.py [--scale 0.005] [--clusters 4] [--seating consecutive] [--smoke | --full]

The instance is that of the authors' script: four clusters, whose users have consecutive numbers, as have those of a
server. It loads one draw of preference vectors from a file; here every seed has its own. The factor on confidence
widths is 1 there for all methods except CDP-FCLUB-DC, for which it is 0.005; here --scale is that of all methods. (The
authors' bonus is beta x' A^-1 x, without a root, which is far less than beta sqrt(x' A^-1 x) soon.)

The paper says that CDP-FCLUB-DC is better than CLUB, SCLUB, LinUCB, Homo and Homo-DC, and a little worse than FCLUB-DC
and FCLUB. The script prints which of these inequalities are seen. With noise that is really added (epsilon = 1, delta =
0.1) CDP-FCLUB-DC is hardly better than uniform play. In the authors' code noise reaches the tests that decide when to
communicate, but no estimate, so that their curve is that of FCLUB-DC with another width.
"""

import dataclasses
from typing import Literal

import tyro
from clusters import SEATS, LiuOptions, liu_figure
from drawing import Says

import fedbandit_jax as fb


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
    methods = options.methods(fb.privacy.Budget(1.0, 0.1), options.scale)
    where = f"n = 40 users on L = 5 servers, m = {options.clusters} {SEATS[options.seating]}, K = 10, d = 10"
    title = f"Liu et al. (2022), Fig. 2 (a): {where}\ntarget ε = 1, δ = 0.1"
    title += f", confidence widths × {options.scale:g}" if options.scale != 1 else ""
    paper = Says("Fig. 2 (a)", "", "T=10^5, 10 seeds", "")
    liu_figure(options, env, methods, title, paper, options.run(500, 100_000, 131_070))


if __name__ == "__main__":
    main(tyro.cli(Fig2a, description=__doc__))
