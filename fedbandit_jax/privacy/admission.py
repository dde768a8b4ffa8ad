"""Admission of statistics to sums: each user's summand is bounded, for any environment and any part."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from fedbandit_jax.core import struct
from fedbandit_jax.core.programs import call, in_words, numeric, side_effect
from fedbandit_jax.core.validate import BadArgument, BadType, BadValue
from fedbandit_jax.privacy.budget import MAX_NORM, sensitivity_sq
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.packing import pack, unpack
from fedbandit_jax.privacy.statistic import LINEAR, Bounds, Linear, Statistic
from fedbandit_jax.privacy.sums import step_of

TOLERANCE = 1e-4  # unreported excess of a norm over 1, the float32 error of 100 squares


class Admitted(NamedTuple):
    """The admitted features and responses of the users of M silos."""

    x: Float[Array, "d M"]  # features, zero where they were not finite
    v: Float[Array, " M"] | Float[Array, "2 M"]  # responses; weights and responses, if weights differ
    outside: Bool[Array, " M"]  # whether features or rewards broke the environment's promise
    clipped: Bool[Array, " M"]  # whether the weight or response was beyond its bounds


@struct.sealed
@dataclasses.dataclass(frozen=True)  # a NamedTuple would equal another class's, and share its compiled program
class BoundStatistic:
    """Statistic of an environment's users: its promises, and the bounds enforced where data enter.

    It is hashable, because it is part of the compiled program.
    """

    dim: int  # d
    unit_rewards: bool = True  # does the environment promise rewards in [0, 1]?
    fixed_contexts: bool = False  # are the features of every silo fixed and public?
    n_users: int = 0  # number of returning users, who are told apart; 0 if every user is new
    silos: int = 1  # the most silos that one of them comes to
    constant: bool = False  # have all feature vectors the same constant entry?
    rule: Statistic = struct.part(default=LINEAR)  # noqa: RUF009 - a field
    late: bool = False  # do rewards come late?
    drops: bool = False  # may silos miss synchronisations?
    bounds: Bounds = dataclasses.field(init=False)  # of the rule, read once

    def __post_init__(self):
        object.__setattr__(self, "bounds", Bounds.of(self.rule))

    @classmethod
    def of(cls, spec: Any) -> BoundStatistic:
        """Returns the statistic (x x', x y) of the users of an environment with this `fb.Spec`."""
        return cls(
            dim=spec.dim,
            unit_rewards=spec.rewards_in_unit,
            fixed_contexts=spec.fixed_contexts,
            n_users=spec.n_users,
            silos=spec.silos,
            late=spec.late > 0,
            drops=spec.drops,
            constant=spec.constant,
        )

    @property
    def tags(self) -> Tags:
        """Returns the tags of these users for `privacy.compatibility`."""
        return (
            tagged("n_users", self.n_users, {"users who return": self.n_users})
            | tagged("constant", self.constant, {"no constant feature": not self.constant})
            | tagged("late", self.late, {"late rewards": self.late})
            | tagged("drops", self.drops, {"silos that drop out": self.drops})
        )

    @property
    def bounded(self) -> bool:
        """Whether one user moves a sum by at most the sensitivity, because contributions have bounds."""
        return self.bounds.enforced or (isinstance(self.rule, Linear) and self.unit_rewards and self.rule.in_unit)

    def objection(self) -> BadArgument | None:
        """Returns the error by which any proof for this statistic is refused, or None."""
        own, one = not struct.is_sealed(self.rule), self.bounds
        if own and (found := self.leak()):
            return found
        if not (one.weighted and one.enforced if own else one == Bounds.of(self.rule)):
            return BadValue("bounds", f"must be the bounds of {self.rule!r}", one)
        weight, response, scale = one.weight, one.response, one.gram_scale
        if not (0 < weight <= 1 and 0 <= response <= 1):
            return BadValue("bounds", "of a statistic must be in [0, 1]", one, got=f"W = {weight} and V = {response}")
        if not 0 < scale <= 1 / weight:
            return BadValue("gram_scale", f"must be in (0, {1 / weight:g}]", scale)
        return None

    def leak(self) -> BadType | None:
        """Returns the error for a user-defined rule that lacks a method, returns no numbers or has a side effect."""
        rule, name = self.rule, type(self.rule).__name__
        if type(rule).contribution is Statistic.contribution:
            must, got = "must have the method contribution, see fb.privacy.Statistic", f"{name} without it"
            return BadType("statistic", must, rule, got=got)
        gram, bias, number = jnp.zeros((self.dim, self.dim)), jnp.zeros(self.dim), jnp.float32(0)
        seen = jax.eval_shape(numeric(f"{name}.read", rule.read), gram, bias, number)
        seen = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), seen)
        for method, given in (("read", (gram, bias, number)), ("contribution", (bias, number, seen))):
            if found := side_effect(numeric(f"{name}.{method}", getattr(rule, method)), *given, alone=True):
                return BadType(f"{name}.{method}", "must be a pure function of its arguments", found, got=found)
        both = jax.eval_shape(rule.contribution, bias, number, seen)
        real = isinstance(both, tuple) and all(one is not None and jnp.result_type(one).kind in "fiub" for one in both)
        if not (real and [np.shape(one) for one in both] == [(), ()]):
            must, words = "must return two numbers, a weight and a response", in_words(both)
            return BadType(f"{name}.contribution", must, words, got=str(words))
        return None

    def sensitivity_sq(self, adjacency: str) -> float:
        """Returns the squared sensitivity of the packed form to one user, see `budget.sensitivity_sq`."""
        one = self.bounds
        return sensitivity_sq(adjacency, one.gram_scale * one.weight, one.response, one.weighted)

    def rounding(self, users: int) -> float:
        """Returns the excess of one visit's move of a packed sum over the exact row, if `users` are added up in steps.

        Products are float32, rounded to the nearest step. An entry moves by at most one step and 2^-24 more. With a
        weight it is 2^-23, because a product is rounded once more.
        """
        if not self.bounded:
            return 0.0
        square, product = max(1.0, self.bounds.gram_scale) ** 2, 2.0 ** (-23 if self.bounds.weighted else -24)
        return (step_of(users) + product) * math.sqrt(self.dim * (square * self.dim + 1))

    def admit(self, x: Float[Array, "d M"], y: Float[Array, " M"], seen: Any = ()) -> Admitted:
        """Scales features to norm <= 1, and bounds each user's summand.

        Args:
            x: features, one column per silo's user.
            y: rewards, in units of reward.
            seen: `read`'s summary of the last release.
        """
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)  # sums of shorter floats move by more than one user
        square = (x * x).sum(0)
        finite = jnp.isfinite(square)
        x = jnp.where(finite, x * jnp.where(square > MAX_NORM**2, 1 / jnp.sqrt(square), 1), 0)
        outside = ~(square <= (1 + TOLERANCE) ** 2)
        contributions = jax.vmap(lambda *given: call(self.rule, "contribution", *given), (1, 0, None), -1)
        w, v = (jnp.broadcast_to(jnp.asarray(one, jnp.float32), y.shape) for one in contributions(x, y, seen))
        if not self.bounded:
            return Admitted(x, v, outside, jnp.zeros(y.shape, bool))
        if self.unit_rewards:
            outside |= ~((y >= 0) & (y <= 1))
        low, high = np.float32(self.bounds.low), np.float32(self.bounds.high)
        clipped = ~((v >= low) & (v <= high))
        v = jnp.clip(jnp.nan_to_num(v), low, high)
        if self.bounds.weighted:
            most = np.float32(self.bounds.weight)
            clipped |= ~((w >= 0) & (w <= most))
            w = jnp.clip(jnp.nan_to_num(w), 0, most)
            v = jnp.stack([w, v])
        return Admitted(x, v, outside, clipped)

    def pack(self, statistics: Float[Array, "*n d d+1"]) -> Float[Array, "*n D"]:
        """Packs statistics [W | U] into vectors."""
        return pack(self._scaled(statistics, self.bounds.gram_scale))

    def unpack(self, vector: Float[Array, "*n D"]) -> Float[Array, "*n d d+1"]:
        """Unpacks vectors into statistics [W | U]; the inverse of `pack`."""
        return self._scaled(unpack(vector, self.dim), 1 / self.bounds.gram_scale)

    def _scaled(self, statistics: Array, scale: float) -> Array:
        if scale == 1:
            return statistics
        return statistics * np.append(np.full(self.dim, np.float32(scale)), np.float32(1))
