"""AdaC-UCB of Azize & Basu (2024): one arm at a time, in growing batches, by sums of the last batch alone.

The j-th batch of an arm has growth^j users, j = 1, 2, ..., and releases one noisy sum. The last sum alone estimates the
arm's mean. Older sums are forgotten, so every user is in one sum.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.arms.elimination import SE, batches
from fedbandit_jax.algos.arms.loop import BoundAdaC
from fedbandit_jax.algos.arms.recipe import OneArm
from fedbandit_jax.core.padding import padded
from fedbandit_jax.interfaces import Spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaCUCB(OneArm):
    """Plays the arm of the largest upper confidence bound, in growing batches, each released once.

    Privacy is as in `OneArm`.

    Args:
        sums: as in `OneArm`, also for confidence radii and the growth of batches.
        name: label in results.

    Reference: Azize & Basu (2024), "Concentrated differential privacy for bandits", AdaC-UCB. With Laplace noise, for
    pure DP, it is AdaP-UCB of Azize & Basu (2022), "When privacy meets partial information". DEVIATION azize2024
    AdaC-UCB: the failure probability of the width does not fall with t. Noise is integer noise. First batches have two
    users, not one.
    """

    sums: SE = dataclasses.field(default=SE(radius="exact"), kw_only=False)
    name: str = "AdaC-UCB"  # pyright: ignore[reportIncompatibleVariableOverride]

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundAdaC:
        sizes = batches(self.sums.growth, horizon)
        asked, fields = self.released(spec, horizon, sizes)
        radius = self.sums.radii(asked, sizes, spec.n_arms)[:, spec.n_arms]
        return BoundAdaC(radius=padded(radius.astype(np.float32)), **fields)
