"""Uniform play, which learns nothing and sends nothing: the score 0 of every task."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct, wide
from fedbandit_jax.interfaces import Algorithm, ArmAlgorithm, Environment, Pulls, Report, Round, Spec

NAME = "uniform play"
BATCH = 25  # rounds that are played in one step, which changes nothing else


@struct.pytree
class Uniform(Algorithm):
    """Plays an arm at random in every round."""

    name: str = struct.static(default=NAME)
    batch: int = struct.static(default=BATCH)
    bears_dropouts: bool = struct.static(default=True)
    bears_delay: bool = struct.static(default=True)

    @override
    def init(self, key: Array, spec: Spec) -> tuple[()]:
        return ()

    @override
    def act(self, key: Array, t: Array, local: Any, offered: Round) -> Array:
        worth = jax.random.uniform(key, offered.contexts.shape[:2])
        return jnp.argmax(worth if offered.mask is None else jnp.where(offered.mask, worth, -1), 1).astype(jnp.int32)

    @override
    def learn(self, t: Array, local: Any, offered: Round, arms: Array, rewards: Array) -> tuple[Any, Any]:
        return (), ()


@struct.pytree
class UniformArms(ArmAlgorithm):
    """Has every arm pulled by one user in turn, from the first round to the last."""

    n_arms: int = struct.static()
    name: str = struct.static(default=NAME)
    n_batches: int = struct.static(default=1)
    round_robin: bool = struct.static(default=True)

    @override
    def init(self, key: Array, spec: Spec) -> tuple[()]:
        return ()

    @override
    def pulls(self, state: Any, k: Array) -> Pulls:
        return Pulls(jnp.ones(self.n_arms, bool), jnp.int32(2**30 // self.n_arms), jnp.asarray(False))

    @override
    def collect(self, rounding: Array, own: Array, k: Array, rewards: Any, inside: Any) -> wide.Wide:
        return wide.from_int32(jnp.int32(0))

    @override
    def conclude(self, key: Array, k: Array, state: Any, sums: Any, entered: Any = None) -> tuple[Any, Report]:
        return (), Report()


def uniform(env: Environment) -> Algorithm:
    """Uniform play in an environment."""
    return UniformArms(n_arms=env.spec.n_arms) if callable(getattr(env, "answers", None)) else Uniform()
