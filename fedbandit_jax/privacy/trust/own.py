"""User-defined trust models: how many Gaussians are in the sum over silos, and who adds them, in words."""

from __future__ import annotations

import dataclasses

import numpy as np

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.privacy.trust.ask import Ask
from fedbandit_jax.privacy.trust.model import Trust, gaussian_std


@dataclasses.dataclass(frozen=True)
class GaussianTrust:
    """A user-defined trust model: independent Gaussians, a number of them in the sum over silos.

    It is data. The package draws the noise and computes the guarantee. The words go into the certificate unchanged.
    Their author answers for whether they describe a protocol.

    Args:
        sentence: who adds the noise, and who is not trusted.
        sources: how many independent noises are in the sum over silos, an integer >= 1.
        whose: the message or sum that the certificate's `noise_std` is about.
        assumes: behaviour of others that voids the guarantee.

    Raises:
        TypeError, ValueError: if an argument has the wrong type or is out of range.

    Example:
        >>> import fedbandit_jax as fb
        >>> pairs = GaussianTrust(
        ...     "pairs: silos 2i and 2i + 1 trust each other, and add one noise to their common sum",
        ...     sources=50,  # of 100 silos
        ...     whose="of the sum of two silos",
        ... )
        >>> budget = fb.privacy.Budget(1.0, 0.1)
        >>> calibrated = fb.privacy.calibrate(budget, n_syncs=400, trust=pairs)
        >>> round(calibrated.sigma, 2), round(calibrated.epsilon_exact, 4)
        (6.91, 1.0)
    """

    sentence: str
    sources: int = 1
    whose: str = "of a message"
    assumes: tuple[str, ...] = ()

    def __post_init__(self):
        validate.integer("sources", self.sources, at_least=1)
        validate.text("sentence", self.sentence)
        validate.text("whose", self.whose)
        if not isinstance(self.assumes, tuple):
            raise BadType("assumes", "must be a tuple of strings", self.assumes)
        for one in self.assumes:
            validate.text("assumes", one)

    def calibrate(self, ask: Ask, std: float | None = None) -> BoundGaussian:
        """Returns the bound model for the use `ask`, see `Trust.calibrate`."""
        return BoundGaussian(
            std=gaussian_std(ask, std),
            sources=np.float32(self.sources),
            sentence=self.sentence,
            whose=self.whose,
            assumes=self.assumes,
        )


@struct.sealed
@struct.pytree
class BoundGaussian(Trust):
    """A bound user-defined trust model: the two numbers of its noise, and the words that describe it."""

    batches = "any"
    of_user = "GaussianTrust"

    std: struct.Number  # standard deviation of one source
    sources: struct.Number  # how many independent noises are in the sum over silos, a float
    sentence: str = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]
    whose: str = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]
    assumes: tuple[str, ...] = struct.static()
