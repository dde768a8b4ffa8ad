"""The trust model of noisy messages behind a trusted shuffler, which amplifies the noise of silos.

It protects one user of one silo, with at most `visits` contributions, under the adjacency of the budget. It covers only
the tree, with kappa levels l = 0, ..., kappa - 1. Lemmas and theorems are from Zhou & Chowdhury (2024).
"""

from __future__ import annotations

import contextlib
import math

import jax
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.accounting import shuffling
from fedbandit_jax.privacy.budget import sensitivity_sq
from fedbandit_jax.privacy.trust.gaussian import SiloLocal, noise_std
from fedbandit_jax.privacy.trust.model import Proof
from fedbandit_jax.privacy.trust.requirement import Requirement

LEMMA = "Lemma F.2 (amplification by shuffling) at every tree node, advanced composition over nodes"
_ANY_TWO = math.sqrt(sensitivity_sq("replace"))  # the lemma compares any two users, under both adjacencies


@struct.sealed
@struct.pytree
class Shuffled(SiloLocal):
    """`SiloLocal` noise with a trusted shuffler that hides which silo sent which message (Theorem 5.3).

    Each silo adds Gaussian noise to its own messages. One user is in at most kappa of them. If the guarantee is
    amplified, it also assumes that the other silos send noisy messages and keep them from the server.
    """

    sentence = (
        "shuffle: each silo adds its own noise; users trust their own silo, which sees their raw data; a trusted "
        "shuffler hides the sender of each message; the server is not trusted"
    )
    trusted = "shuffler"
    for_trees = True
    needs = ("n_agents", "batch")
    batches = "equal"
    away = "none"
    plain = True
    per_silo = False

    @classmethod
    @override
    def calibrate(cls, need: Requirement, std: float | None = None) -> Shuffled:
        plain = SiloLocal.calibrate(need, std).std
        if std is None:
            with contextlib.suppress(shuffling.LemmaError):
                plain = np.minimum(plain, noise_std(lemma_std(need)))
        return cls(std=plain)

    @override
    def proof(self, need: Requirement) -> Proof:
        plain = SiloLocal.proof(self, need)
        if not plain.sigma > 0:
            return plain
        plain = plain._replace(accountant=f"{plain.accountant} (shuffling proves nothing more here)")
        if need.visits > 1 or np.ptp(self.std) > 0:  # different noise would identify a silo
            return plain
        try:
            epsilon = need.epsilon(
                lambda delta: shuffling.shuffled_epsilon(
                    sigma=plain.sigma,
                    sensitivity=_ANY_TWO + need.rounding,
                    n_agents=len(self.std),
                    points=need.points,
                    delta=delta,
                ),
                self.missing(need),
            )
        except ValueError:  # the condition of the lemma does not hold
            return plain
        if epsilon >= plain.epsilon:
            return plain
        return Proof(plain.sigma, epsilon, LEMMA, ("silos that show the server their own messages, or send none",))

    @override
    def missing(self, need: Requirement) -> float:
        return need.n_agents * need.missing

    @override
    def third_party(self, key: Array, messages: Array) -> Array:
        return jax.random.permutation(key, messages)


def lemma_std(need: Requirement) -> float:
    """Computes the least standard deviation that Lemma F.2 proves to give the budget.

    Raises:
        LemmaError: the condition of the lemma does not hold, or users may return.
    """
    if need.visits > 1:
        raise shuffling.LemmaError("visits", "must be 1 for Lemma F.2", need.visits)
    budget = need.budget
    return shuffling.shuffled_sigma(
        epsilon=budget.epsilon,
        delta=budget.delta,
        sensitivity=_ANY_TWO + need.rounding,
        n_agents=need.n_agents,
        points=need.points,
    )
