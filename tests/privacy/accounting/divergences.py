"""Laws of integers and divergences between them, by adding up probabilities."""

import math

import mpmath as mp
import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom, poisson

from fedbandit_jax.privacy.accounting.lattice import DiscreteGaussian, Skellam


def pmf(law, reach):
    """On -reach ... reach, by sums and convolutions of positive terms: relative accuracy in the tails too."""
    x = np.arange(-reach, reach + 1)
    if isinstance(law, DiscreteGaussian):
        return discrete_gaussian(law.sigma, reach=reach)
    if isinstance(law, Skellam):
        most = 2 * reach + math.ceil(law.variance)
        one = poisson.pmf(np.arange(most + 1), law.variance / 2)
        return np.convolve(one, one[::-1])[most - reach : most + reach + 1]
    factor = np.exp(-np.abs(x) / law.scale)
    factor /= math.fsum(factor)
    p = (x == 0).astype(float)
    for bit in bin(law.n)[2:]:
        p = np.convolve(p, p, "same")
        p = np.convolve(p, factor, "same") if bit == "1" else p
    return p


def discrete_gaussian(sigma, n_agents=1, reach=None):
    """Of the sum of n_agents discrete Gaussians of parameter sigma^2 / n_agents."""
    x = np.arange(-(reach or math.ceil(26 * sigma)), (reach or math.ceil(26 * sigma)) + 1)
    one = np.exp(-(x**2) * n_agents / (2 * sigma**2))
    one /= math.fsum(one)
    p = one
    for _ in range(n_agents - 1):
        p = np.convolve(p, one, "same")
    return p


def binomial(n):
    """Of Bin(n, 1/2), within seven standard deviations or more of its mean."""
    reach = min(n // 2, math.ceil(7 * math.sqrt(n)))
    return binom.pmf(np.arange(n // 2 - reach, n - n // 2 + reach + 1), n, 0.5)


def pair(p, shift):
    """The law and the one moved by `shift`, on the same integers."""
    return np.append(p, np.zeros(shift)), np.append(np.zeros(shift), p)


def hockey_stick(p, q, epsilon):
    """The larger of the two divergences, either way."""
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))


def exact_delta(p, shifts, epsilon):
    """Between noise and noise that is shifted, one axis for every entry."""
    one = other = np.ones(1)
    for a, b in (pair(p, shift) for shift in shifts):
        one, other = np.multiply.outer(one, a), np.multiply.outer(other, b)
    return hockey_stick(one, other, epsilon)


def renyi(p, shift, alpha):
    """Of order alpha, of a law and the one moved by `shift`; what is cut off at the ends is below 1e-12 of the rest."""
    p = p[p > 1e-300]
    terms = alpha * np.log(p[shift:]) + (1 - alpha) * np.log(p[: len(p) - shift])
    assert max(terms[0], terms[-1]) < terms.max() - 35
    return logsumexp(terms) / (alpha - 1)


def never_optimistic(epsilon_at, p, shifts, *, deltas=(0.3, 0.1, 1e-3, 1e-6, 1e-9), slack=1.0, above=0.0):
    """The exact delta at an epsilon is at most that asked for; at one less by `slack`, if above `above`, it is more."""
    for delta in deltas:
        epsilon = epsilon_at(delta)
        assert exact_delta(p, shifts, epsilon) <= delta * (1 + 1e-12)
        assert slack == 1 or epsilon <= above or exact_delta(p, shifts, (1 - slack) * epsilon) > delta


def enumerated(epsilon, mu=0.0, pure=()):
    """delta(epsilon) with 60 digits: all outcomes of the worst discrete mechanisms, with the formula of a Gaussian."""
    with mp.workdps(60):
        atoms = {mp.mpf(0): mp.mpf(1)}
        for e, n in pure:
            odds, moved = mp.exp(-mp.mpf(e)), {}
            for x, mass in atoms.items():
                mass /= (1 + odds) ** n
                for k in range(n + 1):  # of n losses are negative
                    y = x + (n - 2 * k) * mp.mpf(e)
                    moved[y] = moved.get(y, 0) + mass
                    mass *= odds * (n - k) / (k + 1)
            atoms = moved

        def one(gap):
            if mu == 0:
                return 1 - mp.exp(gap) if gap < 0 else 0
            return mp.ncdf(mu / 2 - gap / mu) - mp.exp(gap) * mp.ncdf(-mu / 2 - gap / mu)

        return sum(mass * one(mp.mpf(epsilon) - x) for x, mass in atoms.items())
