"""The noise of the code released with Chowdhury & Zhou (2023): certificates say what it gives.

Batches there have 4^b users, and a sum leaves the ring with probability p, whatever the number of sums.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from typing_extensions import override

import fedbandit_jax as fb
from fedbandit_jax.privacy.integers import noise
from fedbandit_jax.privacy.integers.noise import Asked, Noise


class ReleasedPolya(noise.PolyaNoise):
    """Shares of Polya noise with Gamma variables of the inverse scale.

    The scale should be beta / (1 - beta) with beta = e^(-epsilon / g), and is (1 - beta) / beta. These are Polya
    variables with 1 - beta in place of beta. The noise of a sum is discrete Laplace of scale -1 / ln(1 - beta), which
    falls with n as 2 / ln n. It gives a user an epsilon of about epsilon sqrt(n) ln(n) / 2.
    """

    @override
    @classmethod
    def made(cls, asked: Asked, users: Sequence[int]) -> Noise:
        rates = [1 / cls.parameters(asked, n).size for n in users]
        return noise.PolyaNoise(size=noise.rounded_up([-1 / math.log(-math.expm1(-rate)) for rate in rates]))


class ReleasedSkellam(noise.SkellamNoise):
    """Shares of Skellam noise as in Theorem 2, with a wider ring and wider radii.

    tau = ceil(2 g / epsilon ln(2/p) + sqrt(2) ln(2/p)) has no square root, unlike Theorem 2. h is 1 / (s epsilon) in
    place of sqrt(2) / g.
    """

    @override
    @classmethod
    def parameters(cls, asked: Asked, n: int) -> noise.Parameters:
        one = super().parameters(asked, n)
        slack = math.ceil((2 * one.steps / asked.epsilon + math.sqrt(2)) * math.log(2 / asked.failure))
        return one._replace(slack=slack, h=1 / (asked.scale * asked.epsilon))

    @override
    @classmethod
    def made(cls, asked: Asked, users: Sequence[int]) -> Noise:
        return noise.SkellamNoise.made(asked, users)


@fb.pytree
class SharedNoise(noise.ServerNoise):
    """One Laplace variable per batch, which the server adds to all sums, so that their differences have no noise."""

    @override
    def total(self, key, k, n, shape):
        return jax.tree.map(lambda word: jnp.broadcast_to(word, shape), super().total(key, k, n, ()))


class DPSE(fb.algos.DPSE):
    """DP-SE with noise that all arms share: nothing is certified."""

    @override
    def protocol(self, asked):
        honest = super().protocol(asked)
        return dataclasses.replace(honest, noise=SharedNoise(size=honest.noise.size))


class DistDPSE(fb.algos.DistDPSE):
    """Dist-DP-SE with `ReleasedPolya`."""

    law = ReleasedPolya

    @override
    def asked(self, n_sums: int, horizon: int) -> Asked:
        return super().asked(n_sums, horizon)._replace(failure=self.failure)


class DistRDPSE(fb.algos.DistRDPSE):
    """Dist-RDP-SE with `ReleasedSkellam`."""

    law = ReleasedSkellam

    @override
    def asked(self, n_sums: int, horizon: int) -> Asked:
        return super().asked(n_sums, horizon)._replace(failure=self.failure)


RELEASED = {kind.title: kind for kind in (DPSE, DistDPSE, DistRDPSE)}
