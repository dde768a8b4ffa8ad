"""Draws Figure 1 (d) to (f) of the ICLR version of Chowdhury & Zhou (2023): clusters of MSLR-WEB10K as K = 50 arms.

Without your copy (--mslr DIR) they are clusters of scikit-learn's digits, and titles say so. Their mean reward is the
mean digit / 9. Rewards are Gaussian around the means, of standard deviation 0.1, clipped to [0, 1].
"""

import dataclasses
from pathlib import Path

import numpy as np
import tyro
from arms import ArmsOptions, draw
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


if __name__ == "__main__":
    asked = tyro.cli(MslrOptions, description=__doc__)
    env, data = fb.envs.arms(means=asked.means()), "MSLR-WEB10K" if asked.mslr else "digits in place of MSLR-WEB10K"
    worlds = {letter: (data.split()[0], env, HORIZON, epsilon) for letter, epsilon in zip("def", (1.0, 5.0, 10.0))}
    where, size = ("ICLR Fig. 1", " (d-f)"), f"T = 10^{np.log10(HORIZON):g}, as the paper gives none"
    draw(asked, worlds, where, size, f"seeds of one clustering of {data}")
