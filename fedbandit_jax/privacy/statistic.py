"""Per-user statistics, the summands of the sums that leave a silo, within bounds that are enforced where data enter.

A user has features x, ||x|| <= 1, and a reward y. A statistic turns them into a weight w in [0, W] and a response v in
[a, b]. It is a function of (x, y) and of earlier releases. Values beyond the bounds are clipped and counted. A NaN
counts as 0. So the sensitivity follows from W and V = max(|a|, |b|) alone, see `privacy.budget.sensitivity_sq`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float
from typing_extensions import override

from fedbandit_jax.core import lapack, struct, validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.compatibility import Tags, tagged

LEAST_SCALE = 1e-3


@dataclasses.dataclass(frozen=True)
class Statistic:
    """A per-user statistic (w x x', x v): the base class for your own, with `contribution` and two bounds.

    A subclass is a frozen dataclass. The package traces `contribution` for one user and maps the program over users. So
    a contribution cannot depend on other users of the batch. The methods must not call the host or define batching
    rules. `jax.debug.print` is allowed, and prints raw data.

    Attributes:
        max_weight: W in (0, 1], the largest weight.
        responses: a <= b in [-1, 1], the least and the largest response.

    Args:
        gram_scale: s in [1e-3, 1 / W], a factor on w x x' before noise is added, and divided by afterwards. Below 1, x
            x' gets more noise and x y less.

    Example:
        >>> import dataclasses, jax, fedbandit_jax as fb
        >>> @dataclasses.dataclass(frozen=True)
        ... class Recent(fb.privacy.Statistic):
        ...     max_weight, responses = 1.0, (-0.5, 0.5)
        ...     def contribution(self, x, y, seen):
        ...         return jax.numpy.abs(y - 0.5), y - 0.5  # users with an opinion count more
        >>> mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), statistic=Recent())
    """

    max_weight = 1.0
    responses = (-1.0, 1.0)
    weighted = True  # whether weights may differ from W; always true of user-defined ones
    clip = True  # whether the bounds are enforced; always true of user-defined ones
    centred = True  # whether a user of average reward adds about nothing to x v

    gram_scale: float = 1.0

    def __post_init__(self):
        name, responses = type(self).__name__, self.responses
        if not isinstance(responses, (tuple, list)) or len(responses) != 2:
            raise BadType(f"{name}.responses", "must be two numbers a <= b in [-1, 1]", responses)
        low, high = (validate.within(f"{name}.responses", one, -1, 1) for one in responses)
        weight = validate.within(f"{name}.max_weight", validate.positive(f"{name}.max_weight", self.max_weight), 0, 1)
        if not low <= high:
            raise BadValue(f"{name}.responses", "must be bounds a <= b in [-1, 1]", self.responses)
        validate.single("gram_scale", validate.within("gram_scale", self.gram_scale, LEAST_SCALE, 1 / weight))

    def read(self, gram: Float[Array, "d d"], bias: Float[Array, " d"], std: Float[Array, ""]) -> Any:
        """Returns a summary of the last release, passed to `contribution` as `seen`; by default ().

        Args:
            gram: noisy sum of w x x' over all users so far. It is 0 before the first release.
            bias: noisy sum of x v; 0 before the first release.
            std: standard deviation of the noise on the diagonal of `gram`; 0 before the first release.
        """
        return ()

    def contribution(self, x: Float[Array, " d"], y: Float[Array, ""], seen: Any) -> tuple[Any, Any]:
        """Returns the weight and the response of one user, from features, reward and the summary by `read`."""
        raise NotImplementedError(f"{type(self).__name__}.contribution")


class Bounds(NamedTuple):
    """Declared bounds on a statistic, as they are enforced and proved."""

    weight: float  # W
    low: float  # a
    high: float  # b
    gram_scale: float  # s
    weighted: bool  # whether weights may differ from W
    enforced: bool  # whether values beyond the bounds are clipped

    @classmethod
    def of(cls, rule: Statistic) -> Bounds:
        """Returns the bounds of a statistic. A user-defined one always has weights and is clipped."""
        own = not struct.is_sealed(rule)
        low, high = map(float, rule.responses)
        numbers = float(rule.max_weight), low, high, float(rule.gram_scale)
        return cls(*numbers, bool(own or rule.weighted), bool(own or rule.clip))

    @property
    def response(self) -> float:
        """V, the largest absolute value of a response."""
        return max(abs(self.low), abs(self.high))


def is_plain(rule: Statistic) -> bool:
    """Returns whether this is the statistic (x x', x v) as it is, with v in [0, 1]."""
    return type(rule) is Linear and not rule.centred and rule.gram_scale == 1


def statistic_tags(rule: Statistic) -> Tags:
    """Returns the tags of a statistic for `privacy.compatibility`, by its bounds."""
    bounds = Bounds.of(rule)
    said = {
        "other statistic": not is_plain(rule),
        "weighted statistic": bounds.weighted,
        "scaled statistic": bounds.gram_scale != 1,
    }
    centred = isinstance(rule, Linear) and rule.centred
    return tagged("statistic", rule, said) | tagged("centred", True, {"centred statistic": centred})


@struct.sealed
@dataclasses.dataclass(frozen=True)
class Linear(Statistic):
    """The statistic (x x', x v) of ridge regression, with the reward v = (y - low) / (high - low).

    If `centred`, v is 1/2 less. Policies learn about rewards in these units.

    Args:
        gram_scale: as in `Statistic`, in [1e-3, 1]. Delta_J^2 = 2 + 2 s^2 + 1 / (2 s^2) down to s^2 = 1/2, which gives
            4. If centred, Delta_J^2 = 1/2 + 2 s^2 + 1 / (32 s^2) down to s^2 = 1/8. At s = 1/2 that is 9/8.
        centred: whether 1/2 is subtracted, which makes one user move x v by less. Delta_J^2 falls from 4.5 to 81/32,
            and 0.75 times the noise suffices. Policies then learn about v, which must be linear in x. So the
            environment's features must have a constant entry c (`fb.Spec.constant`). Its parameter is theta* with 1 /
            (2 c) less in that entry. `theta_norm` of `UCB` must bound its norm. On the sphere this norm is
            sqrt(1/2), and 1 still suffices.
        low, high: rewards are clipped to this range, in units of reward. It truncates rewards with heavy tails. A wider
            range biases less, and makes noise larger in units of reward.
        clip: whether rewards are clipped. If not, rewards that the environment does not promise to be in the range void
            every claim. Clipping biases unbounded rewards. Their clipped mean is no longer linear in x. Confidence
            widths are not proved for it.

    Raises:
        ValueError, TypeError: if an argument is out of range or of the wrong type.
    """

    weighted = False

    centred: bool = False  # pyright: ignore[reportIncompatibleVariableOverride]
    low: float = 0.0
    high: float = 1.0
    clip: bool = True  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.boolean("centred", self.centred)
        validate.boolean("clip", self.clip)
        super().__post_init__()
        low, high = (validate.within(name, getattr(self, name), -1e30, 1e30) for name in ("low", "high"))
        if not high - low >= 1e-6 * max(1, abs(low), abs(high)):
            raise BadValue(("low", "high"), "must be ends of an interval, low < high", low, got=f"{low:g} and {high:g}")

    @property
    def in_unit(self) -> bool:
        """Whether rewards in [0, 1] need no clipping."""
        return self.low <= 0 and self.high >= 1

    @property
    def responses(self) -> tuple[float, float]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The least and the largest response."""
        return (-0.5, 0.5) if self.centred else (0.0, 1.0)

    @override
    def contribution(self, x: Array, y: Array, seen: Any) -> tuple[Any, Any]:
        v = jnp.nan_to_num(y) if self.clip else y
        if (self.low, self.high) != (0, 1):
            v = (v - self.low) / (self.high - self.low)
        return 1.0, v - 0.5 if self.centred else v


LINEAR = Linear()


@struct.sealed
@dataclasses.dataclass(frozen=True)
class Logistic(Statistic):
    """Logistic regression by one Newton step from the last release, for rewards in {0, 1}.

    Let theta be the last released estimate, and mu the logistic function. With z = <x, theta> clipped to [-limit,
    limit], a user adds w = mu'(z) and v = y - mu(z) + mu'(z) z. The solution of (sum w x x') theta = sum x v is then
    Newton's step for the log-likelihood. Each user's term is at the estimate of their time. No user is asked twice. The
    bounds are W = 1/4 and, for L = limit, V = mu(L) - mu'(L) L. The response v is least at y = 0 and z = L. It is
    largest at y = 1 and z = -L.

    theta solves (gram + (1 + 2 sqrt(2 d) std) I) theta = bias. The noise hardly ever exceeds that ridge.

    Args:
        gram_scale: as in `Statistic`, in [1e-3, 4].
        limit: L > 0, bound on |z|, in units of log odds.

    Raises:
        ValueError, TypeError: if an argument is out of range or of the wrong type.

    Reference: Li, Lu & Zhou (2017) for the estimate; the statistic is ours.
    """

    max_weight = 0.25

    gram_scale: float = 2.0
    limit: float = 1.0

    def __post_init__(self):
        validate.single("limit", validate.positive("limit", self.limit))
        super().__post_init__()

    @property
    def responses(self) -> tuple[float, float]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The least and the largest response."""
        mu = 1 / (1 + math.exp(-self.limit))
        most = min(1.0, mu - mu * (1 - mu) * self.limit)
        return -most, most

    @override
    def read(self, gram: Array, bias: Array, std: Array) -> Array:
        dim = len(bias)
        ridge = 1 + 2 * math.sqrt(2 * dim) * std
        theta = lapack.solve(gram + ridge * jnp.eye(dim), bias)
        return jnp.where(jnp.isfinite(theta).all(), theta, 0)

    @override
    def contribution(self, x: Array, y: Array, seen: Any) -> tuple[Any, Any]:
        z = jnp.clip((x * seen).sum(), -self.limit, self.limit)
        mu = jax.nn.sigmoid(z)
        weight = mu * (1 - mu)
        return weight, y - mu + weight * z
