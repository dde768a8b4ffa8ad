"""Schedules that test whether an agent has learned enough: `LogDet` leaks raw data, `PrivateLogDet` spends budget."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.bound import Timing
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.samplers import discrete_laplace
from fedbandit_jax.schedules.schedule import Asked, BoundSchedule, Schedule, Setting, Since

TRIGGERS = ("zc24", "dp20", "he22")
THRESHOLDS = ("M log T", "M^1.5")
UNITS = 64  # sensitivity of the integer sum of a private test
LEAST = 1e-5  # smallest epsilon of a private test, by the range of the int32 sampler
LONGEST = 2**23  # most rounds in an epoch of private tests: sums stay within 2^29
TIE = 2.0**-20  # relative error of a tie of g_i with D in float32


@struct.pytree
class BoundLogDet(BoundSchedule):
    """A bound `LogDet`: every agent compares its own g_i, without noise, with D / Dt, or with D.

    g_i must reach D / Dt (Dubey & Pentland 2020 print ">="), or exceed D (He et al. 2022 print ">"). With V = I and a
    unit vector x, an agent's first round ties with D = ln 2. Rounding must not decide such ties.
    """

    sentence = "adaptive: reads raw statistics, and shows who asked when"
    reads = "log_det"

    threshold: struct.Number  # D
    patient: bool = struct.static(default=True)  # whether D is divided by Dt

    @override
    def requests(self, key: Key[Array, ""], t: Int[Array, ""], memory: Any, gained: Any, since: Since) -> Asked:
        if self.patient:
            return gained >= self.threshold / since * (1 - TIE)
        return gained > self.threshold * (1 + TIE)


@dataclasses.dataclass(frozen=True)
class _LogDet(Schedule):
    threshold: float | str = "M log T"
    trigger: str = "zc24"
    max_syncs: int | None = None

    def __post_init__(self):
        if isinstance(self.threshold, str):
            if self.threshold not in THRESHOLDS:
                choices = " or ".join(map(repr, THRESHOLDS))
                raise BadValue("threshold", f"must be a number > 0, {choices}", self.threshold)
        else:
            validate.single("threshold", validate.positive("threshold", self.threshold))
        if self.max_syncs is not None:
            object.__setattr__(self, "max_syncs", validate.integer("max_syncs", self.max_syncs, at_least=1))
        validate.one_of("trigger", self.trigger, TRIGGERS)

    @override
    def n_syncs(self, horizon: int) -> int:
        return horizon if self.max_syncs is None else min(self.max_syncs, horizon)

    def bound(self, setting: Setting) -> dict[str, Any]:
        """Returns `patient` and D, given or from Theorem 1 or Remark 1 of Dubey & Pentland (2020) for norms <= 1."""
        m, d, t, low, high, _ = setting
        if self.threshold == "M log T":
            threshold = 2 * t * d / (math.log(high / low + t / (d * low)) + 1)
        else:
            threshold = t * math.log(m * t) / (d * m) if self.threshold == "M^1.5" else float(self.threshold)
        return {"threshold": np.float32(threshold), "patient": self.trigger != "he22"}


@dataclasses.dataclass(frozen=True)
class LogDet(_LogDet):
    """Synchronises when some agent has g_i >= D / Dt, and so leaks: Algorithm 1 of Dubey & Pentland (2020), line 12.

    The letters are those of `fb.schedules`. No noise hides the requests of an agent, so the claim of a run is `none`.

    Args:
        threshold: D > 0, or a name for an intended communication. With "M log T" it is 2 T d / (ln(rho_max/rho_min + T
            / (d rho_min)) + 1) (Theorem 1). With "M^1.5" it is T ln(MT) / (d M) (Remark 1).
        trigger: what is compared. With "zc24" it is g_i, as Zhou & Chowdhury (2024) restate it. With "dp20" it is log
            det (V_i + M (rho_max - rho_min) I) - log det V, as printed in Algorithm 3 of Dubey & Pentland (2020). In
            line 12 of their Algorithm 1 a bracket is misplaced. Without privacy noise both are the same. "he22" asks if
            g_i > D for any Dt, as He et al. (2022) do. If the determinant may grow by the factor 1 + alpha, D = ln(1 +
            alpha).
        max_syncs: most synchronisations in a run, for less noise; default: one per round.
    """

    @override
    def shift(self, setting: Setting) -> float:
        return setting.n_agents * (setting.rho_max - setting.rho_min) if self.trigger == "dp20" else 0.0

    @property
    @override
    def tags(self) -> Tags:
        limited = tagged("max_syncs", self.max_syncs, {"limited synchronisations": self.max_syncs is not None})
        return super().tags | limited | tagged("schedule", self, {"dp20 trigger": self.trigger == "dp20"})

    @override
    def bind(self, setting: Setting) -> BoundLogDet:
        return BoundLogDet(**self.bound(setting))


class Sparse(NamedTuple):
    """Largest term and threshold noise of one epoch's private tests, one AboveThreshold for every agent."""

    cap: Float[Array, ""]  # largest term of a user in this epoch, ln(1 + 1 / lambda_min(V))
    shift: Int[Array, " M"]  # noise on the threshold, in units of cap / UNITS


@struct.sealed
@struct.pytree
class BoundPrivateLogDet(BoundSchedule):
    """A bound `PrivateLogDet`: every silo tests an integer sum over its own users with discrete Laplace noise.

    In an epoch a silo has sums q_1, q_2, ... and public thresholds T_1, T_2, ... It asks in the first round k with q_k
    + nu_k >= T_k + rho. Both rho, drawn once, and every nu_k have scale b = UNITS / epsilon. One user is a term of a
    running sum. Replacing the user of round s leaves q_i unchanged for i < s. It adds one and the same c, |c| <= UNITS,
    to q_i for all i >= s. Then the silo's requests are epsilon-DP.

    Proof. With F(x) = P(nu < x) and p(z) = P(rho = z), the probability that it asks first in round k is

        P = sum_z p(z) prod_{i < k} F(T_i + z - q_i) (1 - F(T_k + z - q_k)).

    Without the last factor it is the probability of no request in the first k - 1 rounds. For k < s nothing changes.
    Otherwise let P' be the same for the neighbour. If c > 0, substitute z + c for z in P'. Then every factor from round
    s on becomes the factor of P. Factors before round s rise, as F(T_i + z + c - q_i) >= F(T_i + z - q_i). Also p(z +
    c) >= e^(-c / b) p(z). If c < 0, keep z. The factors F of P' are no less than the ones of P. The last factor is 1 -
    F(T_k + z - q_k + |c|) >= e^(-|c| / b) (1 - F(T_k + z - q_k)). Either way P' >= e^(-|c| / b) P >= e^(-epsilon) P.

    So a move up costs rho alone and a move down nu_k alone. If queries move in one direction, but not all by the same
    c, they cost both together (Lyu, Su & Li 2017, Theorem 5). If queries move in both directions, they cost the nu_k
    twice.
    """

    sentence = (
        "adaptive: at every silo a sparse vector test of a sum in which one user is one term, whose epsilon is part of "
        "the budget"
    )
    reads = "users"

    threshold: struct.Number  # D
    epsilon: struct.Number  # epsilon of one AboveThreshold, () or (M,)
    n_agents: int = struct.static()  # M
    patient: bool = struct.static(default=True)  # whether D is divided by Dt, as in `BoundLogDet`

    @override
    def start(self, key: Key[Array, ""], floor: Float[Array, ""]) -> Sparse:
        return Sparse(jnp.log1p(MAX_NORM**2 / floor), discrete_laplace(key, self._scale(), (self.n_agents,)))

    def count(self, memory: Sparse, leverage: Float[Array, " M"]) -> Int[Array, " M"]:
        """Returns the summands of users of leverage x' V^-1 x, int32 in [0, UNITS], rounded up.

        The range is enforced. So the sensitivity UNITS of the test holds for all users and any rounding.
        """
        share = jnp.log1p(leverage) / memory.cap
        return jnp.clip(jnp.ceil(UNITS * jnp.nan_to_num(share, nan=1.0)), 0, UNITS).astype(jnp.int32)

    def requests(self, key: Key[Array, ""], t: Int[Array, ""], memory: Sparse, gained: Any, since: Since) -> Asked:
        """Returns the silos with sum + noise of at least D / Dt + noise of the threshold; all are integers.

        All silos ask after `LONGEST` rounds. So no sum saturates. The same user would move a saturated sum less.
        """
        level = self.threshold / since if self.patient else jnp.asarray(self.threshold)
        threshold = jnp.ceil(jnp.minimum(UNITS * level / memory.cap, 2.0**29)).astype(jnp.int32)
        above = gained + discrete_laplace(key, self._scale(), (self.n_agents,)) >= threshold + memory.shift
        return above | (since >= LONGEST)

    @override
    def timing(self) -> Timing:
        spent = np.asarray(self.epsilon, float)
        spent = np.where(spent >= LEAST * (1 - 1e-6), spent, math.inf)  # the sampler's range ends there
        return Timing(self.sentence, pure=spent, fixed=False, n_agents=self.n_agents)

    def _scale(self) -> Array:
        epsilon = jnp.broadcast_to(jnp.asarray(self.epsilon, jnp.float32), (self.n_agents,))
        return UNITS / epsilon * (1 + 1e-6)


@dataclasses.dataclass(frozen=True)
class PrivateLogDet(_LogDet):
    """Tests as `LogDet` does, by the sparse vector technique; certified if agents act on released statistics only.

    Ours. In place of g_i it reads an upper bound, the sum of ln(1 + x' V^-1 x) over agent i's users since the last
    synchronisation. All of them have the same V. To first order this is g_i. In this plain sum a user is one term of at
    most ln(1 + 1 / lambda_min(V)). In every epoch each silo runs one AboveThreshold on its sum (Dwork & Roth 2014,
    Section 3.6). Terms are rounded up to multiples of 1/64 of their maximum, so sums and noise are integers.
    `BoundPrivateLogDet` has the proof for these running sums.

    The silo adds this noise, and is trusted by its own users. The server and other silos are not trusted. The privacy
    unit is one user. Under "replace" the user's term becomes another one, and under "zero_out" it becomes 0, as for x =
    0. Nobody else's term depends on it. With r visits there are r such changes one after the other, which cost r
    epsilon.

    Why it is private, if agents act on released statistics only. A user is a term of one silo's sums until the end of
    an epoch. The release that ends it includes the user, with calibrated noise, and every later V follows from
    releases. So the silo's requests depend on the user through one AboveThreshold, which is (share * epsilon)-DP. All
    else depends on the user through the continual release. The two compose (`pure` of `fb.privacy.calibrate`), although
    they interleave (Vadhan & Zhang 2023). The test is charged as randomised response, which is an upper bound. Other
    silos' requests do not depend on the user before the epoch ends. Which silo asks is public.

    Args:
        threshold: D, as in `LogDet`.
        trigger: "zc24" or "he22", as in `LogDet`.
        max_syncs: most synchronisations in a run, for fewer levels of a tree; default: one per round.
        share: part of the budget's epsilon for the tests, in (0, 1). The releases have the rest.

    Raises:
        ValueError: when bound, if share * epsilon is below 1e-5.

    Example:
        >>> PrivateLogDet(share=1.0)
        Traceback (most recent call last):
        fedbandit_jax.BadValue: share must be in (0, 1), so that the shares of tests and releases add up to 1, got 1.0
    """

    share: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        validate.one_of("trigger", self.trigger, [one for one in TRIGGERS if one != "dp20"])
        if not 0 < validate.non_negative("share", self.share) < 1:
            raise BadValue(
                "share", "must be in (0, 1), so that the shares of tests and releases add up to 1", self.share
            )

    @override
    def pure(self, epsilon: float | Float[np.ndarray, " M"]) -> float | Float[np.ndarray, " M"]:
        return self.share * epsilon

    @override
    def bind(self, setting: Setting) -> BoundPrivateLogDet:
        assert setting.epsilon is not None  # the table of `privacy.compatibility` refuses it
        spent = np.min(self.pure(setting.epsilon))
        if spent < LEAST:
            raise BadValue("share * epsilon", f"must be at least {LEAST:g} for integers of 32 bits", spent)
        epsilon = np.nextafter(np.asarray(self.pure(setting.epsilon), np.float32), np.float32(0))
        return BoundPrivateLogDet(epsilon=epsilon, n_agents=setting.n_agents, **self.bound(setting))
