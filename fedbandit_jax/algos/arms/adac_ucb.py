"""AdaC-UCB of Azize & Basu (2024): one arm at a time, in growing batches, by sums of the last batch alone.

The j-th batch of an arm has growth^j users, j = 1, 2, ..., and releases one noisy sum. The last sum alone estimates the
arm's mean. Older sums are forgotten, so every user is in one sum.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.arms.elimination import SE, batches, check_arms, slots
from fedbandit_jax.algos.arms.loop import BoundAdaC
from fedbandit_jax.core import validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.interfaces import Recipe, Spec
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import Tags, tagged


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaCUCB(Recipe):
    """Plays the arm of the largest upper confidence bound, in growing batches, each released once.

    The server learns one sum of rewards in [0, 1] per batch, about one arm, by the protocol of `sums`. The privacy unit
    is one user, with one contribution to one sum. Adjacency is replacement of that user's reward by any other in [0,
    1]. It moves the sum by at most 1 (the sensitivity).

    Args:
        sums: a variant of successive elimination, except `DPSE`, for noise, confidence radii and the growth of batches.
            The default has no privacy.
        name: label in results.

    Raises:
        ValueError: as the variant, also if it has a `unit`.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.arms(n_arms=5, instance="easy")
        >>> algo = fb.algos.AdaCUCB(fb.algos.DistDPSE(0.5, radius="exact"))
        >>> certificate = algo.certificate(env.spec, horizon=20_000)
        >>> certificate.claim, certificate.notion, round(certificate.epsilon_exact, 3)
        ('certified', 'pure DP', 0.5)

    Reference: Azize & Basu (2024), "Concentrated differential privacy for bandits", AdaC-UCB. With Laplace noise, for
    pure DP, it is AdaP-UCB of Azize & Basu (2022), "When privacy meets partial information". DEVIATION azize2024
    AdaC-UCB: the failure probability of the width does not fall with t. Noise is integer noise. First batches have two
    users, not one.
    """

    sums: SE = dataclasses.field(default=SE(radius="exact"), kw_only=False)
    name: str = "AdaC-UCB"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.instance("sums", self.sums, SE, "an fb.algos.SE, or a private variant other than DPSE")
        compatibility.check(self.tags)
        validate.text("name", self.name)

    @property
    def tags(self) -> Tags:
        """Returns its tags for `privacy.compatibility`."""
        unit = getattr(self.sums, "unit", None)
        return tagged("unit", unit, {"unit of returning users": unit is not None}) | tagged(
            "sums", self.sums.title, {"one arm at a time": True}
        )

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundAdaC:
        sums, n_arms = self.sums, spec.n_arms
        check_arms(self.name, n_arms, horizon)
        sizes = batches(sums.growth, horizon)
        asked = sums.asked(n_arms * len(sizes), horizon)
        protocol = sums.protocol(asked, slots(np.where(np.cumsum(sizes) <= horizon, sizes, 0)))
        promised = sums.promised(protocol)
        return BoundAdaC(
            protocol=protocol,
            epsilon=promised["epsilon"],
            delta=promised["delta"],
            spec=spec,
            times=len(sizes),
            users=padded(sizes.astype(np.int32)),
            radius=padded(sums.radii(asked, sizes, n_arms)[:, n_arms].astype(np.float32)),
        )
