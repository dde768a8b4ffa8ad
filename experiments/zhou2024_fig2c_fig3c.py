"""Figures 2 (c) and 3 (c) of Zhou & Chowdhury (2024): silo-level LDP on real data, M=10, exploration scale 0.1.

python experiments/zhou2024_fig2c_fig3c.py [--mslr DIR] [--as released] [--smoke | --full]

MSLR-WEB10K may not be redistributed: without your copy (--mslr DIR) the figure is drawn on scikit-learn's digits, and
says so. On MSLR, whose means can be negative, our version has Gaussian rewards clipped to [0, 1].
"""

import dataclasses
from pathlib import Path

import tyro
from common import Options, finish

import fedbandit_jax as fb


@dataclasses.dataclass(frozen=True)
class RealOptions(Options):
    """Options of a figure on real data.

    Args:
        mslr: folder of your copy of MSLR-WEB10K.
    """

    mslr: Path | None = None


def tables(options: RealOptions) -> dict[str, fb.data.Table]:
    if options.mslr is None:
        return {
            "Fig. 2(c) stand-in": fb.data.classification("digits", components=5),
            "Fig. 3(c) stand-in": fb.data.classification("digits", components=7),
        }
    return {
        "Fig. 2(c)": fb.data.mslr(options.mslr, features="title"),
        "Fig. 3(c)": fb.data.mslr(options.mslr, features="body"),
    }


def main(options: RealOptions) -> None:
    parameters = dict(exploration_scale=0.1, subgaussian=1.0)
    private = options.private_fed_lin_ucb(fb.privacy.Budget(5.0, 0.1), **parameters)
    rewards = "clipped_gaussian" if options.mslr and options.version == "ours" else options.rewards
    panels = {}
    for name, table in tables(options).items():
        env = fb.envs.replay(**table.replay_arguments(), n_agents=10, rewards=rewards)
        panels[f"{name}: {table.title}, d={env.spec.dim}, δ=0.1"] = fb.sweep(
            env,
            [options.fed_lin_ucb(**parameters), private],
            grid={"epsilon": [0.2, 1, 5]},
            **options.run(100, 5_000, 25_000),
        )
    finish("zhou2024_fig2c_fig3c", options, panels)


if __name__ == "__main__":
    main(tyro.cli(RealOptions, description=__doc__))
