"""Linear Thompson sampling on released statistics, as an example of a policy of one's own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax import linalg
from fedbandit_jax.core import struct, validate
from fedbandit_jax.interfaces import NoiseLaw, Policy, Released


@struct.pytree
class Thompson(Policy):
    """Linear Thompson sampling: plays the best arm for a parameter drawn from the posterior of what was released.

    The noisy Gram matrix is projected on the positive semidefinite cone, which is post-processing. With the released
    sums W = sum x x' and U = sum x y, the posterior is N(theta, scale^2 V^-1), V = lambda I + W and theta = V^-1 U. It
    ignores the privacy noise, whose part in the error of theta a larger `regularization` shrinks.

    Args:
        regularization: lambda > 0. Noise of standard deviation s on the released sums calls for about s sqrt(d) or
            more.
        scale: factor on the posterior's standard deviation, > 0; the default is R = 1/2, the sub-Gaussian constant of
            rewards in [0, 1]. The regret bound of Agrawal & Goyal (2013) needs R sqrt(9 d ln(t/delta)) in round t, for
            a failure probability delta, and does not cover privacy noise.

    Raises:
        ValueError, TypeError: when bound, if an argument is not a number > 0; the message names it and its value.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.Federated(policy=fb.algos.Thompson(), privacy=fb.privacy.Budget(1.0, 0.1))
        >>> algo.certificate(env.spec, horizon=50).claim
        'certified'

    Reference: Agrawal & Goyal (2013), Algorithm 1, on the statistics of Zhou & Chowdhury (2024), Algorithm 8.
    """

    regularization: float = 1.0
    scale: float = 0.5

    @override
    def bind(self, law: NoiseLaw) -> Thompson:
        for name in ("regularization", "scale"):
            validate.single(name, validate.positive(name, getattr(self, name)))
        return self

    @override
    def update(self, k: Int[Array, ""], belief: Any, released: Released) -> linalg.GaussianBelief:
        precision = linalg.project(released.gram) + self.regularization * jnp.eye(released.dim)
        return linalg.GaussianBelief.solve(precision, released.bias)

    @override
    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: linalg.GaussianBelief, contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        return jnp.matmul(contexts, belief.sample(key, self.scale), precision="highest")
