"""Trust models with Gaussian noise, added by every silo, by the server, or by every user.

All protect one user, with as many contributions as `Ask.users` allows, under the adjacency of the budget. One user
moves all messages together by at most `Ask.sensitivity` in joint l2 norm. Proofs called "exact" are tight for one visit
and upper bounds for more. They include adaptivity and composition over all messages.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.packing import matrix_weights
from fedbandit_jax.privacy.tails import normal
from fedbandit_jax.privacy.trust.ask import Ask
from fedbandit_jax.privacy.trust.model import Trust, gaussian_std, same_sizes


@struct.sealed
@struct.pytree
class SiloLocal(Trust):
    """Silo-local noise: each silo adds N(0, std_i^2) to its own messages. Nobody else is trusted (Theorem 5.1).

    Users trust their silo, which sees their raw statistics. The server and the other silos see every noisy message.
    """

    sentence = (
        "silo-local: each silo adds its own noise; a user's own silo sees their raw data and is trusted with them, "
        "server and other silos are not"
    )
    trusted = "silo"
    whose = "of a silo's message"
    batches = "any"
    away = "any"
    per_silo = of_silos = alike = True

    std: Any  # (M,) standard deviation of every silo's noise

    @classmethod
    @override
    def calibrate(cls, ask: Ask, std: float | None = None) -> SiloLocal:
        return cls(std=np.full(ask.n_agents, gaussian_std(ask, std)))

    @override
    def silo(self, i: int) -> SiloLocal:
        return dataclasses.replace(self, std=np.asarray(self.std)[i : i + 1])

    @override
    def misfit(self, ask: Ask) -> str:
        return "" if np.shape(self.std) == (ask.n_agents,) else f"{np.shape(self.std)} noises for {ask.n_agents} silos"

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
        "silo-local: each silo adds its own noise to the joint matrix of features and rewards; a user's own silo sees "
        "their raw data and is trusted with them, server and other silos are not"
    )
    whose = "of a silo's message, sqrt 2 of it on the diagonal"
    away = "none"
    alike = False
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
class Central(Trust):
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
class Local(Trust):
    """Local noise: every user adds N(0, std^2) to their own statistics. No silo is trusted (Zheng et al. 2020).

    A user's own device holds their contexts, chooses the arm and draws the noise. The silo adds up the reports of its B
    users. It and everybody else see only noisy reports.
    """

    sentence = (
        "local: each user's own device holds their contexts, chooses their arm from what the server publishes, and "
        "adds noise to their statistics; their silo sees only their noisy report, nobody else is trusted"
    )
    trusted = "nobody"
    whose = "of a user's report"
    needs = ("n_agents", "batch")
    hides_users = True

    std: struct.Number  # standard deviation of every user's noise
    batch: int = struct.static()  # B, users of one silo in a batch
    n_agents: int = struct.static()  # M, silos

    @classmethod
    @override
    def calibrate(cls, ask: Ask, std: float | None = None) -> Local:
        return cls(std=gaussian_std(ask, std), batch=ask.batch, n_agents=ask.n_agents)

    @property
    @override
    def sources(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.n_agents * self.batch

    @override
    def misfit(self, ask: Ask) -> str:
        return same_sizes((self.n_agents, self.batch), (ask.n_agents, ask.batch))

    @override
    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        return message + self.std * normal(key, (self.batch, *message.shape)).sum(0)

    @override
    def uplink(self, k: Array, numbers: int, size: int) -> tuple[Array | int, Array | int]:
        return numbers * self.batch, 32  # the reports of all users

    @override
    def silo_stds(self) -> np.ndarray:
        return np.full(self.n_agents, float(self.std) * self.batch**0.5)
