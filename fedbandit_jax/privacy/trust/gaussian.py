"""Trust models whose noise is Gaussian: added by every silo, by the server, or by every user.

All protect one user, who contributes as often as `Ask.users` allows, under the adjacency of the budget. She moves all
messages together by at most `Ask.sensitivity` in joint l2 norm. "Exact" proofs are tight for one visit, upper bounds on
epsilon for more, and include adaptivity and composition over all messages.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct, validate
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.packing import matrix_weights
from fedbandit_jax.privacy.releases import InputPerturbation
from fedbandit_jax.privacy.tails import normal
from fedbandit_jax.privacy.trust.model import METHODS, Ask, Proof, Trust, gaussian_proof, gaussian_sigma, noise_std


class Sizes(NamedTuple):
    """The sizes of a run, each None if it is not known, as B under a schedule that is not `Every`."""

    n_agents: int | None  # M
    batch: int | None  # B, rounds of a batch, which are a silo's users in it
    dim: int | None  # d


@dataclasses.dataclass(frozen=True)
class GaussianTrust:
    """A trust model of one's own: independent Gaussians, of which so many are in the sum over silos.

    It is data. The noise is drawn and the guarantee computed by the package; the words go into the certificate as they
    are, and whether they describe a protocol is for its author to answer for.

    Args:
        sentence: who adds the noise, and who is not trusted.
        sources: how many independent noises are in the sum over silos, an integer >= 1, or a function of the run's
            sizes, which have M, B and d as `n_agents`, `batch` and `dim`. B, the users of a silo in a batch, is None
            under a schedule that is not `fb.schedules.Every`, and a function that computes with it is refused.
        whose: whose noise the certificate's `noise_std` describes.
        assumes: what the guarantee does not survive.

    Raises:
        TypeError, ValueError: if an argument has the wrong type or is out of range.

    Example:
        >>> import fedbandit_jax as fb
        >>> pairs = GaussianTrust(
        ...     "pairs: silos 2i and 2i + 1 trust each other, and add one noise to their common sum",
        ...     sources=lambda sizes: (sizes.n_agents + 1) // 2,
        ...     whose="of the sum of two silos",
        ... )
        >>> budget = fb.privacy.Budget(1.0, 0.1)
        >>> calibrated = fb.privacy.calibrate(budget, n_syncs=400, trust=pairs, n_agents=100)
        >>> round(calibrated.sigma, 2), round(calibrated.epsilon_exact, 4)
        (6.91, 1.0)
    """

    sentence: str
    sources: int | Callable[[Sizes], int] = 1
    whose: str = "of a message"
    assumes: tuple[str, ...] = ()

    def __post_init__(self):
        if not callable(self.sources):
            validate.integer("sources", self.sources, at_least=1)
        validate.text("sentence", self.sentence)
        validate.text("whose", self.whose)
        if not isinstance(self.assumes, tuple):
            raise TypeError(f"assumes must be a tuple of strings, got {validate.shown(self.assumes)}")
        for one in self.assumes:
            validate.text("assumes", one)

    def calibrate(self, ask: Ask, sizes: Sizes, method: str = "tight") -> BoundGaussian:
        """The bound model with the noise that `ask` needs, in a run of these sizes."""
        try:
            sources = self.sources(sizes) if callable(self.sources) else self.sources
        except TypeError as error:
            unknown = " and ".join(name for name, size in sizes._asdict().items() if size is None)
            if not unknown:
                raise
            why = " (only fb.schedules.Every has one batch)" if sizes.batch is None else ""
            raise TypeError(f"sources must not need {unknown}, unknown here{why}, got {error}") from error
        return BoundGaussian(
            std=noise_std(gaussian_sigma(ask, method)),
            sources=np.float32(validate.integer("sources", sources, at_least=1)),
            sentence=self.sentence,
            whose=self.whose,
            assumes=self.assumes,
        )


@struct.sealed
@struct.pytree
class BoundGaussian(Trust):
    """A bound trust model of one's own: the two numbers of its noise, and the words that describe it."""

    batches = "any"

    std: struct.Number  # standard deviation of one source
    sources: struct.Number  # how many independent noises are in the sum over silos, a float
    sentence: str = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]
    whose: str = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]
    assumes: tuple[str, ...] = struct.static()

    @override
    def proof(self, ask: Ask) -> Proof:
        """Proves the exact guarantee of one source, or of a fraction of one if `sources` is below 1."""
        std = float(np.min(self.std)) * min(1.0, max(0.0, float(self.sources))) ** 0.5
        return gaussian_proof(ask, std, self.assumes)

    @override
    def noise(self, key: Array, size: int) -> Array:
        return self.std * jnp.sqrt(jnp.asarray(self.sources, jnp.float32)) * normal(key, (size,))

    @override
    def sum_std(self) -> float:
        return float(self.std) * float(self.sources) ** 0.5


@struct.sealed
@struct.pytree
class SiloLocal(Trust):
    """Silo-local noise: each silo adds N(0, std_i^2) to its own messages; nobody else is trusted (Theorem 5.1).

    Each user trusts her silo, which sees her raw statistics. The server and the other silos see every noisy message.
    """

    sentence = (
        "silo-local: each silo adds its own noise; a user's own silo sees her raw data and is trusted with them, "
        "server and other silos are not"
    )
    whose = "of a silo's message"
    methods = METHODS
    batches = "any"
    away = "any"
    per_silo = True

    std: Any  # (M,) standard deviation of every silo's noise

    @classmethod
    def calibrate(cls, ask: Ask, method: str = "tight") -> SiloLocal:
        """The model in which every silo has the standard deviation sigma_0 that the budget needs."""
        return cls(std=np.full(ask.n_agents, noise_std(gaussian_sigma(ask, method))))

    @override
    def proof(self, ask: Ask) -> Proof:
        return gaussian_proof(ask, float(np.min(self.std)))

    def sigma_of_silo(self) -> float:
        """sigma, in units of x y and x x', of the silo with the most noise."""
        return float(np.max(self.std)) / MAX_NORM**2

    @override
    def silo(self, i: int) -> SiloLocal:
        return dataclasses.replace(self, std=np.asarray(self.std)[i : i + 1])

    def misfit(self, ask: Ask) -> str:
        """An error text unless there is one standard deviation for every silo."""
        return "" if np.shape(self.std) == (ask.n_agents,) else f"{np.shape(self.std)} noises for {ask.n_agents} silos"

    @override
    def noise(self, key: Array, size: int) -> Array:
        return jnp.linalg.norm(self.std) * normal(key, (size,))

    @override
    def among(self, sends: Array) -> SiloLocal:
        return dataclasses.replace(self, std=jnp.where(sends, jnp.asarray(self.std), 0))

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """Adds the silo's noise to its message, (P, D): Algorithm 2, line 9."""
        return message + jnp.asarray(self.std)[silo] * normal(key, message.shape)

    @override
    def silo_stds(self) -> np.ndarray:
        return np.asarray(self.std, float)

    @override
    def sum_std(self) -> float:
        return float(np.linalg.norm(self.silo_stds()))


@struct.sealed
@struct.pytree
class SiloLocalMatrix(SiloLocal):
    """Silo-local noise (N + N') / sqrt 2, N iid N(0, std_i^2), on the joint matrix [x y]'[x y] of each silo's messages.

    Nobody sends the entry y^2. Trust is as in `SiloLocal`. On packed entries (see `statistic`) the standard deviation
    is std_i on the bias and sqrt 2 std_i on all of the covariance. The printed variance of N is 16 m (L^2 + 1)^2
    ln(2/delta)^2 / epsilon^2, with tree depth m = 1 + ceil(log2 S) and norm bound L = 1.

    Reference: PRIVATIZER, Algorithm 2 of Dubey & Pentland (2020), lines 5-6.
    """

    sentence = (
        "silo-local: each silo adds its own noise to the joint matrix of features and rewards; a user's own silo sees "
        "her raw data and is trusted with them, server and other silos are not"
    )
    whose = "of a silo's message, sqrt 2 of it on the diagonal"
    methods = ("tight", "theorem")
    away = "none"
    plain = True
    joint_matrix = True

    @classmethod
    @override
    def calibrate(cls, ask: Ask, method: str = "tight") -> SiloLocalMatrix:
        sigma = ask.sensitivity / ask.mu
        if method == "theorem":
            m = 1 + math.ceil(math.log2(ask.release.n_syncs))
            sigma = 8 * math.sqrt(m) * math.log(2 / ask.budget.delta) / (ask.budget.epsilon - ask.pure)
        return cls(std=np.full(ask.n_agents, noise_std(sigma)))

    @override
    def noise(self, key: Array, size: int) -> Array:
        return SiloLocal.noise(self, key, size) * matrix_weights(size)

    @override
    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        noise = SiloLocal.randomize(self, key, silo, k, jnp.zeros_like(message))
        return message + noise * matrix_weights(message.shape[-1])

    @override
    def silo_stds(self) -> np.ndarray:
        return math.sqrt(2) * np.asarray(self.std, float)


@struct.sealed
@struct.pytree
class Central(Trust):
    """Central noise: the server is trusted with the silos' exact sums, and adds N(0, std^2) once.

    Those who are not trusted see what the server releases, and nothing else.

    Reference: Shariff & Sheffet (2018).
    """

    sentence = "central: the server is trusted with every silo's sums and adds the noise"
    whose = "of the sum over silos"
    batches = "any"
    away = "any"
    shows_sum = True

    std: struct.Number  # standard deviation of the server's noise

    @classmethod
    @override
    def calibrate(cls, ask: Ask, method: str = "tight") -> Central:
        return cls(std=noise_std(gaussian_sigma(ask, method)))

    @override
    def proof(self, ask: Ask) -> Proof:
        return gaussian_proof(ask, float(self.std))

    @override
    def noise(self, key: Array, size: int) -> Array:
        return self.std * normal(key, (size,))

    @override
    def among(self, sends: Array) -> Central:
        return self

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """The message as it is, (P, D), because the server is trusted with it."""
        return message

    @override
    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        return shown.sum(0) + self.std * normal(key, shown.shape[1:])

    @override
    def sum_std(self) -> float:
        return float(self.std)


@struct.sealed
@struct.pytree
class Local(Trust):
    """Local noise: every user adds N(0, std^2) to her own statistics; not even her silo is trusted (Zheng et al. 2020).

    Her own device holds her contexts, chooses her arm and draws the noise. Her silo, which adds up the reports of its B
    users, and everybody else may see her noisy report and nothing more.
    """

    sentence = (
        "local: each user's own device holds her contexts, chooses her arm from what the server publishes, and adds "
        "noise to her statistics; her silo sees only her noisy report, nobody else is trusted"
    )
    whose = "of a user's report"
    releases = (InputPerturbation,)
    why = "a user reports once, so that there is nothing for a tree to save"
    needs = ("n_agents", "batch")
    hides_users = True

    std: struct.Number  # standard deviation of every user's noise
    batch: int = struct.static()  # B, users of one silo in a batch
    n_agents: int = struct.static()  # M, silos

    @classmethod
    @override
    def calibrate(cls, ask: Ask, method: str = "tight") -> Local:
        return cls(std=noise_std(gaussian_sigma(ask, method)), batch=ask.batch, n_agents=ask.n_agents)

    @override
    def proof(self, ask: Ask) -> Proof:
        return gaussian_proof(ask, float(self.std))

    def misfit(self, ask: Ask) -> str:
        """An error text unless there are as many silos, and users in a batch, as at the calibration."""
        return same_sizes((self.n_agents, self.batch), (ask.n_agents, ask.batch))

    @override
    def noise(self, key: Array, size: int) -> Array:
        return self.std * np.sqrt(self.n_agents * self.batch) * normal(key, (size,))

    @override
    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        return message + self.std * normal(key, (self.batch, *message.shape)).sum(0)

    def uplink(self, k: Array, numbers: Array, size: int) -> tuple[Array | int, Array | int]:
        """Counts the reports of all users, B times as many as messages, of 32 bits."""
        return numbers * self.batch, 32

    @override
    def silo_stds(self) -> np.ndarray:
        return np.full(self.n_agents, float(self.std) * self.batch**0.5)

    @override
    def sum_std(self) -> float:
        return float(self.std) * float(self.n_agents * self.batch) ** 0.5


def same_sizes(has: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The objection to the sizes that a noise was calibrated for, or an empty string."""
    return "" if has == wanted else f"its noise is for sizes {has}, and is used with {wanted}"
