"""Uniform play, the baseline that learns nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import override

from fedbandit_jax.certificate import BEYOND, Certificate
from fedbandit_jax.core import struct, validate, wide
from fedbandit_jax.interfaces import Algorithm, ArmAlgorithm, Pulls, Recipe, Report, Round, Spec

READS_NOTHING = Certificate(
    claim="certified",
    reason="arms are chosen by coins alone",
    trust="local: nobody is told anything",
    trusted="nobody",
    adjacency="any other data",
    neighbours="any",
    unit="all users",
    whole_user=True,
    epsilon=0.0,
    delta=0.0,
    epsilon_exact=0.0,
    smallest_delta=0.0,
    accountant="no reward and no feature is read",
    releases=0,
    not_covered=("a user's own recommendation, which only that user sees", *BEYOND),
)


@struct.pytree
class Chance(Recipe):
    """Base class of `Uniform` and `UniformArms`: their guarantee."""

    name: str = struct.static(default="uniform play")

    def __post_init__(self):
        validate.text("name", self.name)

    @override
    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        return self

    @override
    def guarantee(self) -> Certificate:
        return READS_NOTHING


@struct.sealed
@struct.pytree
class Uniform(Chance):
    """Plays one of the offered arms at random in every round, in any environment, and sends nothing.

    It is the baseline: with much noise, a private algorithm may have more regret. See also `UniformArms`.

    Args:
        name: label in results.
    """

    batch = 25  # rounds of one step, which changes nothing else
    supports_dropouts = True
    supports_delay = True

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


@struct.sealed
@struct.pytree
class UniformArms(Chance, ArmAlgorithm):
    """Lets one user pull every arm in turn, in environments like `arms`, and sends nothing.

    Args:
        name: label in results.
    """

    n_batches = 1
    round_robin = True

    @override
    def init(self, key: Array, spec: Spec) -> Array:
        return jnp.ones(spec.n_arms, bool)

    @override
    def pulls(self, state: Array, k: Array) -> Pulls:
        return Pulls(state, jnp.int32(2**31 - 1), jnp.asarray(False))  # which the horizon cuts short

    @override
    def collect(self, rounding: Array, own: Array, k: Array, rewards: Any, inside: Any) -> wide.Wide:
        return wide.from_int32(jnp.int32(0))

    @override
    def conclude(self, key: Array, k: Array, state: Any, sums: Any, entered: Any = None) -> tuple[Any, Report]:
        return state, Report()
