"""What a trust model is: who adds which noise to a release, how much a budget needs, and what it proves.

At synchronisation k = 1..S every silo holds a message (P, D): the P parts of its release (see `releases`), each a sum
of its users' packed statistics (see `statistic`). A protocol P = (R, S, A) sends it to the server: R randomises it at
the silo; S is the third party between silos and server: nobody, a shuffler, or a secure aggregator; A is the server's
estimate of the sum over silos. All a simulation needs, unless somebody looks at the messages, is the law of
A(S(R(messages))) given that sum: `noise` where noise is added to real numbers, `noisy_sum` where both are integers
(`on_grid`).

Reference: Zhou & Chowdhury (2024), Section 4 and Algorithms 2, 4, 5-7; secure aggregation as in Chowdhury & Zhou
(2023).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from jax import Array

from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.budget import MAX_NORM, Budget
from fedbandit_jax.privacy.releases import Release

METHODS = ("tight", "theorem", "released")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """What a trust model is used for: the budget, and everything that decides how far one user moves the messages.

    Attributes:
        budget: epsilon, delta and adjacency.
        release: C and R, for S synchronisations.
        visits: r, how often one user may come to her silo.
        n_agents: M.
        batch: B, users of one silo in a batch; 1 where the proof does not depend on it.
        dim: d.
        pure: epsilon that a private schedule spends on the same user.
    """

    budget: Budget
    release: Release
    visits: int = 1
    n_agents: int = 1
    batch: int = 1
    dim: int = 1
    pure: float = 0.0

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

    @property
    def mu(self) -> float:
        """Of the Gaussian noise that the budget allows beside the schedule."""
        return gaussian_mu(self.budget.epsilon, self.budget.delta, self.pure)


class Proof(NamedTuple):
    """What the noise of a bound trust model proves, read from its own numbers."""

    sigma: float  # standard deviation of every entry of the noise, in units of x y and x x', see `Trust.whose`
    epsilon: float  # the smallest that is proved at the budget's delta, the schedule's share included
    accountant: str
    mu: float | None = None  # of a Gaussian mechanism that is exactly this one
    assumes: tuple[str, ...] = ()  # of others, beside what no trust model covers


T = TypeVar("T", bound="Trust")


class Trust:
    """A trust model. Subclass `GaussianTrust` for one of your own.

    The class says what the model is; an object of it is bound: it draws the noise and proves what that noise gives.
    """

    sentence: ClassVar[str] = "a trust model of the user's own"
    """Who adds the noise, and who is not trusted."""
    whose: ClassVar[str] = "of a message"
    """Whose noise `Proof.sigma` is."""
    releases: ClassVar[tuple[type[Release], ...] | None] = None
    """Releases that the proof covers; None: all."""
    why: ClassVar[str] = ""
    """Why others are refused."""
    methods: ClassVar[tuple[str, ...]] = ("tight",)
    """Calibrations that it has."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Sizes that its noise depends on: "n_agents", "batch", "dim"."""
    any_schedule: ClassVar[bool] = False
    """Does the proof hold for batches of any length that end whenever a schedule says?"""
    prefixes: ClassVar[bool] = False
    """May silos send private prefix sums?"""
    joint_matrix: ClassVar[bool] = False
    """Is the noise symmetric noise on the joint matrix of (x, y)?"""
    per_silo: ClassVar[bool] = False
    """May every silo have a budget of its own?"""

    hides_users: ClassVar[bool] = False
    """Does not even a silo see its users' raw statistics?"""
    needs_users: ClassVar[bool] = False
    """Does R work on the users in the node, not on their sum?"""
    shows_sum: ClassVar[bool] = False
    """Does whoever is not trusted see A's output and nothing else?"""
    on_grid: ClassVar[bool] = False
    """Are messages and noise integers?"""
    width: int = 0
    """Most bits that a user sends for an entry, with `needs_users`."""

    @classmethod
    def calibrate(cls, ask: Ask, method: str = "tight") -> Trust:
        """The bound model with the noise that a calibration gives."""
        raise NotImplementedError(f"{cls.__name__}.calibrate")

    def proof(self, ask: Ask) -> Proof:
        """What this noise proves, from this object's own numbers. On the host."""
        raise NotImplementedError(f"{type(self).__name__}.proof")

    def silo(self, i: int, n: int) -> Trust:
        """The noise of the silo with budget i of n; all of it where there is one budget for all."""
        del i
        return self if n == 1 else _refuse(self)

    def misfit(self, ask: Ask) -> str:
        """Why this noise does not fit what it is used for, or nothing."""
        del ask
        return ""

    def sum_std(self) -> float:
        """Standard deviation of an entry of the noise over all silos, or a bound on it. On the host."""
        raise NotImplementedError(f"{type(self).__name__}.sum_std")

    def init(self, size: int) -> Any:
        """State before the first release of vectors of D = `size` entries."""
        del size
        return ()

    def noise(self, key: Array, size: int) -> Array:
        """Noise (D,) of the sum over silos."""
        raise NotImplementedError(f"{type(self).__name__}.noise")

    def noisy_sum(self, key: Array, k: Array, state: Any, total: Array, x: Array, y: Array) -> tuple[Array, Any]:
        """A(S(R(messages))) from the sum `total` (P, D) of all silos' messages, and the next state.

        The batch's users are x (B, d, M), y (B, M).
        """
        raise NotImplementedError(f"{type(self).__name__}.noisy_sum")

    def randomize(self, key: Array, silo: Array, k: Array, message: Any) -> Array:
        """R of one silo: (P, D) to what it sends; with `needs_users`, of the node's users (N, D) and a mask (N,)."""
        raise NotImplementedError(f"{type(self).__name__}.randomize")

    def third_party(self, key: Array, messages: Array) -> Array:
        """S: what all silos sent, leading axis M, to what the server is shown."""
        del key
        return messages

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """A: an estimate of the sum over silos, (P, D)."""
        del key, k
        return shown.sum(0)

    def uplink(self, k: Array, numbers: Array, size: int) -> tuple[Array | int, Array | int]:
        """Numbers that all silos send together at release k, and bits of each; `numbers` if each sends its message."""
        del k, size
        return numbers, 32


def _refuse(model: Trust) -> Trust:
    raise ValueError(f"budget must be one fb.privacy.Budget with {type(model).__name__}, got several")


def noise_std(sigma: float) -> np.float32:
    """float32, none smaller, with room for what float32 makes of unit vectors."""
    return np.nextafter(np.float32(sigma * MAX_NORM**2), np.float32(np.inf))


def gaussian_sigma(ask: Ask, method: str) -> float:
    """sigma on both streams: exact; Theorem 5.1 of Zhou & Chowdhury (2024); or as in their code."""
    epsilon, delta = ask.budget.epsilon - ask.pure, ask.budget.delta
    kappa = ask.release.sensitivity_sq()
    if method == "tight":
        return ask.sensitivity / ask.mu
    if method == "theorem":
        return math.sqrt(8 * kappa * (math.log(2) - math.log(delta) + epsilon)) / epsilon
    return math.sqrt(kappa * (epsilon - math.log(delta))) / epsilon


GAUSSIAN = "exact Gaussian differential privacy, joint over bias and covariance, adaptive"


def gaussian_proof(ask: Ask, std: float, sensitivity: float, assumes: tuple[str, ...] = ()) -> Proof:
    """Of Gaussian noise of this standard deviation on every message; no noise proves nothing."""
    sigma = std / MAX_NORM**2
    if not sigma * 1e4 > sensitivity:  # beyond what the accountant computes
        return Proof(sigma, math.inf, "none: (almost) no noise is drawn", None, assumes)
    mu = sensitivity / sigma
    epsilon = gaussian_epsilon(mu, ask.budget.delta, ask.pure)
    accountant = f"{GAUSSIAN}; composed exactly with a {ask.pure:g}-DP schedule" if ask.pure else GAUSSIAN
    return Proof(sigma, epsilon, accountant, None if ask.pure else mu, assumes)


def least(model: Callable[[float], T], ask: Ask, top: float) -> T:
    """The model with the largest mu <= top (to a part in 10^4) whose proven epsilon is within the budget."""
    epsilon = ask.budget.epsilon
    low, high = top, top
    while model(low).proof(ask).epsilon > epsilon:
        low, high = low / 1.5, low
        if low < top / 1000:
            raise ValueError(f"epsilon = {epsilon:g} is too small for integer noise of this size")
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if model(middle).proof(ask).epsilon > epsilon else (middle, high)
    return model(low)
