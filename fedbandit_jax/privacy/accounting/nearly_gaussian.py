"""Rigorous upper bounds on epsilon for integer noise that is nearly Gaussian.

One user moves D integers (all entries of all releases) by s with ||s||_2 <= Delta. The move s may depend on earlier
outputs. The noise x has a symmetric pmf p of variance near sigma^2, and mu = Delta / sigma. The privacy loss is L = ln
p(x) / p(x + s). With f(l) = max(0, 1 - e^(eps - l)), delta(eps) = E f(L). As f rises with l, a loss that is larger by
eta costs eta in epsilon.

*Smoothing.* Let p(x) <= A^D e^(-|x|^2 / 2 sigma^2) and L <= (<s, x> + |s|^2 / 2) / sigma^2. Add w ~ N(0, tau^2 I) to x.
By Poisson summation (over any shift of the integers) the density of y = x + w is at most

    c^D,   c = A sqrt(2 pi) sigma (1 + 2 sum_m q^(m^2)),   q = e^(-2 pi^2 v),   1/v = 1/sigma^2 + 1/tau^2,

times that of N(0, (sigma^2 + tau^2) I). For every x, <s, w> >= -r tau |s| with probability Phi(r). Then <s, x> <= <s,
y> + r tau |s|. So the loss is that of a Gaussian mechanism, up to a shift and a factor:

    delta(eps) <= c^D / Phi(r) delta_Gauss(eps - r tau mu / sigma; mu sqrt(1 + tau^2 / sigma^2)).

*Discrete Gaussian.* L is linear and A <= 1 / (sqrt(2 pi) sigma). The sum of M discrete Gaussian variables has the pmf
of one, up to factors e^(+-xi). Here xi = 10 sum_{k < M} e^(-2 pi^2 sigma_i^2 k / (k + 1)). Each must have the parameter
sigma_i = sigma / sqrt(M) >= 1/2 (Kairouz, Liu & Steinke 2021; Chowdhury & Zhou 2023, Lemma 4). Hence epsilon grows by 2
D xi, and delta by a factor e^(D xi).

*Binomial.* The noise is Bin(N, 1/2) - N/2. With V = (N + 1) / 4 the ratio of pmfs is exactly

    ln p(x) / p(x + s) = sum_{i = 1..s} 2 artanh(u_i),   u_i = (x + i - 1/2) / (2 V),   s > 0.

Here sum 2 u_i = (s x + s^2 / 2) / V is the linear loss of sigma^2 = V. Starting in the middle, and as artanh u >= u,
this gives p(x) <= e^(1 / 4N) e^(-x^2 / 2V) / sqrt(2 pi V). No x_j exceeds t sqrt(V) in the direction of s_j, except
with probability D e^(-t^2 / 2) (Hoeffding). The other direction lowers the loss. Then the rest of L is at most |s|_1 2
(artanh u - u) <= sqrt(D) Delta (2/3) u^3 / (1 - u^2) at u = (t sqrt(V) + Delta) / (2 V). All of these bounds fall with
N. So entries may have different numbers of trials, with smaller shifts of those with more trials.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy.special import log_ndtr

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon

_MU_RANGE = (1e-100, 1e3)  # of sensitivity / noise std
_MOST = 1e15  # agents, entries or trials
_WASTE = 1e-4  # fraction of delta for rare events, which then cost next to nothing


@dataclasses.dataclass(frozen=True)
class NearlyGaussian:
    """Bound by *Smoothing* for a mechanism with a loss that is nearly Gaussian. For every r > 0,

    delta(eps) <= rest + e^log_factor / Phi(r) delta_Gauss(eps - shift - r lean; mu).
    """

    mu: float  # of the Gaussian mechanism, with the noise w added
    lean: float  # tau mu / sigma, by how much w moves the loss
    log_factor: float  # ln of the largest factor on densities
    shift: float = 0.0  # largest excess of the loss
    rest: float = 0.0  # probability of noise that the bound does not cover

    def epsilon(self, delta: float) -> float:
        """Returns a bound on epsilon at `delta` by the best of a few r. It is infinite if there is none."""
        if delta <= self.rest:
            return math.inf

        def bound(r: float) -> float:
            log_delta = math.log(delta - self.rest) - self.log_factor + float(log_ndtr(r))
            return math.inf if log_delta < -700 else r * self.lean + gaussian_epsilon(self.mu, math.exp(log_delta))

        return self.shift + min(bound(k / 2) for k in range(1, 13))


def discrete_gaussian(*, sensitivity: float, sigma: float, n_agents: int, n_entries: int) -> NearlyGaussian:
    """Returns the bound if each of M agents adds discrete Gaussian noise, sigma / sqrt(M), to every entry.

    Args:
        sensitivity: Delta, the largest l2 norm of one user's integer shift of all entries.
        sigma: parameter of the sum of the agents' noise, with sigma / sqrt(M) >= 1/2.
        n_agents: M.
        n_entries: D, the number of entries of all releases together.

    Example:
        >>> near = discrete_gaussian(sensitivity=1e5, sigma=1e5, n_agents=20, n_entries=26_000)
        >>> round(near.epsilon(1e-5), 3)
        4.377
    """
    sensitivity = validate.positive("sensitivity", sensitivity)
    sigma = validate.within("sigma", validate.positive("sigma", sigma), 0.5, 1e100)
    m, entries = validate.count("n_agents", n_agents, _MOST), validate.count("n_entries", n_entries, _MOST)
    agent = sigma / math.sqrt(m)
    if agent < 0.5:
        got = f"{agent:g} (sigma = {sigma:g}, M = {m:g})"
        raise BadValue("sigma / sqrt(n_agents)", "must be at least 1/2", agent, got=got)
    cost = entries * discrete_gaussian_xi(agent, m)
    near = _smoothed(_ratio(sensitivity, sigma), sigma, entries, cost)
    return dataclasses.replace(near, shift=2 * cost)


def binomial(*, sensitivity: float, n_trials: int, n_entries: int, delta: float) -> NearlyGaussian:
    """Returns the bound for noise Bin(N, 1/2) on every entry. Rare events get a small part of `delta`.

    `n_trials` is the smallest N of any entry. The other arguments are as in `discrete_gaussian`. If N is too
    small to prove anything, `shift` and every epsilon are infinite.

    Example:
        >>> round(binomial(sensitivity=1500.0, n_trials=10**7, n_entries=585, delta=0.1).epsilon(0.1), 3)
        1.058
    """
    sensitivity = validate.positive("sensitivity", sensitivity)
    n, entries = validate.count("n_trials", n_trials, _MOST), validate.count("n_entries", n_entries, _MOST)
    delta = validate.probability("delta", delta)
    std = math.sqrt(n) / 2
    mu = _ratio(sensitivity, std)
    t = math.sqrt(2 * math.log(entries / (_WASTE * delta)))
    u = (t + mu) / (2 * std)
    shift = math.sqrt(entries) * sensitivity * 2 * u**3 / (3 * (1 - u * u)) if u < 0.9 else math.inf
    near = _smoothed(mu, std, entries, entries / (4 * n))
    return dataclasses.replace(near, shift=shift, rest=_WASTE * delta)


def _smoothed(mu: float, sigma: float, entries: float, log_mass: float) -> NearlyGaussian:
    """Applies *Smoothing* for D = `entries` and a pmf that is too large by at most e^log_mass, with c^D near 1."""
    tau = math.sqrt(math.log(2 * entries / _WASTE) / 2) / math.pi
    ratio = tau / sigma
    q = math.exp(-2 * math.pi**2 * tau**2 / (1 + ratio**2))
    log_mass += entries * math.log1p(2 * q / (1 - q**3))
    return NearlyGaussian(mu * math.hypot(1, ratio), ratio * mu, log_mass)


def discrete_gaussian_xi(sigma: float, m: float) -> float:
    """Bounds the distance in log pmf of a sum of M discrete Gaussians of parameter sigma to one of sqrt(M) sigma.

        xi = 10 sum_{k=1}^{M-1} exp(-2 pi^2 sigma^2 k / (k + 1))

    for sigma >= 1/2. Terms after the thousandth count as the thousandth.

    >>> round(discrete_gaussian_xi(1.0, 2), 6)
    0.000517
    """
    k = np.arange(1, min(m, 1001))
    terms = np.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1))
    return 10 * float(terms.sum() + (max(m - 1001, 0) * terms[-1] if m > 1 else 0.0))


def _ratio(sensitivity: float, sigma: float) -> float:
    return max(validate.within("sensitivity / sigma", sensitivity / sigma, 0, _MU_RANGE[1]), _MU_RANGE[0])
