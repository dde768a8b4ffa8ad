"""The interface of a trust model: the noise on a release, its source, its calibration to a budget, and its proof.

At synchronisation k = 1, ..., S every silo holds a message of its release (see `releases`). It is a weighted sum of
users' packed statistics, with D = d (d + 3) / 2 entries. The randomiser works at the silo. The third party may be
absent, a shuffler, or a secure aggregator. The analyser makes the server's estimate of the sum over silos.
Unless somebody looks at the messages, a simulation needs only the law of that estimate given the exact sum. It is
`noise` if the noise depends on no data, and `noisy_sum` otherwise (`needs_users`).

Reference: Zhou & Chowdhury (2024), Section 4 and Algorithms 2, 4, 5-7. Secure aggregation is as in Chowdhury & Zhou
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
from fedbandit_jax.privacy.trust.requirement import Requirement


class Proof(NamedTuple):
    """Privacy proved for a bound trust model, computed from the numbers that the model draws with."""

    sigma: float  # standard deviation of the noise on an entry of x y, rounding included, see `Trust.whose`
    epsilon: float  # the smallest epsilon proved at the budget's delta, the schedule's share included
    accountant: str  # the method of proof
    assumes: tuple[str, ...] = ()  # behaviour of others that voids the guarantee
    moves: float | None = None  # the sensitivity with the rounding of messages, None: as by the `Requirement`


T = TypeVar("T", bound="Trust")


class Trust:
    """Base class of trust models; for your own, use an `fb.privacy.GaussianTrust`.

    The class describes the model. An object is bound: it draws the noise and proves its guarantee.
    """

    # a sentence for certificates: the party that adds the noise, and the parties that are not trusted
    sentence: ClassVar[str] = "a user-defined trust model"
    trusted: ClassVar[str] = "own"  # the party that users must trust, one of `fedbandit_jax.certificate.PARTIES`
    whose: ClassVar[str] = "of a message"  # the message or sum that `Proof.sigma` is about
    for_trees: ClassVar[bool] = False  # whether the proof covers the release `Tree` only
    needs: ClassVar[tuple[str, ...]] = ()  # the sizes that the noise depends on, among "n_agents", "batch" and "dim"
    # batches that the proof covers: "equal", "fixed" in advance, at most `Requirement.batch`, or "any", also adaptive
    batches: ClassVar[str] = "equal"
    joint_matrix: ClassVar[bool] = False  # whether the noise is symmetric noise on the joint matrix of (x, y)
    # the silos that may miss a synchronisation: "none" (there is no proof), "few" (up to `dropouts`) or "any"
    away: ClassVar[str] = "none"
    plain: ClassVar[bool] = False  # whether the proof is for (x y, x x') of single visits only
    per_silo: ClassVar[bool] = False  # whether every silo's messages are proved alone, perhaps for its own budget
    of_silos: ClassVar[bool] = False  # whether every silo adds noise to its messages
    needs_users: ClassVar[bool] = False  # whether `randomize` needs the users in the tree node, not their sum
    shows_sum: ClassVar[bool] = False  # whether untrusted parties see only the output of `analyze`
    on_grid: ClassVar[bool] = False  # whether messages and noise are integers
    dropouts: int = 0  # f, the silos that may be missing with their shares of the noise, if `away` = "few"
    width: int = 0  # the most bits that a user sends for an entry, with `needs_users`

    @classmethod
    def tags(cls) -> dict[str, bool]:
        """Returns the tags of this model for `privacy.compatibility`."""
        return {
            "noise in sums of silos": not cls.per_silo,
            "noise that silos do not add": not cls.of_silos,
            "noise that hides silos": not cls.per_silo or cls.joint_matrix,
            "noise for trees": cls.for_trees,
            "noise for (x y, x x')": cls.plain,
            "noise of users": cls.trusted == "nobody",
            "noise for equal batches": cls.batches == "equal",
            "noise for fixed batches": cls.batches != "any",
            "noise of every silo": cls.away == "none",
            "noise without spare shares": cls.away != "few",
        }

    @classmethod
    def calibrate(cls, need: Requirement, std: float | None = None) -> Trust:
        """Returns the bound model with noise of this `std`; None: the least that is proved to give the budget."""
        raise NotImplementedError(f"{cls.__name__}.calibrate")

    def missing(self, need: Requirement) -> float:
        """Bounds the mass of the tails that are never drawn, over all noise that depends on one user."""
        return need.missing

    def proof(self, need: Requirement) -> Proof:
        """Returns the proof of this object's noise for `need`, computed on the host."""
        raise NotImplementedError(f"{type(self).__name__}.proof")

    def silo(self, i: int) -> Trust:
        """Returns the noise of silo i alone, for a model with `per_silo`."""
        raise NotImplementedError(f"{type(self).__name__}.silo")

    def objection(self, need: Requirement) -> str:
        """Returns the objection to this noise for `need`, or an empty string."""
        return ""

    def sum_std(self) -> float:
        """Computes, on the host, the standard deviation of an entry of `noise`, over all silos, or a bound on it."""
        raise NotImplementedError(f"{type(self).__name__}.sum_std")

    def message_stds(self, n: int) -> np.ndarray:
        """Returns standard deviations (n,) of the noise on messages 1, ..., n, over all silos, for users of zeros."""
        return np.full(n, self.sum_std())

    def silo_stds(self) -> np.ndarray:
        """Returns standard deviations (M,) of the Gaussians on silos' messages, on the diagonal of x x'."""
        raise NotImplementedError(f"{type(self).__name__}.silo_stds")

    def noise(self, key: Array, size: int) -> Array:
        """Draws the noise of a message, summed over silos, (D,), D = `size`, in units of x y and x x'."""
        raise NotImplementedError(f"{type(self).__name__}.noise")

    def among(self, sends: Array) -> Trust:
        """Returns the noise of the silos that send at a synchronisation, (M,) bool."""
        raise NotImplementedError(f"{type(self).__name__}.among")

    def randomize(self, key: Array, silo: Array, k: Array, message: Any) -> Array:
        """Randomises the message of silo 0, ..., M - 1 and returns the message that it sends.

        `message` is the exact message k, (D,). With `needs_users` it is a pair: packed statistics (N, D) of the
        silo's N = S B users, and a bool mask (N,) of the users in the sent tree node.
        """
        raise NotImplementedError(f"{type(self).__name__}.randomize")

    def third_party(self, key: Array, messages: Array) -> Array:
        """Turns the messages of all silos, with leading axis M, into those shown to the server."""
        return messages

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """Returns the server's estimate of the sum over silos, (D,), from the messages shown to it."""
        return shown.sum(0)

    def uplink(self, k: Array, numbers: int, size: int) -> tuple[Array | int, Array | int]:
        """Returns the count of numbers that all silos together send at release k, and the bits of each.

        If each silo sends its message, the count is `numbers`; `size` is D.
        """
        return numbers, 32


def same_sizes(has: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Returns the objection to the sizes that a noise was calibrated for, or an empty string."""
    return "" if has == wanted else f"its noise is for sizes {has}, and is used with {wanted}"


LITTLE = 40.0  # the largest mu where nothing can be proved


def least(model: Callable[[float], T], need: Requirement, top: float) -> T:
    """Returns the model with the largest mu <= `top`, to a part in 10^4, and a proven epsilon within the budget.

    `model` makes a bound model from mu. A larger mu has less noise. The far tails of integer noise are never drawn. If
    they cost more than delta at so large an epsilon, the result is a model with little noise. It proves nothing.

    Raises:
        ValueError: if even mu = top / 1000 does not give the budget.
    """
    epsilon, delta, top = need.budget.epsilon, need.budget.delta, min(top, LITTLE)
    needed = tails.smallest_delta(epsilon, model(top).missing(need))
    if not needed < delta:  # as of Gaussian noise, of which nothing is claimed either
        return model(top)
    low, high = top, top
    while model(low).proof(need).epsilon > epsilon:
        low, high = low / 1.5, low
        if low < top / 1000:
            raise BadValue("epsilon", "must be larger for integer noise to be proved to give it", epsilon)
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if model(middle).proof(need).epsilon > epsilon else (middle, high)
    return model(low)
