"""Figure 2 (a) of Liu et al. (2022): clusterings of bandits on the synthetic set, 40 users on 5 servers, T = 10^5.

python experiments/liu2022_fig2a.py [--clusters 2] [--smoke | --full]

The script prints which inequalities of the paper hold. Without privacy they do, but FCLUB and FCLUB-DC are equal within
noise. With real noise (epsilon = 1, delta = 0.1) CDP-FCLUB-DC is worst of all: all clusters look alike to the global
server, whose 2 rho I outweighs what they have seen. In the authors' code noise never reaches a decision, so that their
curve is FCLUB-DC's. The number of clusters of their figure is not known; see liu2022_parameters.py for others.
"""

import dataclasses

import tyro
from common import LiuOptions, liu_figure

import fedbandit_jax as fb


@dataclasses.dataclass(frozen=True)
class Fig2a(LiuOptions):
    """Size of the figure.

    Args:
        clusters: m.
    """

    clusters: int = 2


def main(options: Fig2a) -> None:
    env = fb.envs.clustered(n_clusters=options.clusters)
    run = options.run(1_000, 100_000, 131_070)
    result = fb.sweep(env, options.methods(fb.privacy.Budget(1.0, 0.1)), **run)
    title = f"Fig. 2(a): n=40, L=5, m={options.clusters}, K=10, d=10"
    liu_figure("liu2022_fig2a", options, result, title)


if __name__ == "__main__":
    main(tyro.cli(Fig2a, description=__doc__))
