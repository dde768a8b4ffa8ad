"""Secure aggregation from a shuffler of bits, relaxed (Cheu & Yan 2021; Chowdhury & Zhou 2023, Appendix C.2).

Each of n users holds y in Z_m and sends r ones among D bits, D + 1 = m (2c + 1):

    r = y + m Z with probability 1 - omega, else uniform on {0..D};   Z on {0..2c}, pmf t(z) ~ e^(-|z - c| / s).

What the shuffler shows is R, the number of all ones. R mod m is the sum of the y modulo m, unless somebody sent uniform
bits: with probability (1 - omega)^n >= 1 - n omega, omega = failure / n.

Any two inputs of the same modular sum are n - 1 steps apart, each (y, y') -> (z, z') with y + y' = z + z' mod m. With
eta = 1 / s, the law of r + r' changes by no more than a factor e^eta if t(0) is small enough:

* neither is uniform: Z + Z' moves by at most one, P(k) <= e^eta P(k +- 1) + t_max t(0);
* one is: the window r - D <= y + m Z <= r moves by at most one value of Z, P <= e^eta P' + t(0);
* both are: the same law, at least (omega / (D + 1))^2 everywhere.

The third pays for the t(0) of the first two, as 1 + eta / 2 + eta / 2 <= e^eta, once

    t(0) = t_max e^(-c / s) <= min{eta omega^2 / (2 t_max (D + 1)^2), eta omega / (4 (D + 1))}.

So eta = epsilon / (n - 1) is enough. Data sets whose sums modulo m are epsilon'-DP have views that are
(epsilon' + epsilon)-DP, both inputs being compared directly and not through a simulator.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedbandit_jax.core import validate


class RelaxedSecAgg(NamedTuple):
    """A user sends D bits, uniform ones with probability omega; Z is on {0..2c}, pmf ~ e^(-|z - c| / s)."""

    omega: float
    scale: float
    half_width: int
    bits: int


def relaxed_secagg(epsilon: float, failure: float, n: int, modulus: int) -> RelaxedSecAgg:
    """The shortest messages of this construction that leak at most `epsilon` beyond the sum of n integers modulo m.

    Args:
        epsilon: the largest log ratio of the views of two inputs with the same modular sum.
        failure: q, the largest probability that the view does not tell the modular sum.
        n: users, at least 2.
        modulus: m.

    >>> relaxed_secagg(1.0, failure=0.01, n=2, modulus=5)
    RelaxedSecAgg(omega=0.005, scale=1.0, half_width=21, bits=214)
    """
    epsilon = validate.within("epsilon", validate.positive("epsilon", epsilon), 1e-9, 1e3)
    failure = validate.probability("failure", failure)
    n = validate.integer("n", n, at_least=2)
    modulus = validate.integer("modulus", modulus, at_least=2)
    omega = validate.within("failure / n", failure / n, 1e-50, 1)
    eta = epsilon / (validate.within("n", n, 2, 1e15) - 1)
    size = validate.within("modulus", modulus, 2, 1e30)

    def needed(c: int) -> int:  # rises with c, as t_max (2c + 1) does
        t_max = math.expm1(-eta) / (2 * math.expm1(-eta * (c + 1)) - math.expm1(-eta))
        t_total = t_max * size * (2 * c + 1) / (eta * omega)
        return math.ceil(math.log(t_total * max(2 * t_total * eta, 4)) / eta)

    c = 0
    while (larger := needed(c)) > c:
        c = larger
    return RelaxedSecAgg(omega, 1 / eta, c, modulus * (2 * c + 1) - 1)
