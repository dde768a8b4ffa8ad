"""Greedy play on released statistics, with shrinkage that the law of the noise asks for."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.policies.ucb import BoundUCB
from fedbandit_jax.algos.policies.widths import Width
from fedbandit_jax.core import struct, validate
from fedbandit_jax.interfaces import NoiseLaw, Policy

NO_WIDTH = Width(*(np.float32(0) for _ in Width._fields))


@struct.sealed
@struct.pytree
class Shrinkage:
    """The rule lambda = max(least, c s), where s is the standard deviation of the noise on W, and no width."""

    shrinkage: struct.Number  # c
    least: struct.Number  # the smallest lambda

    def __call__(self, std: Array, eigenvalues: Array) -> tuple[Array, Width]:
        """The lambda and the width, zero, of a release with noise of standard deviation s, whatever it is."""
        return jnp.maximum(self.least, self.shrinkage * std), NO_WIDTH


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy(Policy):
    """Plays argmax <x, theta> with theta = (lambda I + W)^-1 U, and explores by nothing but the noise and the contexts.

    W is projected on the positive semidefinite cone, and lambda = c s, where s is the standard deviation of the noise
    on W. Where data outweigh the noise that is the ridge estimate. Where they do not, W is little but noise, and theta
    points along U, which is right if features are spread alike in all directions. Optimism pays for the worst case;
    users who come with arms of all directions make it unnecessary (Bastani, Bayati & Khosravi 2021), and the noise of
    the first releases explores as well. Where every round offers the same arms it is not safe: before the first release
    all agents play the first arm.

    Args:
        shrinkage: c >= 0; the default was best of 3, 6, 12, 24 and 50 within errors, on other seeds than any table's.
        regularization: the least lambda, > 0.

    Raises:
        ValueError, TypeError: if an argument is out of its range; the message names it and its value.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt", centred=True, gram_scale=0.5)
        >>> algo = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=10, privacy=mechanism)
        >>> algo.certificate(env.spec, horizon=50).claim
        'certified'
    """

    shrinkage: float = 12.0
    regularization: float = 1.0

    def __post_init__(self):
        validate.single("shrinkage", validate.non_negative("shrinkage", self.shrinkage))
        validate.single("regularization", validate.positive("regularization", self.regularization))

    @override
    def bind(self, law: NoiseLaw) -> BoundUCB:
        least = np.float32(self.regularization)
        return BoundUCB(
            first_regularization=least,
            regularization=least,
            width=NO_WIDTH,
            known_noise=Shrinkage(shrinkage=np.float32(self.shrinkage), least=least) if len(law.stds) else None,
            project=True,
            rho=(float(least) / law.n_agents, float(least) / law.n_agents),
        )
