"""Draws Figure 2 (a) of Liu et al. (2022): regret and clusters on synthetic data, 40 users on 5 servers, T = 10^5.

python experiments/liu2022_fig2a.py [--clusters 2] [--smoke | --full]

The script prints which inequalities of the paper hold. Without privacy they do, but FCLUB and FCLUB-DC are equal within
noise. With noise that is really added (epsilon = 1, delta = 0.1) CDP-FCLUB-DC is the worst of all: the matrix 2 rho I
that keeps noisy sums positive definite outweighs what clusters have seen, so that all look alike to the global server.
In the authors' code noise never reaches an estimate, so that their curve is that of FCLUB-DC. How many clusters their
figure has is not known; liu2022_parameters.py varies that number.
"""

import dataclasses

import tyro
from common import LiuOptions, liu_figure

import fedbandit_jax as fb


@dataclasses.dataclass(frozen=True)
class Fig2a(LiuOptions):
    """Draw the figure.

    Args:
        clusters: m, the number of clusters of users.
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
