"""Noise and constants of the released code of Chowdhury & Zhou (2023), where they are not those of the theorems.

The code has one algorithm for each of DP-SE, Dist-DP-SE and Dist-RDP-SE, with batches of 4^b users, and a ring that a
sum may leave with probability p, whatever the number of sums. In none of the classes below is more proved than the
numbers give that are drawn: the certificate says what the noise is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import struct, wide
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.privacy.integers.mechanisms import IntegerMechanism, Polya, SkellamShares, Tail
from fedbandit_jax.privacy.integers.protocol import Decoded, GridSum
from fedbandit_jax.privacy.integers.shares import Noise, rounded_up
from fedbandit_jax.privacy.samplers import integer as samplers


class ReleasedPolya(Polya):
    """Users add shares of Polya noise whose Gamma variables have the inverse of their scale.

    The scale should be beta / (1 - beta) with beta = e^(-epsilon / g), and is (1 - beta) / beta. These are Polya
    variables with 1 - beta in place of beta, so the noise of a sum is discrete Laplace of scale -1 / ln(1 - beta),
    which falls with n as 2 / ln n. To one of n users it gives an epsilon of about epsilon sqrt(n) ln(n) / 2.
    """

    def noise(self, users: Sequence[int]) -> Noise:
        """Returns noise of scale -1 / ln(1 - e^(-epsilon / g)), in steps."""
        rates = [self.noise_epsilon / self.steps(n) for n in users]
        return self.noise_class(scale=rounded_up([-1 / math.log(-math.expm1(-rate)) for rate in rates]))


class ReleasedSkellam(SkellamShares):
    """Users add shares of Skellam noise as in Theorem 2; the ring and the radii are a little wider."""

    def slack(self, n: int) -> int:
        """Returns tau = ceil(2 g / epsilon ln(2/p) + sqrt(2) ln(2/p)), without the square root of Theorem 2."""
        return math.ceil((2 * self.steps(n) / self.epsilon + math.sqrt(2)) * math.log(2 / self.failure))

    def tail_constants(self, n: np.ndarray) -> Tail:
        """Returns the constants of Theorem 2, with h = 1 / (s epsilon) in place of sqrt(2) / g."""
        return super().tail_constants(n)[0], 1 / (self.scale * self.epsilon)


@struct.sealed
@struct.pytree
class SharedNoiseSum(GridSum):
    """Sums to which the server, which is trusted, adds one and the same Laplace variable in each batch.

    The difference of two arms' sums has no noise, so nothing is proved, and eliminations are those without any noise.
    """

    @override
    def decode(self, key: Array, k: Array, collected: Wide) -> Decoded:
        shape = collected.low.shape
        noise = jnp.broadcast_to(samplers.discrete_laplace(key, self.scale, ()), shape)
        noisy = wide.add(collected, wide.from_int32(noise))
        return Decoded(wide.to_float(noisy) / self.steps, jnp.zeros(shape, bool))

    @override
    def guarantee(self, epsilon: float, delta: float) -> Certificate:
        return Certificate(
            claim="none",
            reason="the noise is one number for all arms' sums, so that their differences have none",
            trust="central: the server is trusted, and adds the same noise to every sum of a batch",
            notion="pure DP",
            epsilon=epsilon,
            delta=0.0,
            epsilon_exact=math.inf,
        )


# (law of the noise, trust model) -> mechanism of the released code; DP-SE has `SharedNoiseSum`
AUTHORS: dict[tuple[str, str], type[IntegerMechanism]] = {
    ("discrete_laplace", "secagg"): ReleasedPolya,
    ("skellam", "secagg"): ReleasedSkellam,
}
