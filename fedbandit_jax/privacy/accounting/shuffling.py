"""Privacy by a trusted shuffler: amplification for trees of Gaussian messages, and secure aggregation of bits.

*Amplification* (Zhou & Chowdhury 2024, Lemma F.2). Each of M silos sums the n points (users' statistics) of a tree
node. It adds Gaussian noise. It sends the result through a trusted shuffler. One point moves a node by mu =
sensitivity / sigma, in units of the noise. A Gaussian mechanism with that ratio has the exact epsilon(mu; delta0) at
delta0. Let eps0 = epsilon(mu; delta0) be for one point and e_n = epsilon(n mu; delta0) for all n. If e_n <= ln(M / (16
ln(2/d'))), the shuffled node is (eps_r, delta_r)-DP with

    eps_r = ln(1 + tanh(eps0/2) (8 sqrt(e^e_n ln(4/d') / M) + 8 e^e_n / M)),
    delta_r = tanh(eps0/2) d' + 3/2 M (e^eps_r + 1) delta0,

and the kappa nodes of one user compose. Three parts get a third of delta each: the terms in d' (at most 1), the terms
in delta0, and the slack of advanced composition. Under the condition, e^eps_r <= 4.55. So d' = delta / (3 kappa
tanh(eps0/2)) and delta0 = delta / (25 kappa M).

# DEVIATION zhou2024 Lemma F.2: We use e_n in place of the lemma's n eps0, which is smaller. At the same delta0, n
points cost a Gaussian mechanism more than n times the cost of one point. The proof needs the former. The factor 3/2 is
an upper bound of 1 + e^(-n eps0) / 2 in the proof.

*Relaxed secure aggregation* (Cheu & Yan 2021; Chowdhury & Zhou 2023, Appendix C.2). Each of n users holds an integer y
modulo m and sends D bits, D + 1 = m (2c + 1). The number of ones among them is

    r = y + m Z with probability 1 - omega, or else uniform on {0..D}.

Z on {0..2c} has a pmf t(z) proportional to e^(-|z - c| / s), with maximum t_max.

The trusted shuffler shows R, the number of all ones. If nobody sent a uniform number of ones, R mod m is the sum of the
y modulo m. This has probability (1 - omega)^n >= 1 - n omega. We set omega = failure / n.

Any two inputs with the same modular sum are at most n - 1 steps apart. Each step replaces the (y, y') of two users by
(z, z') with y + y' = z + z' mod m. With eta = 1 / s, a step changes the law of r + r' by at most a factor e^eta if t(0)
is small enough:

* if neither r nor r' is uniform, Z + Z' moves by at most one, and P(k) <= e^eta P(k +- 1) + t_max t(0);
* if one of them is, the window r - D <= y + m Z <= r moves by at most one value of Z, and P <= e^eta P' + t(0);
* if both are, the law is the same, and at least (omega / (D + 1))^2 everywhere.

The third case pays for the t(0) of the first two, because 1 + eta / 2 + eta / 2 <= e^eta, once

    t(0) = t_max e^(-c / s) <= eta omega^2 / (2 t_max (D + 1)^2) <= eta omega / (4 (D + 1)).

The last step holds as t_max (2c + 1) >= 1 and m >= 2. So eta = epsilon / (n - 1) suffices. If the sum modulo m is
epsilon'-DP, the shuffler's output is (epsilon' + epsilon)-DP. The proof compares the two inputs directly, without a
simulator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.accounting.conversions import advanced_composition
from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE, MOST_MU, gaussian_epsilon

_MU_RANGE = (1e-100, MOST_MU)  # of sensitivity / sigma
_MOST = 1e15  # agents, rounds, levels or users


class LemmaError(BadValue):
    """Raised if the condition of Lemma F.2 does not hold."""


def shuffled_epsilon(*, sigma: float, sensitivity: float, n_agents: int, points: Sequence[int], delta: float) -> float:
    """Computes epsilon at `delta` that the lemma proves for all nodes of one user together.

    The silos add the noise, the shuffler is trusted and the server is not. The privacy unit is one user of one silo.

    Args:
        sigma: standard deviation of the noise on every entry of one silo's message, equal on bias and covariance.
        sensitivity: largest joint l2 distance between the contributions of two users. Take the one for adjacency
            "replace" also if the budget has "zero_out". The points of two silos may differ by that much.
        n_agents: the number M of silos.
        points: kappa numbers: the users of one silo in a node of level 0, 1, ..., kappa - 1, which are B 2^level.
        delta: the delta of all nodes together, in (0, 1).

    Raises:
        LemmaError: if the condition of the lemma does not hold; the message says by how much.
    """
    sigma, sensitivity = validate.positive("sigma", sigma), validate.positive("sensitivity", sensitivity)
    mu = validate.within("sensitivity / sigma", sensitivity / sigma, 0, _MU_RANGE[1])
    m, counts = validate.count("n_agents", n_agents, _MOST), _levels(points)
    return _lemma_epsilon(max(mu, _MU_RANGE[0]), m, counts, validate.probability("delta", delta))


def shuffled_sigma(*, epsilon: float, delta: float, sensitivity: float, n_agents: int, points: Sequence[int]) -> float:
    """Computes the least sigma with `shuffled_epsilon` <= epsilon, rounded up by less than a part in 10^9.

    See `shuffled_epsilon` for the arguments.

    >>> sigma = shuffled_sigma(epsilon=0.05, delta=1e-6, sensitivity=1.0, n_agents=10**6, points=[1])
    >>> round(sigma, 2)
    4.21

    Raises:
        LemmaError: if no sigma satisfies the lemma, which needs M > 16 ln 2.
    """
    epsilon = validate.within("epsilon", validate.positive("epsilon", epsilon), *EPSILON_RANGE)
    delta = validate.probability("delta", delta)
    sensitivity = validate.within("sensitivity", sensitivity, 1e-100, 1e100)
    m, counts = validate.count("n_agents", n_agents, _MOST), _levels(points)

    def certified(log_mu: float) -> bool:
        try:
            return _lemma_epsilon(math.exp(log_mu), m, counts, delta) <= epsilon
        except LemmaError:
            return False

    low, high = map(math.log, _MU_RANGE)
    _lemma_epsilon(math.exp(low), m, counts, delta)
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if certified(middle) else (low, middle)
    return sensitivity / math.exp(low) * (1 + 1e-10)


def _levels(points: Sequence[int]) -> list[int]:
    if not len(points):
        raise BadValue("points", "must have one number for every node level", points)
    return [validate.count("points", n, _MOST) for n in points]


def _lemma_epsilon(mu: float, m: float, counts: Sequence[float], delta: float) -> float:
    if m <= 16 * math.log(2):
        raise LemmaError("n_agents", "must be > 16 ln 2 = 11.09 for Lemma F.2", m)
    kappa = len(counts)
    delta0 = delta / (25 * kappa * m)
    half = math.tanh(gaussian_epsilon(mu, delta0) / 2)
    share = delta / (3 * kappa)
    d = share / half if half > share else 1.0
    limit = math.log(m / (16 * math.log(2 / d)))
    nodes = []
    for level, n in enumerate(counts):
        e_n = gaussian_epsilon(min(n * mu, _MU_RANGE[1]), delta0)
        if e_n > limit:
            must = (
                f"must be smaller: Lemma F.2 needs e_n <= ln(M / (16 ln(2/d'))) = {limit:.4g}, and e_n = {e_n:.4g} at "
                f"node level {level} with n = {n:g} points per silo, M = {m:g} agents and d' = {d:.4g}"
            )
            raise LemmaError("sensitivity / sigma", must, mu)
        weight = math.exp(e_n) / m
        nodes.append(math.log1p(half * (8 * math.sqrt(weight * math.log(4 / d)) + 8 * weight)))
    return advanced_composition(nodes, [2 * share] * kappa, delta / 3)[0]


class RelaxedSecAgg(NamedTuple):
    """Encoding of an integer modulo m as bits, in the letters of the module."""

    omega: float  # probability that a user sends a uniform number of ones
    scale: float  # s of the pmf of Z
    half_width: int  # c: Z is in {0..2c}
    bits: int  # D, the bits that a user sends


def relaxed_secagg(epsilon: float, failure: float, n: int, modulus: int) -> RelaxedSecAgg:
    """Returns the shortest messages of this construction that reveal at most `epsilon` beyond the sum modulo m.

    Args:
        epsilon: the largest log ratio of the laws of the shuffler's output, for two inputs of the same modular sum.
        failure: q, the largest probability that the output does not reveal the modular sum, in (0, 1).
        n: number of users, at least 2.
        modulus: m, at least 2.

    Example:
        >>> relaxed_secagg(1.0, failure=0.01, n=2, modulus=5)
        RelaxedSecAgg(omega=0.005, scale=1.0, half_width=21, bits=214)
    """
    epsilon = validate.within("epsilon", validate.positive("epsilon", epsilon), 1e-9, 1e3)
    failure = validate.probability("failure", failure)
    n, modulus = validate.count("n", n, _MOST, at_least=2), validate.count("modulus", modulus, 1e30, at_least=2)
    omega = validate.within("failure / n", failure / n, 1e-50, 1)
    eta = epsilon / (n - 1)

    def needed(c: int) -> int:  # the half width that D of this c needs; rises with c
        t_max = math.expm1(-eta) / (2 * math.expm1(-eta * (c + 1)) - math.expm1(-eta))
        t_total = t_max * modulus * (2 * c + 1) / (eta * omega)
        return math.ceil(math.log(2 * eta * t_total**2) / eta)

    c = 0
    while (larger := needed(c)) > c:
        c = larger
    return RelaxedSecAgg(omega, 1 / eta, c, modulus * (2 * c + 1) - 1)
