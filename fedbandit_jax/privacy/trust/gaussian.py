"""Trust models with Gaussian noise, added by every silo, by the server, or by every user, and user-defined ones.

All protect one user, with as many contributions as `Requirement.users` allows, under the adjacency of the budget. One
user moves all messages together by at most `Requirement.sensitivity` in joint l2 norm. Proofs called "exact" are tight
for one visit and upper bounds for more. They include adaptivity and composition over all messages.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.accounting.gaussian import MOST_MU
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.packing import matrix_weights
from fedbandit_jax.privacy.tails import normal
from fedbandit_jax.privacy.trust.model import Proof, Trust, same_sizes
from fedbandit_jax.privacy.trust.requirement import Requirement

GAUSSIAN = "exact Gaussian differential privacy, joint over bias and covariance, adaptive"


def noise_std(sigma: float) -> np.float32:
    """Returns a float32 standard deviation for noise of at least `sigma`, in units of x y and x x'.

    It is rounded up. It is larger by MAX_NORM^2, because unit vectors in float32 have norms up to MAX_NORM.
    """
    return np.nextafter(np.float32(sigma * MAX_NORM**2), np.float32(np.inf))


class Gaussian(Trust):
    """Base class: the sum over silos has a number `sources` of independent Gaussians of standard deviation `std`."""

    std: Any  # of one Gaussian, as it is drawn
    sources: Any = 1
    assumes: tuple[str, ...] = ()  # see `Proof.assumes`

    @classmethod
    @override
    def calibrate(cls, need: Requirement, std: float | None = None) -> Gaussian:
        return cls(std=cls.drawn_std(need, std))  # pyright: ignore[reportCallIssue]

    @staticmethod
    def drawn_std(need: Requirement, std: float | None) -> np.float32:
        """Returns the standard deviation to draw one Gaussian with, see `Trust.calibrate`."""
        return noise_std(need.sensitivity / need.mu if std is None else std)

    @override
    def proof(self, need: Requirement) -> Proof:
        less = min(1.0, max(0.0, float(self.sources)))  # of one source, or of less
        sigma = float(np.min(self.std)) * less**0.5 / MAX_NORM**2  # without the margin of `noise_std`
        if not sigma * MOST_MU > need.sensitivity:  # the accountant does not compute larger ratios
            return Proof(sigma, math.inf, "none: (almost) no noise is drawn", self.assumes)
        mu = need.sensitivity / sigma
        epsilon = need.epsilon(lambda delta: gaussian_epsilon(mu, delta, need.pure), need.missing)
        schedule = f"; composed with a {need.pure:g}-DP schedule, exactly if that is randomised response"
        return Proof(sigma, epsilon, GAUSSIAN + schedule * (need.pure > 0), self.assumes)

    @override
    def sum_std(self) -> float:
        return float(self.std) * float(self.sources) ** 0.5

    @override
    def noise(self, key: Array, size: int) -> Array:
        return self.std * jnp.sqrt(jnp.asarray(self.sources, jnp.float32)) * normal(key, (size,))


@struct.sealed
@struct.pytree
class SiloLocal(Gaussian):
    """Silo-local noise: each silo adds N(0, std_i^2) to its own messages. Nobody else is trusted (Theorem 5.1).

    Users trust their silo, which sees their raw statistics. The server and the other silos see every noisy message.
    """

    sentence = (
        "silo-local: each silo adds its own noise; users trust their own silo, which sees their raw data; the server "
        "and other silos are not trusted"
    )
    trusted = "silo"
    whose = "of a silo's message"
    batches = "any"
    away = "any"
    per_silo = of_silos = True

    std: Any  # (M,) standard deviation of every silo's noise

    @classmethod
    @override
    def calibrate(cls, need: Requirement, std: float | None = None) -> SiloLocal:
        return cls(std=np.full(need.n_agents, cls.drawn_std(need, std)))

    @override
    def silo(self, i: int) -> SiloLocal:
        return dataclasses.replace(self, std=np.asarray(self.std)[i : i + 1])

    @override
    def objection(self, need: Requirement) -> str:
        return same_sizes(np.shape(self.std), (need.n_agents,))

    @override
    def noise(self, key: Array, size: int) -> Array:
        return jnp.linalg.norm(self.std) * normal(key, (size,))

    @override
    def among(self, sends: Array) -> SiloLocal:
        return dataclasses.replace(self, std=jnp.where(sends, jnp.asarray(self.std), 0))

    @override
    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        return message + jnp.asarray(self.std)[silo] * normal(key, message.shape)  # Algorithm 2, line 9

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
    is std_i on the bias and sqrt 2 std_i on all of the covariance.

    Reference: PRIVATIZER, Algorithm 2 of Dubey & Pentland (2020), lines 5-6.
    """

    sentence = (
        "silo-local: each silo adds its own noise to the joint matrix of features and rewards; users trust their own "
        "silo, which sees their raw data; the server and other silos are not trusted"
    )
    whose = "of a silo's message, sqrt 2 of it on the diagonal"
    away = "none"
    plain = joint_matrix = True

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
class Central(Gaussian):
    """Central noise: the server is trusted with the silos' exact sums. It adds N(0, std^2) once.

    Untrusted parties see only the releases of the server.

    Reference: Shariff & Sheffet (2018).
    """

    sentence = "central: the server is trusted with every silo's sums and adds the noise"
    trusted = "server"
    whose = "of the sum over silos"
    batches = "any"
    away = "any"
    shows_sum = True

    std: struct.Number  # standard deviation of the server's noise

    @override
    def among(self, sends: Array) -> Central:
        return self

    @override
    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        return message

    @override
    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        return shown.sum(0) + self.std * normal(key, shown.shape[1:])


@struct.sealed
@struct.pytree
class Local(Gaussian):
    """Local noise: every user adds N(0, std^2) to their own statistics. No silo is trusted (Zheng et al. 2020).

    A user's own device holds their contexts, chooses the arm and draws the noise. The silo adds up the reports of its B
    users. The silo and all other parties see only noisy reports.
    """

    sentence = (
        "local: each user's own device holds their contexts, chooses their arm by the published sums, and adds noise "
        "to their statistics; every other party sees only the noisy report, and is not trusted"
    )
    trusted = "nobody"
    whose = "of a user's report"
    needs = ("n_agents", "batch")

    std: struct.Number  # standard deviation of every user's noise
    batch: int = struct.static()  # B, users of one silo in a batch
    n_agents: int = struct.static()  # M, silos

    @classmethod
    @override
    def calibrate(cls, need: Requirement, std: float | None = None) -> Local:
        return cls(std=cls.drawn_std(need, std), batch=need.batch, n_agents=need.n_agents)

    @property
    @override
    def sources(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.n_agents * self.batch

    @override
    def objection(self, need: Requirement) -> str:
        return same_sizes((self.n_agents, self.batch), (need.n_agents, need.batch))

    @override
    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        return message + self.std * normal(key, (self.batch, *message.shape)).sum(0)

    @override
    def uplink(self, k: Array, numbers: int, size: int) -> tuple[Array | int, Array | int]:
        return numbers * self.batch, 32  # the reports of all users

    @override
    def silo_stds(self) -> np.ndarray:
        return np.full(self.n_agents, float(self.std) * self.batch**0.5)


@dataclasses.dataclass(frozen=True)
class GaussianTrust:
    """A user-defined trust model: independent Gaussians, a number of them in the sum over silos.

    It is data. The package draws the noise and computes the guarantee. The words go into the certificate unchanged.
    Their author answers for whether they describe a protocol.

    Args:
        sentence: the party that adds the noise, and the parties that are not trusted.
        sources: how many independent noises are in the sum over silos, an integer >= 1.
        whose: the message or sum that the certificate's `noise_std` is about.
        assumes: behaviour of others that voids the guarantee.

    Raises:
        TypeError, ValueError: if an argument has the wrong type or is out of range.

    Example:
        >>> import fedbandit_jax as fb
        >>> pairs = GaussianTrust(
        ...     "pairs: silos 2i and 2i + 1 trust each other, and add one noise to their common sum",
        ...     sources=50,  # of 100 silos
        ...     whose="of the sum of two silos",
        ... )
        >>> budget = fb.privacy.Budget(1.0, 0.1)
        >>> calibrated = fb.privacy.calibrate(budget, n_syncs=400, trust=pairs)
        >>> round(calibrated.sigma, 2), round(calibrated.epsilon_exact, 4)
        (6.91, 1.0)
    """

    sentence: str
    sources: int = 1
    whose: str = "of a message"
    assumes: tuple[str, ...] = ()

    def __post_init__(self):
        validate.integer("sources", self.sources, at_least=1)
        validate.text("sentence", self.sentence)
        validate.text("whose", self.whose)
        if not isinstance(self.assumes, tuple):
            raise BadType("assumes", "must be a tuple of strings", self.assumes)
        for one in self.assumes:
            validate.text("assumes", one)

    def calibrate(self, need: Requirement, std: float | None = None) -> BoundGaussian:
        """Returns the bound model for `need`, see `Trust.calibrate`."""
        return BoundGaussian(
            std=Gaussian.drawn_std(need, std),
            sources=np.float32(self.sources),
            sentence=self.sentence,
            whose=self.whose,
            assumes=self.assumes,
        )


@struct.sealed
@struct.pytree
class BoundGaussian(Gaussian):
    """A bound user-defined trust model: the two numbers of its noise, and the words that describe it."""

    batches = "any"
    of_user = "GaussianTrust"

    std: struct.Number  # standard deviation of one source
    sources: struct.Number  # how many independent noises are in the sum over silos, a float
    sentence: str = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]
    whose: str = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]
    assumes: tuple[str, ...] = struct.static()
