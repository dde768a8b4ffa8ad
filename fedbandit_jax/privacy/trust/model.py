"""The interface of a trust model: who adds which noise to a release, how much a budget needs, and what it proves.

At synchronisation k = 1, ..., S every silo holds a message (P, D): the P parts of its release (see `releases`), each a
sum of its users' packed statistics with D = d (d + 3) / 2 entries (see `statistic`). A protocol carries it to the
server in three steps. The randomiser (`randomize`) works at the silo. The third party (`third_party`) is nobody, a
shuffler, or a secure aggregator. The analyser (`analyze`) makes the server's estimate of the sum over silos. Unless
somebody looks at the messages, a simulation needs only the law of that estimate given the exact sum: `noise` where
noise is added to real numbers, `noisy_sum` where messages and noise are integers (`on_grid`).

Reference: Zhou & Chowdhury (2024), Section 4 and Algorithms 2, 4, 5-7; secure aggregation as in Chowdhury & Zhou
(2023).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from jax import Array

from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.accounting.events import Event, Gaussian
from fedbandit_jax.privacy.budget import MAX_NORM, Budget
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.samplers import LAPLACE_CUT
from fedbandit_jax.privacy.users import ONCE, Users

METHODS = ("tight", "theorem", "authors")  # calibrations, see `Trust.calibrate`
MOST_TESTS = 2.0**32  # the most noises in the tests of a silo's sums, at most two in each of 2^31 rounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """What a trust model is used for: the budget, and what decides how far one user moves the messages.

    The privacy unit is one user, who contributes as often as `users` allows. Distances are joint l2 norms of all
    messages, in which all entries have equal noise.

    Attributes:
        budget: epsilon, delta and adjacency.
        release: the factors C and R of the prefix sums, for S synchronisations.
        users: how often, how close together and at how many silos one user may contribute.
        by_silo: whether the messages of every silo have noise of their own, so that what one user moves at several
            silos adds up in squares.
        n_agents: M, the number of silos.
        batch: B, users of one silo in a batch, or in the largest one; 1 where the proof does not depend on it.
        dim: d, the number of features.
        pure: epsilon that a private schedule spends on the same user.
        dropouts: f, silos whose shares of the noise may be missing in a sum.
        held: the most rounds of whose users a silo may send sums together, because it was away; 0: those of a batch.
        moves_sq: Delta_J^2, how far one visit moves one batch's packed statistic, squared; None: as the budget says.
        rounding: how much further rounding lets it move, see `BoundStatistic.rounding`.
    """

    budget: Budget
    release: Release
    users: Users = ONCE
    by_silo: bool = False
    joint_matrix: bool = False
    n_agents: int = 1
    batch: int = 1
    dim: int = 1
    pure: float = 0.0
    dropouts: int = 0
    held: int = 0
    moves_sq: float | None = None
    rounding: float = 0.0

    @property
    def largest(self) -> int:
        """Bounds an entry of a silo's sum in one message: each visit adds 1 at most, or a clipped total its norm."""
        return max(self.batch, self.held) * math.ceil(max(1.0, self.users.total or 1.0))

    @property
    def visits(self) -> int:
        """r, the most contributions of one user, at all silos."""
        return self.users.together

    @property
    def draws(self) -> int:
        """Bounds the number of noises in all messages that one user has a part in: r S P D."""
        return self.visits * self.release.n_syncs * self.release.n_parts * packed_size(self.dim)

    @property
    def missing(self) -> float:
        """Bounds the mass of the tails that are never drawn, over all Gaussian noise and that of a private schedule."""
        return self.draws * tails.CUT + (MOST_TESTS * LAPLACE_CUT if self.pure else 0.0)

    @property
    def sensitivity(self) -> float:
        """Computes how far one user moves all messages together: sqrt(kappa) Delta_J, and rounding.

        kappa is the squared sensitivity of the release to all her contributions, and Delta_J the joint sensitivity of
        one (x y, x x'). A total that is clipped to norm C moves by at most 2 C, whatever is added up.
        """
        if self.users.total is not None:
            moves_sq = 4 * self.users.total**2
        elif self.joint_matrix:
            moves_sq = self.budget.matrix_sensitivity_sq
        else:
            moves_sq = self.budget.joint_sensitivity_sq if self.moves_sq is None else self.moves_sq
        return math.sqrt(self.kappa) * (math.sqrt(moves_sq) + self.rounding)

    @functools.cached_property
    def kappa(self) -> float:
        """Computes the squared sensitivity of all messages to one user whose contributions move a sum by 1 each.

        At several silos she moves independent messages or, where silos are added up, the same ones.
        """
        silos = self.users.silos
        return (silos if self.by_silo else silos**2) * self.release.sensitivity_sq(self.users)

    @property
    def points(self) -> list[int]:
        """The users of one silo in a tree node of level 0, 1, ...: B, 2B, ..."""
        return [self.batch << level for level in range(round(self.release.sensitivity_sq()))]

    @property
    def mu(self) -> float:
        """Computes the mu of the mu-GDP (Gaussian differential privacy) that the budget allows beside the schedule.

        The tails that are never drawn are charged to delta. Where they cost more than there is, nothing will be
        proved, and the noise is that of the ideal law.
        """
        epsilon, delta = self.budget.epsilon, self.budget.delta
        left = delta - tails.smallest_delta(epsilon, self.missing)
        return gaussian_mu(epsilon, left if left > 0 else delta, self.pure)

    def epsilon(self, at: Callable[[float], float], missing: float) -> float:
        """The proof at the budget's delta, `at` being delta -> epsilon for the ideal law of the noise."""
        return tails.epsilon(at, self.budget.delta, self.budget.epsilon, missing)


class Proof(NamedTuple):
    """What the noise of a bound trust model proves, computed from the numbers that the model draws with."""

    sigma: float  # standard deviation of the noise on an entry of x y; `Trust.whose` says whose noise that is
    epsilon: float  # the smallest epsilon proved at the budget's delta, the schedule's share included
    accountant: str  # the method of proof
    event: Event | None = None  # the whole curve of (epsilon, delta), if it has the form of a privacy event
    assumes: tuple[str, ...] = ()  # what the guarantee does not survive: what others may not do


T = TypeVar("T", bound="Trust")


class Trust:
    """The interface of a trust model; one of your own is an `fb.privacy.GaussianTrust`.

    The class says what the model is; an object of it is bound: it draws the noise and proves what that noise gives.
    """

    sentence: ClassVar[str] = "a trust model of the caller's own"
    """A sentence for certificates that says who adds the noise, and who is not trusted."""
    whose: ClassVar[str] = "of a message"
    """Whose noise `Proof.sigma` describes."""
    releases: ClassVar[tuple[type[Release], ...] | None] = None
    """The release classes that the proof covers, or None if it covers all."""
    why: ClassVar[str] = ""
    """Why other releases are refused, for error messages."""
    methods: ClassVar[tuple[str, ...]] = ("tight",)
    """The calibrations that the model has."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The sizes that the noise depends on, out of "n_agents", "batch" and "dim"."""
    batches: ClassVar[str] = "equal"
    """Which batches the proof covers: "equal" (all of one size), "fixed" (of any sizes that are fixed in advance, of
    which `Ask.batch` is the largest) or "any" (also those that end when an adaptive schedule says so)."""
    joint_matrix: ClassVar[bool] = False
    """Whether the noise is symmetric noise on the joint matrix of (x, y)."""
    away: ClassVar[str] = "none"
    """How many silos may miss a synchronisation: "none" (there is no proof), "few" (up to `dropouts`) or "any"."""
    plain: ClassVar[bool] = False
    """Whether the proof is for (x y, x x') of single visits as they are, and for no other statistic."""
    per_silo: ClassVar[bool] = False
    """Whether every silo's messages are proved alone: it may have a budget of its own, and send private prefix sums."""

    hides_users: ClassVar[bool] = False
    """Whether users hide their raw statistics even from their silo."""
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
    def calibrate(cls, ask: Ask, method: str = "tight") -> Trust:
        """The bound model with the noise that a calibration finds for `ask`.

        `method` is one of the class's `methods`: "tight" (the least noise that is proved to give the budget), "theorem"
        (as printed in the paper) or "authors" (as in the authors' code).
        """
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

    def init(self, size: int) -> Any:
        """The state of `noisy_sum` before the first release of vectors of D = `size` entries."""
        return ()

    def noise(self, key: Array, size: int) -> Array:
        """Draws the noise of one part of a message, summed over silos, (D,), D = `size`, in units of x y and x x'."""
        raise NotImplementedError(f"{type(self).__name__}.noise")

    def among(self, sends: Array) -> Trust:
        """The noise of those of M silos that send at a synchronisation, (M,) bool."""
        raise NotImplementedError(f"{type(self).__name__}.among")

    def noisy_sum(self, key: Array, k: Array, state: Any, total: Array, x: Array, y: Array) -> tuple[Array, Any]:
        """Draws what `analyze` would return, the server's estimate of the sum over silos (P, D), and the next state.

        Args:
            total: exact sum of all silos' messages k, (P, D).
            x, y: features (B, d, M) and rewards (B, M) of the batch's users.
        """
        raise NotImplementedError(f"{type(self).__name__}.noisy_sum")

    def randomize(self, key: Array, silo: Array, k: Array, message: Any) -> Array:
        """Randomises the message of silo 0, ..., M - 1 and returns what it sends.

        `message` is the exact message k, (P, D); with `needs_users`, the packed statistics of the silo's N = S B
        users, (N, D), and which of them are in the tree node that is sent, (N,) bool.
        """
        raise NotImplementedError(f"{type(self).__name__}.randomize")

    def third_party(self, key: Array, messages: Array) -> Array:
        """Turns what all silos sent, with leading axis M, into what the server is shown."""
        return messages

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """The server's estimate of the sum over silos, (P, D), from what it is shown."""
        return shown.sum(0)

    def uplink(self, k: Array, numbers: Array, size: int) -> tuple[Array | int, Array | int]:
        """The numbers that all silos together send at release k, and the bits of each.

        If each silo sends its message, they are `numbers`; `size` is D.
        """
        return numbers, 32


def noise_std(sigma: float) -> np.float32:
    """A float32 standard deviation for noise of at least `sigma`, which is in units of x y and x x'.

    It is larger by MAX_NORM^2, because float32 makes vectors of norm up to MAX_NORM of unit vectors, and it is rounded
    up.
    """
    return np.nextafter(np.float32(sigma * MAX_NORM**2), np.float32(np.inf))


def gaussian_sigma(ask: Ask, method: str) -> float:
    """Computes sigma, the standard deviation of Gaussian noise on every packed entry of every message.

    `method` is "tight" (the least that is proved here), "theorem" (Theorem 5.1 of Zhou & Chowdhury 2024) or "authors"
    (as in their code). The last two are for one visit only.
    """
    epsilon, delta = ask.budget.epsilon - ask.pure, ask.budget.delta
    kappa = ask.kappa
    if method == "tight":
        return ask.sensitivity / ask.mu
    if method == "theorem":
        return math.sqrt(8 * kappa * (math.log(2) - math.log(delta) + epsilon)) / epsilon
    return math.sqrt(kappa * (epsilon - math.log(delta))) / epsilon


GAUSSIAN = "exact Gaussian differential privacy, joint over bias and covariance, adaptive"


def gaussian_proof(ask: Ask, std: float, assumes: tuple[str, ...] = ()) -> Proof:
    """The proof of Gaussian noise on every entry of every message; (almost) no noise proves nothing.

    Its standard deviation is `std` as it is drawn, with the margin for float32 (see `noise_std`).
    """
    sensitivity, sigma = ask.sensitivity, std / MAX_NORM**2
    if not sigma * 1e4 > sensitivity:  # the accountant does not compute larger ratios
        return Proof(sigma, math.inf, "none: (almost) no noise is drawn", None, assumes)
    mu = sensitivity / sigma
    epsilon = ask.epsilon(lambda delta: gaussian_epsilon(mu, delta, ask.pure), ask.missing)
    schedule = f"; composed with a {ask.pure:g}-DP schedule, exactly if that is randomised response"
    accountant = GAUSSIAN + schedule if ask.pure else GAUSSIAN
    return Proof(sigma, epsilon, accountant, Gaussian(mu, ask.pure), assumes)


def least(model: Callable[[float], T], ask: Ask, top: float) -> T:
    """The model with the largest mu <= `top`, to a part in 10^4, whose proven epsilon is within the budget.

    `model` makes a bound model from mu, with less noise the larger mu is.

    Raises:
        ValueError: if even mu = top / 1000 does not give the budget.
    """
    epsilon, delta = ask.budget.epsilon, ask.budget.delta
    needed = tails.smallest_delta(epsilon, model(top).missing(ask))
    if not needed < delta:
        raise ValueError(
            f"delta must be larger than {needed:.3g} at epsilon = {epsilon:g}, because the far tails of integer noise "
            f"are never drawn, got {delta:g}"
        )
    low, high = top, top
    while model(low).proof(ask).epsilon > epsilon:
        low, high = low / 1.5, low
        if low < top / 1000:
            raise ValueError(f"epsilon must be larger for integer noise to be proved to give it, got {epsilon:g}")
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if model(middle).proof(ask).epsilon > epsilon else (middle, high)
    return model(low)
