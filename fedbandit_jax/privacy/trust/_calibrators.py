"""How each trust model finds its noise: one function per model, from what was asked to a protocol and its true epsilon.

Delta_J is the joint l2 sensitivity of one user's packed statistics, kappa the squared sensitivity of the release, r the
number of visits of a user to her silo: mu = r sqrt(kappa) Delta_J / sigma.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from fedbandit_jax.privacy.accounting import amplification, gaussian_epsilon, gaussian_mu, quantised
from fedbandit_jax.privacy.budget import JOINT_SENSITIVITY_SQ, MAX_NORM, Budget
from fedbandit_jax.privacy.noise import NORMAL_LIMIT
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.statistic import packed_size
from fedbandit_jax.privacy.trust.protocols import (
    Central,
    Local,
    Protocol,
    SecAgg,
    Shuffled,
    SiloLocal,
    SiloLocalMatrix,
    VectorSum,
)

GAUSSIAN = "exact Gaussian differential privacy, joint over bias and covariance, adaptive"
LEMMA = "Lemma F.2 (amplification by shuffling) at every tree node, advanced composition over nodes"
DISCRETE = "Gaussian differential privacy, corrected for integer noise and rounding"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """What was asked for, checked."""

    budget: Budget
    method: str
    release: Release
    visits: int
    n_agents: int
    batch: int
    dim: int
    pure: float  # epsilon that a private schedule spends on the same user

    @property
    def sensitivity(self) -> float:
        """r sqrt(kappa) Delta_J: how far one user moves all messages together."""
        return self.visits * math.sqrt(self.release.sensitivity_sq() * self.budget.joint_sensitivity_sq)

    @property
    def matrix_sensitivity(self) -> float:
        """The same for noise on the joint matrix."""
        return self.visits * math.sqrt(self.release.sensitivity_sq() * self.budget.matrix_sensitivity_sq)

    @property
    def points(self) -> list[int]:
        """Users of one silo in a tree node of level 0, 1, ..."""
        return [self.batch << level for level in range(round(self.release.sensitivity_sq()))]

    def epsilon(self, sigma: float) -> float:
        """Of Gaussian noise on every message."""
        return gaussian_epsilon(self.sensitivity / sigma, self.budget.delta)

    @property
    def mu(self) -> float:
        """Of the Gaussian noise that the budget allows beside the schedule."""
        return gaussian_mu(self.budget.epsilon, self.budget.delta, self.pure)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """sigma in units of x y and x x', what it proves, by whom, and the protocol that draws it."""

    sigma: float
    epsilon: float
    accountant: str
    protocol: Protocol


def _gaussian_sigma(ask: Ask) -> float:
    epsilon, delta = ask.budget.epsilon - ask.pure, ask.budget.delta
    kappa = ask.release.sensitivity_sq()
    if ask.method == "tight":
        return ask.sensitivity / ask.mu
    if ask.method == "theorem":
        return math.sqrt(8 * kappa * (math.log(2) - math.log(delta) + epsilon)) / epsilon
    return math.sqrt(kappa * (epsilon - math.log(delta))) / epsilon


def _gaussian(
    ask: Ask, protocol: Callable[[np.float32], Protocol], sigma: float | None = None, sensitivity: float | None = None
) -> Answer:
    sigma, sensitivity = sigma or _gaussian_sigma(ask), sensitivity or ask.sensitivity
    epsilon = ask.budget.epsilon
    if ask.method != "tight":
        epsilon = gaussian_epsilon(sensitivity / sigma, ask.budget.delta, ask.pure)
    accountant = f"{GAUSSIAN}; composed exactly with a {ask.pure:g}-DP schedule" if ask.pure else GAUSSIAN
    return Answer(sigma=sigma, epsilon=epsilon, accountant=accountant, protocol=protocol(noise_std(sigma)))


def silo_local(ask: Ask) -> Answer:
    """sigma_0 of one silo (Theorem 5.1)."""
    return _gaussian(ask, lambda std: SiloLocal(std=np.full(ask.n_agents, std)))


def silo_local_matrix(ask: Ask) -> Answer:
    """sigma_N of one silo: 16 m (L^2 + 1)^2 ln(2/delta)^2 / epsilon^2 in Algorithm 2 of Dubey & Pentland, L = 1."""
    sigma = ask.matrix_sensitivity / ask.mu
    if ask.method == "theorem":
        m = 1 + math.ceil(math.log2(ask.release.n_syncs))
        sigma = 8 * math.sqrt(m) * math.log(2 / ask.budget.delta) / (ask.budget.epsilon - ask.pure)
    return _gaussian(
        ask, lambda std: SiloLocalMatrix(std=np.full(ask.n_agents, std)), sigma, sensitivity=ask.matrix_sensitivity
    )


def central(ask: Ask) -> Answer:
    """sigma of the server."""
    return _gaussian(ask, lambda std: Central(std=std))


def local(ask: Ask) -> Answer:
    """sigma of every user."""
    return _gaussian(ask, lambda std: Local(std=std, batch=ask.batch, n_agents=ask.n_agents))


def shuffle_amplified(ask: Ask) -> Answer:
    """sigma_0 of one silo: by the lemma or without it, whichever needs less (tight), by the lemma (theorem)."""
    budget, m = ask.budget, ask.n_agents
    delta_j = math.sqrt(JOINT_SENSITIVITY_SQ["replace"])  # clones are other users, whatever the adjacency

    def answer(sigma: float, epsilon: float, accountant: str) -> Answer:
        return Answer(
            sigma=sigma, epsilon=epsilon, accountant=accountant, protocol=Shuffled(std=np.full(m, noise_std(sigma)))
        )

    def lemma() -> Answer:
        if ask.visits > 1:
            raise amplification.LemmaError(
                f"Lemma F.2 covers a user who comes once: visits must be 1, got {ask.visits}"
            )
        sigma = amplification.shuffled_sigma(
            epsilon=budget.epsilon, delta=budget.delta, sensitivity=delta_j, n_agents=m, points=ask.points
        )
        return answer(sigma, budget.epsilon, LEMMA)

    if ask.method == "theorem":
        return lemma()
    if ask.method == "released":
        sigma = amplification.released_sigma(
            epsilon=budget.epsilon,
            delta=budget.delta,
            n_agents=m,
            horizon=ask.batch * ask.release.n_syncs,
            n_levels=len(ask.points),
        )
        return answer(sigma, ask.epsilon(sigma), GAUSSIAN)
    sigma = _gaussian_sigma(ask)
    plain = answer(sigma, budget.epsilon, f"{GAUSSIAN} (shuffling proves nothing more here)")
    try:
        return min(plain, lemma(), key=lambda answer: answer.sigma)
    except amplification.LemmaError:
        return plain


def shuffle_vector_sum(ask: Ask) -> Answer:
    """Noise bits per entry of P_Vec; sigma is that of the server's sum.

    theorem: Theorem 5.5 through Cheu et al. (2021), half of the budget to each stream: b = 240,000 g^2 ln^2(4 (D^2 + 1)
    / delta_0) / (epsilon_0^2 n). released: g^2 ln^2(d^2 / delta) / (epsilon^2 n). tight: variance kappa (g Delta_J +
    sqrt D)^2 / mu^2, where sqrt D pays for the rounding and mu for the noise being binomial.

    # DEVIATION zhou2024 Alg. 6: p = 1/2 and 3/4 of the printed bits, which have p = 1/4: the same variance.
    """
    budget, size = ask.budget, packed_size(ask.dim)
    n = ask.n_agents * np.array(ask.points, float)
    g = np.ceil(np.maximum(2 * np.sqrt(n), max(ask.dim, 4)))
    kappa = len(n)
    step = ask.visits * (math.sqrt(budget.joint_sensitivity_sq) * MAX_NORM**2 * g + math.sqrt(size))

    def answer(bits: np.ndarray) -> Answer:
        b = np.maximum(np.ceil(bits), 1)
        variance = n * b / 4
        trials = min(float((n * b).min()), 1e15)  # of the level with the fewest, whose law is furthest from Gaussian
        epsilon = quantised.binomial_epsilon(
            sensitivity=float(np.sqrt((step**2 / variance).sum() * trials / 4)),
            n_trials=int(trials),
            n_entries=kappa * size,
            delta=budget.delta,
        )
        return Answer(
            sigma=float((np.sqrt(variance + n / 4) / g).max()),
            epsilon=epsilon,
            accountant=DISCRETE.replace("integer", "binomial"),
            protocol=VectorSum(
                g=g.astype(np.float32),
                b=b.astype(np.float32),
                n_batch=ask.n_agents * ask.batch,
                exact=bool((variance < NORMAL_LIMIT).any()),
                width=int((2 * g + b).max()),
            ),
        )

    if ask.method == "released":
        return answer(0.75 * g**2 * math.log(ask.dim**2 / budget.delta) ** 2 / (budget.epsilon**2 * n))
    if ask.method == "theorem":
        epsilon_s, delta_s = budget.epsilon / 2, budget.delta / 2
        epsilon_0 = epsilon_s / (2 * math.sqrt(2 * kappa * math.log(2 / delta_s)))
        delta_0 = delta_s / (2 * kappa)
        if epsilon_0 > 15:
            raise ValueError(
                f"Theorem 5.5 needs epsilon <= 60 sqrt(2 kappa ln(4/delta)), that is epsilon_0 <= 15 in every node, "
                f"got epsilon = {budget.epsilon:g} and epsilon_0 = {epsilon_0:g}"
            )
        entries = size - ask.dim  # of the covariance stream, the larger
        return answer(0.75 * 240_000 * g**2 * math.log(4 * (entries**2 + 1) / delta_0) ** 2 / (epsilon_0**2 * n))
    top = gaussian_mu(budget.epsilon, budget.delta)
    return _least(lambda mu: answer(4 * kappa * step**2 / (mu**2 * n)), budget.epsilon, top)


def secagg(ask: Ask) -> Answer:
    """sigma of the sum over silos, of which each draws 1/M of the variance."""
    budget, m = ask.budget, ask.n_agents
    entries = packed_size(ask.dim) * ask.release.touched()
    largest = ask.batch * ask.release.message_bound()  # entry of one silo's message

    def answer(mu: float) -> Answer:
        sigma = ask.sensitivity * MAX_NORM**2 / mu
        fine = max(1.0, 1000 * math.sqrt(entries) / ask.sensitivity)  # steps at which rounding costs a thousandth
        room = min(fine, 2.0**31 / (m * largest + 40 * sigma), 2.0**24 / largest, 2.0**24 / sigma)
        scale = 2.0 ** math.floor(math.log2(room)) if room >= 1 else 0.0
        if scale * sigma < math.sqrt(m):
            raise ValueError(
                f"32-bit secure aggregation has no room for n_agents = {m}, batch = {ask.batch} and n_syncs = "
                f"{ask.release.n_syncs} with release {type(ask.release).__name__}: entries reach {m * largest:.3g}, "
                f"noise has standard deviation {sigma:.3g}"
            )
        epsilon = quantised.discrete_gaussian_epsilon(
            sensitivity=ask.sensitivity * MAX_NORM**2 * scale + ask.visits * math.sqrt(entries),
            sigma=sigma * scale,
            n_agents=m,
            n_entries=entries,
            delta=budget.delta,
        )
        share = np.float32(sigma * scale / math.sqrt(m))
        protocol = SecAgg(share=share, scale=np.float32(scale), n_agents=m)
        return Answer(sigma=sigma, epsilon=epsilon, accountant=DISCRETE, protocol=protocol)

    return _least(answer, budget.epsilon, gaussian_mu(budget.epsilon, budget.delta))


def _least(answer: Callable[[float], Answer], epsilon: float, top: float) -> Answer:
    """The answer with the largest mu <= top (to a part in 10^4) whose true epsilon is within the budget."""
    low, high = top, top
    while answer(low).epsilon > epsilon:
        low, high = low / 1.5, low
        if low < top / 1000:
            raise ValueError(f"epsilon = {epsilon:g} is too small for integer noise of this size")
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if answer(middle).epsilon > epsilon else (middle, high)
    return answer(low)


def noise_std(sigma: float) -> np.float32:
    return np.nextafter(np.float32(sigma * MAX_NORM**2), np.float32(np.inf))
