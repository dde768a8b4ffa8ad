"""Best arm with fixed confidence: the leader against its nearest challenger, by noisy sums in growing phases.

Proof that a wrong arm is recommended with probability at most delta. It holds for each law of the noise.

*One arm.* After some phases the arm has N users and the noisy sum S. An encoded reward x in [0, 1] has mean mu, so E
e^(r x) <= 1 + mu (e^r - 1). Let psi(r) be the sum over phases of log E e^(r noise). For a rate r > 0 and q >= mu,

    exp(r S - N log(1 + q (e^r - 1)) - psi(r))

is a supermartingale over phases, from 1 on. So is e(q), its mean over fixed rates. With 1 - x for x, N - S for S and 1
- q for q there is such an e'(q) for each q <= mu.

*Two arms.* Let a be worse than b, or as good, and q between their means. A batch is about one arm, which earlier
releases decide. So e_a(q) e'_b(q) is a supermartingale. By Ville's inequality it ever reaches c with probability at
most 1 / c. Hence so does its minimum over q.

*All arms.* The rule recommends a only if this minimum is (K - 1) / delta or more for each other arm b. One b is a best
arm, and at most K - 1 arms a are wrong.

In q the logarithm of e_a(q) e'_b(q) is convex, because -log of an affine function is. Bisection of its slope finds the
minimum.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jaxtyping import Real
from scipy import optimize
from typing_extensions import override

from fedbandit_jax.algos.arms.adac_ucb import AdaCState
from fedbandit_jax.algos.arms.loop import ALL
from fedbandit_jax.algos.arms.phased import BoundMoments, InPhases, checked_means, divergence
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Pulls, Spec

ROUNDING = 2.0**-20  # bound on the float32 rounding of the logarithm of e(q), in units of N r


@struct.sealed
@struct.pytree
class BoundTopTwo(BoundMoments):
    """A bound `TopTwo`."""

    threshold: struct.Number  # log((K - 1) / delta)

    def evidence(self, total: Array, n: Array, asked: Array, q: Array) -> Array:
        """Returns log e(q) (K,), from sums `total` of n users in `asked` phases."""
        rates = jnp.asarray(self.rates)
        spent = n[:, None] * (jnp.log1p(q[:, None] * jnp.expm1(rates)) + ROUNDING * rates)
        return logsumexp(total[:, None] * rates - spent - jnp.asarray(self.cumulants)[asked], axis=1, b=1 / len(rates))

    def compared(self, state: AdaCState) -> tuple[Array, Array]:
        """Returns the leader, and the logarithm (K,) of the evidence that it is better than each other arm."""
        n, arms = state.users(self.users).astype(jnp.float32), jnp.arange(len(state.sums))
        mean = jnp.where(n > 0, state.sums / jnp.maximum(n, 1), -jnp.inf)
        leader = state.best(mean)
        total, of_leader, asked = (jnp.broadcast_to(x[leader], n.shape) for x in (state.sums, n, state.asked))

        def both(q: Array) -> Array:
            return self.evidence(total, of_leader, asked, q) + self.evidence(n - state.sums, n, state.asked, 1 - q)

        slope = jax.grad(lambda q: both(q).sum())

        def halve(_, ends):
            low, high = ends
            middle = (low + high) / 2
            falls = slope(middle) < 0
            return jnp.where(falls, middle, low), jnp.where(falls, high, middle)

        low, high = jax.lax.fori_loop(0, 20, halve, (jnp.zeros_like(n), jnp.ones_like(n)))
        middle = (low + high) / 2
        least = both(middle) - jnp.abs(slope(middle)) * (high - low) / 2  # no larger than the minimum, by convexity
        return leader, jnp.where(arms == leader, jnp.inf, least)

    @override
    def pulls(self, state: AdaCState, k: Array) -> Pulls:
        """Returns the next phase of the leader or the challenger, of the one with fewer users. No arm is left out."""
        n, arms, users = state.users(self.users), jnp.arange(len(state.sums)), jnp.asarray(self.users)
        leader, evidence = self.compared(state)
        stops = evidence.min() >= self.threshold
        index = jnp.where(n > 0, -evidence - jnp.log(jnp.maximum(n, 1)), jnp.inf)
        challenger = state.best(index)
        arm = jnp.where(stops | (n[leader] <= n[challenger]), leader, challenger)
        row = self._row(state, arm)
        asked = ~stops & self.protocol.admits(row, users[row])
        return Pulls(arms == arm, jnp.where(stops, ALL, users[row]), asked, row)

    def recommend(self, state: AdaCState) -> tuple[Array, Array]:
        """Returns the leader, and the round at which the rule stopped, -1 if it has not."""
        leader, evidence = self.compared(state)
        return leader, jnp.where(evidence.min() >= self.threshold, state.users(self.users).sum(), -1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopTwo(InPhases):
    """Finds the best arm with fixed confidence, then plays it: a Top Two rule in growing phases, each released once.

    The leader is the arm of the largest noisy mean. The challenger is the arm of the least evidence for the leader plus
    log N, with its users N. Without log N, an arm with bad luck at first might never get users again. Of both, the one
    with fewer users has the next phase. If the evidence suffices against each arm, the rule stops. Everyone after that
    gets the leader, and sends nothing.

    The probability that it stops with a wrong arm is at most `failure`, for any horizon, and for all laws of rewards in
    [0, 1] that do not change over time. Sums of all phases of an arm add up, with the noise as drawn. To see when it
    stopped, record `fb.record.recommended`, and read it by `fb.best_arm`.

    Privacy is as in `OneArm`. When the rule stops, and with which arm, depends on released sums only.

    Args:
        sums, growth, name: as in `InPhases`.
        failure: delta in (0, 0.5], the largest probability of a wrong arm. Sums that wrap around are part of it.

    Raises:
        ValueError: when bound also if sums wrap around too often for `failure`.

    Reference: the rule and its proof are ours. They follow the Top Two rules of Azize, Jourdan, Al Marjani & Basu
    (2023) and Jourdan & Azize (2025). We read only the abstracts.
    """

    failure: float = 0.05
    name: str = "Top Two"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.within("failure", validate.positive("failure", self.failure), 0, 0.5)
        super().__post_init__()

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundTopTwo:
        asked, fields = self.in_phases(spec, horizon)
        protocol, law, n_sums = fields["protocol"], self.sums.law, spec.n_arms * fields["times"]
        wraps = law.parameters(asked, int(fields["users"][0])).wrapping if law else 0.0
        wrong = n_sums * (1.01 * wraps + float(protocol.noise.bits_failure) + protocol.missing)
        if wrong >= self.failure:
            must = f"must be larger than {wrong:.2g}, which sums that wrap around take: lower the failure of sums"
            raise BadValue("failure", must, self.failure)
        return BoundTopTwo(threshold=math.log((spec.n_arms - 1) / (self.failure - wrong)), **fields)


def characteristic_time(means: Real[np.ndarray, " K"] | Sequence[float], epsilon: float) -> float:
    """Returns the least number of users per log(1 / delta) that finds the best of Bernoulli arms, as delta falls to 0.

    With shares w of users and the best arm *, it is the inverse of

        max over w, min over arms a, min over q in [mean_a, mean_*] of w_* d(mean_*, q) + w_a d(mean_a, q).

    Here d(p, q) is the least epsilon |z - p| + kl(z, q) over z. Take any epsilon-DP algorithm of a trusted server that
    errs with probability at most delta. In the limit it needs this number in expectation, or more.

    Args:
        means: means of K >= 2 arms in [1e-6, 1 - 1e-6], with one best arm.
        epsilon: parameter >= 1e-9 of pure DP; infinite without privacy (Garivier & Kaufmann 2016).

    Example:
        >>> [round(characteristic_time([0.5, 0.6], epsilon)) for epsilon in (0.1, 1.0, float("inf"))]
        [266, 198, 198]

    Reference: Jourdan & Azize (2025). We read the abstract, which names this trade-off of kl and total variation.
    """
    values = np.sort(checked_means(means))
    if values[-1] == values[-2]:
        raise BadValue("means", "must have one best arm", means)
    epsilon = validate.within("epsilon", epsilon, 1e-9, math.inf)
    best, costs = values[-1], []
    for mean in values[:-1]:
        q = np.linspace(mean, best, 4001)
        costs.append((divergence(1 - best, 1 - q, epsilon), divergence(mean, q, epsilon)))

    highest = min(of_best[0] for of_best, _ in costs)

    def time(part: float) -> float:
        """Returns T if each arm a has the share of users at which its minimum is `part` of `highest` times w_*."""
        level = part * highest
        shares = (np.max((level - of_best[1:]) / of_arm[1:]) for of_best, of_arm in costs)
        return (1 + sum(shares)) / level

    found: Any = optimize.minimize_scalar(time, bounds=(0, 1), method="bounded", options=dict(xatol=1e-9))
    return float(found.fun)
