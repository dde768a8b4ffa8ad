"""User-defined trust models: how many Gaussians are in the sum over silos, and who adds them, in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.privacy.trust.ask import Ask
from fedbandit_jax.privacy.trust.model import Trust, gaussian_std


class Sizes(NamedTuple):
    """Sizes of a run, each None if it is unknown, as B is under a schedule other than `Every`."""

    n_agents: int | None  # M
    batch: int | None  # B, rounds of a batch, which are a silo's users in it
    dim: int | None  # d


@dataclasses.dataclass(frozen=True)
class GaussianTrust:
    """A user-defined trust model: independent Gaussians, a number of them in the sum over silos.

    It is data. The package draws the noise and computes the guarantee. The words go into the certificate unchanged.
    Their author answers for whether they describe a protocol.

    Args:
        sentence: who adds the noise, and who is not trusted.
        sources: how many independent noises are in the sum over silos. It is an integer >= 1, or a function of the
            run's sizes M, B and d (`n_agents`, `batch` and `dim`). B, the users of a silo in a batch, is None under a
            schedule other than `fb.schedules.Every`. A function that computes with None is refused.
        whose: the message or sum that the certificate's `noise_std` is about.
        assumes: behaviour of others that voids the guarantee.

    Raises:
        TypeError, ValueError: if an argument has the wrong type or is out of range.

    Example:
        >>> import fedbandit_jax as fb
        >>> pairs = GaussianTrust(
        ...     "pairs: silos 2i and 2i + 1 trust each other, and add one noise to their common sum",
        ...     sources=lambda sizes: (sizes.n_agents + 1) // 2,
        ...     whose="of the sum of two silos",
        ... )
        >>> budget = fb.privacy.Budget(1.0, 0.1)
        >>> calibrated = fb.privacy.calibrate(budget, n_syncs=400, trust=pairs, n_agents=100)
        >>> round(calibrated.sigma, 2), round(calibrated.epsilon_exact, 4)
        (6.91, 1.0)
    """

    sentence: str
    sources: int | Callable[[Sizes], int] = 1
    whose: str = "of a message"
    assumes: tuple[str, ...] = ()

    def __post_init__(self):
        if not callable(self.sources):
            validate.integer("sources", self.sources, at_least=1)
        validate.text("sentence", self.sentence)
        validate.text("whose", self.whose)
        if not isinstance(self.assumes, tuple):
            raise BadType("assumes", "must be a tuple of strings", self.assumes)
        for one in self.assumes:
            validate.text("assumes", one)

    def calibrate(self, ask: Ask, sizes: Sizes, std: float | None = None) -> BoundGaussian:
        """Returns the bound model for the use `ask` in a run of these sizes, see `Trust.calibrate`."""
        try:
            sources = self.sources(sizes) if callable(self.sources) else self.sources
        except TypeError as error:
            unknown = " and ".join(name for name, size in sizes._asdict().items() if size is None)
            if not unknown:
                raise
            why = " (only fb.schedules.Every has one batch)" if sizes.batch is None else ""
            raise BadType("sources", f"must not need {unknown}, unknown here{why}", error, got=f"{error}") from error
        return BoundGaussian(
            std=gaussian_std(ask, std),
            sources=np.float32(validate.integer("sources", sources, at_least=1)),
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
