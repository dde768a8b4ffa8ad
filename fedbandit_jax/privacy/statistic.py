"""Per-user statistics, the summands of the sums that leave a silo, within bounds that are enforced where data enter.

A statistic turns a user's features x, ||x|| <= 1, and reward y into a weight w in [0, W] and a response v in [a, b], by
a function of (x, y) and of what was released before; she adds (w x x', x v). What is beyond the bounds is clipped, and
counted; a NaN counts as 0. So how far she moves a sum follows from W and V = max(|a|, |b|) alone, see
`privacy.budget.sensitivity_sq`, whatever the function is. The bounds are read once, when a mechanism is bound.
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
    """A per-user statistic (w x x', x v): base class for one's own, which define `contribution` and two bounds.

    A subclass is a frozen dataclass. The package traces `contribution` for one user, maps the program over users, so
    that what one adds can depend on nobody else in the batch, and clips what it returns to the bounds: that is all that
    the privacy proof needs. Neither method may call the host, nor have batching rules of its own; `jax.debug.print` is
    let through, and prints raw data to who runs the simulation.

    Attributes:
        max_weight: W in (0, 1], the largest weight.
        responses: a <= b in [-1, 1], the least and the largest response.

    Args:
        gram_scale: s in [1e-3, 1 / W], a factor on w x x' before noise is added, and divided by afterwards. Less than 1
            gives x x' more noise and x y less.

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
    weighted = True  # may weights differ from W? of one's own they always may
    clip = True  # are the bounds enforced? of one's own they always are
    centred = True  # does a user of average reward add about nothing to x v?

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
        """A summary of the last release, passed to `contribution` as `seen`; () unless overridden.

        Args:
            gram: noisy sum of w x x' over all users so far; 0 before the first release.
            bias: noisy sum of x v; 0 before the first release.
            std: standard deviation of the noise on the diagonal of `gram`; 0 before the first release.
        """
        return ()

    def contribution(self, x: Float[Array, " d"], y: Float[Array, ""], seen: Any) -> tuple[Any, Any]:
        """The weight and the response of one user, from her features, her reward and the summary by `read`."""
        raise NotImplementedError(f"{type(self).__name__}.contribution")


class Bounds(NamedTuple):
    """The declared bounds of a statistic, as they are enforced and proved."""

    weight: float  # W
    low: float  # a
    high: float  # b
    gram_scale: float  # s
    weighted: bool  # may weights differ from W?
    enforced: bool  # is what is beyond the bounds clipped?

    @classmethod
    def of(cls, rule: Statistic) -> Bounds:
        """The bounds of a statistic; one of the caller's own has weights, and is clipped, whatever it says."""
        own = not struct.is_sealed(rule)
        low, high = map(float, rule.responses)
        numbers = float(rule.max_weight), low, high, float(rule.gram_scale)
        return cls(*numbers, bool(own or rule.weighted), bool(own or rule.clip))

    @property
    def response(self) -> float:
        """V, the largest absolute value of a response."""
        return max(abs(self.low), abs(self.high))


def is_plain(rule: Statistic) -> bool:
    """Whether this is the statistic (x x', x v) as it is, with v in [0, 1]."""
    return type(rule) is Linear and not rule.centred and rule.gram_scale == 1


def statistic_tags(rule: Statistic) -> Tags:
    """What a statistic is, for `privacy.compatibility`, by its bounds."""
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
    """The statistic (x x', x v) of ridge regression, where v is the reward y in units of the range [low, high].

    v = (y - low) / (high - low), or 1/2 less if `centred`, so that policies learn about rewards in these units.

    Args:
        gram_scale: as in `Statistic`, in [1e-3, 1]. Delta_J^2 = 2 + 2 s^2 + 1 / (2 s^2) down
            to s^2 = 1/2, where it is 4, or, if centred, 1/2 + 2 s^2 + 1 / (32 s^2) down to s^2 = 1/8; at s = 1/2 that
            is 9/8.
        centred: whether 1/2 is subtracted, so that one user moves x v by less: Delta_J^2 falls from 4.5 to 81/32, and
            noise of 0.75 times the standard deviation is enough. Policies then learn about v, which must be linear in
            x: the environment's features must have a constant entry c (`fb.Spec.constant`). Its parameter is theta*
            with 1 / (2 c) less in that entry, whose norm `theta_norm` of `UCB` must then bound: on the sphere it is
            sqrt(1/2), so that 1 still does.
        low, high: rewards are clipped to this range, in units of reward. Rewards with heavy tails are truncated so:
            a wider range biases less, and noise is larger in units of reward.
        clip: whether rewards are clipped. If not, rewards that the environment does not promise to be in the range void
            every claim. Clipping biases unbounded rewards: their clipped mean is no longer linear in x, and confidence
            widths are no longer proved.

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
    """The statistic of logistic regression by one Newton step from the last release, for rewards in {0, 1}.

    With z = <x, theta>, clipped to [-limit, limit], at the last released estimate theta, a user adds w = mu'(z) and v =
    y - mu(z) + mu'(z) z, mu being the logistic function: the solution of (sum w x x') theta = sum x v is then Newton's
    step for the log-likelihood, each user's term taken at the estimate of her time. No user is asked twice. W = 1/4,
    and V = mu(L) - mu'(L) L for L = limit, as v is least at y = 0 and z = L, and largest at y = 1 and z = -L.

    theta solves (gram + (1 + 2 sqrt(2 d) std) I) theta = bias, where noise is as good as never larger than the ridge.

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
