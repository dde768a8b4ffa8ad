"""AdaC-UCB of Azize & Basu (2024): one arm at a time, in batches that double, by sums of the last batch alone.

An arm that is asked about for the j-th time, j = 1, 2, ..., is pulled by 2^j users, whose noisy sum is released once.
Its mean is estimated by that sum alone, and older sums are forgotten, so that every user is in one sum.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.elimination import SuccessiveElimination, batches, check_arms
from fedbandit_jax.algos.loops.arms import BoundAdaC
from fedbandit_jax.core import validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Recipe, Spec
from fedbandit_jax.privacy.integers.mechanisms import MECHANISMS


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaCUCB(Recipe):
    """Plays the arm of the largest upper confidence bound, in batches that double, each of which is released once.

    The server learns one sum of rewards in [0, 1] per batch, which is about one arm, through the protocols of
    `SuccessiveElimination`; `trust` says who adds the noise, and who is trusted. The privacy unit is one user, who
    comes once and is in one sum. Adjacency is replacement of that user's reward by any other in [0, 1], which moves the
    sum by at most 1 (the sensitivity).

    Confidence intervals are those of `SuccessiveElimination(radius="exact")`: all of them together hold with
    probability 1 - 3 `failure`.

    Args:
        epsilon: privacy parameter in [1e-9, 500]; what it promises depends on the mechanism, see
            `SuccessiveElimination`. None without privacy.
        mechanism, trust: the law of the noise and who adds it, a row of the table of `SuccessiveElimination` except
            that of DP-SE.
        scale: s in [1, 2^24] of Skellam and discrete Gaussian noise, as there.
        failure: p in (0, 0.3].
        delta: the delta in (0, 1) at which the certificate states (epsilon, delta); None: 1e-6.
        name: label in results.

    Raises:
        ValueError: as `SuccessiveElimination`.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.arms(n_arms=5, instance="easy")
        >>> algo = fb.algos.AdaCUCB(epsilon=0.5, mechanism="discrete_laplace", trust="secagg")
        >>> certificate = algo.certificate(env.spec, horizon=20_000)
        >>> certificate.claim, certificate.notion, round(certificate.epsilon_exact, 3)
        ('certified', 'pure DP', 0.5)

    Reference: Azize & Basu (2024), "Concentrated differential privacy for bandits", AdaC-UCB. With Laplace noise, for
    pure DP, it is AdaP-UCB of Azize & Basu (2022), "When privacy meets partial information". DEVIATION azize2024
    AdaC-UCB: the confidence width is from the exact law of the noise, for a failure probability that does not fall with
    t; noise is that of integer mechanisms; and first batches have two users, not one.
    """

    epsilon: float | None = None
    mechanism: str = "none"
    trust: str = "none"
    scale: float | None = None
    failure: float = 0.1
    delta: float | None = None
    name: str = "AdaC-UCB"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        pair = validate.text("mechanism", self.mechanism), validate.text("trust", self.trust)
        if pair not in [("none", "none"), *MECHANISMS]:
            raise BadValue(("mechanism", "trust"), f"must be one of {[('none', 'none'), *MECHANISMS]}", pair)
        validate.text("name", self.name)
        self._sums()

    def _sums(self) -> SuccessiveElimination:
        names = ("epsilon", "mechanism", "trust", "scale", "failure", "delta")
        return SuccessiveElimination(radius="exact", **{name: getattr(self, name) for name in names})

    @override
    def parameters(self) -> tuple[str, ...]:
        used = self._sums().parameters()
        return tuple(name for name in super().parameters() if name in used)

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundAdaC:
        n_arms, sums = spec.n_arms, self._sums()
        check_arms(self.name, n_arms, horizon)
        sizes = batches(2, horizon)
        mechanism = sums.integers(n_arms * len(sizes), horizon)
        return BoundAdaC(
            **sums.sum_loop_fields(spec, mechanism, np.where(np.cumsum(sizes) <= horizon, sizes, 0)),
            times=len(sizes),
            users=padded(np.minimum(sizes, 2**31 - 1).astype(np.int32)),
            radius=padded(sums.radii(mechanism, sizes, n_arms)[:, n_arms].astype(np.float32)),
        )
