"""Draws Figure 1 (d) to (f) of the ICLR version of Chowdhury & Zhou (2023): clusters of MSLR-WEB10K as K = 50 arms.

python experiments/chowdhury2023_mslr.py [--mslr DIR] [--radius exact | --as authors] [--smoke]

MSLR-WEB10K may not be redistributed: without your copy (--mslr DIR) the figure is drawn on clusters of scikit-learn's
digits, whose mean reward is the mean digit / 9, and its titles say so. Epsilon is 1, 5 and 10 as in the paper, which
does not give T; rewards are Gaussian around the means, of standard deviation 0.1, clipped to [0, 1].
"""

import dataclasses
from pathlib import Path

import numpy as np
import tyro
from arms import LABELS, MATCHES, ArmsOptions, draw, power
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import fedbandit_jax as fb

K, HORIZON = 50, 10**7


@dataclasses.dataclass(frozen=True)
class MslrOptions(ArmsOptions):
    """Draw a figure of Chowdhury & Zhou (2023) on real data.

    Args:
        mslr: folder of your copy of MSLR-WEB10K; by default scikit-learn's digits stand in for it.
    """

    mslr: tyro.conf.DisallowNone[Path | None] = None

    def means(self) -> np.ndarray:
        """Returns the mean reward of every cluster."""
        if self.mslr is not None:
            return fb.data.mslr_arms(self.mslr, n_arms=K)
        images, digits = load_digits(return_X_y=True)
        cluster = KMeans(K, random_state=0).fit_predict(images)
        return np.bincount(cluster, digits, K) / np.bincount(cluster, minlength=K) / 9


def main(options: MslrOptions) -> None:
    env = fb.envs.arms(means=options.means())
    data = "MSLR-WEB10K" if options.mslr else "digits in place of MSLR-WEB10K"

    def measure() -> dict[str, tuple[fb.Environment, fb.Result]]:
        panels: dict[str, tuple[fb.Environment, fb.Result]] = {}
        for panel, epsilon in (("d", 1.0), ("e", 5.0), ("f", 10.0)):
            result = options.compare(LABELS, epsilon, env, HORIZON)
            size = f"K = {K}, T = {power(result.rounds[-1])}, p = 0.1, {options.how}"
            panels[f"ICLR Fig. 1 ({panel}): {data.partition(' ')[0]}, ε = {epsilon:g}\n{size}"] = env, result
        return panels

    size = f"T = 10^{np.log10(HORIZON):g}, as the paper gives none"
    drawn = f"seeds of one clustering of {data}"
    draw(options, measure, MATCHES, "ICLR Fig. 1 (d-f)", size, drawn)


if __name__ == "__main__":
    main(tyro.cli(MslrOptions, description=__doc__))
