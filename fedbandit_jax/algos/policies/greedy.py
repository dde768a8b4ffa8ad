"""Policies without confidence widths: greedy, epsilon-greedy and Thompson sampling, on released statistics."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax import linalg
from fedbandit_jax.algos.policies.ucb import BoundUCB
from fedbandit_jax.algos.policies.widths import Width
from fedbandit_jax.core import struct, validate
from fedbandit_jax.interfaces import NoiseLaw, Policy, Released

NO_WIDTH = Width(*(np.float32(0) for _ in Width._fields))


@struct.sealed
@struct.pytree
class Shrinkage:
    """The rule lambda = max(least, c s), with the noise standard deviation s on W, and no width."""

    shrinkage: struct.Number  # c
    least: struct.Number  # the smallest lambda

    def __call__(self, std: Array, eigenvalues: Array) -> tuple[Array, Width]:
        """Returns lambda and the width, zero, of a release."""
        return jnp.maximum(self.least, self.shrinkage * std), NO_WIDTH


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy(Policy):
    """Plays argmax <x, theta> with theta = (lambda I + W)^-1 U; only noise and contexts explore.

    W is projected on the positive semidefinite cone, and lambda = c s, with the noise standard deviation s on W. If W
    is mostly noise, theta points along U, which is right for isotropic features. Optimism is unnecessary with arms in
    all directions (Bastani, Bayati & Khosravi 2021). The noise of the first releases explores as well. If every round
    offers the same arms, greedy play is not safe: nothing explores after the first release.

    Acting on too early a release can cost more than waiting. Greedy agents then see arms of one direction only. The
    first release should have at least

        N = s max(d^(3/2), c d if rewards are not centred)

    users; `fb.algos.Federated.patient` ensures this. Let features of norm 1 be isotropic. Then U = sum x y has N
    ||theta|| / d along theta, and noise of norm at most s sqrt d. From N = s d^(3/2) on the noise is no larger. If
    rewards are not centred, U also has the mean reward times sum x. W is about N / d in every
    direction. If that is less than the ridge c s, agents mistake the mean reward for a merit of the most played
    direction. For a weighted statistic s is divided by the largest weight.

    Args:
        shrinkage: c >= 0; the default was best of 3, 6, 12, 24 and 50 within errors, on other seeds than any table's.
        regularization: the least lambda, > 0.
    """

    keeps_matrix = True

    shrinkage: float = 12.0
    regularization: float = 1.0

    def users(self, dim: int, std: float, centred: bool) -> float:
        """Returns the users N of the first release, by the rule above.

        Args:
            dim: d.
            std: s, the noise standard deviation of the first release of W.
            centred: whether x (y - 1/2) is summed.

        >>> Greedy().users(4, 10.0, True), Greedy().users(4, 10.0, False)
        (80.0, 480.0)
        """
        return std * max(dim**1.5, 0 if centred else self.shrinkage * dim)

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
            rule=Shrinkage(shrinkage=np.float32(self.shrinkage), least=least) if len(law.stds) else None,
            project=True,
            rho=(float(least) / law.n_agents, float(least) / law.n_agents),
        )


@struct.sealed
@struct.pytree
class EpsilonGreedy(Policy):
    """Plays the best arm by a ridge estimate or, with probability min(1, c / t) in round t = 1, 2, ..., any arm.

    The noisy Gram matrix W is projected on the positive semidefinite cone, and theta = (lambda I + W)^-1 U. As in
    `Greedy`, lambda is `shrinkage` standard deviations of the noise on W, at least 1. (In the paper c is c' K / gap^2.)

    Args:
        explore: c >= 0, about how many rounds are random for every factor e of the rounds.
        shrinkage: lambda in standard deviations of the noise, >= 0.

    Reference: Auer, Cesa-Bianchi & Fischer (2002), Figure 3, on the statistics of Zhou & Chowdhury (2024), Algorithm 8.
    """

    explore: float = 5.0
    shrinkage: float = 1.0

    @override
    def bind(self, law: NoiseLaw) -> EpsilonGreedy:
        for name in ("explore", "shrinkage"):
            validate.single(name, validate.non_negative(name, getattr(self, name)))
        return self

    @override
    def update(self, k: Int[Array, ""], belief: Any, released: Released) -> Float[Array, " d"]:
        ridge = jnp.maximum(1.0, self.shrinkage * released.std) * jnp.eye(released.dim)
        return linalg.GaussianBelief.solve(linalg.project(released.gram) + ridge, released.bias).mean

    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: Float[Array, " d"], contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        """Returns the estimated mean reward of every arm or, with probability min(1, c / (t + 1)), random numbers."""
        coin, other = jax.random.split(key)
        explores = jax.random.uniform(coin) * (t + 1) < self.explore
        anything = jax.random.uniform(other, contexts.shape[:1])
        return jnp.where(explores, anything, jnp.matmul(contexts, belief, precision="highest"))


@struct.pytree
class Thompson(Policy):
    """Linear Thompson sampling: plays the best arm for a parameter drawn from the posterior of the release.

    The noisy Gram matrix is projected on the positive semidefinite cone, which is post-processing. The released sums
    are W = sum x x' and U = sum x y. The posterior is N(theta, scale^2 V^-1) with V = lambda I + W and theta = V^-1 U.
    It ignores the privacy noise. Take c = 12, as in `Greedy`, if arms repeat or have their own features.

    Args:
        regularization: the least lambda, > 0.
        scale: factor on the posterior's standard deviation, > 0. The default is R = 1/2, the sub-Gaussian constant of
            rewards in [0, 1]. The regret bound of Agrawal & Goyal (2013) needs R sqrt(9 d ln(t/delta)) in round t, with
            failure probability delta. It does not cover privacy noise.
        shrinkage: c >= 0, lambda in standard deviations of the noise on W. The default 0 ignores the noise, as in the
            paper.

    Reference: Agrawal & Goyal (2013), Algorithm 1, on the statistics of Zhou & Chowdhury (2024), Algorithm 8.
    """

    regularization: float = 1.0
    scale: float = 0.5
    shrinkage: float = 0.0

    def users(self, dim: int, std: float, centred: bool) -> float:
        """Returns the users of the first release, by the rule of `Greedy`."""
        return Greedy(shrinkage=float(self.shrinkage)).users(dim, std, centred)

    @override
    def bind(self, law: NoiseLaw) -> Thompson:
        for name in ("regularization", "scale"):
            validate.single(name, validate.positive(name, getattr(self, name)))
        validate.single("shrinkage", validate.non_negative("shrinkage", self.shrinkage))
        return self

    @override
    def update(self, k: Int[Array, ""], belief: Any, released: Released) -> linalg.GaussianBelief:
        ridge = jnp.maximum(self.regularization, self.shrinkage * released.std) * jnp.eye(released.dim)
        return linalg.GaussianBelief.solve(linalg.project(released.gram) + ridge, released.bias)

    @override
    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: linalg.GaussianBelief, contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        return jnp.matmul(contexts, belief.sample(key, self.scale), precision="highest")
