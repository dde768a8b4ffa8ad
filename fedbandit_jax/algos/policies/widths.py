"""Confidence widths as functions of the data, and their common parameters."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue

LEAST_RIDGE = 1e-5  # with less, rank-one updates in float32 lose three digits
LEAST_FAILURE = 1e-30  # a union bound divides this further


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exploration:
    """Parameters of confidence widths, for optimistic policies and clustering algorithms.

    Args:
        regularization: lambda of the ridge estimate without noise, >= 1e-5, because estimates are in float32; None: the
            default of the policy.
        failure: failure probability of each bound behind a width, in [1e-30, 1). The widths of `UCB` hold with
            probability 1 - 2.5 failure, for all agents at once. If agents learn inside the batch, they hold so for each
            agent. The widths of `LogDetUCB` hold with 1 - failure for each agent. The widths of `LinUCB` hold with 1 -
            failure for each agent, or for all users at once if users return.
        subgaussian: R, sub-Gaussian constant of the reward noise, 1/2 for rewards in [0, 1]. For Gaussian rewards it
            must be at least the environment's `noise_std`.
        theta_norm: S, bound on ||theta*||.
        exploration_scale: factor on the width (the authors' `crs`: 1 on synthetic data, 0.1 on real data); 0 is greedy.
    """

    regularization: float | None = None
    failure: float = 0.01
    subgaussian: float = 0.5
    theta_norm: float = 1.0
    exploration_scale: float = 1.0

    def __post_init__(self):
        if self.regularization is not None:
            validate.within("regularization", self.regularization, LEAST_RIDGE, validate.LARGEST_FLOAT)
        validate.within("failure", validate.probability("failure", self.failure), LEAST_FAILURE, 1)
        for name in ("subgaussian", "theta_norm", "exploration_scale"):
            validate.single(name, validate.non_negative(name, getattr(self, name)))

    @property
    def least(self) -> float:
        """The lambda without noise."""
        return 1.0 if self.regularization is None else self.regularization


def check_width(*numbers: float) -> None:
    """Checks that a width fits float32, from its numbers before the first round."""
    if not max(numbers) < validate.LARGEST_FLOAT:
        raise BadValue("the confidence width", "must fit float32", max(numbers), got=f"{max(numbers):g} at round 0")


class Width(NamedTuple):
    """Confidence width in a round: beta_t = offset + slope * sqrt(log_term + dim * ln(1 + growth * t)).

    All fields are (). The factor `exploration_scale` is in `offset` and `slope`. For a self-normalised bound of ridge
    rho, growth * t is tau / (d rho). `dim` is d.
    """

    offset: struct.Number
    slope: struct.Number
    log_term: struct.Number
    dim: struct.Number
    growth: struct.Number

    def __call__(self, t: struct.Number) -> Array:
        """Returns the width () before round t = 0, 1, ..., after t rounds of every agent."""
        return self.offset + self.slope * jnp.sqrt(self.log_term + self.dim * jnp.log1p(self.growth * t))


class LogDetWidth(NamedTuple):
    """Confidence width for every agent: beta_i = offset + slope * sqrt(log_term + log det V_i).

    Before the first round log_term >= -log det V_i. The fields are (M,) or ().
    """

    offset: struct.Number
    slope: struct.Number
    log_term: struct.Number
    log_det: struct.Number  # log det V_i

    def __call__(self, t: struct.Number) -> Array:
        """Returns the width of every agent, shaped like the fields; it does not depend on the round."""
        return self.offset + self.slope * jnp.sqrt(jnp.maximum(self.log_term + self.log_det, 0))


class UserWidth(NamedTuple):
    """Confidence width for an estimate from T rounds, Lemma 1 of Liu et al. (2022) times a factor `scale`.

    beta = R sqrt(2 ln(n/failure) + d ln(high/low + T / (d low))) + S sqrt(high) + kappa. Here the noise of rewards is
    R-sub-Gaussian and ||theta*|| <= S. The matrix A added to sum x x' has its eigenvalues in [low, high]. The noise h
    added to sum x y has ||h||_{A^-1} <= kappa.

    DEVIATION liu2022 Lemma 1: the lemma has m L / failure for m clusters on each of L servers. Algorithms do not know
        m. So n / failure replaces it, as there are at most n local clusters.
    """

    scale: struct.Number  # factor on beta; 1 is the theory
    slope: struct.Number  # R, sub-Gaussian constant
    log_term: struct.Number  # 2 ln(n / failure)
    theta_norm: struct.Number  # S, bound on ||theta*||
    dim: struct.Number  # d

    def __call__(self, count: Array, low: Array, high: Array, kappa: Array | float = 0.0) -> Array:
        """Returns the width beta for T = `count` rounds."""
        inside = self.log_term + self.dim * jnp.log(high / low + count / (self.dim * low))
        return self.scale * (self.slope * jnp.sqrt(inside) + self.theta_norm * jnp.sqrt(high) + kappa)
