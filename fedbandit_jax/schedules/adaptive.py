"""Schedules that ask when some agent has learned enough: `LogDet` leaks, `PrivateLogDet` pays."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import struct, validate
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.channel import Timing
from fedbandit_jax.privacy.noise import discrete_laplace
from fedbandit_jax.schedules.schedule import BoundSchedule, Schedule, Setting

TRIGGERS = ("zc24", "dp20")
THRESHOLDS = ("M log T", "M^1.5")
UNITS = 64  # of a private test: the most that one user adds
LEAST = 1e-5  # epsilon of a private test


@struct.pytree
class BoundLogDet(BoundSchedule):
    """See `LogDet`."""

    sentence = "adaptive: reads raw statistics, and shows who asked when"
    reads = "log_det"

    threshold: struct.Number

    def requests(self, key: Array, t: Array, memory: Any, gained: Array, since: Array) -> Array:
        """g_i >= D / Dt."""
        del key, t, memory
        return gained >= self.threshold / since


@dataclasses.dataclass(frozen=True)
class LogDet(Schedule):
    """When some agent has g_i >= D / Dt: Algorithm 1 of Dubey & Pentland (2020), line 12. It leaks.

    Args:
        threshold: D > 0, or what communication it is meant to give: "M log T", D = 2 T d / (ln(rho_max/rho_min + T / (d
            rho_min)) + 1) (Theorem 1), or "M^1.5", D = T ln(MT) / (d M) (Remark 1).
        trigger: "zc24", as Zhou & Chowdhury (2024) restate it; "dp20", as printed: log det (V_i + M (rho_max - rho_min)
            I) - log det V for g_i, the same without privacy noise.
        max_syncs: no more synchronisations than these, so that less noise is needed; default: one per round.

    Raises:
        ValueError, TypeError: naming the argument and its value.
    """

    threshold: float | str = "M log T"
    trigger: str = "zc24"
    max_syncs: int | None = None

    def __post_init__(self):
        _check(self.threshold, self.max_syncs)
        validate.one_of("trigger", self.trigger, TRIGGERS)

    def n_syncs(self, horizon: int) -> int:
        """`max_syncs`, or one in every round."""
        return horizon if self.max_syncs is None else min(self.max_syncs, horizon)

    def shift(self, setting: Setting) -> float:
        """M (rho_max - rho_min) as printed."""
        return setting.n_agents * (setting.rho_max - setting.rho_min) if self.trigger == "dp20" else 0.0

    def bind(self, setting: Setting) -> BoundLogDet:
        """D as a number."""
        return BoundLogDet(threshold=np.float32(_threshold(self.threshold, setting)))


class Sparse(NamedTuple):
    """Of an epoch: one AboveThreshold for every agent."""

    cap: Array  # most that one user adds, ln(1 + 1 / lambda_min(V))
    shift: Array  # (M,) int32 noise of the threshold, in units of cap / UNITS


@struct.sealed
@struct.pytree
class BoundPrivateLogDet(BoundSchedule):
    """See `PrivateLogDet`."""

    sentence = "adaptive: a sparse vector test at every silo, whose epsilon is part of the budget"
    reads = "users"

    threshold: struct.Number
    epsilon: struct.Number  # of one AboveThreshold, () or (M,)
    n_agents: int = struct.static()

    def start(self, key: Array, floor: Array) -> Sparse:
        """Fresh noise on the thresholds."""
        threshold, _ = self._scales()
        return Sparse(jnp.log1p(MAX_NORM**2 / floor), discrete_laplace(key, threshold, (self.n_agents,)))

    def count(self, memory: Sparse, leverage: Array) -> Array:
        """What users of x' V^-1 x = leverage (M,) add, int32 in [0, UNITS]: no more, whatever they and float32 do."""
        share = jnp.log1p(leverage) / memory.cap
        return jnp.clip(jnp.ceil(UNITS * jnp.nan_to_num(share, nan=1.0)), 0, UNITS).astype(jnp.int32)

    def requests(self, key: Array, t: Array, memory: Sparse, gained: Array, since: Array) -> Array:
        """Their sum + noise >= D / Dt + noise, all integers."""
        del t
        _, answers = self._scales()
        threshold = jnp.ceil(jnp.minimum(UNITS * self.threshold / since / memory.cap, 2.0**29)).astype(jnp.int32)
        return gained + discrete_laplace(key, answers, (self.n_agents,)) >= threshold + memory.shift

    def timing(self) -> Timing:
        """Its epsilon is that of the noise it draws."""
        spent = np.asarray(self.epsilon, float)
        spent = np.where(spent >= LEAST * (1 - 1e-6), spent, math.inf)  # the sampler is for no less
        return Timing(self.sentence, pure=spent, fixed=False, n_agents=self.n_agents)

    def _scales(self) -> tuple[Array, Array]:
        """Of both discrete Laplace noises, sensitivity / epsilon_1 and 2 sensitivity / epsilon_2, least variance."""
        share = 1 / (1 + 2.0 ** (2 / 3))
        epsilon = jnp.broadcast_to(jnp.asarray(self.epsilon, jnp.float32), (self.n_agents,))
        return UNITS / (share * epsilon) * (1 + 1e-6), 2 * UNITS / ((1 - share) * epsilon) * (1 + 1e-6)


@dataclasses.dataclass(frozen=True)
class PrivateLogDet(Schedule):
    """`LogDet` by the sparse vector technique. Ours; certified where agents act on released statistics only.

    In place of g_i it reads its upper bound sum ln(1 + x' V^-1 x) over agent i's users since the last synchronisation,
    V being the same for all of them: to first order the same, and a plain sum, of which one user is one term of at most
    ln(1 + 1 / lambda_min(V)). In every epoch each silo runs one AboveThreshold on it (Dwork & Roth 2014, Section 3.6,
    noise of Lyu, Su & Li 2017): noise on its threshold, fresh noise in every round, stop at the first that is above.
    Terms are rounded up to 64ths of the most that one may be, and added to discrete Laplace noise: all are integers.

    Why it is private, if agents act on released statistics only. A user is a term of the sums of one silo, from her
    round to the end of her epoch; the release that ends it takes her into the statistics, whose noise is calibrated for
    her, and V is one of those. So all that her silo asks depends on her through one AboveThreshold, share *
    epsilon-DP, and all else through the continual release. The two compose (`pure` of `fb.privacy.calibrate`). What
    other silos ask does not depend on her before the epoch ends. Which silo asks is public.

    Args:
        threshold: D, as in `LogDet`.
        share: of the budget's epsilon that the tests spend, in (0, 1); the releases have the rest.
        max_syncs: no more synchronisations than these, so that the tree has fewer levels; default: one per round.

    Raises:
        ValueError, TypeError: naming the argument and its value.

    >>> PrivateLogDet(share=1.0)
    Traceback (most recent call last):
    ValueError: share must be in (0, 1), so that the shares of tests and releases add up to 1, got 1.0
    """

    threshold: float | str = "M log T"
    share: float = 0.1
    max_syncs: int | None = None

    def __post_init__(self):
        _check(self.threshold, self.max_syncs)
        if not 0 < validate.non_negative("share", self.share) < 1:
            raise ValueError(
                f"share must be in (0, 1), so that the shares of tests and releases add up to 1, got {self.share}"
            )

    def n_syncs(self, horizon: int) -> int:
        """`max_syncs`; no further synchronisation is asked for."""
        return horizon if self.max_syncs is None else min(self.max_syncs, horizon)

    def pure(self, epsilon: Any) -> Any:
        """share * epsilon."""
        return self.share * epsilon

    def bind(self, setting: Setting) -> BoundPrivateLogDet:
        """D and the epsilon of the tests as numbers."""
        if setting.epsilon is None:
            raise ValueError("PrivateLogDet spends a share of a budget, and there is none: use fb.schedules.LogDet")
        spent = np.min(self.pure(setting.epsilon))
        if spent < LEAST:
            raise ValueError(f"share * epsilon must be at least {LEAST:g} for integers of 32 bits, got {spent:g}")
        return BoundPrivateLogDet(
            threshold=np.float32(_threshold(self.threshold, setting)),
            epsilon=np.nextafter(np.asarray(self.pure(setting.epsilon), np.float32), np.float32(0)),
            n_agents=setting.n_agents,
        )


def _check(threshold: float | str, max_syncs: int | None) -> None:
    if isinstance(threshold, str):
        if threshold not in THRESHOLDS:
            choices = " or ".join(map(repr, THRESHOLDS))
            raise ValueError(f"threshold must be a number > 0, {choices}, got {threshold!r}")
    else:
        validate.positive("threshold", threshold)
    if max_syncs is not None:
        validate.integer("max_syncs", max_syncs, at_least=1)


def _threshold(threshold: float | str, setting: Setting) -> float:
    """D of Theorem 1 and Remark 1 of Dubey & Pentland (2020), L = 1."""
    m, d, t, low, high, _ = setting
    if threshold == "M log T":
        return 2 * t * d / (math.log(high / low + t / (d * low)) + 1)
    if threshold == "M^1.5":
        return t * math.log(m * t) / (d * m)
    return float(threshold)
