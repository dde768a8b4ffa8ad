"""Relaxed secure aggregation from a shuffler of bits (Cheu & Yan 2021; Chowdhury & Zhou 2023, Appendix C.2).

Each of n users holds an integer y modulo m and sends D bits, where D + 1 = m (2c + 1). The number of ones among them is

    r = y + m Z with probability 1 - omega, or else uniform on {0..D},

where Z on {0..2c} has a pmf t(z) proportional to e^(-|z - c| / s), with maximum t_max.

The shuffler, which is trusted, shows R, the number of all ones. R mod m is the sum of the y modulo m if nobody sent a
uniform number of ones, which has probability (1 - omega)^n >= 1 - n omega; we set omega = failure / n.

Any two inputs with the same modular sum are at most n - 1 steps apart, each of which replaces the (y, y') of two users
by (z, z') with y + y' = z + z' mod m. With eta = 1 / s, a step changes the law of r + r' by no more than a factor e^eta
if t(0) is small enough:

* if neither r nor r' is uniform, Z + Z' moves by at most one, and P(k) <= e^eta P(k +- 1) + t_max t(0);
* if one of them is, the window r - D <= y + m Z <= r moves by at most one value of Z, and P <= e^eta P' + t(0);
* if both are, the law is the same, and at least (omega / (D + 1))^2 everywhere.

The third case pays for the t(0) of the first two, because 1 + eta / 2 + eta / 2 <= e^eta, once

    t(0) = t_max e^(-c / s) <= min{eta omega^2 / (2 t_max (D + 1)^2), eta omega / (4 (D + 1))}.

So eta = epsilon / (n - 1) is enough. If the sum modulo m is epsilon'-DP, what the shuffler shows is (epsilon' +
epsilon)-DP: the two inputs are compared directly, and not through a simulator.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedbandit_jax.core import validate


class RelaxedSecAgg(NamedTuple):
    """How users turn an integer modulo m into bits, in the letters of the module."""

    omega: float  # probability that a user sends a uniform number of ones
    scale: float  # s of the pmf of Z
    half_width: int  # c: Z is in {0..2c}
    bits: int  # D, the bits that a user sends


def relaxed_secagg(epsilon: float, failure: float, n: int, modulus: int) -> RelaxedSecAgg:
    """Finds the shortest messages of this construction that tell at most `epsilon` more than the sum modulo m.

    Args:
        epsilon: the largest log ratio of the laws of what the shuffler shows, for two inputs of the same modular sum.
        failure: q, the largest probability that what it shows does not tell the modular sum, in (0, 1).
        n: number of users, at least 2.
        modulus: m, at least 2.

    Raises:
        ValueError, TypeError: an argument is out of range or of a wrong type.

    Example:
        >>> relaxed_secagg(1.0, failure=0.01, n=2, modulus=5)
        RelaxedSecAgg(omega=0.005, scale=1.0, half_width=21, bits=214)
    """
    epsilon = validate.within("epsilon", validate.positive("epsilon", epsilon), 1e-9, 1e3)
    failure = validate.probability("failure", failure)
    n = validate.integer("n", n, at_least=2, at_most=math.inf)
    modulus = validate.integer("modulus", modulus, at_least=2, at_most=math.inf)
    omega = validate.within("failure / n", failure / n, 1e-50, 1)
    eta = epsilon / (validate.within("n", n, 2, 1e15) - 1)
    size = validate.within("modulus", modulus, 2, 1e30)

    def needed(c: int) -> int:  # the half width that D of this c needs; rises with c
        t_max = math.expm1(-eta) / (2 * math.expm1(-eta * (c + 1)) - math.expm1(-eta))
        t_total = t_max * size * (2 * c + 1) / (eta * omega)
        return math.ceil(math.log(t_total * max(2 * t_total * eta, 4)) / eta)

    c = 0
    while (larger := needed(c)) > c:
        c = larger
    return RelaxedSecAgg(omega, 1 / eta, c, modulus * (2 * c + 1) - 1)
