"""Trust models whose noise is Gaussian: of every silo, of the server, or of every user."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.releases import InputPerturbation
from fedbandit_jax.privacy.statistic import matrix_weights
from fedbandit_jax.privacy.trust.model import METHODS, Ask, Proof, Trust, gaussian_proof, gaussian_sigma, noise_std


@struct.pytree
class GaussianTrust(Trust):
    """Independent Gaussians of standard deviation `std`, of which `sources` are in the sum over silos.

    To make a trust model of your own, subclass it, decorate with `@fb.pytree`, say who adds the noise in `sentence`,
    `whose` and `assumes`, and define `n_sources`. What is bound are its numbers and words (`Numbers`), so that the
    noise is drawn and the proof made here. Nothing is certified of one that draws or proves by code of its own.

    Example:
        >>> import fedbandit_jax as fb
        >>> @fb.pytree
        ... class Pairs(fb.privacy.GaussianTrust):
        ...     sentence = "pairs: silos 2i and 2i + 1 trust each other, and add one noise to their common sum"
        ...     whose = "of the sum of two silos"
        ...     @classmethod
        ...     def n_sources(cls, ask):
        ...         return (ask.n_agents + 1) // 2
        >>> budget = fb.privacy.Budget(1.0, 0.1)
        >>> calibrated = fb.privacy.calibrate(budget, n_syncs=400, trust=Pairs, n_agents=100)
        >>> round(calibrated.sigma, 2), round(calibrated.epsilon_exact, 4)
        (6.91, 1.0)
    """

    assumes = ()
    any_schedule = True

    std: struct.Number
    sources: struct.Number = 1  # float, how many independent noises are in the sum over silos

    @classmethod
    def n_sources(cls, ask: Ask) -> int:
        """How many independent noises are in the sum over silos."""
        del ask
        return 1

    @classmethod
    def calibrate(cls, ask: Ask, method: str = "tight") -> GaussianTrust:
        """sigma of one source."""
        return cls(std=noise_std(gaussian_sigma(ask, method)), sources=np.float32(cls.n_sources(ask)))

    def proof(self, ask: Ask) -> Proof:
        """Exact, from one source, and from all of them if that is less."""
        std = float(np.min(self.std)) * min(1.0, max(0.0, float(self.sources))) ** 0.5
        return gaussian_proof(ask, std, ask.sensitivity, self.assumes)

    def noise(self, key: Array, size: int) -> Array:
        """Independent Gaussians add up to one."""
        return self.std * jnp.sqrt(jnp.asarray(self.sources, jnp.float32)) * jax.random.normal(key, (size,))

    def sum_std(self) -> float:
        """Of all sources."""
        return float(self.std) * float(self.sources) ** 0.5


@struct.sealed
@struct.pytree
class Numbers(GaussianTrust):
    """What a Gaussian trust model of one's own is bound as: its two numbers, and the words that describe it."""

    sentence: str = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]
    whose: str = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]
    assumes: tuple[str, ...] = struct.static()


def numbers(model: Trust) -> Trust:
    """A trust model of one's own as its `Numbers`; as it is where it is the package's, or has code of its own."""
    if struct.is_sealed(model) or own_code(model):
        return model
    assert isinstance(model, GaussianTrust)
    std, sources = np.asarray(model.std), np.asarray(model.sources)
    if std.ndim or sources.ndim or not sources >= 1:
        raise ValueError(
            f"{type(model).__name__} must have one std, and sources >= 1, got {model.std!r} and {model.sources!r}"
        )
    return Numbers(
        std=np.float32(std),
        sources=np.float32(sources),
        sentence=str(model.sentence),
        whose=str(model.whose),
        assumes=tuple(map(str, model.assumes)),
    )


def own_code(model: Trust) -> str:
    """By which code of its own a trust model draws or proves, so that nothing is proved of it; or nothing."""
    own = type(model)
    made = [name for name in dir(Trust) if callable(getattr(Trust, name)) and name[0] != "_" and name != "calibrate"]
    changed = [name for name in made if getattr(own, name, None) is not getattr(GaussianTrust, name)]
    changed += [name for name in ("on_grid", "needs_users") if getattr(own, name, False)]
    return f"{own.__name__} is code of its own, which nobody has checked ({', '.join(changed)})" if changed else ""


@struct.sealed
@struct.pytree
class SiloLocal(Trust):
    """Each silo adds N(0, std_i^2) to its own messages; nobody else is trusted (Theorem 5.1)."""

    sentence = "silo-local: each silo adds its own noise, server and other silos are not trusted"
    whose = "of a silo's message"
    methods = METHODS
    any_schedule = True
    prefixes = True
    per_silo = True

    std: Any  # (M,)

    @classmethod
    def calibrate(cls, ask: Ask, method: str = "tight") -> SiloLocal:
        """sigma_0 of one silo."""
        return cls(std=np.full(ask.n_agents, noise_std(gaussian_sigma(ask, method))))

    def proof(self, ask: Ask) -> Proof:
        """Exact, of the silo with the least noise."""
        return gaussian_proof(ask, float(np.min(self.std)), ask.sensitivity)

    def sigma_of_silo(self) -> float:
        """Of the silo with the most noise."""
        return float(np.max(self.std)) / MAX_NORM**2

    def silo(self, i: int, n: int) -> SiloLocal:
        """Its own standard deviation."""
        return self if n == 1 else dataclasses.replace(self, std=np.asarray(self.std)[i : i + 1])

    def misfit(self, ask: Ask) -> str:
        """One standard deviation for every silo."""
        return "" if np.shape(self.std) == (ask.n_agents,) else f"{np.shape(self.std)} noises for {ask.n_agents} silos"

    def noise(self, key: Array, size: int) -> Array:
        """M independent Gaussians add up to one."""
        return jnp.linalg.norm(self.std) * jax.random.normal(key, (size,))

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """Algorithm 2, line 9."""
        del k
        return message + jnp.asarray(self.std)[silo] * jax.random.normal(key, message.shape)

    def sum_std(self) -> float:
        """Root of the sum of squares."""
        return float(np.linalg.norm(np.asarray(self.std, float)))


@struct.sealed
@struct.pytree
class SiloLocalMatrix(SiloLocal):
    """Each silo adds (N + N') / sqrt 2, N iid N(0, std_i^2), to the joint matrix of [x y]'[x y], whose y^2 nobody
    sends.

    On packed entries (see `statistic`): std on the bias, sqrt 2 std on all of the covariance. The printed sigma_N is
    16 m (L^2 + 1)^2 ln(2/delta)^2 / epsilon^2 with L = 1.

    Reference: PRIVATIZER, Algorithm 2 of Dubey & Pentland (2020), lines 5-6.
    """

    sentence = (
        "silo-local: each silo adds its own noise to the joint matrix of features and rewards, server and other silos "
        "are not trusted"
    )
    whose = "of a silo's message, sqrt 2 of it on the diagonal"
    methods = ("tight", "theorem")
    joint_matrix = True

    @classmethod
    def calibrate(cls, ask: Ask, method: str = "tight") -> SiloLocalMatrix:
        """sigma_N of one silo."""
        sigma = ask.matrix_sensitivity / ask.mu
        if method == "theorem":
            m = 1 + math.ceil(math.log2(ask.release.n_syncs))
            sigma = 8 * math.sqrt(m) * math.log(2 / ask.budget.delta) / (ask.budget.epsilon - ask.pure)
        return cls(std=np.full(ask.n_agents, noise_std(sigma)))

    def proof(self, ask: Ask) -> Proof:
        """Exact, of the silo with the least noise."""
        return gaussian_proof(ask, float(np.min(self.std)), ask.matrix_sensitivity)

    def noise(self, key: Array, size: int) -> Array:
        """M independent Gaussians add up to one."""
        return SiloLocal.noise(self, key, size) * matrix_weights(size)

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """Of one silo."""
        noise = SiloLocal.randomize(self, key, silo, k, jnp.zeros_like(message))
        return message + noise * matrix_weights(message.shape[-1])

    def sum_std(self) -> float:
        """Of the diagonal, the largest."""
        return math.sqrt(2) * SiloLocal.sum_std(self)


@struct.sealed
@struct.pytree
class Central(Trust):
    """The server is trusted with the silos' sums and adds N(0, std^2) once (Shariff & Sheffet 2018)."""

    sentence = "central: the server is trusted with every silo's sums and adds the noise"
    whose = "of the sum over silos"
    any_schedule = True
    shows_sum = True

    std: struct.Number

    @classmethod
    def calibrate(cls, ask: Ask, method: str = "tight") -> Central:
        """sigma of the server."""
        return cls(std=noise_std(gaussian_sigma(ask, method)))

    def proof(self, ask: Ask) -> Proof:
        """Exact."""
        return gaussian_proof(ask, float(self.std), ask.sensitivity)

    def noise(self, key: Array, size: int) -> Array:
        """One Gaussian."""
        return self.std * jax.random.normal(key, (size,))

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """Nothing is hidden from the server."""
        del key, silo, k
        return message

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """The noisy sum."""
        del k
        return shown.sum(0) + self.std * jax.random.normal(key, shown.shape[1:])

    def sum_std(self) -> float:
        """The server's."""
        return float(self.std)


@struct.sealed
@struct.pytree
class Local(Trust):
    """Every user adds N(0, std^2) to her own statistics; not even her silo is trusted (Zheng et al. 2020)."""

    sentence = (
        "local: each user chooses her arm herself, from what the server publishes, and adds noise to her own "
        "statistics; nobody is trusted"
    )
    whose = "of a user's report"
    releases = (InputPerturbation,)
    why = "a user reports once, so that there is nothing for a tree to save"
    needs = ("n_agents", "batch")
    hides_users = True

    std: struct.Number
    batch: int = struct.static()
    n_agents: int = struct.static()

    @classmethod
    def calibrate(cls, ask: Ask, method: str = "tight") -> Local:
        """sigma of every user."""
        return cls(std=noise_std(gaussian_sigma(ask, method)), batch=ask.batch, n_agents=ask.n_agents)

    def proof(self, ask: Ask) -> Proof:
        """Exact."""
        return gaussian_proof(ask, float(self.std), ask.sensitivity)

    def misfit(self, ask: Ask) -> str:
        """As many users."""
        return same_sizes((self.n_agents, self.batch), (ask.n_agents, ask.batch))

    def noise(self, key: Array, size: int) -> Array:
        """M B independent Gaussians add up to one."""
        return self.std * np.sqrt(self.n_agents * self.batch) * jax.random.normal(key, (size,))

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """The silo adds up what its B users sent."""
        del silo, k
        return message + self.std * jax.random.normal(key, (self.batch, *message.shape)).sum(0)

    def uplink(self, k: Array, numbers: Array, size: int) -> tuple[Array | int, Array | int]:
        """Every user sends."""
        del k, size
        return numbers * self.batch, 32

    def sum_std(self) -> float:
        """Of all users of a batch."""
        return float(self.std) * (self.n_agents * self.batch) ** 0.5


def same_sizes(has: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """What is wrong with the sizes that a noise was calibrated for, or nothing."""
    return "" if has == wanted else f"its noise is for sizes {has}, and is used with {wanted}"
