"""The interface of a trust model: the noise on a release and who adds it, its calibration to a budget, and its proof.

At synchronisation k = 1, ..., S every silo holds a message (P, D): the P parts of its release (see `releases`), each a
sum of its users' packed statistics with D = d (d + 3) / 2 entries (see `statistic`). A protocol carries it to the
server in three steps. The randomiser (`randomize`) works at the silo. The third party (`third_party`) is nobody, a
shuffler, or a secure aggregator. The analyser (`analyze`) makes the server's estimate of the sum over silos. Unless
somebody looks at the messages, a simulation needs only the law of that estimate given the exact sum: `noise` where
noise depends on no data, `noisy_sum` where it does (`needs_users`).

Reference: Zhou & Chowdhury (2024), Section 4 and Algorithms 2, 4, 5-7; secure aggregation as in Chowdhury & Zhou
(2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from jax import Array

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.accounting.events import Event, Gaussian
from fedbandit_jax.privacy.accounting.gaussian import MOST_MU
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.trust.ask import Ask


class Proof(NamedTuple):
    """The proof of the noise of a bound trust model, computed from the numbers that the model draws with."""

    sigma: float  # standard deviation of the noise on an entry of x y, rounding included; `Trust.whose` says whose
    epsilon: float  # the smallest epsilon proved at the budget's delta, the schedule's share included
    accountant: str  # the method of proof
    event: Event | None = None  # the whole curve of (epsilon, delta), if it has the form of a privacy event
    assumes: tuple[str, ...] = ()  # behaviour of others that voids the guarantee
    moves: float | None = None  # the sensitivity with the rounding of messages, None: that of the `Ask`


T = TypeVar("T", bound="Trust")


class Trust:
    """The interface of a trust model; one of your own is an `fb.privacy.GaussianTrust`.

    The class describes the model; an object of it is bound: it draws the noise and proves its guarantee.
    """

    sentence: ClassVar[str] = "a trust model of the caller's own"
    """A sentence for certificates that says who adds the noise, and who is not trusted."""
    trusted: ClassVar[str] = "own"
    """Whom users must trust, one of `fedbandit_jax.certificate.PARTIES`."""
    whose: ClassVar[str] = "of a message"
    """Whose noise `Proof.sigma` describes."""
    for_trees: ClassVar[bool] = False
    """Whether the proof covers the release `Tree` only."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The sizes that the noise depends on, out of "n_agents", "batch" and "dim"."""
    batches: ClassVar[str] = "equal"
    """Which batches the proof covers: "equal" (all of one size), "fixed" (of any sizes that are fixed in advance, of
    which `Ask.batch` is the largest) or "any" (also those that end when an adaptive schedule says so)."""
    joint_matrix: ClassVar[bool] = False
    """Whether the noise is symmetric noise on the joint matrix of (x, y)."""
    away: ClassVar[str] = "none"
    """The silos that may miss a synchronisation: "none" (there is no proof), "few" (up to `dropouts`) or "any"."""
    plain: ClassVar[bool] = False
    """Whether the proof is for (x y, x x') of single visits as they are, and for no other statistic."""
    per_silo: ClassVar[bool] = False
    """Whether every silo's messages are proved alone: it may have a budget of its own, and send private prefix sums."""

    of_silos: ClassVar[bool] = False
    """Whether every silo adds noise of its own to its messages."""
    alike: ClassVar[bool] = False
    """Whether a server is shown these messages one by one, with equal noise on all entries."""
    hides_users: ClassVar[bool] = False
    """Whether users hide their raw statistics even from their silo, and report once."""
    needs_users: ClassVar[bool] = False
    """Whether `randomize` works on the users in the tree node, not on their sum."""
    shows_sum: ClassVar[bool] = False
    """Whether those who are not trusted see the output of `analyze` and nothing else."""
    on_grid: ClassVar[bool] = False
    """Whether messages and noise are integers."""
    dropouts: int = 0
    """f, silos whose shares of the noise may be missing in a sum, with `away` = "few"."""
    width: int = 0
    """The most bits that a user sends for an entry, with `needs_users`."""

    @classmethod
    def tags(cls) -> dict[str, bool]:
        """What this model is, for `privacy.compatibility`."""
        return {
            "noise in sums of silos": not cls.per_silo,
            "noise that silos do not add": not cls.of_silos,
            "noise that hides silos": not cls.alike,
            "noise for trees": cls.for_trees,
            "noise for (x y, x x')": cls.plain,
            "noise of users": cls.hides_users,
            "noise for equal batches": cls.batches == "equal",
            "noise for fixed batches": cls.batches != "any",
            "noise of every silo": cls.away == "none",
            "noise without spare shares": cls.away != "few",
        }

    @classmethod
    def calibrate(cls, ask: Ask, std: float | None = None) -> Trust:
        """Returns the bound model with noise of this `std`; None: the least that is proved to give the budget."""
        raise NotImplementedError(f"{cls.__name__}.calibrate")

    def missing(self, ask: Ask) -> float:
        """Bounds the mass of the tails that are never drawn, over all noise that one user has a part in."""
        return ask.missing

    def proof(self, ask: Ask) -> Proof:
        """The proof, made on the host, of the noise of this object for the use `ask`."""
        raise NotImplementedError(f"{type(self).__name__}.proof")

    def silo(self, i: int) -> Trust:
        """The noise of silo i alone, of a model with `per_silo`."""
        raise NotImplementedError(f"{type(self).__name__}.silo")

    def misfit(self, ask: Ask) -> str:
        """The objection to this noise for the use `ask`, or an empty string."""
        return ""

    def sum_std(self) -> float:
        """Computes, on the host, the standard deviation of an entry of `noise`, over all silos, or a bound on it."""
        raise NotImplementedError(f"{type(self).__name__}.sum_std")

    def message_stds(self, n: int) -> np.ndarray:
        """Standard deviations (n,) of the noise on messages 1, ..., n, over all silos, where all users are zeros."""
        return np.full(n, self.sum_std())

    def silo_stds(self) -> np.ndarray:
        """Standard deviations (M,) of the Gaussians that silos add to their messages, on the diagonal of x x'."""
        raise NotImplementedError(f"{type(self).__name__}.silo_stds")

    def noise(self, key: Array, size: int) -> Array:
        """Draws the noise of one part of a message, summed over silos, (D,), D = `size`, in units of x y and x x'."""
        raise NotImplementedError(f"{type(self).__name__}.noise")

    def among(self, sends: Array) -> Trust:
        """The noise of those of M silos that send at a synchronisation, (M,) bool."""
        raise NotImplementedError(f"{type(self).__name__}.among")

    def randomize(self, key: Array, silo: Array, k: Array, message: Any) -> Array:
        """Randomises the message of silo 0, ..., M - 1 and returns what it sends.

        `message` is the exact message k, (P, D); with `needs_users`, the packed statistics of the silo's N = S B
        users, (N, D), and which of them are in the tree node that is sent, (N,) bool.
        """
        raise NotImplementedError(f"{type(self).__name__}.randomize")

    def third_party(self, key: Array, messages: Array) -> Array:
        """Turns the messages of all silos, with leading axis M, into those shown to the server."""
        return messages

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """The server's estimate of the sum over silos, (P, D), from the messages shown to it."""
        return shown.sum(0)

    def uplink(self, k: Array, numbers: Array, size: int) -> tuple[Array | int, Array | int]:
        """The numbers that all silos together send at release k, and the bits of each.

        If each silo sends its message, they are `numbers`; `size` is D.
        """
        return numbers, 32


def same_sizes(has: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The objection to the sizes that a noise was calibrated for, or an empty string."""
    return "" if has == wanted else f"its noise is for sizes {has}, and is used with {wanted}"


def noise_std(sigma: float) -> np.float32:
    """A float32 standard deviation for noise of at least `sigma`, which is in units of x y and x x'.

    It is larger by MAX_NORM^2, because float32 makes vectors of norm up to MAX_NORM of unit vectors, and it is rounded
    up.
    """
    return np.nextafter(np.float32(sigma * MAX_NORM**2), np.float32(np.inf))


def gaussian_std(ask: Ask, std: float | None) -> np.float32:
    """Returns the standard deviation to draw Gaussian noise with, see `Trust.calibrate`."""
    return noise_std(ask.sensitivity / ask.mu if std is None else std)


GAUSSIAN = "exact Gaussian differential privacy, joint over bias and covariance, adaptive"


def gaussian_proof(ask: Ask, std: float, assumes: tuple[str, ...] = ()) -> Proof:
    """The proof of Gaussian noise on every entry of every message; (almost) no noise proves nothing.

    Its standard deviation is `std` as it is drawn, with the margin for float32 (see `noise_std`).
    """
    sensitivity, sigma = ask.sensitivity, std / MAX_NORM**2
    if not sigma * MOST_MU > sensitivity:  # the accountant does not compute larger ratios
        return Proof(sigma, math.inf, "none: (almost) no noise is drawn", None, assumes)
    mu = sensitivity / sigma
    epsilon = ask.epsilon(lambda delta: gaussian_epsilon(mu, delta, ask.pure), ask.missing)
    schedule = f"; composed with a {ask.pure:g}-DP schedule, exactly if that is randomised response"
    accountant = GAUSSIAN + schedule if ask.pure else GAUSSIAN
    return Proof(sigma, epsilon, accountant, Gaussian(mu, ask.pure), assumes)


LITTLE = 40.0  # the largest mu where nothing can be proved


def least(model: Callable[[float], T], ask: Ask, top: float) -> T:
    """The model with the largest mu <= `top`, to a part in 10^4, whose proven epsilon is within the budget.

    `model` makes a bound model from mu, with less noise the larger mu is. Where the far tails of integer noise, which
    are never drawn, cost more than delta at so large an epsilon, it is one with little noise, which proves nothing.

    Raises:
        ValueError: if even mu = top / 1000 does not give the budget.
    """
    epsilon, delta, top = ask.budget.epsilon, ask.budget.delta, min(top, LITTLE)
    needed = tails.smallest_delta(epsilon, model(top).missing(ask))
    if not needed < delta:  # as of Gaussian noise, of which nothing is claimed either
        return model(top)
    low, high = top, top
    while model(low).proof(ask).epsilon > epsilon:
        low, high = low / 1.5, low
        if low < top / 1000:
            raise BadValue("epsilon", "must be larger for integer noise to be proved to give it", epsilon)
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if model(middle).proof(ask).epsilon > epsilon else (middle, high)
    return model(low)
