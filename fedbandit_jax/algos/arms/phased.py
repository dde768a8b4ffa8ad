"""KL-UCB and IMED in growing phases, by noisy sums that are never forgotten, and the least regret under privacy.

After DP-KLUCB and DP-IMED of Azize, Wu, Honda, Orabona, Ito & Basu (2025), "Optimal regret of bandits under
differential privacy". We read their abstract, and derived phases, evidence and proof ourselves.

*Evidence.* After j phases an arm has N users and the noisy sum S. An encoded reward x in [0, 1] has mean mu, so E e^(r
(1 - x)) <= 1 + (1 - mu) (e^r - 1). Let psi(r) be the sum over phases of log E e^(r noise). For any law of the noise,

    w(q) = max over rates r > 0 of r (N - S) - N log(1 + (1 - q) (e^r - 1)) - psi(r)

is the evidence that the mean is below q. It rises with q, and falls with S. So w(mu) >= c is one event S <= s, of one
rate. By Markov's inequality its probability is at most e^-c. The largest q with w(q) <= log t is the bound of KL-UCB.
For fixed j and t, it is below mu with probability at most 1 / t.

*The least regret.* Let d(p, q) be the least epsilon |z - p| + kl(z, q) over z. It is the maximum over r <= epsilon of r
(1 - p) - log(1 + (1 - q) (e^r - 1)), by duality. For Laplace noise of scale 1 / epsilon, w(q) / N and d(S / N, q) meet
if N grows faster than j. As T grows, worse arms have N of order log T, and phases of order log log T.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Real
from typing_extensions import override

from fedbandit_jax.algos.arms.adac_ucb import AdaCState, BoundAdaC, OneArm
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy.accounting.lattice import DiscreteLaplace
from fedbandit_jax.privacy.integers.noise import Asked
from fedbandit_jax.privacy.integers.ring import RingSum

LEAST = 1e-6
TOP = 1 - LEAST  # largest mean
FIRST = 4  # users of an arm's first phase, in units of 1 / epsilon
N_RATES = 32  # G
LARGEST = 8.0  # largest rate without noise
NEAR = 32  # the largest rate is NEAR / (NEAR + 1) of the rate at which the noise has no moment


def divergence(p: Any, q: Any, epsilon: float) -> Any:
    """Returns d(p, q) = min over z of epsilon |z - p| + kl(z, q), for Bernoulli means p <= q; 0 if p > q.

    The minimum is at max(p, q e^-epsilon / (1 - q + q e^-epsilon)).
    """
    q = np.clip(q, LEAST, TOP)
    far = np.exp(-epsilon)
    z = np.clip(p, q * far / (1 - q + q * far), q)
    moved = np.where(z > p, z - p, 0) * np.minimum(epsilon, 1e9)
    inside = z * np.log(np.maximum(z, 1e-30) / q) + (1 - z) * np.log((1 - z) / (1 - q))
    return np.where(p < q, moved + inside, 0)


@struct.sealed
@struct.pytree
class BoundMoments(BoundAdaC):
    """One arm at a time, by all its sums and the moments of their noise. A row of `users` is a phase of an arm.

    Radii are not used.
    """

    forgets = False

    rates: Any  # (G,) float32
    cumulants: Any  # (J + 1, G) float32, psi at the rates, after j = 0, ..., J phases


@struct.sealed
@struct.pytree
class BoundPhased(BoundMoments):
    """A bound `PhasedKLUCB` or `PhasedIMED`."""

    imed: bool = struct.static()  # whether to use the index of IMED

    @override
    def index(self, state: AdaCState) -> Array:
        n, rates, psi = state.users(self.users), jnp.asarray(self.rates), jnp.asarray(self.cumulants)[state.asked]
        users = jnp.maximum(n, 1).astype(jnp.float32)
        mean, log = state.sums / users, jnp.log(users)
        missed = rates * (1 - mean)[:, None]
        if self.imed:
            best = jnp.clip(jnp.where(n > 0, mean, 0).max(), 0, TOP)
            evidence = users[:, None] * (missed - jnp.log1p((1 - best) * jnp.expm1(rates))) - psi
            index = -jnp.maximum(evidence.max(1), 0) - log
        else:  # w(q) <= log t, solved for q
            log = jnp.log(jnp.maximum(n.sum(), 2).astype(jnp.float32))
            bounds = 1 - jnp.expm1(missed - (psi + log) / users[:, None]) / jnp.expm1(rates)
            index = jnp.minimum(bounds.min(1), 1)
        return jnp.where(n > 0, index, jnp.inf)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InPhases(OneArm):
    """Base class of recipes with all sums of an arm, in growing phases, and the moments of their noise.

    Args:
        sums, name: as in `OneArm`, but not `RRSE`, whose noise depends on rewards. `radius` and `growth` are not used.
        growth: factor in (1, 16] between the users of an arm before and after a phase.
    """

    growth: float = 1.5

    def __post_init__(self):
        validate.within("growth", self.growth, 1.001, 16)
        super().__post_init__()

    def in_phases(self, spec: Spec, horizon: int) -> tuple[Asked, dict[str, Any]]:
        """Returns what the noise is made for, and the fields of a `BoundMoments`."""
        first = math.ceil(min(max(FIRST / getattr(self.sums, "epsilon", math.inf), 2), horizon))
        sizes, most = phases(self.growth, horizon, first), len(phases(self.growth, horizon))
        sizes = np.pad(sizes, (0, most - len(sizes)), constant_values=horizon)  # one shape for each epsilon
        asked, fields = self.released(spec, horizon, sizes)
        rates, cumulants = moments(fields["protocol"], most, horizon)
        radius = padded(np.zeros(most, np.float32))
        return asked, fields | dict(radius=radius, rates=rates, cumulants=padded(cumulants))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasedKLUCB(InPhases):
    """Plays the arm of the largest KL upper confidence bound, in growing phases of one arm, each released once.

    The bound counts the noise of all sums of an arm, by its law. After j phases and t users, it is below the mean with
    probability at most 1 / t. (This leaves out sums that wrap around.) It holds for all laws of rewards in [0, 1] that
    do not change over time. Arguments are those of `InPhases`, and privacy is as in `OneArm`.

    Reference: after DP-KLUCB of Azize et al. (2025), which has Laplace noise at a trusted server. Phases and evidence
    are ours.
    """

    imed: ClassVar[bool] = False

    name: str = "Phased KL-UCB"  # pyright: ignore[reportIncompatibleVariableOverride]

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundPhased:
        return BoundPhased(imed=self.imed, **self.in_phases(spec, horizon)[1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasedIMED(PhasedKLUCB):
    """Plays the arm of the least evidence + log N, in growing phases of one arm, each released once.

    The evidence is that the arm's mean is below the largest noisy mean, 0 or more, and N is the number of its users.
    Takes the arguments of `PhasedKLUCB`, with the same privacy. After DP-IMED of Azize et al. (2025).
    """

    imed = True

    name: str = "Phased IMED"


def phases(growth: float, horizon: int, first: int = 2) -> np.ndarray:
    """Returns the users of an arm's phases, as int64: totals grow by the factor `growth`, at least by 2, to T or T - 1.

    A phase has two users or more, as a shuffler needs. The first has `first` >= 2 users.
    """
    totals = [0, first]
    while totals[-1] < horizon - 1:
        totals.append(min(max(math.ceil(growth * totals[-1]), totals[-1] + 2), horizon))
    return np.diff(totals)


def moments(protocol: RingSum, n_phases: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns rates (G,), and psi at the rates after 0, ..., J phases (J + 1, G), on the host.

    Rates end below the epsilon of pure noise, whose tails are exponential. They begin at 1 / sd of T rewards and noise.
    """
    noise, users, steps = protocol.noise, np.asarray(protocol.users), np.asarray(protocol.steps, float)
    asked = [k for k in range(n_phases) if users[k] and noise.width(k)]
    laws = {k: noise.law(k, int(users[k])) for k in asked}
    tails = [steps[k] / law.scale for k, law in laws.items() if isinstance(law, DiscreteLaplace)]
    end, variance = min(tails, default=math.inf), horizon + sum(law.variance / steps[k] ** 2 for k, law in laws.items())
    free = np.geomspace(variance**-0.5, min(LARGEST, NEAR * end), N_RATES)
    rates = (free / (1 + free / end)).astype(np.float32)
    psi = np.zeros((n_phases + 1, N_RATES))
    for k, law in laws.items():
        psi[k + 1] = law.cumulant(rates / steps[k]) + noise.distortion(k, int(users[k]))
    return rates, np.cumsum(psi, 0).astype(np.float32)


def checked_means(means: Any) -> np.ndarray:
    """Checks the means of Bernoulli arms: two or more, each in [1e-6, 1 - 1e-6]."""
    found = validate.finite_array("means", means, ndim=1).astype(float)
    for mean in found:
        validate.within("means", mean, LEAST, TOP)
    if len(found) < 2:
        raise BadValue("means", "must have at least two arms", len(found))
    return found


def regret_lower_bound(means: Real[np.ndarray, " K"] | Sequence[float], epsilon: float, horizon: int) -> float:
    """Returns the sum over arms of gap log T / d(mean, best mean): the least regret of Bernoulli arms, for large T.

    Take any algorithm of a trusted server with regret below every power of T, for all means. Let it be epsilon-DP if
    one user's reward is replaced. In the limit, as log T grows, its regret is this or more. At a finite T regret may be
    smaller.

    Args:
        means: means of K >= 2 arms in [1e-6, 1 - 1e-6].
        epsilon: parameter >= 1e-9 of pure DP; infinite without privacy (Lai & Robbins 1985).
        horizon: T >= 2.

    Example:
        >>> means = [0.5, 0.6]
        >>> [round(regret_lower_bound(means, epsilon, 10**6)) for epsilon in (0.1, 1.0, float("inf"))]
        [157, 68, 68]

    Reference: Azize et al. (2025), of the lower bound for Bernoulli arms.
    """
    found, epsilon = checked_means(means), validate.within("epsilon", epsilon, 1e-9, math.inf)
    validate.integer("horizon", horizon, at_least=2)
    worse = found[found < found.max()]
    return float(np.sum((found.max() - worse) / divergence(worse, found.max(), epsilon))) * math.log(horizon)
