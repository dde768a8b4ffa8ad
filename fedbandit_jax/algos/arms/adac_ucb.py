"""AdaC-UCB of Azize & Basu (2024): one arm at a time, in growing batches, by sums of the last batch alone.

The j-th batch of an arm has growth^j users, j = 1, 2, ..., and releases one noisy sum. The last sum alone estimates the
arm's mean. Older sums are forgotten, so every user is in one sum.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.arms.elimination import SE, batches, check_arms, slots
from fedbandit_jax.algos.arms.loop import BoundAdaC
from fedbandit_jax.core import validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.interfaces import Recipe, Spec
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.integers.noise import Asked


class OneArm(Recipe):
    """Base class of recipes with one arm a batch, which share the sums of an elimination."""

    sums: SE

    @property
    def tags(self) -> Tags:
        """Returns its tags for `privacy.compatibility`."""
        unit = getattr(self.sums, "unit", None)
        return tagged("unit", unit, {"unit of returning users": unit is not None}) | tagged(
            "sums", self.sums.title, {"one arm at a time": True}
        )

    def released(self, spec: Spec, horizon: int, sizes: np.ndarray) -> tuple[Asked, dict[str, Any]]:
        """Returns what the noise is made for, and the fields of a `BoundAdaC` except radii, for batches of `sizes`."""
        check_arms(str(self.name), spec.n_arms, horizon)
        asked = self.sums.asked(spec.n_arms * len(sizes), horizon)
        protocol = self.sums.protocol(asked, slots(np.where(np.cumsum(sizes) <= horizon, sizes, 0)))
        promised = self.sums.promised(protocol)
        fields = dict(protocol=protocol, epsilon=promised["epsilon"], delta=promised["delta"], spec=spec)
        return asked, fields | dict(times=len(sizes), users=padded(sizes.astype(np.int32)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaCUCB(OneArm):
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

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundAdaC:
        sizes = batches(self.sums.growth, horizon)
        asked, fields = self.released(spec, horizon, sizes)
        radius = self.sums.radii(asked, sizes, spec.n_arms)[:, spec.n_arms]
        return BoundAdaC(radius=padded(radius.astype(np.float32)), **fields)
