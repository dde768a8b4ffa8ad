"""Base classes of recipes that take the sums of an elimination."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.arms.elimination import SE, check_arms, slots
from fedbandit_jax.core import validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.interfaces import Recipe, Spec
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.integers.noise import Asked


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfSums(Recipe):
    """Base class of recipes that take their noise and trust model from a successive elimination.

    Args:
        sums: a variant of successive elimination, except `DPSE`. The default has no privacy.
        name: label in results.
    """

    sums: SE = dataclasses.field(default=SE(), kw_only=False)

    def __post_init__(self):
        validate.instance("sums", self.sums, SE, "an fb.algos.SE, or a private variant other than DPSE")
        compatibility.check(self.tags)
        validate.text("name", self.name)

    @property
    def tags(self) -> Tags:
        """Returns its tags for `privacy.compatibility`."""
        unit = getattr(self.sums, "unit", None)
        return tagged("unit", unit, {"unit of returning users": unit is not None})


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneArm(OfSums):
    """Base class of recipes with one arm a batch.

    The server learns one sum of rewards in [0, 1] per batch, about one arm, by the protocol of `sums`. The privacy unit
    is one user, with one contribution to one sum. Adjacency is replacement of that user's reward by any other in [0,
    1]. It moves the sum by at most 1 (the sensitivity).

    Args:
        sums, name: as in `OfSums`.

    Raises:
        ValueError: as `sums`, and if `sums` has a `unit`.
    """

    @property
    @override
    def tags(self) -> Tags:
        return super().tags | tagged("sums", self.sums.title, {"one arm at a time": True})

    def released(self, spec: Spec, horizon: int, sizes: np.ndarray) -> tuple[Asked, dict[str, Any]]:
        """Returns what the noise is made for, and the fields of a `BoundAdaC` except radii, for batches of `sizes`."""
        check_arms(str(self.name), spec.n_arms, horizon)
        asked = self.sums.asked(spec.n_arms * len(sizes), horizon)
        protocol = self.sums.protocol(asked, slots(np.where(np.cumsum(sizes) <= horizon, sizes, 0)))
        promised = self.sums.promised(protocol)
        fields = dict(protocol=protocol, epsilon=promised["epsilon"], delta=promised["delta"], spec=spec)
        return asked, fields | dict(times=len(sizes), users=padded(sizes.astype(np.int32)))
